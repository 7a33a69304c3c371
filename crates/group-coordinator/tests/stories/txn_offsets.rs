use tidemark_group_coordinator::TxnOffsetCommitRequest;
use tidemark_types::{ErrorCode, ProducerId};

use crate::coordinator::{Coordinator, GROUP, join_of, offset};

#[test]
fn a19_require_stable_waits_for_the_end_of_the_transaction() {
    for commit in [true, false] {
        let mut t = Coordinator::new();
        t.commit("", -1, offset("in", 0, 10));
        t.commit("", -1, offset("in", 1, 20));
        assert_eq!(
            t.txn_commit(1, "", -1, offset("in", 0, 43)),
            ErrorCode::None
        );
        assert_eq!(
            t.fetch("in", 0, true),
            (-1, ErrorCode::UnstableOffsetCommit)
        );
        assert_eq!(t.fetch("in", 0, false), (10, ErrorCode::None));
        // Other partitions are answered as ever, in the same response.
        let all = t.groups.offset_fetch(GROUP, None, true);
        let all: Vec<_> = all
            .iter()
            .map(|f| (f.partition, f.offset, f.error))
            .collect();
        let unstable = (0, -1, ErrorCode::UnstableOffsetCommit);
        assert_eq!(all, [unstable, (1, 20, ErrorCode::None)]);
        t.restart();
        assert_eq!(
            t.fetch("in", 0, true),
            (-1, ErrorCode::UnstableOffsetCommit)
        );
        t.end_transaction(1, commit);
        let expected = if commit { 43 } else { 10 };
        assert_eq!(t.fetch("in", 0, true), (expected, ErrorCode::None));
        t.restart();
        assert_eq!(t.fetch("in", 0, true), (expected, ErrorCode::None));
    }
}

#[test]
fn a20_a_stale_generation_leaves_no_pending_offset() {
    let mut t = Coordinator::new();
    let (m1, m2) = t.stable_group_of_two();
    let cases = [
        (m1.as_str(), 0, ErrorCode::IllegalGeneration),
        (m1.as_str(), 2, ErrorCode::IllegalGeneration),
        (m1.as_str(), -1, ErrorCode::IllegalGeneration),
        ("zzz", 1, ErrorCode::UnknownMemberId),
        ("", 1, ErrorCode::UnknownMemberId),
    ];
    for (member_id, generation, expected) in cases {
        let error = t.txn_commit(1, member_id, generation, offset("in", 0, 43));
        assert_eq!(error, expected, "{member_id} {generation}");
        assert_eq!(t.fetch("in", 0, true), (-1, ErrorCode::None));
    }
    assert_eq!(
        t.txn_commit(1, "", -1, offset("in", 0, 43)),
        ErrorCode::None
    );
    assert_eq!(t.fetch("in", 0, true).1, ErrorCode::UnstableOffsetCommit);
    t.end_transaction(1, false);

    // A rebalance is no obstacle, neither while members join nor before the assignment.
    let (_, join_3) = t.start_joining("m3");
    assert_eq!(
        t.txn_commit(1, &m1, 1, offset("in", 0, 44)),
        ErrorCode::None
    );
    t.join(join_of("a", &m1));
    t.join(join_of("b", &m2));
    assert_eq!(t.joined(join_3).generation_id, 2);
    assert_eq!(
        t.txn_commit(1, &m1, 2, offset("in", 0, 45)),
        ErrorCode::None
    );
    // A former generation is fenced as soon as there is a new one.
    assert_eq!(
        t.txn_commit(1, &m1, 1, offset("in", 0, 46)),
        ErrorCode::IllegalGeneration
    );
    t.end_transaction(1, true);
    assert_eq!(t.fetch("in", 0, true), (45, ErrorCode::None));
}

#[test]
fn a_missing_group_and_a_fenced_instance() {
    let mut t = Coordinator::new();
    assert_eq!(
        t.txn_commit(1, "m", 3, offset("in", 0, 1)),
        ErrorCode::IllegalGeneration
    );
    let request = TxnOffsetCommitRequest {
        group_id: String::new(),
        generation_id: -1,
        member_id: String::new(),
        group_instance_id: None,
        offsets: vec![offset("in", 0, 1)],
    };
    let results = t.txn_commit_request(1, request.clone());
    assert_eq!(results[0].error, ErrorCode::InvalidGroupId);

    let join = t.join(crate::coordinator::static_join_of("one", ""));
    t.advance(3_000);
    let one = t.joined(join).member_id;
    let of_instance = |member_id: &str| TxnOffsetCommitRequest {
        group_id: GROUP.to_owned(),
        generation_id: 1,
        member_id: member_id.to_owned(),
        group_instance_id: Some("one".to_owned()),
        ..request.clone()
    };
    assert_eq!(
        t.txn_commit_request(1, of_instance("former"))[0].error,
        ErrorCode::FencedInstanceId
    );
    assert_eq!(
        t.txn_commit_request(1, of_instance(&one))[0].error,
        ErrorCode::None
    );
}

#[test]
fn m7_commit_keeps_the_offset_and_abort_drops_it() {
    for commit in [true, false] {
        let mut t = Coordinator::new();
        t.txn_commit(1, "", -1, offset("in", 0, 99));
        t.end_transaction(1, commit);
        let expected = if commit { 99 } else { -1 };
        assert_eq!(t.fetch("in", 0, true), (expected, ErrorCode::None));
    }
}

#[test]
fn m16_an_aborted_offset_was_never_there() {
    let mut t = Coordinator::new();
    for _ in 0..3 {
        assert_eq!(t.fetch("in", 0, true), (-1, ErrorCode::None));
        t.txn_commit(1, "", -1, offset("in", 0, 10));
        assert_eq!(t.fetch("in", 0, false), (-1, ErrorCode::None));
        t.end_transaction(1, false);
        t.restart();
    }
    assert_eq!(t.fetch("in", 0, true), (-1, ErrorCode::None));
    assert_eq!(
        t.groups.list(),
        [],
        "an aborted transaction leaves no group behind"
    );
}

#[test]
fn the_later_record_wins_whenever_its_marker_comes() {
    let mut t = Coordinator::new();
    t.txn_commit(1, "", -1, offset("in", 0, 10));
    t.txn_commit(2, "", -1, offset("in", 0, 20));
    t.commit("", -1, offset("in", 1, 5));
    t.txn_commit(1, "", -1, offset("in", 1, 6));
    t.end_transaction(2, true);
    assert_eq!(t.fetch("in", 0, false).0, 20);
    assert_eq!(t.fetch("in", 0, true).1, ErrorCode::UnstableOffsetCommit);
    t.end_transaction(1, true);
    assert_eq!(t.fetch("in", 0, true).0, 20, "written before 20");
    assert_eq!(t.fetch("in", 1, true).0, 6, "written after 5");
    // A plain commit after a pending one stands too.
    t.txn_commit(3, "", -1, offset("in", 0, 30));
    t.commit("", -1, offset("in", 0, 31));
    t.end_transaction(3, true);
    assert_eq!(t.fetch("in", 0, true).0, 31);
    t.restart();
    assert_eq!(t.fetch("in", 0, true).0, 31);
}

#[test]
fn the_last_offset_of_a_transaction_counts_and_a_second_marker_does_nothing() {
    let mut t = Coordinator::new();
    t.txn_commit(1, "", -1, offset("in", 0, 10));
    t.txn_commit(1, "", -1, offset("in", 0, 11));
    t.end_transaction(1, true);
    assert_eq!(t.fetch("in", 0, true).0, 11);
    t.commit("", -1, offset("in", 0, 3));
    for partition in 0..50 {
        t.groups.apply_marker(partition, ProducerId(1), true);
        t.groups.apply_marker(partition, ProducerId(99), false);
    }
    assert_eq!(t.fetch("in", 0, true).0, 3);
}
