//! Requests to a group coordinator.

use super::*;

pub(super) static OFFSET_COMMIT: Struct = row(&[
    string("group_id"),
    int32("generation_id_or_member_epoch"),
    string("member_id"),
    string("group_instance_id").since(7).nullable(),
    int64("retention_time_ms").until(4),
    array("topics", &OFFSET_COMMIT_TOPIC),
]);
static OFFSET_COMMIT_TOPIC: Struct = row(&[
    string("name"),
    array("partitions", &OFFSET_COMMIT_PARTITION),
]);
static OFFSET_COMMIT_PARTITION: Struct = row(&[
    int32("partition_index"),
    int64("committed_offset"),
    int32("committed_leader_epoch").since(6),
    string("committed_metadata").nullable(),
]);

pub(super) static OFFSET_FETCH: Struct = row(&[
    string("group_id").until(7),
    array("topics", &OFFSET_FETCH_TOPIC).until(7).nullable(),
    array("groups", &OFFSET_FETCH_GROUP).since(8),
    boolean("require_stable").since(7),
]);
static OFFSET_FETCH_GROUP: Struct = row(&[
    string("group_id"),
    string("member_id").since(9).nullable(),
    int32("member_epoch").since(9),
    array("topics", &OFFSET_FETCH_TOPIC).nullable(),
]);
static OFFSET_FETCH_TOPIC: Struct = row(&[string("name"), int32s("partition_indexes")]);

pub(super) static OFFSET_DELETE: Struct =
    row(&[string("group_id"), array("topics", &OFFSET_DELETE_TOPIC)]);
static OFFSET_DELETE_TOPIC: Struct = row(&[
    string("name"),
    array("partitions", &OFFSET_DELETE_PARTITION),
]);
static OFFSET_DELETE_PARTITION: Struct = row(&[int32("partition_index")]);

pub(super) static JOIN_GROUP: Struct = row(&[
    string("group_id"),
    int32("session_timeout_ms"),
    int32("rebalance_timeout_ms").since(1),
    string("member_id"),
    string("group_instance_id").since(5).nullable(),
    string("protocol_type"),
    array("protocols", &JOIN_GROUP_PROTOCOL),
    string("reason").since(8).nullable(),
]);
static JOIN_GROUP_PROTOCOL: Struct = row(&[string("name"), bytes("metadata")]);

pub(super) static SYNC_GROUP: Struct = row(&[
    string("group_id"),
    int32("generation_id"),
    string("member_id"),
    string("group_instance_id").since(3).nullable(),
    string("protocol_type").since(5).nullable(),
    string("protocol_name").since(5).nullable(),
    array("assignments", &SYNC_GROUP_ASSIGNMENT),
]);
static SYNC_GROUP_ASSIGNMENT: Struct = row(&[string("member_id"), bytes("assignment")]);

pub(super) static HEARTBEAT: Struct = row(&[
    string("group_id"),
    int32("generation_id"),
    string("member_id"),
    string("group_instance_id").since(3).nullable(),
]);

pub(super) static LEAVE_GROUP: Struct = row(&[
    string("group_id"),
    string("member_id").until(2),
    array("members", &LEAVE_GROUP_MEMBER).since(3),
]);
static LEAVE_GROUP_MEMBER: Struct = row(&[
    string("member_id"),
    string("group_instance_id").nullable(),
    string("reason").since(5).nullable(),
]);

pub(super) static DESCRIBE_GROUPS: Struct = row(&[
    strings("groups"),
    boolean("include_authorized_operations").since(3),
]);

pub(super) static LIST_GROUPS: Struct = row(&[
    strings("states_filter").since(4),
    strings("types_filter").since(5),
]);

pub(super) static DELETE_GROUPS: Struct = row(&[strings("groups_names")]);
