//! Records that the journal loses are taken back, and nothing else.

use tidemark_metadata::{ScramCredential, ScramDeletion, ScramMechanism, ScramUpsertion};
use tidemark_owner::{AlterScram, Command, Reply};
use tidemark_types::{ErrorCode, ProducerEpoch};

use crate::common::{Producer, World, join};

/// A broker on a journal that may lose what it has not confirmed.
fn world() -> World {
    let mut w = World::new();
    w.create_topic("t", 2);
    w.may_lose = true;
    w.owner.keep_undo();
    w
}

#[test]
fn the_end_of_a_transaction_that_was_lost_leaves_it_open_in_every_part() {
    let mut w = world();
    let mut p = Producer::classic(&mut w, "tx1");
    p.add(&mut w, &[("t", 0), ("t", 1)]);
    p.send(&mut w, "t", 0, 0, &["a"]).unwrap();
    p.send(&mut w, "t", 1, 0, &["b"]).unwrap();
    p.add_offsets(&mut w, "g");
    p.commit_offsets(&mut w, "g", &[("t", 0, 7)]);
    let open = w.records.len();
    w.confirm(open);
    let deadline = w.owner.next_deadline();
    p.end(&mut w, true).unwrap();
    assert_eq!(w.ends("t", 0), (2, 2));
    w.lose(open);
    assert_eq!((w.ends("t", 0), w.ends("t", 1)), ((0, 1), (0, 1)));
    assert_eq!(w.fetch_offsets("g", &[("t", 0)], false)[0].0, -1);
    assert_eq!(w.owner.next_deadline(), deadline, "it still has to end");
    // The client asks again.
    p.end(&mut w, true).unwrap();
    assert_eq!(w.committed("t", 0), ["a"]);
    assert_eq!(w.fetch_offsets("g", &[("t", 0)], false)[0].0, 7);
}

#[test]
fn a_tick_is_not_given_twice_and_an_index_is() {
    let mut w = world();
    let before = w.records.len();
    let p = Producer::idempotent(&mut w);
    let lost = w.records.last().unwrap().clone();
    w.lose(before);
    let again = Producer::idempotent(&mut w);
    // Nobody has heard of the first one.
    assert_eq!(
        (again.producer_id, again.epoch),
        (p.producer_id, ProducerEpoch(0))
    );
    let record = w.records.last().unwrap();
    assert_eq!(record.index, lost.index);
    assert!(record.tick > lost.tick);
}

#[test]
fn a_topic_that_was_lost_was_never_there_and_one_whose_deletion_was_is() {
    let mut w = world();
    let p = Producer::idempotent(&mut w);
    p.send(&mut w, "t", 0, 0, &["a"]).unwrap();
    let before = w.records.len();
    w.confirm(before);
    w.create_topic("u", 3);
    p.send(&mut w, "u", 2, 0, &["x"]).unwrap();
    w.delete_topics(&["t"]);
    w.lose(before);
    assert!(w.owner.metadata().topic("u").is_none());
    assert_eq!(w.committed("t", 0), ["a"]);
    // Its window came back with it.
    assert_eq!(p.send(&mut w, "t", 0, 0, &["a"]), Ok(0));
    w.create_topic("u", 1);
    assert_eq!(p.send(&mut w, "u", 0, 0, &["y"]), Ok(0));
}

#[test]
fn whoever_waits_in_a_group_whose_generation_was_lost_is_sent_away() {
    let mut w = world();
    let before = w.records.len();
    let first = w.give(Command::Join(join("g", "")));
    w.expire();
    let Some(Reply::Join(joined)) = w.replies.get(&first).cloned() else {
        panic!("an initial wait of nothing is over at once");
    };
    let sync = |member_id: &str| tidemark_group_coordinator::SyncRequest {
        group_id: "g".to_owned(),
        generation_id: 1,
        member_id: member_id.to_owned(),
        group_instance_id: None,
        protocol_type: None,
        protocol_name: None,
        assignments: Vec::new(),
    };
    w.ask(Command::Sync(sync(&joined.member_id)));
    let waits = w.give(Command::Join(join("g", "")));
    assert!(!w.replies.contains_key(&waits));
    w.lose(before);
    match w.replies.get(&waits) {
        Some(Reply::Join(reply)) => assert_eq!(reply.error, ErrorCode::NotCoordinator),
        other => panic!("{other:?}"),
    }
    assert!(w.owner.groups().list().is_empty());
}

#[test]
fn what_is_in_flight_is_what_is_kept() {
    let mut w = world();
    let p = Producer::idempotent(&mut w);
    for sequence in 0..100 {
        p.send(&mut w, "t", 0, sequence, &["v"]).unwrap();
        w.confirm(w.records.len() - 3);
        assert!(w.owner.in_flight() <= 3);
    }
    assert_eq!(w.owner.in_flight(), 3);
    w.lose(w.records.len() - 3);
    assert_eq!(w.owner.in_flight(), 0);
}

#[test]
fn a_credential_that_was_lost_was_never_set_and_one_whose_removal_was_is_there() {
    let mut w = world();
    let credential = |n| ScramCredential {
        iterations: 4096,
        salt: vec![n; 26],
        stored_key: vec![n; 32],
        server_key: vec![n; 32],
    };
    let set = |user: &str, n| AlterScram {
        upsertions: vec![ScramUpsertion {
            user: user.to_owned(),
            mechanism: 1,
            credential: credential(n),
        }],
        ..AlterScram::default()
    };
    w.ask(Command::AlterScram(set("alice", 1)));
    let before = w.records.len();
    w.confirm(before);
    w.ask(Command::AlterScram(set("bob", 2)));
    w.ask(Command::AlterScram(AlterScram {
        deletions: vec![ScramDeletion {
            user: "alice".to_owned(),
            mechanism: 1,
        }],
        ..AlterScram::default()
    }));
    // The first users are made where there are none, and only there.
    let mut first = set("carol", 3);
    first.only_the_first = true;
    let Reply::AlterScram(made) = w.ask(Command::AlterScram(first)) else {
        panic!("another reply");
    };
    assert!(made.is_empty(), "bob is there");
    w.lose(before);
    let users: Vec<&String> = w.owner.metadata().scram_users().map(|(u, _)| u).collect();
    assert_eq!(users, ["alice"]);
    let found = w
        .owner
        .metadata()
        .scram_credential("alice", ScramMechanism::Sha256);
    assert_eq!(found, Some(&credential(1)));
}
