//! Requests to a transaction coordinator, and about transactions.

use super::*;

pub(super) static INIT_PRODUCER_ID: Struct = row(&[
    string("transactional_id").nullable(),
    int32("transaction_timeout_ms"),
    int64("producer_id").since(3),
    int16("producer_epoch").since(3),
]);

pub(super) static ADD_PARTITIONS_TO_TXN: Struct = row(&[
    array("transactions", &ADD_PARTITIONS_TRANSACTION).since(4),
    string("v3_and_below_transactional_id").until(3),
    int64("v3_and_below_producer_id").until(3),
    int16("v3_and_below_producer_epoch").until(3),
    array("v3_and_below_topics", &ADD_PARTITIONS_TOPIC).until(3),
]);
static ADD_PARTITIONS_TRANSACTION: Struct = row(&[
    string("transactional_id"),
    int64("producer_id"),
    int16("producer_epoch"),
    boolean("verify_only"),
    array("topics", &ADD_PARTITIONS_TOPIC),
]);
static ADD_PARTITIONS_TOPIC: Struct = row(&[string("name"), int32s("partitions")]);

pub(super) static ADD_OFFSETS_TO_TXN: Struct = row(&[
    string("transactional_id"),
    int64("producer_id"),
    int16("producer_epoch"),
    string("group_id"),
]);

pub(super) static END_TXN: Struct = row(&[
    string("transactional_id"),
    int64("producer_id"),
    int16("producer_epoch"),
    boolean("committed"),
]);

pub(super) static TXN_OFFSET_COMMIT: Struct = row(&[
    string("transactional_id"),
    string("group_id"),
    int64("producer_id"),
    int16("producer_epoch"),
    int32("generation_id").since(3),
    string("member_id").since(3),
    string("group_instance_id").since(3).nullable(),
    array("topics", &TXN_OFFSET_COMMIT_TOPIC),
]);
static TXN_OFFSET_COMMIT_TOPIC: Struct = row(&[
    string("name"),
    array("partitions", &TXN_OFFSET_COMMIT_PARTITION),
]);
static TXN_OFFSET_COMMIT_PARTITION: Struct = row(&[
    int32("partition_index"),
    int64("committed_offset"),
    int32("committed_leader_epoch").since(2),
    string("committed_metadata").nullable(),
]);

pub(super) static WRITE_TXN_MARKERS: Struct = row(&[array("markers", &WRITABLE_MARKER)]);
static WRITABLE_MARKER: Struct = row(&[
    int64("producer_id"),
    int16("producer_epoch"),
    boolean("transaction_result"),
    array("topics", &WRITABLE_MARKER_TOPIC),
    int32("coordinator_epoch"),
]);
static WRITABLE_MARKER_TOPIC: Struct = row(&[string("name"), int32s("partition_indexes")]);

pub(super) static DESCRIBE_PRODUCERS: Struct = row(&[array("topics", &DESCRIBE_PRODUCERS_TOPIC)]);
static DESCRIBE_PRODUCERS_TOPIC: Struct = row(&[string("name"), int32s("partition_indexes")]);

pub(super) static DESCRIBE_TRANSACTIONS: Struct = row(&[strings("transactional_ids")]);

pub(super) static LIST_TRANSACTIONS: Struct = row(&[
    strings("state_filters"),
    int64s("producer_id_filters"),
    int64("duration_filter").since(1),
    string("transactional_id_pattern").since(2).nullable(),
]);
