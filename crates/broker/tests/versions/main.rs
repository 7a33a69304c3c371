//! Every API at every version that ApiVersions tells of, each with a request that means something:
//! the answer decodes to its last byte at that version, and says what Kafka says.
//!
//! The list of versions is the wire's own table. A new row, or a newer version in one, fails here
//! until a driver knows it. The drivers hold against Apache Kafka 4.1.1 as well (see `support`),
//! there also for versions that Tidemark does not serve yet.

mod cluster;
mod data;
mod groups;
mod offsets;
mod quotas;
#[path = "../support/mod.rs"]
mod support;
mod topics;
mod transactions;
mod users;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use support::Target;
use tidemark_testkit::{RawClient, TxnProducer};
use tidemark_wire::api::Versions;
use tidemark_wire::{ApiKey, ApiTable};

/// A broker, a connection of this request's own, and names of its own.
pub struct World {
    pub target: Arc<Target>,
    pub client: RawClient,
    tag: String,
}

impl World {
    async fn new(target: &Arc<Target>, key: ApiKey, version: i16) -> World {
        World {
            target: target.clone(),
            client: target.client().await,
            tag: format!("{}-{version}", key.name()),
        }
    }

    pub fn name(&self, stem: &str) -> String {
        self.target.name(&format!("{stem}-{}", self.tag))
    }

    pub async fn topic(&mut self, stem: &str, partitions: i32) -> String {
        self.topic_with(stem, partitions, &[]).await
    }

    pub async fn topic_with(
        &mut self,
        stem: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> String {
        let stem = format!("{stem}-{}", self.tag);
        let client = &mut self.client;
        self.target
            .topic_with(client, &stem, partitions, configs)
            .await
    }

    pub async fn describe(&mut self, topic: &str) -> MetadataResponseTopic {
        self.client.describe_topic(topic).await
    }

    pub async fn session(&mut self, id: &str) -> TxnProducer {
        self.target.session(&mut self.client, id).await
    }

    pub async fn begin(&mut self, producer: &TxnProducer, partitions: &[(&str, i32)]) {
        let client = &mut self.client;
        self.target.begin(client, producer, partitions).await;
    }
}

macro_rules! drivers {
    ($($api:ident up to $newest:literal: $module:ident::$driver:ident;)*) => {
        /// The newest version that the API's driver knows.
        fn known_up_to(key: ApiKey) -> i16 {
            match key {
                $(ApiKey::$api => $newest,)*
            }
        }

        async fn drive(world: &mut World, key: ApiKey, version: i16) {
            match key {
                $(ApiKey::$api => $module::$driver(world, version).await,)*
            }
        }
    };
}

drivers! {
    Produce up to 13: data::produce;
    Fetch up to 18: data::fetch;
    ListOffsets up to 10: data::list_offsets;
    Metadata up to 13: cluster::metadata;
    OffsetCommit up to 9: offsets::offset_commit;
    OffsetFetch up to 9: offsets::offset_fetch;
    FindCoordinator up to 6: cluster::find_coordinator;
    JoinGroup up to 9: groups::join_group;
    Heartbeat up to 4: groups::heartbeat;
    LeaveGroup up to 5: groups::leave_group;
    SyncGroup up to 5: groups::sync_group;
    DescribeGroups up to 6: groups::describe_groups;
    ListGroups up to 5: groups::list_groups;
    SaslHandshake up to 1: users::sasl_handshake;
    ApiVersions up to 4: cluster::api_versions;
    CreateTopics up to 7: topics::create_topics;
    DeleteTopics up to 6: topics::delete_topics;
    DeleteRecords up to 2: data::delete_records;
    InitProducerId up to 5: transactions::init_producer_id;
    OffsetForLeaderEpoch up to 4: data::offset_for_leader_epoch;
    AddPartitionsToTxn up to 3: transactions::add_partitions_to_txn;
    AddOffsetsToTxn up to 4: transactions::add_offsets_to_txn;
    EndTxn up to 5: transactions::end_txn;
    WriteTxnMarkers up to 1: transactions::write_txn_markers;
    TxnOffsetCommit up to 5: transactions::txn_offset_commit;
    DescribeAcls up to 3: users::describe_acls;
    CreateAcls up to 3: users::create_acls;
    DeleteAcls up to 3: users::delete_acls;
    DescribeConfigs up to 4: topics::describe_configs;
    AlterConfigs up to 2: topics::alter_configs;
    DescribeLogDirs up to 4: topics::describe_log_dirs;
    SaslAuthenticate up to 2: users::sasl_authenticate;
    CreatePartitions up to 3: topics::create_partitions;
    DeleteGroups up to 2: groups::delete_groups;
    IncrementalAlterConfigs up to 1: topics::incremental_alter_configs;
    OffsetDelete up to 0: offsets::offset_delete;
    DescribeClientQuotas up to 1: quotas::describe;
    AlterClientQuotas up to 1: quotas::alter;
    DescribeUserScramCredentials up to 0: users::scram_credentials;
    AlterUserScramCredentials up to 0: users::scram_credentials;
    DescribeCluster up to 2: cluster::describe_cluster;
    DescribeProducers up to 0: transactions::describe_producers;
    DescribeTransactions up to 0: transactions::describe_transactions;
    ListTransactions up to 2: transactions::list_transactions;
}

/// What to drive: of Tidemark what it serves, of Kafka what the drivers know.
fn matrix(target: &Target) -> Vec<(ApiKey, i16)> {
    ApiTable::all()
        .filter_map(|api| {
            let known = known_up_to(api.key);
            let versions = match (target.is_kafka(), api.serves) {
                (false, served) => served?.versions,
                (true, _) => Versions {
                    max: api.decodes.max.min(known),
                    ..api.decodes
                },
            };
            Some(versions.iter().map(|version| (api.key, version)))
        })
        .flatten()
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_advertised_version_answers_as_kafka_does() {
    let target = Arc::new(Target::start().await);
    let mut failed = Vec::new();
    for (key, version) in matrix(&target) {
        if known_up_to(key) < version {
            failed.push(format!("{key} v{version}: nothing drives it"));
            continue;
        }
        let mut world = World::new(&target, key, version).await;
        // Caught, so that one version's failure is not all that is heard of.
        let driven = AssertUnwindSafe(drive(&mut world, key, version)).catch_unwind();
        if driven.await.is_err() {
            failed.push(format!("{key} v{version}"));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
