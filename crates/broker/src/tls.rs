//! TLS of the listeners: loaded at the start, looked after while the broker runs.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tidemark_config::{Endpoint, Settings};
use tidemark_tls::{ClientAuth, PrincipalRules, Tls, TlsError, TlsOptions};
use tidemark_types::MonoTime;
use tokio::net::TcpStream;
use tracing::{info, warn};

use crate::connection::{self, ConnectionInfo};
use crate::connections::Counted;
use crate::error::StartError;
use crate::front::Front;

/// A certificate that ends within this many days is warned of, once a day.
const WARN_DAYS: i64 = 30;
const DAY: Duration = Duration::from_secs(86_400);

/// What the listeners with TLS share; `None` without such a listener. Blocks.
pub(crate) fn load(settings: &Settings) -> Result<Option<Arc<Tls>>, StartError> {
    if !settings.listeners.iter().any(|l| l.protocol.has_tls()) {
        return Ok(None);
    }
    let rules = PrincipalRules::parse(&settings.ssl_principal_mapping_rules)
        .map_err(|e| StartError::PrincipalRules(e.to_string()))?;
    let path = |text: &Option<String>| text.as_ref().map(Into::into);
    let speaks = |version| {
        let mut all = settings.ssl_enabled_protocols.split(',');
        all.any(|enabled| enabled.trim() == version)
    };
    let tls = Tls::load(TlsOptions {
        // The settings do not pass without it.
        keystore: path(&settings.ssl_keystore_location).unwrap_or_default(),
        key: path(&settings.tls_key_location),
        truststore: path(&settings.ssl_truststore_location),
        client_auth: match settings.ssl_client_auth.as_str() {
            "required" => ClientAuth::Required,
            "requested" => ClientAuth::Requested,
            _ => ClientAuth::None,
        },
        tls_1_2: speaks("TLSv1.2"),
        tls_1_3: speaks("TLSv1.3"),
        rules,
    })?;
    Ok(Some(Arc::new(tls)))
}

/// Serves a connection once its handshake is done. It has its place among those who have not
/// authenticated since it came.
pub(crate) async fn serve(
    tls: Arc<Tls>,
    stream: TcpStream,
    came: MonoTime,
    mut info: ConnectionInfo,
    mut place: Option<Counted>,
    front: Arc<Front>,
) {
    let peer = info.peer;
    let patience = Duration::from_millis(front.settings.tls_handshake_timeout_ms);
    let deadline = came + patience;
    let mut stopping = front.stopping();
    let secured = tokio::select! {
        secured = async {
            match info.sasl.is_some() {
                // As in Kafka: SASL says who the client is.
                true => tls.accept_without_certificate(stream).await,
                false => tls.accept(stream).await,
            }
        } => secured,
        () = async {
            front.clock.sleep_until(deadline).await;
            // Before the stream ends with this select: who sees it closed finds it counted, and its place.
            front.slow_handshake(peer);
            drop(place.take());
        } => return,
        _ = stopping.wait_for(|stopping| *stopping) => return,
    };
    if info.sasl.is_none() {
        drop(place.take());
    }
    match secured {
        Ok(secured) => {
            info.principal = secured.principal;
            if info.advertised.is_none() {
                // The name under which this client finds us, where nothing else is configured: its
                // certificate check will want the same name again.
                info.advertised = secured.server_name.map(|host| Endpoint {
                    host,
                    port: info.local.port(),
                });
            }
            connection::serve(secured.stream, info, place, front).await;
        }
        Err(e) => front.no_handshake(peer, &e.to_string()),
    }
}

/// Looks for changed files and for the end of the certificate. Runs until it is aborted.
pub(crate) async fn watch(tls: Arc<Tls>, front: Arc<Front>) {
    let interval = Duration::from_millis(front.settings.tls_reload_interval_ms);
    let mut next_warning = front.clock.now();
    loop {
        if front.clock.now() >= next_warning {
            warn_of_the_end(&tls, &front);
            next_warning = front.clock.now() + DAY;
        }
        front.clock.sleep_until(front.clock.now() + interval).await;
        let look = tokio::task::spawn_blocking({
            let tls = tls.clone();
            move || tls.reload_if_changed()
        });
        match look.await {
            Ok(Ok(false)) => {}
            Ok(Ok(true)) => {
                say_reloaded(&tls, &front);
                next_warning = front.clock.now();
            }
            Ok(Err(e)) => say_kept(&e),
            Err(e) => warn!("TLS files were not looked at: {e}"),
        }
    }
}

/// Reads the files again, whether they look changed or not.
pub(crate) fn reload(tls: &Tls, front: &Front) {
    match tls.reload() {
        Ok(()) => {
            say_reloaded(tls, front);
            warn_of_the_end(tls, front);
        }
        Err(e) => say_kept(&e),
    }
}

fn say_reloaded(tls: &Tls, front: &Front) {
    info!(
        "TLS files read again; new connections use them; the certificate ends in {} days",
        days_left(tls, front)
    );
}

fn say_kept(error: &TlsError) {
    warn!("TLS files cannot be used, and those read before stay in use: {error}");
}

fn warn_of_the_end(tls: &Tls, front: &Front) {
    match days_left(tls, front) {
        past if past < 0 => {
            warn!("the certificate of the TLS listeners has ended: clients refuse it")
        }
        soon if soon < WARN_DAYS => {
            warn!("the certificate of the TLS listeners ends in {soon} days: replace its file");
        }
        _ => {}
    }
}

fn days_left(tls: &Tls, front: &Front) -> i64 {
    let wall_ms = u64::try_from(front.clock.wall_ms()).unwrap_or(0);
    tls.days_left(UNIX_EPOCH + Duration::from_millis(wall_ms))
}
