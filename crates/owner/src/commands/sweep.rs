//! What is forgotten when nobody has used it for long: producers of partitions, transactional ids,
//! offsets of groups.
//!
//! There may be a million of each, so nobody looks at all of them in one step. Each kind has a
//! cursor that goes over everything once in its interval, [`LOOKS`] at a time, and whatever is over
//! by then is forgotten with a record: replay forgets the same. Cursors are of this run only; a start
//! begins anew.
//!
//! All of it goes by the wall clock of the records: it must outlive starts. (An offset's age is its
//! commit's time, which Kafka stores.)

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tidemark_group_coordinator::OffsetsCursor;
use tidemark_record_batch::BatchBuilder;
use tidemark_txn_coordinator as txn;
use tidemark_types::{
    COORDINATOR_PARTITIONS, MonoTime, ProducerId, TopicId, TopicPartitionId, coordinator_partition,
};

use crate::Owner;
use crate::command::{Now, Step};

/// How much one step looks at: a fraction of a millisecond.
const LOOKS: usize = 1_000;
/// Bytes that one step may write. Keys are below 66 KiB, so that every one fits by itself.
const SWEEP_BYTES: usize = 256 << 10;
/// A record's own head in a batch, and of a batch with one record.
const RECORD_HEAD_BYTES: usize = 128;

/// How long things are kept that nobody uses, and how often they are looked at.
#[derive(Clone, Copy, Debug)]
pub struct ExpiryOptions {
    /// `producer.id.expiration.ms`, where no dynamic one is set.
    pub producer_id_ms: i64,
    pub producer_id_interval_ms: u64,
    /// `transactional.id.expiration.ms`.
    pub transactional_id_ms: i64,
    pub transactional_id_interval_ms: u64,
    /// `offsets.retention.minutes`.
    pub offsets_ms: i64,
    pub offsets_interval_ms: u64,
}

impl Default for ExpiryOptions {
    fn default() -> ExpiryOptions {
        ExpiryOptions {
            producer_id_ms: 86_400_000,
            producer_id_interval_ms: 600_000,
            transactional_id_ms: 604_800_000,
            transactional_id_interval_ms: 3_600_000,
            offsets_ms: 10_080 * 60_000,
            offsets_interval_ms: 600_000,
        }
    }
}

/// One kind's way through everything.
#[derive(Debug)]
struct Sweep<C> {
    /// When it begins; while it is under way, when it began.
    at: MonoTime,
    cursor: Option<C>,
}

impl<C> Sweep<C> {
    fn new(at: MonoTime) -> Sweep<C> {
        Sweep { at, cursor: None }
    }

    /// After a step that ended at `cursor`.
    fn go_on(&mut self, cursor: Option<C>, now: MonoTime, interval_ms: u64) {
        if cursor.is_none() {
            self.at = later(now, interval_ms);
        }
        self.cursor = cursor;
    }
}

fn later(now: MonoTime, interval_ms: u64) -> MonoTime {
    now + Duration::from_millis(interval_ms)
}

/// The ways through everything. There are none before the start is over.
#[derive(Debug)]
pub(crate) struct Sweeps {
    producers: Sweep<(TopicPartitionId, ProducerId)>,
    transactional_ids: Sweep<txn::IdsCursor>,
    offsets: Sweep<OffsetsCursor>,
}

impl Sweeps {
    pub(crate) fn new(options: &ExpiryOptions, now: MonoTime) -> Sweeps {
        Sweeps {
            producers: Sweep::new(later(now, options.producer_id_interval_ms)),
            transactional_ids: Sweep::new(later(now, options.transactional_id_interval_ms)),
            offsets: Sweep::new(later(now, options.offsets_interval_ms)),
        }
    }

    fn next(&self) -> MonoTime {
        let others = self.transactional_ids.at.min(self.offsets.at);
        self.producers.at.min(others)
    }
}

impl Owner {
    /// When [`crate::Command::Sweep`] is next due. It is nothing urgent: commands that wait go
    /// between its steps.
    pub fn next_sweep(&self) -> Option<MonoTime> {
        self.sweeps.as_ref().map(Sweeps::next)
    }

    /// The most that a step of [`crate::Command::Sweep`] writes.
    pub fn sweep_bytes(&self) -> usize {
        // Half of a record, as sizes are estimated.
        SWEEP_BYTES.min(self.max_record_bytes / 2)
    }

    /// Puts off what is due: there is no room for its records now.
    pub fn put_off_sweeps(&mut self, until: MonoTime) {
        if let Some(sweeps) = &mut self.sweeps {
            sweeps.producers.at = sweeps.producers.at.max(until);
            sweeps.transactional_ids.at = sweeps.transactional_ids.at.max(until);
            sweeps.offsets.at = sweeps.offsets.at.max(until);
        }
    }

    /// Looks at the next few of what has been due the longest.
    pub(crate) fn sweep(&mut self, now: &Now<'_>, step: &mut Step) {
        let Some(mut sweeps) = self.sweeps.take() else {
            return;
        };
        let next = sweeps.next();
        let options = self.options.expiry;
        if next > now.mono {
        } else if sweeps.producers.at == next {
            let cursor = self.sweep_producers(sweeps.producers.cursor.take(), now, step);
            let interval_ms = options.producer_id_interval_ms;
            sweeps.producers.go_on(cursor, now.mono, interval_ms);
        } else if sweeps.transactional_ids.at == next {
            let cursor = sweeps.transactional_ids.cursor.take();
            let cursor = self.sweep_transactional_ids(cursor, now, step);
            let interval_ms = options.transactional_id_interval_ms;
            sweeps
                .transactional_ids
                .go_on(cursor, now.mono, interval_ms);
        } else {
            let cursor = self.sweep_offsets(sweeps.offsets.cursor.take(), now, step);
            let interval_ms = options.offsets_interval_ms;
            sweeps.offsets.go_on(cursor, now.mono, interval_ms);
        }
        self.sweeps = Some(sweeps);
    }

    fn sweep_producers(
        &mut self,
        cursor: Option<(TopicPartitionId, ProducerId)>,
        now: &Now<'_>,
        step: &mut Step,
    ) -> Option<(TopicPartitionId, ProducerId)> {
        let at_start_ms = self.options.expiry.producer_id_ms;
        let expiration_ms = self.metadata.producer_id_expiration_ms(at_start_ms);
        let idle_since_ms = now.wall_ms.saturating_sub(expiration_ms);
        let first = TopicPartitionId::new(TopicId::ZERO, 0);
        let (mut at, mut producer) = cursor.unwrap_or((first, ProducerId(0)));
        let (mut looks, mut bytes) = (LOOKS, self.sweep_bytes());
        let mut all = Vec::new();
        let next = loop {
            let Some(id) = self.metadata.partition_at_or_after(at) else {
                break None;
            };
            if id != at {
                producer = ProducerId(0);
            }
            if looks == 0 || bytes < RECORD_HEAD_BYTES {
                break Some((id, producer));
            }
            looks -= 1;
            let may_take = looks.min((bytes - RECORD_HEAD_BYTES) / size_of::<ProducerId>());
            let producers = &self.partitions[&id].producers;
            let (expired, next) = producers.expirable(producer, may_take, idle_since_ms);
            looks -= producers.len().min(may_take);
            if !expired.is_empty() {
                bytes -= RECORD_HEAD_BYTES + expired.len() * size_of::<ProducerId>();
                all.push((id, expired));
            }
            match next {
                Some(next) => break Some((id, next)),
                None => (at, producer) = (after(id), ProducerId(0)),
            }
        };
        let records = self.metadata.decide_expire_producers(all);
        if !records.is_empty() {
            let mut draft = self.begin(now);
            self.append_metadata(&mut draft, &records);
            self.finish(draft, step);
        }
        next
    }

    fn sweep_transactional_ids(
        &mut self,
        cursor: Option<txn::IdsCursor>,
        now: &Now<'_>,
        step: &mut Step,
    ) -> Option<txn::IdsCursor> {
        let cursor = cursor.unwrap_or_else(|| (0, Arc::from("")));
        let expiration_ms = self.options.expiry.transactional_id_ms;
        let (expired, mut next) =
            self.coordinator
                .expirable(&cursor, LOOKS, now.wall_ms, expiration_ms);
        let mut bytes = self.sweep_bytes();
        let mut batches: BTreeMap<i32, BatchBuilder> = BTreeMap::new();
        for id in expired {
            let partition = coordinator_partition(&id, COORDINATOR_PARTITIONS);
            let key = txn::encode_key(&id);
            let more = key.len() + RECORD_HEAD_BYTES;
            if more > bytes {
                next = Some((partition, id));
                break;
            }
            bytes -= more;
            self.guard.forget(&id);
            batches
                .entry(partition)
                .or_insert_with(|| BatchBuilder::new(now.wall_ms))
                .push(Some(&key), None);
        }
        let batches = batches.into_iter();
        let batches = batches.map(|(p, batch)| (TopicPartitionId::transaction_state(p), batch));
        self.write_tombstones(batches, now, step);
        next
    }

    fn sweep_offsets(
        &mut self,
        cursor: Option<OffsetsCursor>,
        now: &Now<'_>,
        step: &mut Step,
    ) -> Option<OffsetsCursor> {
        let expired = self.groups.expire_offsets(
            &cursor.unwrap_or_default(),
            LOOKS,
            self.sweep_bytes(),
            now.wall_ms,
            self.options.expiry.offsets_ms,
        );
        let batches = expired.records.iter().map(|(partition, records)| {
            let mut batch = BatchBuilder::new(now.wall_ms);
            for record in records {
                batch.push(Some(&record.encode_key()), record.encode_value().as_deref());
            }
            (TopicPartitionId::consumer_offsets(*partition), batch)
        });
        self.write_tombstones(batches, now, step);
        expired.next
    }

    fn write_tombstones(
        &mut self,
        batches: impl Iterator<Item = (TopicPartitionId, BatchBuilder)>,
        now: &Now<'_>,
        step: &mut Step,
    ) {
        let mut draft = self.begin(now);
        for (id, mut batch) in batches {
            self.append(&mut draft, id, BytesMut::from(&batch.build()[..]));
        }
        self.finish(draft, step);
    }
}

/// The partition that comes next, if there is one.
fn after(id: TopicPartitionId) -> TopicPartitionId {
    TopicPartitionId::new(id.topic, id.partition.saturating_add(1))
}
