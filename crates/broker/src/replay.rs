//! Replay: the state of a data directory from its checkpoint and the journal's tail.
//!
//! The same apply that made the state makes it again (P12, I8).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tidemark_config::{Settings, TransactionLease, TransactionalIdOwner};
use tidemark_disk::Disk;
use tidemark_group_coordinator::GroupConfig;
use tidemark_journal::JournalOptions;
use tidemark_metadata::TopicLimits;
use tidemark_owner::{
    ExclusiveOptions, ExpiryOptions, Observation, Owner, OwnerOptions, Record, TxnLimits,
};
use tidemark_partition_log::{
    Checkpoint, CheckpointHeader, LogError, LogStore, Named, PartitionLog, Retired,
    SegmentManifest, SegmentRules, WriteBehind, WriteBehindSettings, read_previous, recover_logs,
    remove_unreferenced,
};
use tidemark_types::{LeaderEpoch, Tick, TopicPartitionId};
use tracing::{debug, info, warn};

use crate::catalogue::{Catalogue, segment_rules};
use crate::error::StartError;
use crate::maintenance::{KNOWN_BLOCKS, OWNER_BLOCK, log_of, relieve};
use crate::mend::mend;
use crate::owner_thread::{tail_batch, version};

/// A budget is divided into at least this many slots.
const SLOTS_WANTED: u64 = 8;

/// The state while it is rebuilt.
pub(crate) struct Replay {
    pub(crate) owner: Owner,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) store: Arc<LogStore>,
    pub(crate) write_behind: WriteBehind,
    pub(crate) retired: Arc<Retired>,
    pub(crate) tail_budget_bytes: u64,
    metadata_rules: SegmentRules,
}

impl Replay {
    pub(crate) fn new(settings: &Arc<Settings>, store: &Arc<LogStore>) -> Replay {
        let owner = Owner::new(owner_options(settings));
        let catalogue = Catalogue::new(
            Tick::ZERO,
            Arc::new(owner.metadata().clone()),
            settings.topic_defaults.clone(),
        );
        let metadata = TopicPartitionId::METADATA;
        let log = PartitionLog::new(store, metadata, LeaderEpoch(0));
        let metadata_rules = metadata_segment_rules(settings);
        log.set_segment_rules(metadata_rules);
        catalogue.insert_log(metadata, log);
        Replay {
            owner,
            catalogue: Arc::new(catalogue),
            store: store.clone(),
            write_behind: WriteBehind::new(store, WriteBehindSettings::default()),
            retired: Arc::default(),
            tail_budget_bytes: settings.tail_bytes,
            metadata_rules,
        }
    }

    /// Puts a checkpoint's blocks in place. Files that neither kept checkpoint names are removed, and
    /// segments that lost bytes are mended from the journal or refused.
    pub(crate) fn restore(
        &mut self,
        checkpoint: &Checkpoint,
        disk: &Arc<dyn Disk>,
        dir: &Path,
        journal: &JournalOptions,
    ) -> Result<(), StartError> {
        let directory_id = journal.journal_id;
        if let Some(what) = &checkpoint.fell_back {
            warn!("{what}; the checkpoint before it is used");
        }
        let CheckpointHeader { generation, .. } = checkpoint.header;
        let older = read_previous(&**disk, dir, directory_id, KNOWN_BLOCKS, generation)?;
        let mut manifests = Vec::new();
        let mut newest: BTreeMap<TopicPartitionId, Named> = BTreeMap::new();
        for (id, block) in log_of(&checkpoint.blocks) {
            let manifest = manifest(&block.payload, id)?;
            newest.entry(id).or_default().add(&manifest);
            manifests.push((id, manifest));
        }
        let mut named: BTreeMap<TopicPartitionId, Named> = BTreeMap::new();
        for (id, block) in older.iter().flat_map(|older| log_of(&older.blocks)) {
            let manifest = manifest(&block.payload, id)?;
            named.entry(id).or_default().add(&manifest);
        }
        for (id, manifest) in &manifests {
            named.entry(*id).or_default().add(manifest);
        }
        let removed = remove_unreferenced(&self.store, &named)?;
        for file in &removed {
            debug!("removed {file}: no checkpoint names it");
        }
        if !removed.is_empty() {
            info!(
                "removed {} files that no checkpoint names: what was in them is in the journal",
                removed.len()
            );
        }
        // What only the older checkpoint names goes with it: the one that is used is the first that
        // does not name it.
        self.retired.checkpoint_begun(generation.saturating_sub(1));
        for (id, all) in &named {
            match newest.get(id) {
                None => self.retired.retire(*id),
                Some(kept) => (all.segments)
                    .difference(&kept.segments)
                    .for_each(|segment| self.retired.retire_segment(&self.store, *id, *segment)),
            }
        }
        self.retired.checkpoint_begun(generation);
        for block in checkpoint.blocks.iter().filter(|b| b.kind == OWNER_BLOCK) {
            self.owner
                .restore_block(block.partition, block.stamp, &block.payload)
                .map_err(|e| StartError::Replay(e.to_string()))?;
        }
        let mut short = Vec::new();
        let recovered = recover_logs(&self.store, manifests);
        for ((id, recovered), (_, block)) in recovered.into_iter().zip(log_of(&checkpoint.blocks)) {
            match recovered {
                Ok(log) => self.put_log(id, log),
                Err(LogError::Short { .. }) => short.push((id, manifest(&block.payload, id)?)),
                Err(e) => return Err(e.into()),
            }
        }
        if !short.is_empty() {
            mend(&short, &self.store, disk, journal)?;
        }
        for (id, manifest) in short {
            let log = PartitionLog::recover(&self.store, id, manifest)?;
            self.put_log(id, log);
        }
        Ok(())
    }

    fn put_log(&self, id: TopicPartitionId, log: Arc<PartitionLog>) {
        if id == TopicPartitionId::METADATA {
            log.set_segment_rules(self.metadata_rules);
        } else if let Some(topic) = self.owner.metadata().topic_by_id(id.topic) {
            log.set_segment_rules(segment_rules(topic, &self.catalogue.newest().defaults));
        }
        self.catalogue.insert_log(id, log);
    }

    pub(crate) fn apply(&mut self, record: &Record) -> Result<(), String> {
        let observations = self.owner.replay(record).map_err(|e| e.to_string())?;
        for observation in observations {
            match observation {
                Observation::Appended(appended) => {
                    let Some(log) = self.catalogue.log(appended.partition) else {
                        continue;
                    };
                    let already_applied = appended.already_applied;
                    let (batch, aborted) = tail_batch(appended, record.tick, record.index);
                    if already_applied {
                        log.restore(batch);
                    } else {
                        log.append(batch, aborted);
                    }
                    relieve(
                        &self.write_behind,
                        &self.store,
                        &log,
                        self.tail_budget_bytes,
                        record.tick,
                    )
                    .map_err(|e| e.to_string())?;
                }
                Observation::TopicCreated(topic) => {
                    for id in topic.partition_ids() {
                        if self.catalogue.log(id).is_none() {
                            let epoch = topic.leader_epoch(self.owner.metadata().journal_epoch());
                            let log = PartitionLog::new(&self.store, id, epoch);
                            log.set_segment_rules(segment_rules(
                                &topic,
                                &self.catalogue.newest().defaults,
                            ));
                            self.catalogue.insert_log(id, log);
                        }
                    }
                }
                // Before a log is written to again it is told its size, at the end of replay.
                Observation::TopicConfigured(_) => {}
                Observation::TopicDeleted(topic) => {
                    for id in topic.partition_ids() {
                        if let Some(log) = self.catalogue.remove_log(id) {
                            log.close();
                            self.write_behind.forget(&log);
                            self.retired.retire(id);
                        }
                    }
                }
                // Offsets and epochs are published once, at the end of replay.
                Observation::Watermarks(_)
                | Observation::LogStartMoved(_)
                | Observation::MetadataChanged
                | Observation::TakenBack(_)
                | Observation::NeverCreated(_) => {}
            }
        }
        Ok(())
    }
}

/// No topic's configuration says when a segment of the metadata ends: after a fraction of what the log
/// may grow by, as whole segments go when it is cut.
fn metadata_segment_rules(settings: &Settings) -> SegmentRules {
    SegmentRules {
        segment_bytes: (settings.metadata_log_max_record_bytes_between_snapshots / 4)
            .clamp(4096, 64 << 20),
        ..SegmentRules::default()
    }
}

pub(crate) fn manifest(
    payload: &[u8],
    id: TopicPartitionId,
) -> Result<SegmentManifest, StartError> {
    SegmentManifest::decode(payload).ok_or_else(|| {
        StartError::Replay(format!(
            "checkpoint: the segment list of {id} cannot be read"
        ))
    })
}

/// Readers see the state that replay came to, as of its last tick.
pub(crate) fn publish_replayed(owner: &Owner, catalogue: &Catalogue) -> Result<(), StartError> {
    let tick = owner.last_tick();
    for (id, log) in catalogue.logs().iter() {
        if let Some(partition) = owner.partition(*id) {
            // Bytes that a sync had promised can be gone without a trace in the journal.
            if log.end_offset() != partition.log_end_offset {
                return Err(StartError::Replay(format!(
                    "the log of {id} ends at {}, its state at {}: bytes that were synced are missing",
                    log.end_offset(),
                    partition.log_end_offset
                )));
            }
            log.start_leader_epoch(partition.leader_epoch());
            log.push_version(version(partition, tick));
            log.prune_versions(tick);
        }
    }
    catalogue.push_image(tick, Arc::new(owner.metadata().clone()), tick);
    catalogue.apply_segment_rules();
    Ok(())
}

/// With a small budget the slots are smaller, so that it is many of them: two are kept for ends of
/// transactions, and one is reused only after two checkpoints.
pub(crate) fn journal_slot_bytes(settings: &Settings) -> u64 {
    settings
        .journal_slot_bytes
        .min(settings.journal_budget_bytes / SLOTS_WANTED)
}

/// The limits that the owner decides by, as the settings have them.
pub fn owner_options(settings: &Settings) -> OwnerOptions {
    OwnerOptions {
        topics: TopicLimits {
            default_partitions: settings.num_partitions,
            default_replication_factor: settings.default_replication_factor,
            clamp_replication_factor: settings.replication_factor_clamp,
            segment_bytes_min: settings.segment_bytes_min,
            max_partitions_per_topic: settings.max_partitions_per_topic,
            max_partitions: settings.max_partitions,
        },
        topic_defaults: settings.topic_defaults.clone(),
        limits: TxnLimits {
            ids_per_principal: settings.max_transactional_ids_per_principal,
            open_per_principal: settings.max_open_transactions_per_principal,
            partitions_per_transaction: settings.max_partitions_per_transaction,
        },
        transaction_max_timeout_ms: settings.transaction_max_timeout_ms,
        renew_leases: settings.transaction_lease_mode == TransactionLease::Renewed,
        exclusive: ExclusiveOptions {
            delete_records: settings.transaction_exclusive_operations.delete_records,
            create_partitions: settings.transaction_exclusive_operations.create_partitions,
            cleanup_policy: settings.transaction_exclusive_operations.cleanup_policy,
        },
        guard_connections: settings.transaction_connection_guard,
        own_transactional_ids: settings.transactional_id_owner == TransactionalIdOwner::First,
        max_acls: settings.max_acls,
        producer_id_block: 1000,
        expiry: ExpiryOptions {
            producer_id_ms: i64::from(settings.producer_id_expiration_ms),
            producer_id_interval_ms: settings.producer_id_expiration_check_interval_ms,
            transactional_id_ms: i64::from(settings.transactional_id_expiration_ms),
            transactional_id_interval_ms: settings
                .transaction_remove_expired_transaction_cleanup_interval_ms,
            offsets_ms: i64::from(settings.offsets_retention_minutes) * 60_000,
            offsets_interval_ms: settings.offsets_retention_check_interval_ms,
        },
        groups: GroupConfig {
            min_session_timeout_ms: settings.group_min_session_timeout_ms,
            max_session_timeout_ms: settings.group_max_session_timeout_ms,
            initial_rebalance_delay_ms: settings.group_initial_rebalance_delay_ms,
            max_size: usize::try_from(settings.group_max_size).unwrap_or(usize::MAX),
            offset_metadata_max_bytes: usize::try_from(settings.offset_metadata_max_bytes)
                .unwrap_or(0),
            // A batch of a group's records must fit a slot of the journal with room to spare.
            max_batch_bytes: GroupConfig::default()
                .max_batch_bytes
                .min(usize::try_from(journal_slot_bytes(settings) / 2).unwrap_or(usize::MAX)),
            ..GroupConfig::default()
        },
    }
}
