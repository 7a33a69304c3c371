//! What is read when metrics are scraped.

use std::collections::HashMap;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tidemark_audit::Audit;
use tidemark_group_coordinator::ListedGroup;
use tidemark_owner::{Command, Inspect, OffsetFetch, OffsetFetchGroup, Reply};
use tidemark_partition_log::{PartitionLog, Version};
use tidemark_record_batch::Attributes;

use super::{InspectError, Inspector};
use crate::compaction::CompactionStats;
use crate::front::Front;

/// Partitions and groups' partitions that are shown one by one. Beyond it only those that lag.
const SHOWN: usize = 1_000;
/// Batches that one scrape looks at to count records apart from markers. Beyond it offsets count.
const COUNTED_BATCHES: usize = 50_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPartition {
    topic: String,
    partition: i32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGroup {
    consumergroup: String,
    topic: String,
    partition: i32,
}

#[derive(Default)]
struct Gauges {
    open: Gauge,
    oldest_ms: Gauge,
    high_watermark: Family<OfPartition, Gauge>,
    log_start: Family<OfPartition, Gauge>,
    lag_records: Family<OfPartition, Gauge>,
    lag_seconds: Family<OfPartition, Gauge>,
    group_lag: Family<OfGroup, Gauge>,
    group_offset: Family<OfGroup, Gauge>,
}

impl Gauges {
    fn register(&self, registry: &mut Registry) {
        let mut gauge = |name: &str, help: &str, gauge: &Gauge| {
            registry.register(name, help, gauge.clone());
        };
        gauge(
            "tidemark_open_transactions",
            "Transactions that are ongoing",
            &self.open,
        );
        gauge(
            "tidemark_oldest_open_transaction_age_milliseconds",
            "Age of the oldest ongoing transaction, 0 without one",
            &self.oldest_ms,
        );
        let mut family = |name: &str, help: &str, family: &Family<OfPartition, Gauge>| {
            registry.register(name, help, family.clone());
        };
        family(
            "kafka_topic_partition_current_offset",
            "High watermark",
            &self.high_watermark,
        );
        family(
            "kafka_topic_partition_oldest_offset",
            "Log start offset",
            &self.log_start,
        );
        family(
            "tidemark_partition_lso_lag_records",
            "Offsets between the last stable offset and the high watermark: what open transactions \
             keep from read_committed readers",
            &self.lag_records,
        );
        family(
            "tidemark_partition_lso_lag_seconds",
            "Since when the first of them waits",
            &self.lag_seconds,
        );
        let mut family = |name: &str, help: &str, family: &Family<OfGroup, Gauge>| {
            registry.register(name, help, family.clone());
        };
        family(
            "kafka_consumergroup_lag",
            "Records that a group has not committed, up to the last stable offset; transactions' \
             markers are no records and do not count",
            &self.group_lag,
        );
        family(
            "kafka_consumergroup_current_offset",
            "Offset that a group has committed",
            &self.group_offset,
        );
    }
}

impl Inspector {
    /// Everything there is to scrape, in Prometheus' text format.
    pub async fn metrics(&self) -> Result<String, InspectError> {
        let ongoing = self.inspect(Inspect::Ongoing).await?;
        let groups = self.committed().await?;
        self.blocking(move |inspector| {
            let gauges = Gauges::default();
            gauges.open.set(ongoing.transactions.len() as i64);
            let now_ms = inspector.shared.clock.wall_ms();
            let ages = ongoing
                .transactions
                .iter()
                .map(|t| now_ms - t.meta.start_wall_ms);
            gauges.oldest_ms.set(ages.max().unwrap_or(0).max(0));
            inspector.measure_partitions(&gauges, now_ms);
            inspector.measure_groups(&gauges, &groups);
            let mut registry = Registry::default();
            inspector.shared.metrics.register(&mut registry);
            gauges.register(&mut registry);
            register_compaction(&inspector.shared.compaction.lock(), &mut registry);
            if let Some(front) = &inspector.front {
                front.limits.register(&mut registry);
                register_use(front, &inspector, &mut registry);
            }
            if let Some(tls) = &inspector.tls {
                let ends: Gauge = Gauge::default();
                ends.set(tls.expires_at());
                registry.register(
                    "tidemark_tls_certificate_expires_at_timestamp_seconds",
                    "When the certificate of the TLS listeners ends, in seconds since 1970",
                    ends,
                );
            }
            register_audit(&inspector.shared.audit, &mut registry);
            let mut text = String::new();
            encode(&mut text, &registry).map_err(|e| InspectError::Failed(e.to_string()))?;
            Ok(text)
        })
        .await
    }

    fn measure_partitions(&self, gauges: &Gauges, now_ms: i64) {
        let view = self.shared.read();
        let partitions = view.image.topics().filter(|topic| !topic.internal);
        let partitions: Vec<_> = partitions
            .flat_map(|topic| topic.partition_ids().map(|id| (topic.name.clone(), id)))
            .collect();
        let all = partitions.len() <= SHOWN;
        for (topic, id) in partitions {
            let Some(log) = view.log(id) else { continue };
            let version = log.at(view.tick());
            let lag = version.log_end_offset - version.last_stable_offset;
            if !all && lag == 0 {
                continue;
            }
            let labels = OfPartition {
                topic: topic.to_string(),
                partition: id.partition,
            };
            let set = |family: &Family<OfPartition, Gauge>, value| {
                family.get_or_create(&labels).set(value);
            };
            set(&gauges.high_watermark, version.log_end_offset);
            set(&gauges.log_start, version.log_start_offset);
            set(&gauges.lag_records, lag);
            set(
                &gauges.lag_seconds,
                waits_for_ms(&log, &version, now_ms) / 1_000,
            );
        }
    }

    /// The committed offsets of every group: (group, topic, partition, offset).
    async fn committed(&self) -> Result<Vec<(String, String, i32, i64)>, InspectError> {
        let listed: Vec<ListedGroup> = match self.ask(Command::ListGroups).await? {
            Reply::ListGroups(listed) => listed,
            other => unreachable!("ListGroups was answered with {other:?}"),
        };
        let names: Vec<String> = listed.into_iter().map(|group| group.group_id).collect();
        let fetch = Command::OffsetFetch(OffsetFetch {
            groups: (names.iter())
                .map(|name| OffsetFetchGroup {
                    group_id: name.clone(),
                    partitions: None,
                })
                .collect(),
            require_stable: false,
        });
        let fetched = match self.ask(fetch).await? {
            Reply::OffsetFetch(fetched) => fetched,
            other => unreachable!("OffsetFetch was answered with {other:?}"),
        };
        let of_group = |(name, offsets): (String, Vec<_>)| {
            offsets
                .into_iter()
                .filter(|o: &tidemark_group_coordinator::FetchedOffset| o.offset >= 0)
                .map(move |o| (name.clone(), o.topic, o.partition, o.offset))
        };
        Ok(names.into_iter().zip(fetched).flat_map(of_group).collect())
    }

    fn measure_groups(&self, gauges: &Gauges, groups: &[(String, String, i32, i64)]) {
        let view = self.shared.read();
        let mut budget = COUNTED_BATCHES;
        // Groups at the same place need not be counted twice.
        let mut counted: HashMap<(&str, i32, i64), i64> = HashMap::new();
        let all = groups.len() <= SHOWN;
        for (group, topic, partition, offset) in groups {
            let id = view.image.partition(topic, *partition);
            let Some(log) = id.and_then(|id| view.log(id)) else {
                continue;
            };
            let stable = log.at(view.tick()).last_stable_offset;
            let place = (topic.as_str(), *partition, *offset);
            let lag = *counted
                .entry(place)
                .or_insert_with(|| records_between(&log, *offset, stable, &mut budget));
            if !all && lag == 0 {
                continue;
            }
            let labels = OfGroup {
                consumergroup: group.clone(),
                topic: topic.clone(),
                partition: *partition,
            };
            gauges.group_lag.get_or_create(&labels).set(lag);
            gauges.group_offset.get_or_create(&labels).set(*offset);
        }
    }
}

fn register_audit(audit: &Audit, registry: &mut Registry) {
    let Some(stats) = audit.stats() else { return };
    for (name, help, value) in [
        (
            "tidemark_audit_log_events",
            "Events that were written to the audit log since the start",
            stats.lines,
        ),
        (
            "tidemark_audit_log_lost",
            "Events that could not be written to the audit log since the start",
            stats.lost,
        ),
    ] {
        let counter: Counter = Counter::default();
        counter.inc_by(value);
        registry.register(name, help, counter);
    }
    let as_gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    for (name, help, value) in [
        (
            "tidemark_audit_log_failing",
            "1 while the audit log cannot be written",
            i64::from(stats.is_failing),
        ),
        (
            "tidemark_audit_log_line",
            "Number of the audit log's last line",
            as_gauge(stats.seq),
        ),
        (
            "tidemark_audit_log_hash_prefix",
            "The first 48 bits of the hash of the audit log's last line: 12 hex digits for audit verify \
             --expect",
            as_gauge(stats.last.prefix()),
        ),
    ] {
        let gauge: Gauge = Gauge::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    }
}

/// What is used of what the limits bound.
fn register_use(front: &Front, inspector: &Inspector, registry: &mut Registry) {
    let mut gauge = |name: &str, help: &str, value: u64| {
        let gauge: Gauge = Gauge::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        registry.register(name, help, gauge);
    };
    let (connections, unauthenticated) = front.connections.counts();
    gauge(
        "tidemark_connections",
        "Connections of clients (max.connections)",
        connections as u64,
    );
    gauge(
        "tidemark_unauthenticated_connections",
        "Those of them that have not authenticated (max.unauthenticated.connections)",
        unauthenticated as u64,
    );
    gauge(
        "tidemark_request_memory_bytes",
        "Memory of requests that come in or are carried out (request.memory.bytes)",
        front.request_memory.in_use(),
    );
    gauge(
        "tidemark_fetch_memory_bytes",
        "Memory of answers to Fetch that are not taken (fetch.memory.bytes)",
        inspector.shared.answers.in_use(),
    );
}

fn register_compaction(stats: &CompactionStats, registry: &mut Registry) {
    let mut counter = |name: &str, help: &str, value: u64| {
        let counter: Counter = Counter::default();
        counter.inc_by(value);
        registry.register(name, help, counter);
    };
    counter(
        "tidemark_compaction_runs",
        "Runs of compaction that came to their end",
        stats.runs,
    );
    counter(
        "tidemark_compaction_runs_failed",
        "Runs of compaction that met an error",
        stats.runs_failed,
    );
    counter(
        "tidemark_compaction_bytes_before",
        "Bytes of the segments that compaction has gone through",
        stats.bytes_before,
    );
    counter(
        "tidemark_compaction_bytes_after",
        "Bytes that were left of them",
        stats.bytes_after,
    );
    counter(
        "tidemark_compaction_records_removed",
        "Records that compaction has removed",
        stats.records_removed,
    );
    let due: Gauge = Gauge::default();
    due.set(i64::try_from(stats.partitions_due).unwrap_or(i64::MAX));
    registry.register(
        "tidemark_compaction_partitions_due",
        "Partitions that are due for compaction, as of its last look",
        due,
    );
}

/// For how long the first record beyond the last stable offset has waited.
fn waits_for_ms(log: &PartitionLog, version: &Version, now_ms: i64) -> i64 {
    let (from, upper) = (version.last_stable_offset, version.log_end_offset);
    let mut since_ms = None;
    let looked = log.each_batch(from, upper, |batch| {
        since_ms = Some(batch.tick.alignment_ms());
        false
    });
    match (looked, since_ms) {
        (Ok(()), Some(since_ms)) => (now_ms - since_ms).max(0),
        _ => 0,
    }
}

/// Offsets in a range that are no markers'; what is beyond the budget counts by its offsets.
fn records_between(log: &PartitionLog, from: i64, upper: i64, budget: &mut usize) -> i64 {
    let (mut records, mut next) = (0, from);
    let looked = log.each_batch(from, upper, |batch| {
        if *budget == 0 {
            return false;
        }
        *budget -= 1;
        let first = batch.base_offset.max(from);
        if !Attributes(batch.meta.attributes).is_control() {
            records += batch.last_offset.min(upper - 1) - first + 1;
        }
        next = batch.last_offset + 1;
        true
    });
    match looked {
        Ok(()) if *budget > 0 => records,
        _ => records + (upper - next).max(0),
    }
}
