//! Exclusive operations: by configuration an operation aborts the open transactions it cuts through,
//! in its own record; refused, it aborts nobody.

use tidemark_metadata::ConfigChange;
use tidemark_owner::*;
use tidemark_types::ErrorCode;

use crate::common::{Producer, World, options};

fn world(exclusive: ExclusiveOptions) -> World {
    let mut w = World::with(OwnerOptions {
        exclusive,
        ..options()
    });
    for topic in ["a", "b"] {
        w.create_topic(topic, 1);
    }
    w
}

const ALL: ExclusiveOptions = ExclusiveOptions {
    delete_records: true,
    create_partitions: true,
    cleanup_policy: true,
};

fn open(w: &mut World, id: &str, topics: &[&str]) -> Producer {
    let p = Producer::classic(w, id);
    for topic in topics {
        p.add(w, &[(topic, 0)]);
        p.send(w, topic, 0, 0, &[id]).unwrap();
    }
    p
}

/// X writes to a, Y to b, Z to both.
fn three(w: &mut World) -> [Producer; 3] {
    [
        open(w, "x", &["a"]),
        open(w, "y", &["b"]),
        open(w, "z", &["a", "b"]),
    ]
}

fn delete_records(w: &mut World, topic: &str, offset: i64) -> Result<i64, ErrorCode> {
    let partitions = vec![(w.id(topic, 0), offset)];
    match w.ask(Command::DeleteRecords(DeleteRecords { partitions })) {
        Reply::DeleteRecords(answers) => answers[0],
        other => panic!("{other:?}"),
    }
}

fn grow(w: &mut World, topic: &str, count: i32, validate_only: bool) -> Result<(), ErrorCode> {
    let reply = w.ask(Command::CreatePartitions(CreatePartitions {
        topics: vec![GrowTopic {
            name: topic.to_owned(),
            count,
            assignments: None,
        }],
        validate_only,
    }));
    match reply {
        Reply::CreatePartitions(grown) => grown[0].clone().map_err(|(code, _)| code),
        other => panic!("{other:?}"),
    }
}

fn alter(w: &mut World, topic: &str, key: &str, value: &str) -> Result<(), ErrorCode> {
    let change = (key.to_owned(), ConfigChange::Set(value.to_owned()));
    let reply = w.ask(Command::AlterConfigs(AlterConfigs {
        resources: vec![AlterResource {
            resource: ConfigResource::Topic(topic.to_owned()),
            alteration: Alteration::Changes(vec![change]),
        }],
        validate_only: false,
    }));
    match reply {
        Reply::AlterConfigs(altered) => altered[0].clone().map_err(|(code, _)| code),
        other => panic!("{other:?}"),
    }
}

fn aborted(w: &World, by: ExclusiveOperation) -> Vec<String> {
    let of = |event: &Event| match event {
        Event::TransactionAborted {
            transactional_id,
            by: AbortedBy::Exclusive { operation, topic },
            ..
        } if *operation == by && &**topic == "a" => Some(transactional_id.to_string()),
        _ => None,
    };
    w.events.iter().filter_map(of).collect()
}

/// X and Z are over, at one tick with the operation; Y goes on and commits.
fn x_and_z_were_cut(w: &mut World, [x, y, z]: [Producer; 3], records: usize) {
    assert_eq!(w.records.len(), records + 1, "one record, one tick");
    for mut cut in [x, z] {
        let next = cut.epoch.0 + 1;
        assert!(w.markers("a", 0).contains(&('A', next)), "the epoch rises");
        assert_eq!(cut.end(w, true), Err(ErrorCode::ProducerFenced));
        let sent = cut.send(w, "b", 0, 1, &["late"]);
        assert_eq!(sent, Err(ErrorCode::InvalidProducerEpoch));
        // Its client gets back in with what it knows.
        let pair = Some((cut.producer_id, cut.epoch));
        let id = cut.transactional_id.clone();
        assert_eq!(w.init(id.as_deref(), pair).unwrap().1.0, next);
    }
    let mut y = y;
    y.end(w, true).unwrap();
    assert_eq!(w.committed("b", 0), ["y"]);
    assert_eq!(w.committed("a", 0), Vec::<String>::new());
    w.check_readers();
    w.restart();
}

#[test]
fn t8_deleting_records_aborts_what_it_cuts_through_and_nobody_else() {
    for low in [-1, 2] {
        let mut w = world(ALL);
        let all = three(&mut w);
        let records = w.records.len();
        assert_eq!(delete_records(&mut w, "a", low), Ok(2));
        assert_eq!(aborted(&w, ExclusiveOperation::DeleteRecords), ["x", "z"]);
        x_and_z_were_cut(&mut w, all, records);
    }
}

#[test]
fn t8_a_transaction_that_keeps_all_its_records_is_left_alone() {
    let mut w = world(ALL);
    let [x, _, mut z] = three(&mut w);
    // X wrote at 0, Z at 1.
    assert_eq!(delete_records(&mut w, "a", 1), Ok(1));
    assert_eq!(aborted(&w, ExclusiveOperation::DeleteRecords), ["x"]);
    z.end(&mut w, true).unwrap();
    assert_eq!(w.committed("a", 0), ["z"]);
    // Nor is one that is enrolled and has written nothing there.
    let mut late = Producer::classic(&mut w, "late");
    late.add(&mut w, &[("a", 0)]);
    delete_records(&mut w, "a", -1).unwrap();
    late.end(&mut w, true).unwrap();
    drop(x);
}

#[test]
fn t8_an_operation_that_is_refused_aborts_nobody() {
    let mut w = world(ALL);
    let all = three(&mut w);
    let records = w.records.len();
    let beyond = delete_records(&mut w, "a", 3);
    assert_eq!(beyond, Err(ErrorCode::OffsetOutOfRange));
    assert_eq!(delete_records(&mut w, "a", 0), Ok(0), "nothing to delete");
    let fewer = grow(&mut w, "a", 1, false);
    assert_eq!(fewer, Err(ErrorCode::InvalidPartitions));
    grow(&mut w, "a", 2, true).unwrap();
    let burn = alter(&mut w, "a", "cleanup.policy", "burn");
    assert_eq!(burn, Err(ErrorCode::InvalidConfig));
    assert_eq!(w.records.len(), records);
    alter(&mut w, "a", "retention.ms", "1000000").unwrap();
    for mut p in all {
        p.end(&mut w, true).unwrap();
    }
    assert_eq!(w.committed("a", 0), ["x", "z"]);
}

#[test]
fn t8_more_partitions_and_another_cleanup_policy_cut_through_the_topic() {
    for operation in [
        ExclusiveOperation::CreatePartitions,
        ExclusiveOperation::CleanupPolicy,
    ] {
        let mut w = world(ALL);
        let all = three(&mut w);
        let records = w.records.len();
        match operation {
            ExclusiveOperation::CreatePartitions => grow(&mut w, "a", 3, false).unwrap(),
            _ => alter(&mut w, "a", "cleanup.policy", "compact").unwrap(),
        }
        assert_eq!(aborted(&w, operation), ["x", "z"]);
        x_and_z_were_cut(&mut w, all, records);
    }
}

#[test]
fn without_being_told_so_only_the_deletion_of_a_topic_is_exclusive() {
    let mut w = world(ExclusiveOptions::default());
    let [mut x, mut y, mut z] = three(&mut w);
    assert_eq!(delete_records(&mut w, "a", 1), Ok(1));
    grow(&mut w, "a", 2, false).unwrap();
    alter(&mut w, "a", "cleanup.policy", "compact").unwrap();
    x.end(&mut w, true).unwrap();
    assert_eq!(w.delete_topics(&["a"]), [ErrorCode::None]);
    assert_eq!(z.end(&mut w, true), Err(ErrorCode::ProducerFenced));
    y.end(&mut w, true).unwrap();
    assert_eq!(w.committed("b", 0), ["y"]);
}

#[test]
fn an_operation_whose_cuts_fit_no_record_is_refused_whole() {
    let mut w = world(ALL);
    w.create_topic("wide", 400);
    let wide: Vec<(&str, i32)> = (0..400).map(|p| ("wide", p)).collect();
    let mut all = Vec::new();
    for id in ["one", "two", "three"] {
        let p = Producer::classic(&mut w, id);
        p.add(&mut w, &wide);
        p.add(&mut w, &[("a", 0)]);
        p.send(&mut w, "a", 0, 0, &[id]).unwrap();
        all.push(p);
    }
    // Room for two of them.
    w.set_max_record_bytes(220_000);
    assert_eq!(
        delete_records(&mut w, "a", -1),
        Err(ErrorCode::RequestTimedOut)
    );
    assert_eq!(grow(&mut w, "a", 2, false), Err(ErrorCode::RequestTimedOut));
    let altered = alter(&mut w, "a", "cleanup.policy", "compact");
    assert_eq!(altered, Err(ErrorCode::RequestTimedOut));
    assert_eq!(w.ends("a", 0), (0, 3));
    // Two at a time it goes.
    assert_eq!(delete_records(&mut w, "a", 2), Ok(2));
    assert_eq!(delete_records(&mut w, "a", -1), Ok(5));
    assert_eq!(aborted(&w, ExclusiveOperation::DeleteRecords).len(), 3);
}
