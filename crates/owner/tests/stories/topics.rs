//! CreateTopics and DeleteTopics.

use tidemark_owner::{
    Command, CreateTopic, CreateTopics, DeleteTopic, DeleteTopics, DeletedTopic, Observation, Reply,
};
use tidemark_types::{ErrorCode, TopicId};

use crate::common::{Producer, World};

const OK: ErrorCode = ErrorCode::None;

fn create(w: &mut World, names: &[&str], validate_only: bool) -> Vec<ErrorCode> {
    let topic = |name: &&str| CreateTopic {
        name: (*name).to_owned(),
        partitions: 2,
        replication_factor: 1,
        ..CreateTopic::default()
    };
    let reply = w.ask(Command::CreateTopics(CreateTopics {
        topics: names.iter().map(topic).collect(),
        validate_only,
        auto: false,
    }));
    match reply {
        Reply::CreateTopics(created) => created.into_iter().map(|t| t.error).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn topics_are_created_in_one_record_each_for_itself() {
    let mut w = World::new();
    let records = w.records.len();
    assert_eq!(create(&mut w, &["a"], true), [OK]);
    assert_eq!(w.records.len(), records, "only looked at");
    let codes = create(&mut w, &["a", "b", "..", "c", "c"], false);
    let twice = ErrorCode::InvalidRequest;
    let bad = ErrorCode::InvalidTopicException;
    assert_eq!(codes[..3], [OK, OK, bad]);
    assert!(codes.len() > 3 && codes[3..].iter().all(|code| *code == twice));
    assert_eq!(w.records.len(), records + 1);
    assert_eq!(
        create(&mut w, &["a"], false),
        [ErrorCode::TopicAlreadyExists]
    );
    assert_eq!(w.ends("b", 1), (0, 0));
    w.restart();
}

#[test]
fn deletion_aborts_what_it_cuts_through_at_its_tick() {
    let mut w = World::new();
    for topic in ["a", "b", "in"] {
        w.create_topic(topic, 1);
    }
    let mut x = Producer::classic(&mut w, "x");
    x.add(&mut w, &[("a", 0), ("b", 0)]);
    x.send(&mut w, "a", 0, 0, &["xa"]).unwrap();
    x.send(&mut w, "b", 0, 0, &["xb"]).unwrap();
    x.add_offsets(&mut w, "g");
    x.commit_offsets(&mut w, "g", &[("in", 0, 9)]);
    let mut y = Producer::classic(&mut w, "y");
    y.add(&mut w, &[("b", 0)]);
    y.send(&mut w, "b", 0, 0, &["yb"]).unwrap();

    let records = w.records.len();
    assert_eq!(w.delete_topics(&["a"]), [OK]);
    assert_eq!(w.records.len(), records + 1, "one record");
    assert_eq!(w.markers("b", 0), [('A', x.epoch.0 + 1)]);
    assert_eq!(w.fetch_offsets("g", &[("in", 0)], true), [(-1, OK)]);
    assert_eq!(x.end(&mut w, true), Err(ErrorCode::ProducerFenced));
    y.end(&mut w, true).unwrap();
    assert_eq!(w.committed("b", 0), ["yb"]);
    w.restart();
    // A topic of the same name is another one.
    w.create_topic("a", 1);
    assert_eq!(w.ends("a", 0), (0, 0));
}

#[test]
fn topics_of_one_transaction_deleted_together() {
    // No marker may stand in a partition that the same record deletes: replay would not find it.
    let mut w = World::new();
    for topic in ["a", "b", "c"] {
        w.create_topic(topic, 2);
    }
    let x = Producer::classic(&mut w, "x");
    x.add(&mut w, &[("a", 0), ("b", 1), ("c", 0)]);
    for (topic, partition) in [("a", 0), ("b", 1), ("c", 0)] {
        x.send(&mut w, topic, partition, 0, &["v"]).unwrap();
    }
    let records = w.records.len();
    assert_eq!(w.delete_topics(&["b", "a"]), [OK, OK]);
    assert_eq!(w.records.len(), records + 1);
    assert_eq!(w.markers("c", 0), [('A', x.epoch.0 + 1)]);
    w.restart();
}

#[test]
fn nobody_inherits_offsets() {
    let mut w = World::new();
    w.create_topic("t", 1);
    w.create_topic("u", 1);
    w.commit_offset("g", "t", 0, 5);
    w.commit_offset("g", "u", 0, 6);
    let mut p = Producer::classic(&mut w, "x");
    p.add_offsets(&mut w, "g");
    p.commit_offsets(&mut w, "g", &[("t", 0, 7), ("u", 0, 8)]);
    assert_eq!(w.delete_topics(&["t"]), [OK]);
    w.create_topic("t", 1);
    // The transaction has nothing in the topic itself and goes on.
    p.end(&mut w, true).unwrap();
    let both = [("t", 0), ("u", 0)];
    assert_eq!(w.fetch_offsets("g", &both, true), [(-1, OK), (8, OK)]);
    w.restart();
    assert_eq!(w.fetch_offsets("g", &both, true), [(-1, OK), (8, OK)]);
}

#[test]
fn what_cannot_be_deleted_is_answered_in_its_place() {
    let mut w = World::new();
    w.create_topic("a", 1);
    w.create_topic("b", 1);
    let b = w.owner.metadata().topic("b").unwrap().id;
    let unknown = TopicId([9; 16]);
    let names = |name: &str| DeleteTopic::Name(name.to_owned());
    let reply = w.ask(Command::DeleteTopics(DeleteTopics {
        topics: vec![
            names("nowhere"),
            DeleteTopic::Id(unknown),
            names("__consumer_offsets"),
            names("b"),
            names("a"),
            DeleteTopic::Id(b),
        ],
    }));
    let Reply::DeleteTopics(deleted) = reply else {
        panic!("{reply:?}");
    };
    let codes: Vec<ErrorCode> = deleted.iter().map(|d| d.error).collect();
    let twice = ErrorCode::InvalidRequest;
    assert_eq!(
        codes,
        [
            ErrorCode::UnknownTopicOrPartition,
            ErrorCode::UnknownTopicId,
            ErrorCode::InvalidTopicException,
            twice,
            OK,
            twice
        ]
    );
    assert_eq!(deleted[1].id, unknown);
    let a = DeletedTopic {
        name: Some("a".to_owned()),
        ..deleted[4].clone()
    };
    assert_eq!(deleted[4], a);
    assert!(w.owner.metadata().topic("b").is_some());
}

#[test]
fn a_batch_for_a_deleted_topic_finds_nothing() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let plain = Producer::plain();
    let batch = plain.batch(&w, "t", 0, -1, &["late"]);
    w.delete_topics(&["t"]);
    w.create_topic("t", 1);
    // It was checked against the topic that is gone.
    let unknown = Err(ErrorCode::UnknownTopicOrPartition);
    assert_eq!(w.produce(9, vec![batch]), [unknown]);
}

#[test]
fn observers_hear_of_topics() {
    let mut w = World::new();
    w.create_topic("t", 1);
    let replayed = {
        let mut owner = tidemark_owner::Owner::new(w.options.clone());
        let mut seen = Vec::new();
        for record in &w.records {
            seen.extend(owner.replay(record).unwrap());
        }
        seen
    };
    let created = replayed.iter().filter_map(|o| match o {
        Observation::TopicCreated(topic) => Some(topic.name.to_string()),
        _ => None,
    });
    let names: Vec<String> = created.collect();
    assert_eq!(names, ["__consumer_offsets", "__transaction_state", "t"]);
}
