//! Producers and their transactions.

use anyhow::Result;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, DescribeTransactionsRequest, EndTxnRequest,
    InitProducerIdRequest, ListTransactionsRequest, ProducerId, TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
};

use super::Asked;
use super::world::{World, numbers, text};

pub(super) const ASKED: &[Asked] = &[
    Asked {
        key: 22,
        name: "InitProducerId v4",
        rights: &[
            "Write id",
            "Write id-",
            "Describe id",
            "IdempotentWrite cluster, Write topic",
        ],
        ask: |w| init_producer_id(w, true),
    },
    Asked {
        key: 22,
        name: "InitProducerId v4 without a transactional id",
        rights: &[
            "IdempotentWrite cluster",
            "Write topic",
            "All topic-",
            "Read topic",
            "Write id",
            "Write cluster",
        ],
        ask: |w| init_producer_id(w, false),
    },
    Asked {
        key: 24,
        name: "AddPartitionsToTxn v3",
        rights: &[
            "Write id",
            "Write topic",
            "Write id, Read topic",
            "Write id-, Write topic-",
        ],
        ask: add_partitions,
    },
    Asked {
        key: 25,
        name: "AddOffsetsToTxn v3",
        rights: &[
            "Write id",
            "Read group",
            "Write id, Describe group",
            "Write id, Read group",
        ],
        ask: add_offsets,
    },
    Asked {
        key: 26,
        name: "EndTxn v3",
        rights: &["Write id", "Describe id"],
        ask: end_txn,
    },
    Asked {
        key: 28,
        name: "TxnOffsetCommit v3",
        rights: &[
            "Write id",
            "Read group, Read topic",
            "Write id, Read group",
            "Write id, Read topic",
            "Write id, Read group, Read topic",
        ],
        ask: txn_offset_commit,
    },
    Asked {
        key: 27,
        name: "WriteTxnMarkers v1",
        rights: &["Alter cluster", "ClusterAction cluster", "Write topic"],
        ask: write_txn_markers,
    },
    Asked {
        key: 65,
        name: "DescribeTransactions v0",
        rights: &["Describe id", "Write id", "Describe topic"],
        ask: describe_transactions,
    },
    Asked {
        key: 66,
        name: "ListTransactions v1",
        rights: &["Describe id", "Write id-", "Describe cluster"],
        ask: list_transactions,
    },
];

fn init_producer_id(w: &mut World, transactional: bool) -> Result<Vec<i64>> {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(transactional.then(|| w.transactional_id()))
        .with_transaction_timeout_ms(60_000)
        .with_producer_id(ProducerId(-1))
        .with_producer_epoch(-1);
    let answer = w.ask(4, &request)?;
    numbers(answer, |a| {
        vec![a.error_code.into(), a.producer_epoch.into()]
    })
}

fn add_partitions(w: &mut World) -> Result<Vec<i64>> {
    let topic = AddPartitionsToTxnTopic::default()
        .with_name(w.topic_name())
        .with_partitions(vec![0]);
    let request = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(w.transactional_id())
        .with_v3_and_below_producer_id(ProducerId(w.session.0))
        .with_v3_and_below_producer_epoch(w.session.1)
        .with_v3_and_below_topics(vec![topic]);
    let answer = w.ask(3, &request)?;
    numbers(answer, |a| {
        let topics = a.results_by_topic_v3_and_below.iter();
        topics
            .flat_map(|t| &t.results_by_partition)
            .map(|p| p.partition_error_code.into())
            .collect()
    })
}

fn add_offsets(w: &mut World) -> Result<Vec<i64>> {
    let request = AddOffsetsToTxnRequest::default()
        .with_transactional_id(w.transactional_id())
        .with_producer_id(ProducerId(w.session.0))
        .with_producer_epoch(w.session.1)
        .with_group_id(w.group_id());
    let answer = w.ask(3, &request)?;
    numbers(answer, |a| vec![a.error_code.into()])
}

/// Nothing was begun: the session is known, or it is not.
fn end_txn(w: &mut World) -> Result<Vec<i64>> {
    let request = EndTxnRequest::default()
        .with_transactional_id(w.transactional_id())
        .with_producer_id(ProducerId(w.session.0))
        .with_producer_epoch(w.session.1)
        .with_committed(true);
    let answer = w.ask(3, &request)?;
    numbers(answer, |a| vec![a.error_code.into()])
}

fn txn_offset_commit(w: &mut World) -> Result<Vec<i64>> {
    let partition = TxnOffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(0)
        .with_committed_metadata(Some(text("")));
    let topic = TxnOffsetCommitRequestTopic::default()
        .with_name(w.topic_name())
        .with_partitions(vec![partition]);
    let request = TxnOffsetCommitRequest::default()
        .with_transactional_id(w.transactional_id())
        .with_group_id(w.group_id())
        .with_producer_id(ProducerId(w.session.0))
        .with_producer_epoch(w.session.1)
        .with_generation_id(-1)
        .with_topics(vec![topic]);
    let answer = w.ask(3, &request)?;
    numbers(answer, |a| {
        let partitions = a.topics.iter().flat_map(|t| &t.partitions);
        partitions.map(|p| p.error_code.into()).collect()
    })
}

/// An abort of a producer that has written nothing.
fn write_txn_markers(w: &mut World) -> Result<Vec<i64>> {
    let topic = WritableTxnMarkerTopic::default()
        .with_name(w.topic_name())
        .with_partition_indexes(vec![0]);
    let marker = WritableTxnMarker::default()
        .with_producer_id(ProducerId(987_654))
        .with_producer_epoch(0)
        .with_transaction_result(false)
        .with_coordinator_epoch(0)
        .with_topics(vec![topic]);
    let request = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
    let answer = w.ask(1, &request)?;
    numbers(answer, |a| {
        let topics = a.markers.iter().flat_map(|m| &m.topics);
        topics
            .flat_map(|t| &t.partitions)
            .map(|p| p.error_code.into())
            .collect()
    })
}

/// The code, and how many topics are told.
fn describe_transactions(w: &mut World) -> Result<Vec<i64>> {
    let request =
        DescribeTransactionsRequest::default().with_transactional_ids(vec![w.transactional_id()]);
    let answer = w.ask(0, &request)?;
    numbers(answer, |a| {
        let states = a.transaction_states.iter();
        states
            .flat_map(|s| [s.error_code.into(), s.topics.len() as i64])
            .collect()
    })
}

/// The code, and how often the id is told.
fn list_transactions(w: &mut World) -> Result<Vec<i64>> {
    let id = w.transactional_id();
    let request = ListTransactionsRequest::default().with_duration_filter(-1);
    let answer = w.ask(1, &request)?;
    numbers(answer, |a| {
        let told = a.transaction_states.iter();
        let told = told.filter(|s| s.transactional_id == id);
        vec![a.error_code.into(), told.count() as i64]
    })
}
