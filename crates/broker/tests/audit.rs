//! The audit log of a broker: what changes it, who ends whose transaction, who is turned away.

use std::path::Path;
use std::time::Duration;

use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteTopicsRequest, GroupId, IncrementalAlterConfigsRequest,
};
use serde_json::Value;
use tidemark_disk::{Disk, read_all};
use tidemark_sasl::Hash;
use tidemark_testkit::requests::{text, topic_name};
use tidemark_testkit::{Batch, Dialect, StoppedBroker, TestBroker, TxnProducer, eventually};
use tidemark_types::ErrorCode;

const DIR: &str = "/audit";

fn audited() -> StoppedBroker {
    TestBroker::builder().set("audit.log.path", DIR)
}

/// Every line so far.
fn lines(disk: &dyn Disk) -> Vec<Value> {
    let files = disk.list(Path::new(DIR)).unwrap();
    let files = files.iter().filter(|file| file.name.ends_with(".jsonl"));
    files
        .flat_map(|file| {
            let bytes = read_all(disk, &Path::new(DIR).join(&file.name)).unwrap();
            let text = String::from_utf8(bytes).unwrap();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .map(|line| serde_json::from_str(&line).unwrap())
        .collect()
}

async fn lines_of(broker: &TestBroker) -> Vec<Value> {
    broker.broker().sync_audit().await;
    lines(broker.disk())
}

fn of<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_path_there_is_no_audit_log() {
    let broker = TestBroker::start().await;
    assert_eq!(broker.broker().audit(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_change_is_told_with_who_and_what_became_of_it() {
    let broker = audited().start().await;
    let mut client = broker.client_from("192.0.2.7:4711".parse().unwrap());
    client.set_client_id("operator");
    client.create_topic("t", 2).await;
    let config = AlterableConfig::default()
        .with_name(text("retention.ms"))
        .with_value(Some(text("1000")));
    let resource = |name: &str| {
        AlterConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text(name))
            .with_configs(vec![config.clone()])
    };
    let alter = IncrementalAlterConfigsRequest::default()
        .with_resources(vec![resource("t"), resource("missing")]);
    client.send(1, &alter).await;
    // What is only asked for changes nothing, and is not told.
    client.send(1, &alter.with_validate_only(true)).await;
    client.delete_records("t", 0, 0).await.unwrap();
    let groups = vec![GroupId(text("g"))];
    let delete = DeleteGroupsRequest::default().with_groups_names(groups);
    client.send(2, &delete).await;
    let delete = DeleteTopicsRequest::default().with_topic_names(vec![topic_name("t")]);
    client.send(4, &delete).await;

    let lines = lines_of(&broker).await;
    assert_eq!(lines[0]["event"], "opened");
    assert_eq!(lines[1]["event"], "start");
    let changes = of(&lines, "change");
    let told: Vec<_> = changes
        .iter()
        .map(|line| {
            for (field, value) in [
                ("principal", "User:ANONYMOUS"),
                ("address", "192.0.2.7"),
                ("client_id", "operator"),
                ("listener", "PLAINTEXT"),
            ] {
                assert_eq!(line[field], value, "{line}");
            }
            let field = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            (
                field("api"),
                field("resource"),
                field("change"),
                field("outcome"),
            )
        })
        .collect();
    let expected = [
        ("CreateTopics", "t", "created, partitions 2", "succeeded"),
        (
            "IncrementalAlterConfigs",
            "t",
            "set: retention.ms=1000",
            "succeeded",
        ),
        (
            "IncrementalAlterConfigs",
            "missing",
            "set: retention.ms=1000",
            "failed",
        ),
        (
            "DeleteRecords",
            "t",
            "records of partition 0 below 0 deleted",
            "succeeded",
        ),
        ("DeleteGroups", "g", "deleted", "failed"),
        ("DeleteTopics", "t", "deleted", "succeeded"),
    ];
    let expected = expected.map(|(a, b, c, d)| (a.into(), b.into(), c.into(), d.into()));
    assert_eq!(told, expected);
    assert!(
        changes[2]["reason"]
            .as_str()
            .unwrap()
            .starts_with("UNKNOWN_TOPIC_OR_PARTITION")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_ends_anothers_transaction_is_named() {
    let broker = audited().start().await;
    let mut one = broker.client_from("192.0.2.1:1".parse().unwrap());
    one.set_client_id("one");
    let mut two = broker.client_from("192.0.2.2:2".parse().unwrap());
    two.set_client_id("two");
    one.create_topic("t", 1).await;
    let producer = TxnProducer::init_in(&mut one, "transfer", Dialect::Classic).await;
    producer.enrol(&mut one, &[("t", 0)]).await.unwrap();
    let (producer_id, _) = producer.producer();
    TxnProducer::init_in(&mut two, "transfer", Dialect::Classic).await;
    // With nothing open.
    TxnProducer::init_in(&mut one, "transfer", Dialect::Classic).await;
    // And by the clock.
    let late = TxnProducer::init_in(&mut two, "late", Dialect::Classic).await;
    late.enrol(&mut two, &[("t", 0)]).await.unwrap();
    broker.clock().advance(Duration::from_secs(3_600));
    eventually("the transaction times out", || {
        of(&lines(broker.disk()), "transaction-aborted").len() == 2
    })
    .await;

    let lines = lines_of(&broker).await;
    let aborted = of(&lines, "transaction-aborted");
    let fenced = of(&lines, "producer-fenced");
    assert_eq!(fenced.len(), 1);
    for (line, client, address) in [
        (aborted[0], "one", "192.0.2.1"),
        (fenced[0], "two", "192.0.2.2"),
    ] {
        assert_eq!(line["transactional_id"], "transfer");
        assert_eq!(line["producer_id"], producer_id);
        assert_eq!(
            (&line["client_id"], &line["address"]),
            (&client.into(), &address.into())
        );
        assert_eq!(line["principal"], "User:ANONYMOUS");
    }
    assert_eq!(
        aborted[0]["by"],
        "User:ANONYMOUS (client \"two\" at 192.0.2.2)"
    );
    assert_eq!(
        fenced[0]["by"],
        "User:ANONYMOUS (client \"one\" at 192.0.2.1)"
    );
    assert_eq!(aborted[1]["transactional_id"], "late");
    assert_eq!(aborted[1]["by"], "the broker");
    assert!(aborted[1]["reason"].as_str().unwrap().contains("timeout"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_turned_away_is_told_once_and_counted() {
    let broker = audited().start().await;
    for _ in 0..50 {
        // A frame of more than socket.request.max.bytes.
        let mut client = broker.client_from("192.0.2.9:1".parse().unwrap());
        client.send_bytes(&[0x7f, 0xff, 0xff, 0xff]).await;
        client.closed().await;
    }
    let stopped = broker.stop().await;
    let lines = lines(stopped.disk());
    let refused = of(&lines, "connection-refused");
    let counts: Vec<_> = refused.iter().map(|line| line["count"].as_u64()).collect();
    assert_eq!(counts, [None, Some(49)], "{refused:?}");
    assert_eq!(
        (&refused[0]["address"], &refused[0]["outcome"]),
        (&"192.0.2.9".into(), &"denied".into())
    );
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["event"], &last["outcome"]),
        (&"stop".into(), &"succeeded".into())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_chain_goes_on_over_kills_power_cuts_and_stops() {
    let mut stopped = audited().set("audit.log.max.bytes", 4096);
    for seed in 0..12 {
        let broker = stopped.start().await;
        let mut client = broker.client().await;
        for n in 0..5 {
            client.create_topic(&format!("t-{seed}-{n}"), 1).await;
        }
        if seed == 11 {
            broker.broker().sync_audit().await;
            let dir = tempfile::tempdir().unwrap();
            broker.disk().export(dir.path()).unwrap();
            let exported = dir.path().join(DIR.trim_start_matches('/'));
            let verified = tidemark_audit::verify(&[exported], &[]).unwrap();
            assert!(verified.whole && verified.files > 3, "{verified:#?}");
        }
        stopped = match seed % 3 {
            0 => broker.kill().await,
            1 => broker.crash(seed).await,
            _ => broker.stop().await,
        };
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_audit_log_stops_the_broker_only_if_it_is_to() {
    for (mode, ends) in [("go-on", false), ("stop", true)] {
        let broker = audited().set("audit.log.failure", mode).start().await;
        let mut client = broker.client().await;
        client.create_topic("t", 1).await;
        broker.broker().sync_audit().await;
        broker.disk().fail_write_below(Path::new(DIR), 28);
        let mut refused = broker.client().await;
        refused.send_bytes(&[0x7f, 0xff, 0xff, 0xff]).await;
        refused.closed().await;
        broker.broker().sync_audit().await;
        if ends {
            let why = broker.broker().failure().await;
            assert!(
                why.contains("/audit") && why.contains("audit.log.failure"),
                "{why}"
            );
            continue;
        }
        broker.broker().sync_audit().await;
        let stats = broker.broker().audit().unwrap();
        assert!(stats.lost >= 1 && !stats.is_failing, "{stats:?}");
        let lines = lines_of(&broker).await;
        assert_eq!(of(&lines, "lost")[0]["count"].as_u64(), Some(stats.lost));
        client.create_topic("u", 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_and_what_they_were_refused_are_told_with_the_names_behind_them() {
    let broker = audited()
        .set("listeners", "SASL_PLAINTEXT://127.0.0.1:0")
        .set("sasl.enabled.mechanisms", "SCRAM-SHA-256")
        .set("auth.users", "anna:anna-secret,bert:bert-secret")
        .set("connection.failed.authentication.delay.ms", 0)
        .set(
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )
        .set("super.users", "User:anna")
        .start()
        .await;
    let login = async |user: &str, password: &str| {
        let mut client = broker.client().await;
        client.set_client_id(user);
        let answer = client.sasl_scram(Hash::Sha256, user, password).await;
        (client, answer.error_code)
    };
    let (mut anna, code) = login("anna", "anna-secret").await;
    assert_eq!(code, 0);
    let (mut bert, code) = login("bert", "bert-secret").await;
    assert_eq!(code, 0);
    assert_ne!(login("anna", "bert-secret").await.1, 0);
    anna.create_topic("t", 1).await;
    for _ in 0..20 {
        let refused = bert.produce("t", 0, Batch::of(&["v"]).build()).await;
        assert_eq!(refused, Err(ErrorCode::TopicAuthorizationFailed));
        anna.produce("t", 0, Batch::of(&["v"]).build())
            .await
            .unwrap();
    }
    let lines = lines_of(&broker).await;
    let logins: Vec<_> = of(&lines, "authentication")
        .into_iter()
        .map(|line| {
            assert_eq!(line["mechanism"], "SCRAM-SHA-256");
            let field = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
            (field("principal"), field("claimed"), field("outcome"))
        })
        .collect();
    let expected = [
        ("User:anna", "-", "succeeded"),
        ("User:bert", "-", "succeeded"),
        ("-", "anna", "failed"),
    ];
    assert_eq!(
        logins,
        expected.map(|(a, b, c)| (a.into(), b.into(), c.into()))
    );
    let of_writes = |outcome: &str| -> Vec<_> {
        let access = of(&lines, "access").into_iter();
        access
            .filter(|line| line["outcome"] == outcome && line["operation"] == "Write")
            .map(|line| {
                assert_eq!(
                    (&line["resource"], &line["api"]),
                    (&"t".into(), &"Produce".into())
                );
                (
                    line["principal"].as_str().unwrap().to_owned(),
                    line["count"].as_u64(),
                )
            })
            .collect()
    };
    // The first at once, the repeats as a number; what is allowed once.
    let bert = "User:bert".to_owned();
    assert_eq!(
        of_writes("denied"),
        [(bert.clone(), None), (bert, Some(19))]
    );
    assert_eq!(of_writes("allowed"), [("User:anna".to_owned(), None)]);
    let made: Vec<_> = of(&lines, "change")
        .iter()
        .map(|line| line["change"].clone())
        .collect();
    assert_eq!(made[0], "credentials made at the start");
    assert_eq!(made.last().unwrap(), "created, partitions 1");
}
