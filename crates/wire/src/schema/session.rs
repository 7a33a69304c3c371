//! Requests that find out about the broker, and authenticate.

use super::*;

pub(super) static API_VERSIONS: Struct = row(&[
    string("client_software_name").since(3),
    string("client_software_version").since(3),
]);

pub(super) static SASL_HANDSHAKE: Struct = row(&[string("mechanism")]);

pub(super) static SASL_AUTHENTICATE: Struct = row(&[bytes("auth_bytes")]);

pub(super) static METADATA: Struct = row(&[
    array("topics", &METADATA_TOPIC).until(0),
    array("topics", &METADATA_TOPIC).since(1).nullable(),
    boolean("allow_auto_topic_creation").since(4),
    boolean("include_cluster_authorized_operations")
        .since(8)
        .until(10),
    boolean("include_topic_authorized_operations").since(8),
]);
static METADATA_TOPIC: Struct = row(&[uuid("topic_id").since(10), string("name").nullable()]);

pub(super) static FIND_COORDINATOR: Struct = row(&[
    string("key").until(3),
    int8("key_type").since(1),
    strings("coordinator_keys").since(4),
]);
