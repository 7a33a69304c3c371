//! ACLs as records of the cluster's metadata, and whose a transactional id is.

use std::sync::Arc;

use tidemark_authorizer::{Acl, AclFilter, Operation, PatternType, Permission, ResourceType};
use tidemark_owner::*;
use tidemark_txn_coordinator::Dialect;
use tidemark_txn_coordinator::guard::ConnectionId;
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::common::{World, context, options};

fn acl(user: &str, topic: &str) -> Acl {
    Acl {
        resource_type: ResourceType::Topic,
        name: topic.into(),
        pattern_type: PatternType::Literal,
        principal: format!("User:{user}").into(),
        host: "*".into(),
        operation: Operation::Read,
        permission: Permission::Allow,
    }
}

fn of(user: &str) -> AclFilter {
    AclFilter {
        principal: Some(format!("User:{user}").into()),
        ..AclFilter::ANY
    }
}

fn create(w: &mut World, acls: &[Acl]) -> Vec<Result<(), ErrorCode>> {
    match w.ask(Command::CreateAcls(acls.to_vec())) {
        Reply::CreateAcls(all) => all.into_iter().map(|r| r.map_err(|e| e.0)).collect(),
        other => panic!("{other:?}"),
    }
}

fn delete(w: &mut World, filters: &[AclFilter]) -> Vec<Result<usize, ErrorCode>> {
    match w.ask(Command::DeleteAcls(filters.to_vec())) {
        Reply::DeleteAcls(all) => {
            let counted = all.into_iter();
            counted
                .map(|r| r.map(|acls| acls.len()).map_err(|e| e.0))
                .collect()
        }
        other => panic!("{other:?}"),
    }
}

fn all(w: &World) -> Vec<Acl> {
    w.owner.metadata().acls().iter().collect()
}

#[test]
fn acls_are_one_record_a_request_and_survive_a_restart() {
    let mut w = World::new();
    let before = w.records.len();
    let three = [acl("a", "t"), acl("b", "t"), acl("a", "u")];
    assert_eq!(create(&mut w, &three), [Ok(()); 3]);
    assert_eq!(w.records.len(), before + 1);
    assert_eq!(create(&mut w, &three[..1]), [Ok(())]);
    assert_eq!(w.records.len(), before + 1, "nothing new, nothing written");
    w.restart();
    assert_eq!(all(&w), [acl("a", "t"), acl("a", "u"), acl("b", "t")]);
    assert_eq!(
        delete(&mut w, &[of("a"), of("a"), of("z")]),
        [Ok(2), Ok(2), Ok(0)]
    );
    assert_eq!(w.records.len(), before + 2);
    assert_eq!(delete(&mut w, &[of("a")]), [Ok(0)]);
    assert_eq!(w.records.len(), before + 2);
    w.restart();
    assert_eq!(all(&w), [acl("b", "t")]);
}

#[test]
fn what_does_not_fit_one_record_is_refused_and_the_rest_is_done() {
    let mut w = World::new();
    w.set_max_record_bytes(1 << 12);
    let many: Vec<Acl> = (0..90)
        .map(|n| acl("a", &format!("topic-{n:03}")))
        .collect();
    // The last one once more: it was not made, and is not said to be.
    let mut asked = many.clone();
    asked.extend(many.last().cloned());
    let created = create(&mut w, &asked);
    let made = created.iter().filter(|r| r.is_ok()).count();
    assert!(made > 5 && made < 90, "{made}");
    assert_eq!(created.last(), Some(&Err(ErrorCode::InvalidRequest)));
    assert_eq!(all(&w).len(), made);
    for acl in &many[made..] {
        assert_eq!(create(&mut w, std::slice::from_ref(acl)), [Ok(())]);
    }
    let one = AclFilter {
        name: Some("topic-000".into()),
        ..AclFilter::ANY
    };
    let deleted = delete(&mut w, &[AclFilter::ANY, one]);
    assert_eq!(deleted, [Err(ErrorCode::InvalidRequest), Ok(1)]);
    assert_eq!(all(&w).len(), 89);
}

#[test]
fn acls_that_the_journal_lost_are_taken_back() {
    let mut w = World::new();
    w.owner.keep_undo();
    assert_eq!(create(&mut w, &[acl("a", "t")]), [Ok(())]);
    let kept = w.records.len();
    w.confirm(kept);
    assert_eq!(create(&mut w, &[acl("b", "t")]), [Ok(())]);
    assert_eq!(delete(&mut w, &[of("a")]), [Ok(1)]);
    assert_eq!(all(&w), [acl("b", "t")]);
    w.lose(kept);
    assert_eq!(all(&w), [acl("a", "t")]);
}

fn init(w: &mut World, principal: &str) -> Result<(ProducerId, ProducerEpoch), ErrorCode> {
    let reply = w.ask(Command::InitProducerId(InitProducerId {
        context: RequestContext {
            principal: Arc::from(principal),
            ..context("c")
        },
        transactional_id: Some(Arc::from("billing")),
        transaction_timeout_ms: 60_000,
        producer_id: ProducerId::NONE,
        producer_epoch: ProducerEpoch::NONE,
    }));
    match reply {
        Reply::InitProducerId(decided) => decided,
        other => panic!("{other:?}"),
    }
}

fn end(
    w: &mut World,
    principal: &str,
    session: (ProducerId, ProducerEpoch),
) -> Result<(), ErrorCode> {
    let command = Command::EndTxn(EndTxn {
        transactional_id: Arc::from("billing"),
        producer_id: session.0,
        producer_epoch: session.1,
        committed: true,
        dialect: Dialect::V1,
    });
    let reply = w.ask(Command::On {
        connection: ConnectionId(1),
        principal: Arc::from(principal),
        command: Box::new(command),
    });
    match reply {
        Reply::EndTxn(ended) => ended.map(drop),
        other => panic!("{other:?}"),
    }
}

#[test]
fn m17_an_id_that_is_somebody_elses_is_left_alone() {
    let forbidden = ErrorCode::TransactionalIdAuthorizationFailed;
    let mut w = World::with(OwnerOptions {
        own_transactional_ids: true,
        ..options()
    });
    let session = init(&mut w, "User:alice").unwrap();
    let before = w.records.len();
    assert_eq!(init(&mut w, "User:bob"), Err(forbidden));
    assert_eq!(end(&mut w, "User:bob", session), Err(forbidden));
    w.restart();
    assert_eq!(init(&mut w, "User:bob"), Err(forbidden));
    assert_eq!(w.records.len(), before, "no epoch moved");
    let next = init(&mut w, "User:alice").unwrap();
    assert_eq!(next, (session.0, ProducerEpoch(1)));
}
