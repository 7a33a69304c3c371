//! A group's offsets in transactions (KIP-447).

use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::{GroupId, OffsetFetchRequest};
use tidemark_testkit::requests::{self, text, topic_name};
use tidemark_testkit::{
    Batch, Dialect, Isolation, RawClient, TxnProducer, txn_offsets_committed, version,
};
use tidemark_types::ErrorCode;

use crate::support::member::{Member, sync};
use crate::support::{Target, code, in_both_dialects};

/// OffsetFetch v7 of a topic's partitions 0 and 1: (code, offset) each.
async fn fetch_v7(
    client: &mut RawClient,
    group: &str,
    topic: &str,
    require_stable: bool,
) -> Vec<(ErrorCode, i64)> {
    let topics = vec![
        OffsetFetchRequestTopic::default()
            .with_name(topic_name(topic))
            .with_partition_indexes(vec![0, 1]),
    ];
    let request = OffsetFetchRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_topics(Some(topics))
        .with_require_stable(require_stable);
    let response = client.send(7, &request).await;
    assert_eq!(code(response.error_code), ErrorCode::None);
    response.topics[0]
        .partitions
        .iter()
        .map(|p| (code(p.error_code), p.committed_offset))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a19_a_stable_offset_is_waited_for_partition_by_partition() {
    in_both_dialects(a19_story).await;
}

async fn a19_story(dialect: Dialect) {
    let (none, unstable) = (ErrorCode::None, ErrorCode::UnstableOffsetCommit);
    for (committed, after) in [(true, 43), (false, 10)] {
        let target = Target::start().await;
        let mut client = target.client().await;
        let input = target.topic(&mut client, "in", 2).await;
        let group = target.name("g");
        let before = [(input.as_str(), 0, 10), (input.as_str(), 1, 20)];
        assert_eq!(client.commit_offsets(&group, &before).await, Ok(()));
        let producer = target
            .session_in(&mut client, &target.name("tx"), dialect)
            .await;
        let pending = [(input.as_str(), 0, 43)];
        assert_eq!(
            producer.send_offsets(&mut client, &group, &pending).await,
            Ok(())
        );

        let stable = fetch_v7(&mut client, &group, &input, true).await;
        assert_eq!(stable, [(unstable, -1), (none, 20)]);
        let any = fetch_v7(&mut client, &group, &input, false).await;
        assert_eq!(any, [(none, 10), (none, 20)]);

        assert_eq!(producer.end(&mut client, committed).await, Ok(()));
        target
            .assert_committed(&mut client, (&group, &input, 0), after)
            .await;
        let stable = fetch_v7(&mut client, &group, &input, true).await;
        assert_eq!(stable, [(none, after), (none, 20)]);
    }
}

/// TxnOffsetCommit v3 of a member.
async fn commit_as(
    client: &mut RawClient,
    producer: &TxnProducer,
    topic: &str,
    member: (&str, &str, i32),
    offset: i64,
) -> Result<(), ErrorCode> {
    let (group, member_id, generation) = member;
    let offsets = [(topic, 0, offset)];
    let request = requests::txn_offset_commit(&producer.id, producer.producer(), group, &offsets)
        .with_member_id(text(member_id))
        .with_generation_id(generation);
    txn_offsets_committed(&client.send(version::TXN_OFFSET_COMMIT, &request).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a20_a_former_owner_of_partitions_cannot_commit_them() {
    let target = Target::start().await;
    let mut client = target.client().await;
    let input = target.topic(&mut client, "in", 1).await;
    let group = target.name("g");
    let mut member = Member::alone(&mut client, &group).await;
    while member.generation < 5 {
        let metadata = format!("v{}", member.generation);
        member.rejoin(&mut client, metadata.as_bytes()).await;
    }
    assert_eq!(member.generation, 5);
    let m1 = member.member_id.clone();
    let producer = target.session(&mut client, &target.name("tx")).await;
    let added = client
        .add_offsets(&producer.id, producer.producer(), &group)
        .await;
    assert_eq!(added, Ok(()));

    for (what, member_id, generation, want) in [
        (
            "the generation before",
            m1.as_str(),
            4,
            ErrorCode::IllegalGeneration,
        ),
        ("one to come", m1.as_str(), 6, ErrorCode::IllegalGeneration),
        ("a stranger", "zzz", 5, ErrorCode::UnknownMemberId),
        (
            "a stranger without a generation",
            "zzz",
            -1,
            ErrorCode::UnknownMemberId,
        ),
        (
            "a generation and no member",
            "",
            5,
            ErrorCode::UnknownMemberId,
        ),
    ] {
        let by = (group.as_str(), member_id, generation);
        let committed = commit_as(&mut client, &producer, &input, by, 7).await;
        assert_eq!(committed, Err(want), "{what}");
        let stable = client.committed_offset(&group, &input, 0, true).await;
        assert_eq!(stable, Ok(-1), "{what}: nothing is pending");
    }

    // Old clients say nothing of themselves.
    let anonymous = (group.as_str(), "", -1);
    let committed = commit_as(&mut client, &producer, &input, anonymous, 1).await;
    assert_eq!(committed, Ok(()));
    let current = (group.as_str(), m1.as_str(), 5);
    let committed = commit_as(&mut client, &producer, &input, current, 2).await;
    assert_eq!(committed, Ok(()));

    // While the group waits for its assignment a commit of the current generation still counts.
    let joined = member.start_rebalance(&mut client, b"v5").await;
    assert_eq!(joined.generation_id, 6);
    let current = (group.as_str(), m1.as_str(), 6);
    let committed = commit_as(&mut client, &producer, &input, current, 3).await;
    assert_eq!(committed, Ok(()));
    let synced = client.send(3, &sync(&group, 6, &m1, Some(b"all"))).await;
    assert_eq!(code(synced.error_code), ErrorCode::None);

    let stable = client.committed_offset(&group, &input, 0, true).await;
    assert_eq!(stable, Err(ErrorCode::UnstableOffsetCommit));
    assert_eq!(producer.end(&mut client, true).await, Ok(()));
    target
        .assert_committed(&mut client, (&group, &input, 0), 3)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m16_an_aborted_transaction_moves_no_offset() {
    in_both_dialects(m16_story).await;
}

async fn m16_story(dialect: Dialect) {
    let target = Target::start().await;
    let mut client = target.client().await;
    let input = target.topic(&mut client, "in", 1).await;
    let output = target.topic(&mut client, "out", 1).await;
    let group = target.name("g");
    let ten: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    assert_eq!(
        client.produce(&input, 0, Batch::of(&ten).build()).await,
        Ok(0)
    );

    let mut producer = target
        .session_in(&mut client, &target.name("tx"), dialect)
        .await;
    for attempt in 0..2 {
        // A member starts, finds no offset and reads from the beginning.
        let member = Member::alone(&mut client, &group).await;
        let committed = client.committed_offset(&group, &input, 0, true).await;
        assert_eq!(committed, Ok(-1), "attempt {attempt}");
        let read = client
            .read_values(&input, 0, Isolation::ReadCommitted)
            .await;
        assert_eq!(read, ten, "attempt {attempt}");
        target.begin(&mut client, &producer, &[(&output, 0)]).await;
        assert!(producer.send(&mut client, &output, 0, &read).await.is_ok());
        let offsets = [(input.as_str(), 0, 10)];
        assert_eq!(
            producer.send_offsets(&mut client, &group, &offsets).await,
            Ok(())
        );
        assert_eq!(
            client.committed_offset(&group, &input, 0, false).await,
            Ok(-1)
        );
        assert_eq!(producer.end_and_go_on(&mut client, false).await, Ok(()));
        target
            .assert_committed(&mut client, (&group, &input, 0), -1)
            .await;
        let left = crate::support::member::leave(&group, &member.member_id);
        assert_eq!(
            code(client.send(1, &left).await.error_code),
            ErrorCode::None
        );
    }
    let values = client
        .read_values(&output, 0, Isolation::ReadCommitted)
        .await;
    assert!(values.is_empty(), "{values:?}");
}
