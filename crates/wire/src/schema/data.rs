//! Requests about a partition's records.

use super::*;

pub(super) static PRODUCE: Struct = row(&[
    string("transactional_id").nullable(),
    int16("acks"),
    int32("timeout_ms"),
    array("topic_data", &PRODUCE_TOPIC),
]);
static PRODUCE_TOPIC: Struct = row(&[
    string("name").until(12),
    uuid("topic_id").since(13),
    array("partition_data", &PRODUCE_PARTITION),
]);
static PRODUCE_PARTITION: Struct = row(&[int32("index"), bytes("records").nullable()]);

pub(super) static FETCH: Struct = Struct {
    fields: &[
        int32("replica_id").until(14),
        int32("max_wait_ms"),
        int32("min_bytes"),
        int32("max_bytes"),
        int8("isolation_level"),
        int32("session_id").since(7),
        int32("session_epoch").since(7),
        array("topics", &FETCH_TOPIC),
        array("forgotten_topics_data", &FORGOTTEN_TOPIC).since(7),
        string("rack_id").since(11),
    ],
    tagged: &[
        string("cluster_id").nullable().tag(0),
        field("replica_state", Kind::Struct(&FETCH_REPLICA_STATE))
            .since(15)
            .tag(1),
    ],
};
static FETCH_REPLICA_STATE: Struct = row(&[int32("replica_id"), int64("replica_epoch")]);
static FETCH_TOPIC: Struct = row(&[
    string("topic").until(12),
    uuid("topic_id").since(13),
    array("partitions", &FETCH_PARTITION),
]);
static FETCH_PARTITION: Struct = Struct {
    fields: &[
        int32("partition"),
        int32("current_leader_epoch").since(9),
        int64("fetch_offset"),
        int32("last_fetched_epoch").since(12),
        int64("log_start_offset").since(5),
        int32("partition_max_bytes"),
    ],
    tagged: &[
        uuid("replica_directory_id").since(17).tag(0),
        int64("high_watermark").since(18).tag(1),
    ],
};
static FORGOTTEN_TOPIC: Struct = row(&[
    string("topic").until(12),
    uuid("topic_id").since(13),
    int32s("partitions"),
]);

pub(super) static LIST_OFFSETS: Struct = row(&[
    int32("replica_id"),
    int8("isolation_level").since(2),
    array("topics", &LIST_OFFSETS_TOPIC),
    int32("timeout_ms").since(10),
]);
static LIST_OFFSETS_TOPIC: Struct =
    row(&[string("name"), array("partitions", &LIST_OFFSETS_PARTITION)]);
static LIST_OFFSETS_PARTITION: Struct = row(&[
    int32("partition_index"),
    int32("current_leader_epoch").since(4),
    int64("timestamp"),
]);

pub(super) static OFFSET_FOR_LEADER_EPOCH: Struct = row(&[
    int32("replica_id").since(3),
    array("topics", &OFFSET_FOR_LEADER_TOPIC),
]);
static OFFSET_FOR_LEADER_TOPIC: Struct = row(&[
    string("topic"),
    array("partitions", &OFFSET_FOR_LEADER_PARTITION),
]);
static OFFSET_FOR_LEADER_PARTITION: Struct = row(&[
    int32("partition"),
    int32("current_leader_epoch"),
    int32("leader_epoch"),
]);

pub(super) static DELETE_RECORDS: Struct =
    row(&[array("topics", &DELETE_RECORDS_TOPIC), int32("timeout_ms")]);
static DELETE_RECORDS_TOPIC: Struct = row(&[
    string("name"),
    array("partitions", &DELETE_RECORDS_PARTITION),
]);
static DELETE_RECORDS_PARTITION: Struct = row(&[int32("partition_index"), int64("offset")]);
