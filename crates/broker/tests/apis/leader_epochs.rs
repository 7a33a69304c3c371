//! OffsetForLeaderEpoch (KIP-320): a consumer finds out whether the log is still the one it read.

use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{BrokerId, OffsetForLeaderEpochRequest};
use tidemark_testkit::requests::{error_code, topic_name};
use tidemark_testkit::{Batch, RawClient, TestBroker};
use tidemark_types::ErrorCode;

/// (epoch, end offset) or the error, for an epoch of `topic`-`partition`.
async fn end_of(
    client: &mut RawClient,
    version: i16,
    (topic, partition): (&str, i32),
    current_epoch: i32,
    epoch: i32,
) -> Result<(i32, i64), ErrorCode> {
    let request = OffsetForLeaderEpochRequest::default()
        .with_replica_id(BrokerId(match version {
            2 => -2,
            _ => -1,
        }))
        .with_topics(vec![
            OffsetForLeaderTopic::default()
                .with_topic(topic_name(topic))
                .with_partitions(vec![
                    OffsetForLeaderPartition::default()
                        .with_partition(partition)
                        .with_current_leader_epoch(current_epoch)
                        .with_leader_epoch(epoch),
                ]),
        ]);
    let response = client.send(version, &request).await;
    let found = &response.topics[0].partitions[0];
    assert_eq!(found.partition, partition);
    match error_code(found.error_code) {
        ErrorCode::None => Ok((found.leader_epoch, found.end_offset)),
        error => Err(error),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_epoch_ends_where_the_next_began() {
    let broker = TestBroker::start().await;
    let mut client = broker.client().await;
    client.create_topic("t", 1).await;
    let first = client.describe_topic("t").await.partitions[0].leader_epoch;
    let batch = Batch::of(&["a", "b", "c"]).build();
    client.produce("t", 0, batch.clone()).await.unwrap();
    for version in 2..=4 {
        let mut ask = async |current, epoch| {
            let end = end_of(&mut client, version, ("t", 0), current, epoch);
            end.await
        };
        assert_eq!(ask(-1, first).await, Ok((first, 3)));
        assert_eq!(ask(first, first).await, Ok((first, 3)));
        assert_eq!(ask(-1, -1).await, Ok((-1, -1)));
        assert_eq!(ask(-1, first + 1).await, Ok((-1, -1)));
        let ahead = ask(first + 1, first).await;
        assert_eq!(ahead, Err(ErrorCode::UnknownLeaderEpoch));
        for missing in [("t", 1), ("no", 0)] {
            let error = end_of(&mut client, version, missing, -1, 0).await;
            assert_eq!(error, Err(ErrorCode::UnknownTopicOrPartition));
        }
    }

    // The epoch rises over a power cut; what was written before ended where it ended.
    let broker = broker.crash(3).await.start().await;
    let mut client = broker.client().await;
    let second = client.describe_topic("t").await.partitions[0].leader_epoch;
    assert!(second > first);
    client.produce("t", 0, batch).await.unwrap();
    for version in 2..=4 {
        let mut ask = async |current, epoch| {
            let end = end_of(&mut client, version, ("t", 0), current, epoch);
            end.await
        };
        assert_eq!(ask(-1, first).await, Ok((first, 3)));
        assert_eq!(ask(second, second).await, Ok((second, 6)));
        let stale = ask(first, first).await;
        assert_eq!(stale, Err(ErrorCode::FencedLeaderEpoch));
    }
}
