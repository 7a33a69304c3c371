//! What a client may do, where a response tells it (KIP-430). Without an authorizer that is everything
//! the kind of resource knows, as in Kafka.

use tidemark_authorizer::Operation;

use crate::authorize::{Resource, Rights};

/// The field's value where it was not asked for.
pub(crate) const NOT_ASKED: i32 = i32::MIN;

const TOPIC: [Operation; 8] = [
    Operation::Read,
    Operation::Write,
    Operation::Create,
    Operation::Delete,
    Operation::Alter,
    Operation::Describe,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
];
const GROUP: [Operation; 5] = [
    Operation::Read,
    Operation::Delete,
    Operation::Describe,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
];
const CLUSTER: [Operation; 7] = [
    Operation::Create,
    Operation::Alter,
    Operation::Describe,
    Operation::ClusterAction,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
    Operation::IdempotentWrite,
];

pub(crate) fn of_topic(rights: &Rights<'_>, name: &str, asked: bool) -> i32 {
    match asked {
        true => rights.operations(Resource::Topic(name), &TOPIC),
        false => NOT_ASKED,
    }
}

pub(crate) fn of_group(rights: &Rights<'_>, id: &str, asked: bool) -> i32 {
    match asked {
        true => rights.operations(Resource::Group(id), &GROUP),
        false => NOT_ASKED,
    }
}

/// Nothing, for whoever may not describe the cluster.
pub(crate) fn of_cluster(rights: &Rights<'_>, asked: bool) -> i32 {
    if !asked {
        return NOT_ASKED;
    }
    match rights.may(Operation::Describe, Resource::Cluster) {
        true => rights.operations(Resource::Cluster, &CLUSTER),
        false => 0,
    }
}
