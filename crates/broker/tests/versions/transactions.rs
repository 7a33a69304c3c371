//! Producer ids, transactions, and who looks at them.

use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic,
};
use kafka_protocol::messages::{
    DescribeProducersRequest, DescribeTransactionsRequest, ListTransactionsRequest, ProducerId,
    WriteTxnMarkersRequest,
};
use tidemark_testkit::requests::{self, text, topic_name, transactional_id};
use tidemark_testkit::{Isolation, TxnProducer, enrolled, txn_offsets_committed};
use tidemark_types::ErrorCode;

use crate::World;
use crate::support::{code, retry};

/// The code of an overtaken instance, as clients of the version know it (KIP-588).
fn fenced(version: i16, known_from: i16) -> ErrorCode {
    match version >= known_from {
        true => ErrorCode::ProducerFenced,
        false => ErrorCode::InvalidProducerEpoch,
    }
}

pub async fn init_producer_id(world: &mut World, version: i16) {
    let mut ask = async |id: Option<&str>, given: Option<(i64, i16)>| {
        let request = requests::init_producer_id(id, 60_000);
        let request = match given {
            Some((id, epoch)) => request
                .with_producer_id(ProducerId(id))
                .with_producer_epoch(epoch),
            None => request,
        };
        let answer = world.client.send(version, &request).await;
        match code(answer.error_code) {
            ErrorCode::None => Ok((answer.producer_id.0, answer.producer_epoch)),
            error => {
                assert_eq!((answer.producer_id.0, answer.producer_epoch), (-1, -1));
                Err(error)
            }
        }
    };
    let (first, epoch) = ask(None, None).await.unwrap();
    assert_eq!(epoch, 0);
    let (second, _) = ask(None, None).await.unwrap();
    assert_ne!(first, second);
    assert_eq!(ask(Some(""), None).await, Err(ErrorCode::InvalidRequest));

    let id = world.target.name(&format!("tx-init-{version}"));
    let (producer_id, epoch) = ask(Some(&id), None).await.unwrap();
    assert_eq!(epoch, 0);
    assert_eq!(ask(Some(&id), None).await, Ok((producer_id, 1)));
    if version >= 3 {
        // KIP-360: the present pair gets the next epoch, the last one finds the answer again.
        assert_eq!(
            ask(Some(&id), Some((producer_id, 1))).await,
            Ok((producer_id, 2))
        );
        assert_eq!(
            ask(Some(&id), Some((producer_id, 1))).await,
            Ok((producer_id, 2))
        );
        let stale = ask(Some(&id), Some((producer_id, 0))).await;
        assert_eq!(stale, Err(fenced(version, 4)));
        let half = ask(Some(&id), Some((producer_id, -1))).await;
        assert_eq!(half, Err(ErrorCode::InvalidRequest));
    }
}

/// A session, one more of the same id that overtakes it, and a producer id that is not of it.
async fn sessions(world: &mut World) -> (TxnProducer, (i64, i16), (i64, i16)) {
    let id = world.name("tx");
    let before = world.session(&id).await;
    let now = world.session(&id).await;
    let overtaken = before.producer();
    let stranger = (now.producer_id + 1_000_000, now.epoch);
    (now, overtaken, stranger)
}

pub async fn add_partitions_to_txn(world: &mut World, version: i16) {
    let topic = world.topic("t", 2).await;
    let (producer, overtaken, stranger) = sessions(world).await;
    let partitions = [(topic.as_str(), 0), (topic.as_str(), 1)];
    for (who, want) in [
        (overtaken, Err(fenced(version, 2))),
        (stranger, Err(ErrorCode::InvalidProducerIdMapping)),
        (producer.producer(), Ok(())),
        (producer.producer(), Ok(())),
    ] {
        let request = requests::add_partitions(&producer.id, who, &partitions);
        let answer = world.client.send(version, &request).await;
        assert_eq!(enrolled(&answer), want, "{who:?}");
        let answered: usize = answer
            .results_by_topic_v3_and_below
            .iter()
            .map(|t| t.results_by_partition.len())
            .sum();
        assert_eq!(answered, 2);
    }
    // One bad partition fails the whole call.
    let request = requests::add_partitions(&producer.id, producer.producer(), &[(&topic, 0)]);
    let mut request = request;
    request.v3_and_below_topics[0].partitions.push(7);
    let answer = world.client.send(version, &request).await;
    for (index, want) in [
        (0, ErrorCode::OperationNotAttempted),
        (7, ErrorCode::UnknownTopicOrPartition),
    ] {
        let mut results = answer.results_by_topic_v3_and_below[0]
            .results_by_partition
            .iter();
        let result = results.find(|r| r.partition_index == index).unwrap();
        assert_eq!(code(result.partition_error_code), want, "partition {index}");
    }
}

pub async fn add_offsets_to_txn(world: &mut World, version: i16) {
    let (producer, overtaken, stranger) = sessions(world).await;
    let group = world.name("g");
    for (who, group, want) in [
        (overtaken, &*group, fenced(version, 2)),
        (stranger, &*group, ErrorCode::InvalidProducerIdMapping),
        (producer.producer(), &*group, ErrorCode::None),
    ] {
        let request = requests::add_offsets(&producer.id, who, group);
        let answer = world.client.send(version, &request).await;
        assert_eq!(code(answer.error_code), want, "{who:?}");
    }
}

pub async fn end_txn(world: &mut World, version: i16) {
    let topic = world.topic("t", 1).await;
    let (mut producer, overtaken, stranger) = sessions(world).await;
    for (who, want) in [
        (overtaken, fenced(version, 2)),
        (stranger, ErrorCode::InvalidProducerIdMapping),
    ] {
        let request = requests::end_txn(&producer.id, who, true);
        let answer = world.client.send(version, &request).await;
        assert_eq!(code(answer.error_code), want, "{who:?}");
    }
    let mut end = 0;
    for committed in [true, false] {
        world.begin(&producer, &[(&topic, 0)]).await;
        assert_eq!(
            producer.send(&mut world.client, &topic, 0, &["r"]).await,
            Ok(end)
        );
        let request = requests::end_txn(&producer.id, producer.producer(), committed);
        let answer = world.client.send(version, &request).await;
        assert_eq!(code(answer.error_code), ErrorCode::None);
        let next = (answer.producer_id.0, answer.producer_epoch);
        if version >= 5 {
            // The end of every transaction bumps the epoch (KIP-890).
            assert_eq!(next, (producer.producer_id, producer.epoch + 1));
            producer.epoch += 1;
            producer.sequences.clear();
        } else {
            assert_eq!(next, (-1, -1));
        }
        end += 2;
        world
            .target
            .assert_ends(&mut world.client, &topic, 0, (end, end))
            .await;
    }
    let values = world
        .client
        .read_values(&topic, 0, Isolation::ReadCommitted)
        .await;
    assert_eq!(values, ["r"]);
}

pub async fn txn_offset_commit(world: &mut World, version: i16) {
    let topic = world.topic("t", 1).await;
    let (producer, overtaken, stranger) = sessions(world).await;
    let group = world.name("g");
    let offsets = [(topic.as_str(), 0, 43)];
    if version < 5 {
        // Before v5 the group has to be added first.
        let request =
            requests::txn_offset_commit(&producer.id, producer.producer(), &group, &offsets);
        let answer = world.client.send(version, &request).await;
        let want = match version {
            4.. => ErrorCode::TransactionAbortable,
            _ => ErrorCode::InvalidTxnState,
        };
        assert_eq!(txn_offsets_committed(&answer), Err(want));
        let client = &mut world.client;
        let added = client
            .add_offsets(&producer.id, producer.producer(), &group)
            .await;
        assert_eq!(added, Ok(()));
    }
    for (who, want) in [
        (overtaken, Err(ErrorCode::InvalidProducerEpoch)),
        (stranger, Err(ErrorCode::InvalidProducerIdMapping)),
        (producer.producer(), Ok(())),
    ] {
        let request = requests::txn_offset_commit(&producer.id, who, &group, &offsets);
        let answer = world.client.send(version, &request).await;
        assert_eq!(txn_offsets_committed(&answer), want, "{who:?}");
    }
    let pending = world.client.committed_offset(&group, &topic, 0, true).await;
    assert_eq!(pending, Err(ErrorCode::UnstableOffsetCommit));
    assert_eq!(producer.end(&mut world.client, true).await, Ok(()));
    let of = (group.as_str(), topic.as_str(), 0);
    world
        .target
        .assert_committed(&mut world.client, of, 43)
        .await;
}

/// A session with a transaction that has one record in partition 0 of a topic of its own.
async fn open_transaction(world: &mut World) -> (String, TxnProducer) {
    let topic = world.topic("t", 2).await;
    let id = world.name("tx");
    let mut producer = world.session(&id).await;
    world.begin(&producer, &[(&topic, 0)]).await;
    assert_eq!(
        producer.send(&mut world.client, &topic, 0, &["r"]).await,
        Ok(0)
    );
    (topic, producer)
}

pub async fn write_txn_markers(world: &mut World, version: i16) {
    let (topic, producer) = open_transaction(world).await;
    let request = WriteTxnMarkersRequest::default().with_markers(vec![
        WritableTxnMarker::default()
            .with_producer_id(ProducerId(producer.producer_id))
            .with_producer_epoch(producer.epoch)
            .with_transaction_result(false)
            .with_coordinator_epoch(0)
            .with_topics(vec![
                WritableTxnMarkerTopic::default()
                    .with_name(topic_name(&topic))
                    .with_partition_indexes(vec![0]),
            ]),
    ]);
    let response = world.client.send(version, &request).await;
    let marker = &response.markers[0];
    assert_eq!(marker.producer_id.0, producer.producer_id);
    let answer = &marker.topics[0].partitions[0];
    assert_eq!(
        (answer.partition_index, code(answer.error_code)),
        (0, ErrorCode::None)
    );
    world
        .target
        .assert_ends(&mut world.client, &topic, 0, (2, 2))
        .await;
    let values = world
        .client
        .read_values(&topic, 0, Isolation::ReadCommitted)
        .await;
    assert!(values.is_empty());
}

pub async fn describe_producers(world: &mut World, version: i16) {
    let (topic, producer) = open_transaction(world).await;
    let request = DescribeProducersRequest::default().with_topics(vec![
        TopicRequest::default()
            .with_name(topic_name(&topic))
            .with_partition_indexes(vec![0, 1, 7]),
    ]);
    let response = world.client.send(version, &request).await;
    let partition = |index: i32| {
        let mut partitions = response.topics[0].partitions.iter();
        partitions.find(|p| p.partition_index == index).unwrap()
    };
    assert_eq!(code(partition(0).error_code), ErrorCode::None);
    let found = &partition(0).active_producers[0];
    assert_eq!(found.producer_id.0, producer.producer_id);
    assert_eq!(found.producer_epoch, i32::from(producer.epoch));
    assert_eq!(
        (found.last_sequence, found.current_txn_start_offset),
        (0, 0)
    );
    assert_eq!(found.coordinator_epoch, -1, "no marker has come here");
    assert!(partition(1).active_producers.is_empty());
    assert_eq!(
        code(partition(7).error_code),
        ErrorCode::UnknownTopicOrPartition
    );
}

pub async fn describe_transactions(world: &mut World, version: i16) {
    let (topic, producer) = open_transaction(world).await;
    let request = DescribeTransactionsRequest::default().with_transactional_ids(vec![
        transactional_id(&producer.id),
        transactional_id("nobody's"),
    ]);
    let response = world.client.send(version, &request).await;
    let state = |id: &str| {
        let mut states = response.transaction_states.iter();
        states.find(|s| **s.transactional_id == *id).unwrap()
    };
    let found = state(&producer.id);
    assert_eq!(code(found.error_code), ErrorCode::None);
    assert_eq!(&*found.transaction_state, "Ongoing");
    assert_eq!(found.transaction_timeout_ms, 60_000);
    assert!(found.transaction_start_time_ms > 0);
    assert_eq!(
        (found.producer_id.0, found.producer_epoch),
        producer.producer()
    );
    assert_eq!(found.topics.len(), 1);
    assert_eq!(
        (&**found.topics[0].topic, &*found.topics[0].partitions),
        (&*topic, &[0][..])
    );
    let unknown = state("nobody's");
    assert_eq!(code(unknown.error_code), ErrorCode::TransactionalIdNotFound);
}

pub async fn list_transactions(world: &mut World, version: i16) {
    let (_topic, producer) = open_transaction(world).await;
    let all = ListTransactionsRequest::default();
    let ids = |of: &[i64]| of.iter().map(|id| ProducerId(*id)).collect::<Vec<_>>();
    let mut cases = vec![
        (all.clone(), true),
        (all.clone().with_state_filters(vec![text("Ongoing")]), true),
        (
            all.clone().with_state_filters(vec![text("CompleteCommit")]),
            false,
        ),
        (
            all.clone()
                .with_producer_id_filters(ids(&[producer.producer_id])),
            true,
        ),
        (
            all.clone()
                .with_producer_id_filters(ids(&[producer.producer_id + 1_000_000])),
            false,
        ),
    ];
    if version >= 1 {
        // Only those that have run for so long, in milliseconds.
        cases.push((all.clone().with_duration_filter(3_600_000), false));
    }
    if version >= 2 {
        let pattern = format!("{}.*", &producer.id[..5]);
        cases.push((
            all.clone()
                .with_transactional_id_pattern(Some(text(&pattern))),
            true,
        ));
        cases.push((
            all.clone()
                .with_transactional_id_pattern(Some(text("no-such"))),
            false,
        ));
    }
    for (request, listed) in cases {
        let found = retry("the coordinator lists", async || {
            let response = world.client.send(version, &request).await;
            assert_eq!(code(response.error_code), ErrorCode::None);
            assert!(response.unknown_state_filters.is_empty());
            Some(response)
        })
        .await;
        let mut states = found.transaction_states.iter();
        let state = states.find(|s| **s.transactional_id == *producer.id);
        assert_eq!(state.is_some(), listed, "{request:?}");
        if let Some(state) = state {
            assert_eq!(&*state.transaction_state, "Ongoing");
            assert_eq!(state.producer_id.0, producer.producer_id);
        }
    }
    let unknown = all.with_state_filters(vec![text("NoSuchState")]);
    let response = world.client.send(version, &unknown).await;
    let told: Vec<&str> = response
        .unknown_state_filters
        .iter()
        .map(|s| &**s)
        .collect();
    assert_eq!(told, ["NoSuchState"]);
}
