//! The admin endpoint: who holds which transaction open, what became of an offset, metrics.
//!
//! JSON over HTTP/1.1 on a listener of its own, on this machine only unless configured otherwise.
//! `tidemark txn` is a client of it.
//!
//! | request | answer |
//! |-|-|
//! | `GET /livez`, `/readyz`, `/v1/status/ready` | 200 while the process lives; while it serves |
//! | `GET /v1/transactions` | ongoing transactions, the oldest first |
//! | `GET /v1/transactions/{id}` | one transactional id with its timeline |
//! | `POST /v1/transactions/{id}/abort?dry_run=BOOL` | aborts it, or says what that would discard |
//! | `GET /v1/partitions/{topic}?partition=N` | who holds the last stable offset |
//! | `GET /v1/explain/{topic}/{partition}/{offset}` | which transaction wrote it, what became of it |
//! | `GET /metrics` | Prometheus' text format |
//!
//! With `admin.token.file` every request has to bring that file's token (`Authorization: Bearer ...`), and
//! is answered 401 without; else there is no authentication. Two things keep a browser on this machine from being somebody's tool: a
//! request must name an address or localhost as its host, and an abort must say that it is JSON,
//! which no form and no simple cross-origin request can.

mod token;

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tidemark_broker::inspect::{InspectError, Inspector};
use tidemark_owner::RequestContext;
use tokio::net::TcpListener;

pub use token::Token;

/// The answer to what cannot be answered.
#[derive(Serialize)]
struct Problem {
    error: String,
}

fn problem(status: StatusCode, error: impl Into<String>) -> Response {
    let error = error.into();
    (status, Json(Problem { error })).into_response()
}

fn answer<T: Serialize>(found: Result<T, InspectError>) -> Response {
    match found {
        Ok(found) => Json(found).into_response(),
        Err(e) => {
            let status = match &e {
                InspectError::NotFound(_) => StatusCode::NOT_FOUND,
                InspectError::Refused(_) => StatusCode::CONFLICT,
                InspectError::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                InspectError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            problem(status, e.to_string())
        }
    }
}

/// Serves until `stop` ends.
pub async fn serve(
    listener: TcpListener,
    inspector: Inspector,
    token: Option<Token>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = match token {
        None => router(inspector),
        Some(token) => guarded(inspector, token),
    };
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service)
        .with_graceful_shutdown(stop)
        .await
}

/// Every route.
pub fn router(inspector: Inspector) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/v1/status/ready", get(ready))
        .route("/v1/transactions", get(transactions))
        .route("/v1/transactions/{id}", get(transaction))
        .route("/v1/transactions/{id}/abort", post(abort))
        .route("/v1/partitions/{topic}", get(partitions))
        .route("/v1/explain/{topic}/{partition}/{offset}", get(explain))
        .route("/metrics", get(metrics))
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "there is no such page") })
        .layer(middleware::from_fn(only_by_address))
        .with_state(inspector)
}

/// Every route, for those who have the token.
pub fn guarded(inspector: Inspector, token: Token) -> Router {
    let token = Arc::new(token);
    let asks = {
        let inspector = inspector.clone();
        move |peer: ConnectInfo<SocketAddr>, request: Request, next: Next| {
            let (token, inspector) = (token.clone(), inspector.clone());
            async move {
                let given = request.headers().get(header::AUTHORIZATION);
                if token.is(given.map(|value| value.as_bytes())) {
                    return next.run(request).await;
                }
                let why = match given {
                    None => "no token was given",
                    Some(_) => "the token is another one",
                };
                inspector.refused(peer.0.ip(), why);
                let text = "the admin endpoint asks for its token (admin.token.file): send the header \
                            Authorization: Bearer TOKEN, or use tidemark txn --token-file FILE";
                let asks = [(header::WWW_AUTHENTICATE, "Bearer")];
                (asks, problem(StatusCode::UNAUTHORIZED, text)).into_response()
            }
        }
    };
    router(inspector).layer(middleware::from_fn(asks))
}

/// A page of the web that has its name resolved to this machine sends that name.
async fn only_by_address(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    if is_address(host) {
        return next.run(request).await;
    }
    problem(
        StatusCode::FORBIDDEN,
        format!("the host {host:?} is no address; ask by address, or as localhost"),
    )
}

fn is_address(host: &str) -> bool {
    host.parse::<SocketAddr>().is_ok()
        || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
        || host == "localhost"
        || host
            .strip_prefix("localhost:")
            .is_some_and(|port| port.parse::<u16>().is_ok())
}

async fn ready(State(inspector): State<Inspector>) -> Response {
    match inspector.is_serving().await {
        true => "ready\n".into_response(),
        false => problem(StatusCode::SERVICE_UNAVAILABLE, "not serving"),
    }
}

async fn transactions(State(inspector): State<Inspector>) -> Response {
    answer(inspector.transactions().await)
}

async fn transaction(State(inspector): State<Inspector>, Path(id): Path<String>) -> Response {
    answer(inspector.transaction(&id).await)
}

#[derive(Deserialize)]
struct AbortQuery {
    #[serde(default)]
    dry_run: bool,
}

async fn abort(
    State(inspector): State<Inspector>,
    Path(id): Path<String>,
    Query(query): Query<AbortQuery>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Response {
    let json = headers.get(header::CONTENT_TYPE);
    let json = json.is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
    if !json {
        let text = "an abort needs the header Content-Type: application/json";
        return problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
    }
    let context = RequestContext {
        principal: Arc::from("User:ADMIN"),
        client_id: Arc::from("admin endpoint"),
        client_host: Arc::from(format!("/{}", peer.ip())),
        listener: Arc::from("ADMIN"),
    };
    answer(inspector.abort(&id, query.dry_run, context).await)
}

#[derive(Deserialize)]
struct PartitionQuery {
    partition: Option<i32>,
}

async fn partitions(
    State(inspector): State<Inspector>,
    Path(topic): Path<String>,
    Query(query): Query<PartitionQuery>,
) -> Response {
    answer(inspector.partitions(&topic, query.partition).await)
}

async fn explain(
    State(inspector): State<Inspector>,
    Path((topic, partition, offset)): Path<(String, i32, i64)>,
) -> Response {
    answer(inspector.explain(&topic, partition, offset).await)
}

async fn metrics(State(inspector): State<Inspector>) -> Response {
    match inspector.metrics().await {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(e) => answer::<()>(Err(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::is_address;

    #[test]
    fn a_host_is_an_address_or_localhost() {
        for host in [
            "127.0.0.1:9644",
            "127.0.0.1",
            "[::1]:9644",
            "[::1]",
            "localhost",
            "localhost:1",
        ] {
            assert!(is_address(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9644",
            "localhost.evil.example",
            "localhost:",
        ] {
            assert!(!is_address(host), "{host}");
        }
    }
}
