//! Exclusive operations: by configuration an operation aborts the open transactions it cuts through,
//! in its own record; refused, it aborts nobody.

use tidemark_metadata::{ConfigChange, TopicDefaults};
use tidemark_owner::*;
use tidemark_txn_coordinator::Dialect;
use tidemark_types::ErrorCode;

use crate::common::{Producer, World, options};

const BOTH: [Dialect; 2] = [Dialect::V1, Dialect::V2];

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

fn session(w: &mut World, dialect: Dialect, id: &str) -> Producer {
    match dialect {
        Dialect::V1 => Producer::classic(w, id),
        Dialect::V2 => Producer::v2(w, id),
    }
}

fn open(w: &mut World, dialect: Dialect, id: &str, topics: &[&str]) -> Producer {
    let p = session(w, dialect, id);
    for topic in topics {
        if dialect == Dialect::V1 {
            p.add(w, &[(topic, 0)]);
        }
        p.send(w, topic, 0, 0, &[id]).unwrap();
    }
    p
}

/// X writes to a, Y to b, Z to both.
fn three(w: &mut World, dialect: Dialect) -> [Producer; 3] {
    [
        open(w, dialect, "x", &["a"]),
        open(w, dialect, "y", &["b"]),
        open(w, dialect, "z", &["a", "b"]),
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
    grow_all(w, &[topic], count, validate_only)[0]
}

fn grow_all(
    w: &mut World,
    topics: &[&str],
    count: i32,
    validate_only: bool,
) -> Vec<Result<(), ErrorCode>> {
    let topics = topics.iter().map(|topic| GrowTopic {
        name: (*topic).to_owned(),
        count,
        assignments: None,
    });
    let reply = w.ask(Command::CreatePartitions(CreatePartitions {
        topics: topics.collect(),
        validate_only,
    }));
    match reply {
        Reply::CreatePartitions(grown) => {
            let grown = grown.into_iter();
            grown.map(|g| g.map_err(|(code, _)| code)).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn alter(w: &mut World, topic: &str, key: &str, value: &str) -> Result<(), ErrorCode> {
    let change = match value {
        "" => ConfigChange::Delete,
        value => ConfigChange::Set(value.to_owned()),
    };
    let change = (key.to_owned(), change);
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
        let sent = cut.send(w, "b", 0, 1, &["late"]);
        assert_eq!(sent, Err(ErrorCode::InvalidProducerEpoch));
        match cut.dialect() {
            Dialect::V1 => {
                assert_eq!(cut.end(w, true), Err(ErrorCode::ProducerFenced));
                // Its client gets back in with what it knows.
                let pair = Some((cut.producer_id, cut.epoch));
                let id = cut.transactional_id.clone();
                assert_eq!(w.init(id.as_deref(), pair).unwrap().1.0, next);
            }
            Dialect::V2 => {
                assert_eq!(cut.end(w, true), Err(ErrorCode::TransactionAbortable));
                cut.end(w, false).unwrap();
            }
        }
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
    for (dialect, low) in BOTH.into_iter().flat_map(|d| [(d, -1), (d, 2)]) {
        let mut w = world(ALL);
        let all = three(&mut w, dialect);
        let records = w.records.len();
        assert_eq!(delete_records(&mut w, "a", low), Ok(2));
        assert_eq!(aborted(&w, ExclusiveOperation::DeleteRecords), ["x", "z"]);
        x_and_z_were_cut(&mut w, all, records);
    }
}

#[test]
fn t8_a_transaction_that_keeps_all_its_records_is_left_alone() {
    for dialect in BOTH {
        let mut w = world(ALL);
        let [x, _, mut z] = three(&mut w, dialect);
        // X wrote at 0, Z at 1.
        assert_eq!(delete_records(&mut w, "a", 1), Ok(1));
        assert_eq!(aborted(&w, ExclusiveOperation::DeleteRecords), ["x"]);
        z.end(&mut w, true).unwrap();
        assert_eq!(w.committed("a", 0), ["z"]);
        drop(x);
    }
    // Nor is one that is enrolled and has written nothing there.
    let mut w = world(ALL);
    let _x = open(&mut w, Dialect::V1, "x", &["a"]);
    let mut late = Producer::classic(&mut w, "late");
    late.add(&mut w, &[("a", 0)]);
    delete_records(&mut w, "a", -1).unwrap();
    late.end(&mut w, true).unwrap();
}

#[test]
fn t8_an_operation_that_is_refused_aborts_nobody() {
    for dialect in BOTH {
        let mut w = world(ALL);
        let all = three(&mut w, dialect);
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
}

#[test]
fn t8_more_partitions_and_another_cleanup_policy_cut_through_the_topic() {
    let operations = [
        ExclusiveOperation::CreatePartitions,
        ExclusiveOperation::CleanupPolicy,
    ];
    for (dialect, operation) in BOTH
        .into_iter()
        .flat_map(|d| operations.map(|operation| (d, operation)))
    {
        let mut w = world(ALL);
        let all = three(&mut w, dialect);
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
fn t8_a_cleanup_policy_that_is_in_force_already_cuts_through_nobody() {
    for (broker, same, other) in [
        (None, ["delete", ""], "compact"),
        (Some("compact"), ["compact", ""], "delete"),
        (
            Some("compact,delete"),
            ["delete,compact", "compact,delete"],
            "delete",
        ),
    ] {
        let defaults = |key: &str| match key {
            "log.cleanup.policy" => broker.map(str::to_owned),
            _ => None,
        };
        let mut w = World::with(OwnerOptions {
            topic_defaults: TopicDefaults::new(defaults).unwrap(),
            exclusive: ALL,
            ..options()
        });
        w.create_topic("a", 1);
        let mut x = open(&mut w, Dialect::V1, "x", &["a"]);
        for policy in same {
            let records = w.records.len();
            alter(&mut w, "a", "cleanup.policy", policy).unwrap();
            assert_eq!(w.records.len(), records + 1, "it is written down");
        }
        let by = ExclusiveOperation::CleanupPolicy;
        assert_eq!(aborted(&w, by), Vec::<String>::new());
        x.send(&mut w, "a", 0, 1, &["more"]).unwrap();
        alter(&mut w, "a", "cleanup.policy", other).unwrap();
        assert_eq!(aborted(&w, by), ["x"]);
        assert_eq!(x.end(&mut w, true), Err(ErrorCode::ProducerFenced));
    }
}

#[test]
fn without_being_told_so_only_the_deletion_of_a_topic_is_exclusive() {
    for dialect in BOTH {
        let mut w = world(ExclusiveOptions::default());
        let [mut x, mut y, mut z] = three(&mut w, dialect);
        assert_eq!(delete_records(&mut w, "a", 1), Ok(1));
        grow(&mut w, "a", 2, false).unwrap();
        alter(&mut w, "a", "cleanup.policy", "compact").unwrap();
        x.end(&mut w, true).unwrap();
        assert_eq!(w.delete_topics(&["a"]), [ErrorCode::None]);
        let cut = match dialect {
            Dialect::V1 => ErrorCode::ProducerFenced,
            Dialect::V2 => ErrorCode::TransactionAbortable,
        };
        assert_eq!(z.end(&mut w, true), Err(cut));
        y.end(&mut w, true).unwrap();
        assert_eq!(w.committed("b", 0), ["y"]);
    }
}

#[test]
fn an_operation_whose_cuts_fit_no_record_is_refused_whole() {
    for dialect in BOTH {
        let mut w = world(ALL);
        w.create_topic("wide", 400);
        let wide: Vec<(&str, i32)> = (0..400).map(|p| ("wide", p)).collect();
        for id in ["one", "two", "three"] {
            let p = session(&mut w, dialect, id);
            match dialect {
                Dialect::V1 => {
                    p.add(&mut w, &wide);
                    p.add(&mut w, &[("a", 0)]);
                }
                Dialect::V2 => {
                    let all = wide.iter().map(|(t, n)| p.batch(&w, t, *n, 0, &[id]));
                    let all: Vec<_> = all.collect();
                    w.produce(p.version, all);
                }
            }
            p.send(&mut w, "a", 0, 0, &[id]).unwrap();
        }
        // Room for two of them.
        w.set_max_record_bytes(130_000);
        // Clients ask this again by themselves.
        assert_eq!(
            delete_records(&mut w, "a", -1),
            Err(ErrorCode::RequestTimedOut)
        );
        // And these they do not.
        assert_eq!(grow(&mut w, "a", 2, false), Err(ErrorCode::InvalidRequest));
        let altered = alter(&mut w, "a", "cleanup.policy", "compact");
        assert_eq!(altered, Err(ErrorCode::InvalidRequest));
        assert_eq!(w.ends("a", 0), (0, 3));
        // Two at a time it goes.
        assert_eq!(delete_records(&mut w, "a", 2), Ok(2));
        assert_eq!(delete_records(&mut w, "a", -1), Ok(5));
        assert_eq!(aborted(&w, ExclusiveOperation::DeleteRecords).len(), 3);
    }
}

#[test]
fn more_topics_than_one_record_has_room_for_are_grown_as_far_as_it_goes() {
    for exclusive in [ExclusiveOptions::default(), ALL] {
        let mut w = world(exclusive);
        let names: Vec<String> = (0..1_000).map(|n| format!("many-{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for name in &names {
            w.create_topic(name, 1);
        }
        let mut p = open(&mut w, Dialect::V1, "x", &["many-0", "many-999"]);
        w.set_max_record_bytes(64 << 10);
        let validated = grow_all(&mut w, &names, 2, true);
        assert!(validated.iter().all(|grown| *grown == Ok(())));
        // `World::carry_out` holds the record against the room there is.
        let grown = grow_all(&mut w, &names, 2, false);
        let fit = grown.iter().filter(|grown| grown.is_ok()).count();
        assert!((50..1_000).contains(&fit), "{fit}");
        for (name, grown) in names.iter().zip(&grown) {
            let partitions = w.owner.metadata().topic(name).unwrap().partitions;
            assert_eq!(partitions, if grown.is_ok() { 2 } else { 1 });
            assert!(grown.is_ok() || *grown == Err(ErrorCode::InvalidRequest));
        }
        assert_eq!(p.end(&mut w, true).is_ok(), !exclusive.create_partitions);
        w.restart();
    }
}

#[test]
fn one_request_of_every_kind_over_many_topics_fits_its_record() {
    let mut w = world(ALL);
    let names: Vec<String> = (0..1_000).map(|n| format!("many-{n}")).collect();
    w.set_max_record_bytes(64 << 10);
    let topics = names.iter().map(|name| CreateTopic {
        name: name.clone(),
        partitions: 1,
        replication_factor: 1,
        ..CreateTopic::default()
    });
    w.ask(Command::CreateTopics(CreateTopics {
        topics: topics.collect(),
        validate_only: false,
        auto: false,
    }));
    let there = |w: &World| -> Vec<String> {
        let there = |name: &&String| w.owner.metadata().topic(name).is_some();
        names.iter().filter(there).cloned().collect()
    };
    let created = there(&w);
    assert!((50..1_000).contains(&created.len()), "{}", created.len());
    let changes = |value: &str| {
        let change = ConfigChange::Set(value.to_owned());
        Alteration::Changes(vec![("cleanup.policy".to_owned(), change)])
    };
    let resources = created.iter().map(|name| AlterResource {
        resource: ConfigResource::Topic(name.clone()),
        alteration: changes("compact,delete"),
    });
    w.ask(Command::AlterConfigs(AlterConfigs {
        resources: resources.collect(),
        validate_only: false,
    }));
    let deleted: Vec<&str> = created.iter().map(String::as_str).collect();
    let codes = w.delete_topics(&deleted);
    assert!(codes.iter().all(|code| *code == ErrorCode::None));
    assert_eq!(there(&w), Vec::<String>::new());
}
