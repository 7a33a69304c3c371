//! Requests about topics, configuration and the cluster.

use super::*;

pub(super) static CREATE_TOPICS: Struct = row(&[
    array("topics", &CREATABLE_TOPIC),
    int32("timeout_ms"),
    boolean("validate_only"),
]);
static CREATABLE_TOPIC: Struct = row(&[
    string("name"),
    int32("num_partitions"),
    int16("replication_factor"),
    array("assignments", &CREATABLE_REPLICA_ASSIGNMENT),
    array("configs", &CREATABLE_TOPIC_CONFIG),
]);
static CREATABLE_REPLICA_ASSIGNMENT: Struct =
    row(&[int32("partition_index"), int32s("broker_ids")]);
static CREATABLE_TOPIC_CONFIG: Struct = row(&[string("name"), string("value").nullable()]);

pub(super) static DELETE_TOPICS: Struct = row(&[
    array("topics", &DELETE_TOPIC_STATE).since(6),
    strings("topic_names").until(5),
    int32("timeout_ms"),
]);
static DELETE_TOPIC_STATE: Struct = row(&[string("name").nullable(), uuid("topic_id")]);

pub(super) static CREATE_PARTITIONS: Struct = row(&[
    array("topics", &CREATE_PARTITIONS_TOPIC),
    int32("timeout_ms"),
    boolean("validate_only"),
]);
static CREATE_PARTITIONS_TOPIC: Struct = row(&[
    string("name"),
    int32("count"),
    array("assignments", &CREATE_PARTITIONS_ASSIGNMENT).nullable(),
]);
static CREATE_PARTITIONS_ASSIGNMENT: Struct = row(&[int32s("broker_ids")]);

pub(super) static DESCRIBE_LOG_DIRS: Struct =
    row(&[array("topics", &DESCRIBABLE_LOG_DIR_TOPIC).nullable()]);
static DESCRIBABLE_LOG_DIR_TOPIC: Struct = row(&[string("topic"), int32s("partitions")]);

pub(super) static DESCRIBE_CONFIGS: Struct = row(&[
    array("resources", &DESCRIBE_CONFIGS_RESOURCE),
    boolean("include_synonyms"),
    boolean("include_documentation").since(3),
]);
static DESCRIBE_CONFIGS_RESOURCE: Struct = row(&[
    int8("resource_type"),
    string("resource_name"),
    strings("configuration_keys").nullable(),
]);

pub(super) static ALTER_CONFIGS: Struct = row(&[
    array("resources", &REPLACED_CONFIGS_RESOURCE),
    boolean("validate_only"),
]);
static REPLACED_CONFIGS_RESOURCE: Struct = row(&[
    int8("resource_type"),
    string("resource_name"),
    array("configs", &REPLACED_CONFIG),
]);
static REPLACED_CONFIG: Struct = row(&[string("name"), string("value").nullable()]);

pub(super) static INCREMENTAL_ALTER_CONFIGS: Struct = row(&[
    array("resources", &ALTER_CONFIGS_RESOURCE),
    boolean("validate_only"),
]);
static ALTER_CONFIGS_RESOURCE: Struct = row(&[
    int8("resource_type"),
    string("resource_name"),
    array("configs", &ALTERABLE_CONFIG),
]);
static ALTERABLE_CONFIG: Struct = row(&[
    string("name"),
    int8("config_operation"),
    string("value").nullable(),
]);

pub(super) static DESCRIBE_CLUSTER: Struct = row(&[
    boolean("include_cluster_authorized_operations"),
    int8("endpoint_type").since(1),
    boolean("include_fenced_brokers").since(2),
]);

pub(super) static DESCRIBE_CLIENT_QUOTAS: Struct =
    row(&[array("components", &QUOTA_COMPONENT), boolean("strict")]);
static QUOTA_COMPONENT: Struct = row(&[
    string("entity_type"),
    int8("match_type"),
    string("match").nullable(),
]);

pub(super) static ALTER_CLIENT_QUOTAS: Struct =
    row(&[array("entries", &QUOTA_ENTRY), boolean("validate_only")]);
static QUOTA_ENTRY: Struct = row(&[array("entity", &QUOTA_ENTITY), array("ops", &QUOTA_OP)]);
static QUOTA_ENTITY: Struct = row(&[string("entity_type"), string("entity_name").nullable()]);
static QUOTA_OP: Struct = row(&[string("key"), float64("value"), boolean("remove")]);

pub(super) static DESCRIBE_USER_SCRAM_CREDENTIALS: Struct =
    row(&[array("users", &USER_NAME).nullable()]);
static USER_NAME: Struct = row(&[string("name")]);

pub(super) static ALTER_USER_SCRAM_CREDENTIALS: Struct = row(&[
    array("deletions", &SCRAM_CREDENTIAL_DELETION),
    array("upsertions", &SCRAM_CREDENTIAL_UPSERTION),
]);
static SCRAM_CREDENTIAL_DELETION: Struct = row(&[string("name"), int8("mechanism")]);
static SCRAM_CREDENTIAL_UPSERTION: Struct = row(&[
    string("name"),
    int8("mechanism"),
    int32("iterations"),
    bytes("salt"),
    bytes("salted_password"),
]);
