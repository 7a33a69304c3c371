//! What one principal may have: transactional ids, open transactions, partitions of one.

use std::sync::Arc;

use tidemark_owner::{
    Command, Event, InitProducerId, OwnerOptions, Reply, RequestContext, TxnLimit, TxnLimits,
};
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::common::{Producer, World, context, options};

fn world(limits: TxnLimits) -> World {
    let mut w = World::with(OwnerOptions {
        limits,
        ..options()
    });
    w.create_topic("t", 10);
    w
}

fn init(w: &mut World, principal: &str, id: &str) -> Result<Producer, ErrorCode> {
    let request = InitProducerId {
        context: RequestContext {
            principal: Arc::from(principal),
            ..context("c")
        },
        transactional_id: Some(Arc::from(id)),
        transaction_timeout_ms: 10_000,
        producer_id: ProducerId::NONE,
        producer_epoch: ProducerEpoch::NONE,
    };
    match w.ask(Command::InitProducerId(request)) {
        Reply::InitProducerId(given) => given.map(|(producer_id, epoch)| Producer {
            transactional_id: Some(id.to_owned()),
            producer_id,
            epoch,
            transactional: true,
            ..Producer::plain()
        }),
        other => panic!("{other:?}"),
    }
}

fn reached(w: &World) -> Vec<(TxnLimit, String)> {
    let events = w.events.iter();
    events
        .filter_map(|event| match event {
            Event::LimitReached {
                limit, principal, ..
            } => Some((*limit, principal.to_string())),
            _ => None,
        })
        .collect()
}

#[test]
fn a_principal_has_so_many_transactional_ids_also_after_a_restart() {
    let mut w = world(TxnLimits {
        ids_per_principal: 3,
        ..TxnLimits::default()
    });
    for n in 0..3 {
        init(&mut w, "User:a", &format!("a{n}")).unwrap();
    }
    for restarts in 0..2 {
        let refused = init(&mut w, "User:a", "a3").map(|p| p.epoch);
        assert_eq!(refused, Err(ErrorCode::PolicyViolation));
        assert_eq!(reached(&w).len(), restarts + 1);
        assert_eq!(
            reached(&w)[restarts],
            (TxnLimit::TransactionalIds, "User:a".to_owned())
        );
        // Its own ids are open to it, and to others there is nothing to refuse.
        init(&mut w, "User:a", "a1").unwrap();
        init(&mut w, "User:b", "b0").unwrap();
        w.restart();
    }
    // Who takes an id over has it, and the other one less.
    init(&mut w, "User:b", "a0").unwrap();
    init(&mut w, "User:a", "a3").unwrap();
    assert_eq!(
        init(&mut w, "User:a", "a0").map(|p| p.epoch),
        Err(ErrorCode::PolicyViolation)
    );
}

#[test]
fn a_forgotten_id_makes_room() {
    let mut w = world(TxnLimits {
        ids_per_principal: 1,
        ..TxnLimits::default()
    });
    init(&mut w, "User:a", "a0").unwrap();
    assert!(init(&mut w, "User:a", "a1").is_err());
    w.pass_ms(8 * 86_400_000);
    w.restart();
    w.pass_ms(8 * 86_400_000);
    init(&mut w, "User:a", "a1").unwrap();
}

#[test]
fn one_open_transaction_too_many_waits_in_both_dialects() {
    for version in [9, 12] {
        let mut w = world(TxnLimits {
            open_per_principal: 2,
            ..TxnLimits::default()
        });
        let producer = |w: &mut World, principal: &str, id: &str| Producer {
            version,
            ..init(w, principal, id).unwrap()
        };
        let begin = |w: &mut World, p: &Producer, sequence: i32| match version {
            12 => p.send(w, "t", 0, sequence, &["v"]).map(|_| ()),
            _ => match p.add(w, &[("t", 0)])[0] {
                ErrorCode::None => p.send(w, "t", 0, sequence, &["v"]).map(|_| ()),
                code => Err(code),
            },
        };
        let mut first = producer(&mut w, "User:a", "a0");
        let second = producer(&mut w, "User:a", "a1");
        let third = producer(&mut w, "User:a", "a2");
        let other = producer(&mut w, "User:b", "b0");
        begin(&mut w, &first, 0).unwrap();
        begin(&mut w, &second, 0).unwrap();
        let refused = Err(ErrorCode::ConcurrentTransactions);
        assert_eq!(begin(&mut w, &third, 0), refused);
        let wants = (TxnLimit::OpenTransactions, "User:a".to_owned());
        assert_eq!(reached(&w), [wants]);
        begin(&mut w, &other, 0).unwrap();
        // What is open goes on.
        match version {
            12 => drop(second.send(&mut w, "t", 1, 0, &["v"]).unwrap()),
            _ => assert_eq!(second.add(&mut w, &[("t", 1)]), [ErrorCode::None]),
        }
        w.restart();
        assert_eq!(begin(&mut w, &third, 0), refused);
        // With the next epoch sequences begin anew.
        let next = i32::from(version < 12);
        // One ends, one may begin: the same batch again, as clients send it.
        first.end(&mut w, true).unwrap();
        begin(&mut w, &third, 0).unwrap();
        assert_eq!(begin(&mut w, &first, next), refused);
        // Timeouts end what nobody ends.
        w.pass_ms(20_000);
        w.expire();
        begin(&mut w, &first, next).unwrap();
    }
}

#[test]
fn a_transaction_has_so_many_partitions_and_a_groups_offsets_are_one() {
    let limits = TxnLimits {
        partitions_per_transaction: 3,
        ..TxnLimits::default()
    };
    let mut w = world(limits);
    let mut p = init(&mut w, "User:a", "a0").unwrap();
    let too_many = [("t", 0), ("t", 1), ("t", 2), ("t", 3)];
    assert_eq!(p.add(&mut w, &too_many), [ErrorCode::MessageTooLarge; 4]);
    assert_eq!(p.add(&mut w, &too_many[..2]), [ErrorCode::None; 2]);
    assert_eq!(p.add(&mut w, &too_many[..2]), [ErrorCode::None; 2]);
    assert_eq!(p.add_offsets(&mut w, "g"), ErrorCode::None);
    assert_eq!(
        p.add(&mut w, &too_many[2..3]),
        [ErrorCode::MessageTooLarge],
        "the offsets are the third"
    );
    p.send(&mut w, "t", 0, 0, &["v"]).unwrap();
    p.end(&mut w, true).unwrap();
    assert_eq!(w.committed("t", 0), ["v"]);

    // Version 2: the batches of one request count together.
    let mut w = world(limits);
    let p = Producer {
        version: 12,
        ..init(&mut w, "User:a", "a0").unwrap()
    };
    let batches = (0..5).map(|n| p.batch(&w, "t", n, 0, &["v"])).collect();
    let produced = w.ask(Command::Produce(tidemark_owner::Produce {
        version: 12,
        transactional_id: Some(Arc::from("a0")),
        batches,
    }));
    let Reply::Produce(produced) = produced else {
        panic!("{produced:?}");
    };
    let codes: Vec<ErrorCode> = produced.iter().map(|p| p.error).collect();
    let (ok, refused) = (ErrorCode::None, ErrorCode::MessageTooLarge);
    assert_eq!(codes, [ok, ok, ok, refused, refused]);
    assert_eq!(reached(&w).len(), 2);
    let committed = p.commit_offsets(&mut w, "g", &[("t", 0, 5)]);
    assert_eq!(committed, [refused]);
    assert_eq!(p.send(&mut w, "t", 2, 1, &["w"]), Ok(1), "enrolled already");
}
