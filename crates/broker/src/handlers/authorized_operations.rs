//! What a client may do, where a response tells it (KIP-430). Without an authorizer that is everything
//! the kind of resource knows, as in Kafka.

/// The field's value where it was not asked for.
pub(crate) const NOT_ASKED: i32 = i32::MIN;

const READ: i32 = 1 << 3;
const WRITE: i32 = 1 << 4;
const CREATE: i32 = 1 << 5;
const DELETE: i32 = 1 << 6;
const ALTER: i32 = 1 << 7;
const DESCRIBE: i32 = 1 << 8;
const CLUSTER_ACTION: i32 = 1 << 9;
const DESCRIBE_CONFIGS: i32 = 1 << 10;
const ALTER_CONFIGS: i32 = 1 << 11;
const IDEMPOTENT_WRITE: i32 = 1 << 12;

const TOPIC: i32 =
    READ | WRITE | CREATE | DELETE | ALTER | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS;
const GROUP: i32 = READ | DELETE | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS;
const CLUSTER: i32 = CREATE
    | ALTER
    | DESCRIBE
    | CLUSTER_ACTION
    | DESCRIBE_CONFIGS
    | ALTER_CONFIGS
    | IDEMPOTENT_WRITE;

pub(crate) const fn of_topic(asked: bool) -> i32 {
    if asked { TOPIC } else { NOT_ASKED }
}

pub(crate) const fn of_group(asked: bool) -> i32 {
    if asked { GROUP } else { NOT_ASKED }
}

pub(crate) const fn of_cluster(asked: bool) -> i32 {
    if asked { CLUSTER } else { NOT_ASKED }
}
