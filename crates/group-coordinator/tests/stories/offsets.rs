use tidemark_group_coordinator::{GroupConfig, GroupState, OffsetCommitRequest, OffsetToCommit};
use tidemark_types::ErrorCode;

use crate::coordinator::{Coordinator, GROUP, join_of, offset};

fn request(
    member_id: &str,
    generation_id: i32,
    offsets: Vec<OffsetToCommit>,
) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: GROUP.to_owned(),
        generation_id,
        member_id: member_id.to_owned(),
        group_instance_id: None,
        offsets,
        retention_time_ms: -1,
        reports_missing_group: false,
    }
}

#[test]
fn a_simple_consumer_commits_while_the_group_has_no_members() {
    let mut t = Coordinator::new();
    assert_eq!(t.fetch("t", 0, true), (-1, ErrorCode::None));
    assert_eq!(t.commit("", -1, offset("t", 0, 10)), ErrorCode::None);
    assert_eq!(t.state(), GroupState::Empty);
    assert_eq!(t.groups.list()[0].protocol_type, "");
    assert_eq!(t.commit("", -1, offset("t", 0, 5)), ErrorCode::None);
    assert_eq!(
        t.fetch("t", 0, false),
        (5, ErrorCode::None),
        "going back is legal"
    );

    let a = t.stable_group_of_one();
    assert_eq!(
        t.commit("", -1, offset("t", 0, 99)),
        ErrorCode::UnknownMemberId
    );
    assert_eq!(t.commit(&a, 1, offset("t", 0, 11)), ErrorCode::None);
    t.leave(&a);
    assert_eq!(t.commit("", -1, offset("t", 0, 7)), ErrorCode::None);
    assert_eq!(
        t.commit(&a, 1, offset("t", 0, 12)),
        ErrorCode::UnknownMemberId
    );
    assert_eq!(t.fetch("t", 0, false), (7, ErrorCode::None));
    t.restart();
    assert_eq!(t.fetch("t", 0, false), (7, ErrorCode::None));
}

#[test]
fn a_member_commits_in_its_generation_only() {
    let mut t = Coordinator::new();
    let missing = |reports_missing_group| OffsetCommitRequest {
        retention_time_ms: -1,
        reports_missing_group,
        ..request("a", 1, vec![offset("t", 0, 1)])
    };
    assert_eq!(
        t.commit_request(missing(false))[0].error,
        ErrorCode::IllegalGeneration
    );
    assert_eq!(
        t.commit_request(missing(true))[0].error,
        ErrorCode::GroupIdNotFound
    );

    let (a, b) = t.stable_group_of_two();
    let cases = [
        (a.as_str(), 1, ErrorCode::None),
        (a.as_str(), 0, ErrorCode::IllegalGeneration),
        (a.as_str(), -1, ErrorCode::IllegalGeneration),
        ("stranger", 1, ErrorCode::UnknownMemberId),
        ("", 1, ErrorCode::UnknownMemberId),
    ];
    for (member_id, generation, expected) in cases {
        let error = t.commit(member_id, generation, offset("t", 0, 1));
        assert_eq!(error, expected, "{member_id} {generation}");
    }
    // While members join again they may commit what they have, so that nothing is read twice.
    let (_, join_c) = t.start_joining("c");
    assert_eq!(t.commit(&a, 1, offset("t", 0, 2)), ErrorCode::None);
    t.join(join_of("a", &a));
    t.join(join_of("b", &b));
    assert_eq!(t.joined(join_c).generation_id, 2);
    // With the new generation, but without an assignment, there is nothing to commit.
    assert_eq!(
        t.commit(&a, 2, offset("t", 0, 3)),
        ErrorCode::RebalanceInProgress
    );
    assert_eq!(
        t.commit(&a, 1, offset("t", 0, 3)),
        ErrorCode::IllegalGeneration
    );
    assert_eq!(t.fetch("t", 0, false).0, 2);
}

#[test]
fn one_partition_can_fail_alone() {
    let mut t = Coordinator::new();
    let with_metadata = |partition, text: String| OffsetToCommit {
        metadata: Some(text),
        ..offset("t", partition, 1)
    };
    let results = t.commit_request(request(
        "",
        -1,
        vec![
            with_metadata(0, "m".repeat(4_096)),
            with_metadata(1, "m".repeat(4_097)),
            // 4,096 UTF-16 code units, more bytes.
            with_metadata(2, "ü".repeat(4_096)),
            OffsetToCommit {
                topic: "x".repeat(40_000),
                ..offset("", 0, 1)
            },
        ],
    ));
    let errors: Vec<ErrorCode> = results.iter().map(|r| r.error).collect();
    assert_eq!(
        errors,
        [
            ErrorCode::None,
            ErrorCode::OffsetMetadataTooLarge,
            ErrorCode::None,
            ErrorCode::InvalidTopicException,
        ]
    );
    let fetched = t.groups.offset_fetch(GROUP, None, true);
    assert_eq!(
        fetched.iter().map(|f| f.partition).collect::<Vec<_>>(),
        [0, 2]
    );
    assert_eq!(fetched[0].metadata.len(), 4_096);
    assert_eq!(fetched[0].leader_epoch, 3);
}

#[test]
fn a_commit_that_is_too_large_for_a_batch_is_refused_whole() {
    let mut t = Coordinator::with(GroupConfig {
        max_batch_bytes: 1_000,
        ..GroupConfig::default()
    });
    let offsets: Vec<OffsetToCommit> = (0..100).map(|p| offset("t", p, 1)).collect();
    let results = t.commit_request(request("", -1, offsets));
    assert_eq!(results.len(), 100);
    assert!(
        results
            .iter()
            .all(|r| r.error == ErrorCode::InvalidCommitOffsetSize)
    );
    assert_eq!(t.state(), GroupState::Dead);
}

#[test]
fn offsets_are_fetched_as_asked_or_sorted() {
    let mut t = Coordinator::new();
    let offsets = vec![
        offset("b", 1, 4),
        offset("b", 0, 3),
        offset("a", 10, 2),
        offset("a", 9, 1),
    ];
    t.commit_request(request("", -1, offsets));
    let all: Vec<_> = (t.groups.offset_fetch(GROUP, None, false).into_iter())
        .map(|f| (f.topic, f.partition, f.offset))
        .collect();
    let expected = [("a", 9, 1), ("a", 10, 2), ("b", 0, 3), ("b", 1, 4)];
    assert_eq!(all, expected.map(|(t, p, o)| (t.to_owned(), p, o)));
    let asked = [("b".to_owned(), vec![7, 0]), ("zzz".to_owned(), vec![0])];
    let some: Vec<_> = (t
        .groups
        .offset_fetch(GROUP, Some(&asked), false)
        .into_iter())
    .map(|f| (f.topic, f.partition, f.offset))
    .collect();
    let expected = [("b", 7, -1), ("b", 0, 3), ("zzz", 0, -1)];
    assert_eq!(some, expected.map(|(t, p, o)| (t.to_owned(), p, o)));
    assert_eq!(t.groups.offset_fetch("other", None, true), []);
}

#[test]
fn a_deleted_topic_takes_its_offsets_with_it() {
    let mut t = Coordinator::new();
    t.commit_request(request(
        "",
        -1,
        vec![offset("t", 0, 1), offset("t", 1, 1), offset("u", 0, 1)],
    ));
    t.txn_commit(7, "", -1, offset("t", 1, 50));
    t.txn_commit(7, "", -1, offset("t", 2, 50));
    t.delete_topic("t");
    t.end_transaction(7, true);
    let left = t.groups.offset_fetch(GROUP, None, true);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].topic, "u");
    t.restart();
    assert_eq!(t.groups.offset_fetch(GROUP, None, true), left);
    t.delete_topic("u");
    assert_eq!(t.state(), GroupState::Dead);
}

#[test]
fn a_deleted_group_takes_its_offsets_with_it_pending_ones_too() {
    let mut t = Coordinator::new();
    t.commit("", -1, offset("t", 0, 1));
    t.txn_commit(7, "", -1, offset("t", 1, 50));
    assert_eq!(t.delete_group(GROUP), ErrorCode::None);
    assert_eq!(t.state(), GroupState::Dead);
    t.end_transaction(7, true);
    assert_eq!(t.groups.offset_fetch(GROUP, None, true), []);
    t.restart();
    assert_eq!(t.state(), GroupState::Dead);
}

#[test]
fn the_empty_group_id_has_offsets_but_no_members() {
    let mut t = Coordinator::new();
    let results = t.commit_request(OffsetCommitRequest {
        group_id: String::new(),
        ..request("", -1, vec![offset("t", 0, 1)])
    });
    assert_eq!(results[0].error, ErrorCode::None);
    assert_eq!(t.groups.offset_fetch("", None, false).len(), 1);
}
