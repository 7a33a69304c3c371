//! What an operator reads and does, over the endpoint's own routes, on a broker in process.

use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::connect_info::MockConnectInfo;
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use tidemark_testkit::{Batch, Isolation, RawClient, TestBroker, TxnProducer};
use tower::ServiceExt;

const RC: Isolation = Isolation::ReadCommitted;

fn router(broker: &TestBroker) -> Router {
    let peer = SocketAddr::from(([127, 0, 0, 1], 5_000));
    tidemark_admin::router(broker.broker().inspector(None)).layer(MockConnectInfo(peer))
}

async fn ask(router: &Router, request: Request<Body>) -> (StatusCode, String) {
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn request(method: &str, path: &str) -> axum::http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "127.0.0.1:9644")
}

async fn get(router: &Router, path: &str) -> Value {
    let (status, body) = ask(router, request("GET", path).body(Body::empty()).unwrap()).await;
    assert_eq!(status, StatusCode::OK, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

async fn post(router: &Router, path: &str) -> (StatusCode, Value) {
    let request = request("POST", path).header("content-type", "application/json");
    let (status, body) = ask(router, request.body(Body::from("{}")).unwrap()).await;
    (status, serde_json::from_str(&body).unwrap())
}

/// Topic `t`: 0 plain; 1 and 3 of `first`, open; 2 of `second`, committed with its marker at 4.
async fn interleaved(client: &mut RawClient) -> (TxnProducer, TxnProducer) {
    client.create_topic("t", 2).await;
    client
        .produce("t", 0, Batch::of(&["plain"]).build())
        .await
        .unwrap();
    client.set_client_id("billing-1");
    let mut first = TxnProducer::init(client, "first").await;
    let mut second = TxnProducer::init(client, "second").await;
    for producer in [&first, &second] {
        producer.enrol(client, &[("t", 0)]).await.unwrap();
    }
    for (producer, value) in [(&mut first, "a"), (&mut second, "b")] {
        let batch = producer.batch("t", 0, &[value]).build();
        client
            .produce_in(&producer.id, "t", 0, batch)
            .await
            .unwrap();
    }
    let batch = first.batch("t", 0, &["c"]).build();
    client.produce_in("first", "t", 0, batch).await.unwrap();
    client
        .end_txn("second", second.producer(), true)
        .await
        .unwrap();
    (first, second)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_blocks_names_the_one_holder_and_the_dry_run_what_it_would_cost() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let router = router(&broker);
    let (first, _second) = interleaved(&mut client).await;
    broker.clock().advance_ms(7_000);

    let listed = get(&router, "/v1/transactions").await;
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(listed[0]["transactional_id"], "first");
    assert_eq!(listed[0]["age_ms"], 7_000);
    assert_eq!(listed[0]["times_out_in_ms"], 53_000);

    let held = get(&router, "/v1/partitions/t").await;
    assert_eq!(held[1]["lag_records"], 0);
    assert_eq!(held[1]["holder"], Value::Null);
    let p0 = &held[0];
    assert_eq!(
        (
            &p0["high_watermark"],
            &p0["last_stable_offset"],
            &p0["lag_records"]
        ),
        (&json!(5), &json!(1), &json!(4))
    );
    let holder = &p0["holder"];
    assert_eq!(holder["transactional_id"], "first");
    assert_eq!(holder["client_id"], "billing-1");
    assert_eq!(holder["principal"], "User:ANONYMOUS");
    assert_eq!(holder["first_offset"], 1);
    assert_eq!(holder["records"], 2);
    assert_eq!(holder["producer_id"], first.producer_id);
    let one = get(&router, "/v1/partitions/t?partition=0").await;
    assert_eq!(one.as_array().unwrap().len(), 1);

    let (status, dry) = post(&router, "/v1/transactions/first/abort?dry_run=true").await;
    assert_eq!((status, &dry["aborted"]), (StatusCode::OK, &json!(false)));
    assert_eq!(dry["discarded_records"], 2);
    assert_eq!(dry["discards_group_offsets"], false);
    assert_eq!(client.ends("t", 2, RC).await, [1, 0]);

    let (status, done) = post(&router, "/v1/transactions/first/abort").await;
    assert_eq!((status, &done["aborted"]), (StatusCode::OK, &json!(true)));
    assert_eq!(client.ends("t", 2, RC).await, [6, 0]);
    assert_eq!(client.read_values("t", 0, RC).await, ["plain", "b"]);
    assert!(
        client
            .end_txn("first", first.producer(), true)
            .await
            .is_err()
    );

    let (status, again) = post(&router, "/v1/transactions/first/abort").await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(
        again["error"]
            .as_str()
            .unwrap()
            .contains("nothing to abort"),
        "{again}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_offset_can_be_explained() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let router = router(&broker);
    interleaved(&mut client).await;
    let of = async |offset: i64| get(&router, &format!("/v1/explain/t/0/{offset}")).await;

    let plain = of(0).await;
    assert_eq!(plain["transaction"], Value::Null);
    assert_eq!(plain["visible_to_read_committed"], true);
    let open = of(1).await;
    assert_eq!(open["transaction"]["outcome"], "open");
    assert_eq!(open["transaction"]["transactional_id"], "first");
    assert_eq!(open["visible_to_read_committed"], false);
    assert_eq!(open["visible_to_read_uncommitted"], true);
    let waits = of(2).await;
    assert_eq!(waits["transaction"]["outcome"], "committed");
    assert_eq!(waits["transaction"]["marker_offset"], 4);
    assert_eq!(
        waits["visible_to_read_committed"], false,
        "an older one is open"
    );
    let marker = of(4).await;
    assert_eq!(marker["batch"]["kind"], "commit marker");
    assert_eq!(marker["transaction"]["first_offset"], 2);
    assert_eq!(marker["batch"]["tick"], waits["transaction"]["marker_tick"]);
    let beyond = of(5).await;
    assert_eq!(beyond["batch"], Value::Null);
    assert!(beyond["says"].as_str().unwrap().contains("not written yet"));

    post(&router, "/v1/transactions/first/abort").await;
    let aborted = of(3).await;
    assert_eq!(aborted["transaction"]["outcome"], "aborted");
    assert_eq!(aborted["transaction"]["first_offset"], 1);
    assert_eq!(aborted["visible_to_read_committed"], false);
    assert_eq!(of(2).await["visible_to_read_committed"], true);

    // The same after a restart, also under a producer id that nobody has any more.
    let before = [of(1).await, of(2).await, of(4).await];
    let broker = broker.crash(3).await.start().await;
    let router = self::router(&broker);
    for (offset, before) in [1, 2, 4].into_iter().zip(before) {
        let after = get(&router, &format!("/v1/explain/t/0/{offset}")).await;
        assert_eq!(after["says"], before["says"]);
        assert_eq!(after["batch"], before["batch"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_shows_its_past_with_the_reason_of_each_epoch_also_after_a_restart() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    client.set_client_id("old");
    let mut old = TxnProducer::init(&mut client, "tx/1").await;
    for commit in [true, false] {
        old.enrol(&mut client, &[("t", 0)]).await.unwrap();
        let batch = old.batch("t", 0, &["x"]).build();
        client.produce_in("tx/1", "t", 0, batch).await.unwrap();
        client
            .end_txn("tx/1", old.producer(), commit)
            .await
            .unwrap();
    }
    old.enrol(&mut client, &[("t", 0)]).await.unwrap();
    client.set_client_id("new");
    let new = TxnProducer::init(&mut client, "tx/1").await;
    new.enrol(&mut client, &[("t", 0)]).await.unwrap();
    broker.clock().advance_ms(60_001);
    client.list_offset("t", 0, -1, RC).await.unwrap();

    let told = get(&router(&broker), "/v1/transactions/tx%2F1").await;
    let what: Vec<&str> = (told["timeline"].as_array().unwrap().iter())
        .map(|change| change["what"].as_str().unwrap())
        .collect();
    assert_eq!(what[0], "new session of client \"old\" at /127.0.0.1");
    assert_eq!(what[1], "transaction 1 begins");
    assert_eq!(what[2], "transaction 1 committed by its client");
    assert_eq!(what[3], "transaction 2 begins");
    assert_eq!(what[4], "transaction 2 aborted by its client");
    assert_eq!(what[5], "transaction 3 begins");
    assert!(
        what[6].contains("transaction 3 of client \"old\" at /127.0.0.1 aborted and fenced"),
        "{what:?}"
    );
    assert_eq!(what[7], "transaction 4 begins");
    assert!(
        what[8].starts_with("transaction 4 aborted: its timeout passed"),
        "{what:?}"
    );

    let broker = broker.crash(5).await.start().await;
    let again = get(&router(&broker), "/v1/transactions/tx%2F1").await;
    assert_eq!(again["timeline"], told["timeline"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_count_by_reason_and_lag_counts_no_markers() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let router = router(&broker);
    interleaved(&mut client).await;
    client.commit_offsets("g", &[("t", 0, 0)]).await.unwrap();
    let metrics = async || {
        let (status, text) = ask(
            &router,
            request("GET", "/metrics").body(Body::empty()).unwrap(),
        )
        .await;
        assert_eq!(status, StatusCode::OK);
        text
    };
    let has = |text: &str, line: &str| {
        assert!(text.lines().any(|l| l == line), "no {line} in\n{text}");
    };
    let text = metrics().await;
    has(&text, "tidemark_open_transactions 1");
    has(&text, "tidemark_transaction_commits_total 1");
    has(
        &text,
        r#"tidemark_partition_lso_lag_records{topic="t",partition="0"} 4"#,
    );
    has(
        &text,
        r#"kafka_consumergroup_lag{consumergroup="g",topic="t",partition="0"} 1"#,
    );
    has(&text, "tidemark_transaction_end_to_visible_seconds_count 1");

    post(&router, "/v1/transactions/first/abort").await;
    let text = metrics().await;
    has(&text, "tidemark_open_transactions 0");
    has(
        &text,
        r#"tidemark_transaction_aborts_total{reason="operator"} 1"#,
    );
    has(
        &text,
        r#"tidemark_partition_lso_lag_records{topic="t",partition="0"} 0"#,
    );
    // Six offsets, two of them markers.
    has(
        &text,
        r#"kafka_consumergroup_lag{consumergroup="g",topic="t",partition="0"} 4"#,
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_is_said_and_what_a_browser_could_be_made_to_send_is_refused() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    let router = router(&broker);
    interleaved(&mut client).await;
    for (path, what) in [
        ("/v1/transactions/nobody", "transactional id \"nobody\""),
        ("/v1/partitions/u", "topic \"u\""),
        ("/v1/partitions/t?partition=9", "partition 9"),
        ("/v1/explain/t/9/0", "partition 9"),
        ("/v2", "no such page"),
    ] {
        let (status, body) = ask(&router, request("GET", path).body(Body::empty()).unwrap()).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
        assert!(
            body.contains(what) || body.contains(&what.replace('"', "\\\"")),
            "{body}"
        );
    }
    let bare = request("POST", "/v1/transactions/first/abort");
    let (status, _) = ask(&router, bare.body(Body::empty()).unwrap()).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let foreign = Request::builder()
        .method("POST")
        .uri("/v1/transactions/first/abort")
        .header("host", "rebound.example:9644")
        .header("content-type", "application/json");
    let (status, _) = ask(&router, foreign.body(Body::empty()).unwrap()).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert_eq!(client.ends("t", 2, RC).await, [1, 0], "nothing was aborted");
    let (status, _) = ask(
        &router,
        request("GET", "/readyz").body(Body::empty()).unwrap(),
    )
    .await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_token_nothing_is_told_to_those_who_do_not_bring_it() {
    let broker = TestBroker::start().await;
    let token = "0123456789abcdef0123456789abcdef";
    let peer = SocketAddr::from(([127, 0, 0, 1], 5_000));
    let guard = tidemark_admin::Token::new(&format!("{token}\n")).unwrap();
    assert_eq!(format!("{guard:?}"), "Token");
    let router = tidemark_admin::guarded(broker.broker().inspector(None), guard)
        .layer(MockConnectInfo(peer));
    let paths = [
        ("GET", "/livez"),
        ("GET", "/readyz"),
        ("GET", "/v1/status/ready"),
        ("GET", "/v1/transactions"),
        ("GET", "/v1/transactions/x"),
        ("POST", "/v1/transactions/x/abort"),
        ("GET", "/v1/partitions/t"),
        ("GET", "/v1/explain/t/0/0"),
        ("GET", "/metrics"),
        ("GET", "/no/such/page"),
    ];
    let wrong = [
        None,
        Some(String::new()),
        Some("Bearer ".to_owned()),
        Some(format!("Bearer {}", &token[1..])),
        Some(format!("Bearer {token}0")),
        Some(format!("Basic {token}")),
        Some(token.to_owned()),
    ];
    for (method, path) in paths {
        for wrong in &wrong {
            let mut asked = request(method, path).header("content-type", "application/json");
            if let Some(wrong) = wrong {
                asked = asked.header("authorization", wrong);
            }
            let (status, body) = ask(&router, asked.body(Body::empty()).unwrap()).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{path} {wrong:?}");
            assert!(
                body.contains("admin.token.file") && !body.contains(token),
                "{body}"
            );
        }
        let asked = request(method, path)
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {token}"));
        let (status, _) = ask(&router, asked.body(Body::empty()).unwrap()).await;
        assert_ne!(status, StatusCode::UNAUTHORIZED, "{path}");
    }
    for bad in ["", "short", "has a space in the middle of it"] {
        let why = tidemark_admin::Token::new(bad).unwrap_err();
        assert!(bad.is_empty() || !why.contains(bad), "{why}");
    }
}

/// NATS told its command line, with passwords in it, on the port for monitoring (CVE-2022-24450 and others).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_admin_endpoint_tells_no_settings_and_no_arguments() {
    let marker = "b3RoZXJzLXNlY3JldA";
    let broker = TestBroker::builder()
        .set("log.filter", format!("warn,{marker}=info"))
        .set("ssl.truststore.location", format!("/{marker}/ca.pem"))
        .start()
        .await;
    let mut client = broker.client().await;
    interleaved(&mut client).await;
    let router = router(&broker);
    let program = std::env::args().next().expect("a program has a name");
    for path in [
        "/livez",
        "/readyz",
        "/v1/status/ready",
        "/v1/transactions",
        "/v1/transactions/first",
        "/v1/partitions/t",
        "/v1/explain/t/0/1",
        "/metrics",
        "/",
        "/varz",
        "/debug/vars",
        "/v1/config",
        "/../../etc/passwd",
    ] {
        let asked = request("GET", path).body(Body::empty()).unwrap();
        let (_, body) = ask(&router, asked).await;
        assert!(!body.contains(marker), "{path}: {body}");
        assert!(!body.contains(&program), "{path}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_that_were_reached_are_metrics() {
    let broker = TestBroker::builder()
        .set("max.connections", 2)
        .start()
        .await;
    let router = router(&broker);
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let _second = broker.client().await;
    for _ in 0..3 {
        broker.client().await.closed().await;
    }
    let asked = request("GET", "/metrics").body(Body::empty()).unwrap();
    let (_, text) = ask(&router, asked).await;
    for line in [
        "tidemark_limit_refused_total{limit=\"max.connections\"} 3",
        "tidemark_limit_refused_total{limit=\"decompression.max.bytes\"} 0",
        "tidemark_limit_waited_total{limit=\"max.connection.creation.rate\"} 0",
        "tidemark_connections 2",
        "tidemark_unauthenticated_connections 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
    }
}
