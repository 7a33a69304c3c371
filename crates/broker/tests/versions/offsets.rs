//! OffsetCommit, OffsetFetch, OffsetDelete.

use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::{OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest};
use tidemark_testkit::requests::{text, topic_name};
use tidemark_types::ErrorCode;

use crate::World;
use crate::groups::group_id;
use crate::support::code;

pub async fn offset_commit(world: &mut World, version: i16) {
    let topic = world.topic("t", 2).await;
    let group = world.name("g");
    let partition = |index: i32, offset: i64, metadata: &str| {
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(index)
            .with_committed_offset(offset)
            .with_committed_metadata(Some(text(metadata)));
        match version {
            6.. => partition.with_committed_leader_epoch(0),
            _ => partition,
        }
    };
    let request = |partitions| {
        OffsetCommitRequest::default()
            .with_group_id(group_id(&group))
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![
                OffsetCommitRequestTopic::default()
                    .with_name(topic_name(&topic))
                    .with_partitions(partitions),
            ])
    };
    let too_long = "m".repeat(5000);
    let partitions = vec![
        partition(0, 5, "note"),
        partition(7, 1, ""),
        partition(1, 1, &too_long),
    ];
    let response = world.client.send(version, &request(partitions)).await;
    assert_eq!(**response.topics[0].name, *topic);
    for (index, want) in [
        (0, ErrorCode::None),
        (7, ErrorCode::UnknownTopicOrPartition),
        (1, ErrorCode::OffsetMetadataTooLarge),
    ] {
        let mut partitions = response.topics[0].partitions.iter();
        let answer = partitions.find(|p| p.partition_index == index).unwrap();
        assert_eq!(code(answer.error_code), want, "partition {index}");
    }
    let offset = world.client.committed_offset(&group, &topic, 0, true).await;
    assert_eq!(offset, Ok(5));
    let offset = world.client.committed_offset(&group, &topic, 1, true).await;
    assert_eq!(offset, Ok(-1));

    // A generation of a group that does not exist.
    let mut stray = request(vec![partition(0, 6, "")]).with_generation_id_or_member_epoch(1);
    stray.group_id = group_id("nobody's");
    let response = world.client.send(version, &stray).await;
    let want = match version {
        9.. => ErrorCode::GroupIdNotFound,
        _ => ErrorCode::IllegalGeneration,
    };
    assert_eq!(code(response.topics[0].partitions[0].error_code), want);
}

/// One answered partition: (topic, partition, offset, metadata, code).
type Fetched = (String, i32, i64, String, ErrorCode);

async fn fetch_offsets(
    world: &mut World,
    version: i16,
    group: &str,
    topics: Option<Vec<(&str, Vec<i32>)>>,
) -> Vec<Fetched> {
    let mut found = Vec::new();
    if version < 8 {
        let topics = topics.map(|topics| {
            let one = |(topic, partitions)| {
                OffsetFetchRequestTopic::default()
                    .with_name(topic_name(topic))
                    .with_partition_indexes(partitions)
            };
            topics.into_iter().map(one).collect()
        });
        let request = OffsetFetchRequest::default()
            .with_group_id(group_id(group))
            .with_topics(topics)
            .with_require_stable(version >= 7);
        let response = world.client.send(version, &request).await;
        assert_eq!(code(response.error_code), ErrorCode::None);
        for topic in &response.topics {
            for p in &topic.partitions {
                let metadata = p.metadata.as_deref().unwrap_or_default().to_owned();
                let topic = topic.name.to_string();
                let code = code(p.error_code);
                found.push((topic, p.partition_index, p.committed_offset, metadata, code));
                assert_eq!(p.committed_leader_epoch, -1);
            }
        }
    } else {
        let topics = topics.map(|topics| {
            let one = |(topic, partitions)| {
                OffsetFetchRequestTopics::default()
                    .with_name(topic_name(topic))
                    .with_partition_indexes(partitions)
            };
            topics.into_iter().map(one).collect::<Vec<_>>()
        });
        // Several groups in one request; the second has nothing.
        let groups = [group, "nobody's"].map(|group| {
            OffsetFetchRequestGroup::default()
                .with_group_id(group_id(group))
                .with_topics(topics.clone())
        });
        let request = OffsetFetchRequest::default()
            .with_groups(groups.to_vec())
            .with_require_stable(true);
        let response = world.client.send(version, &request).await;
        let answered: Vec<&str> = response.groups.iter().map(|g| &**g.group_id).collect();
        assert_eq!(answered, [group, "nobody's"]);
        for group in &response.groups {
            assert_eq!(code(group.error_code), ErrorCode::None);
        }
        for topic in &response.groups[1].topics {
            assert!(topic.partitions.iter().all(|p| p.committed_offset == -1));
        }
        for topic in &response.groups[0].topics {
            for p in &topic.partitions {
                let metadata = p.metadata.as_deref().unwrap_or_default().to_owned();
                let topic = topic.name.to_string();
                let code = code(p.error_code);
                found.push((topic, p.partition_index, p.committed_offset, metadata, code));
            }
        }
    }
    found.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    found
}

pub async fn offset_fetch(world: &mut World, version: i16) {
    let topic = world.topic("t", 2).await;
    let group = world.name("g");
    let committed = world.client.commit_offsets(&group, &[(&topic, 0, 5)]).await;
    assert_eq!(committed, Ok(()));
    let answer = |partition, offset| -> Fetched {
        (
            topic.clone(),
            partition,
            offset,
            String::new(),
            ErrorCode::None,
        )
    };
    let asked = Some(vec![(topic.as_str(), vec![0, 1])]);
    let found = fetch_offsets(world, version, &group, asked).await;
    assert_eq!(found, [answer(0, 5), answer(1, -1)]);
    let asked = Some(vec![("nobody", vec![3])]);
    let found = fetch_offsets(world, version, &group, asked).await;
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].2, found[0].4),
        (-1, ErrorCode::None),
        "an unknown topic has no offset"
    );
    let found = fetch_offsets(world, version, &group, Some(vec![])).await;
    assert!(found.is_empty(), "an empty list is none");
    if version >= 2 {
        let found = fetch_offsets(world, version, &group, None).await;
        assert_eq!(found, [answer(0, 5)], "null is all");
    }
}

pub async fn offset_delete(world: &mut World, version: i16) {
    let topic = world.topic("t", 2).await;
    let group = world.name("g");
    let offsets = [(topic.as_str(), 0, 1), (topic.as_str(), 1, 2)];
    let committed = world.client.commit_offsets(&group, &offsets).await;
    assert_eq!(committed, Ok(()));
    let request = |group: &str| {
        let partitions = [0, 7]
            .map(|p| OffsetDeleteRequestPartition::default().with_partition_index(p))
            .to_vec();
        OffsetDeleteRequest::default()
            .with_group_id(group_id(group))
            .with_topics(vec![
                OffsetDeleteRequestTopic::default()
                    .with_name(topic_name(&topic))
                    .with_partitions(partitions),
            ])
    };
    let response = world.client.send(version, &request(&group)).await;
    assert_eq!(code(response.error_code), ErrorCode::None);
    for (index, want) in [
        (0, ErrorCode::None),
        (7, ErrorCode::UnknownTopicOrPartition),
    ] {
        let mut partitions = response.topics[0].partitions.iter();
        let answer = partitions.find(|p| p.partition_index == index).unwrap();
        assert_eq!(code(answer.error_code), want, "partition {index}");
    }
    for (partition, want) in [(0, -1), (1, 2)] {
        let offset = world
            .client
            .committed_offset(&group, &topic, partition, true)
            .await;
        assert_eq!(offset, Ok(want));
    }
    let response = world.client.send(version, &request("nobody's")).await;
    assert_eq!(code(response.error_code), ErrorCode::GroupIdNotFound);
}
