//! Runs over random logs against what must hold of them: what clients are told stays the same but
//! for records that were superseded, aborted or deleted long enough ago.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;
use tidemark_compaction::*;
use tidemark_record_batch::*;
use tidemark_types::*;

const KEYS: [&[u8]; 5] = [
    b"a",
    b"b",
    b"c",
    // The keys of markers (A21).
    &[0, 0, 0, 0],
    &[0, 0, 0, 1],
];

#[derive(Clone, Debug)]
enum Op {
    /// A batch of a producer (0: without one, 1: idempotent, others: in their transaction) with
    /// these (key, is a value); key 5 is none.
    Data(usize, Vec<(usize, bool)>),
    End(usize, ControlType),
    /// A marker of a producer that wrote nothing.
    Bare(usize, ControlType),
    /// A run after so many milliseconds, over this share of what may be cleaned, with room for so
    /// many keys; stopped after this share of its batches.
    Run {
        after_ms: i64,
        tenths: usize,
        max_keys: usize,
        stop_tenths: usize,
    },
    Forget(usize),
}

fn an_op() -> impl Strategy<Value = Op> {
    let records = prop::collection::vec((0usize..6, prop::bool::weighted(0.7)), 1..4);
    let kind = prop_oneof![Just(ControlType::Commit), Just(ControlType::Abort)];
    prop_oneof![
        8 => (0usize..5, records).prop_map(|(producer, records)| Op::Data(producer, records)),
        4 => (2usize..5, kind.clone()).prop_map(|(producer, kind)| Op::End(producer, kind)),
        1 => (2usize..5, kind).prop_map(|(producer, kind)| Op::Bare(producer, kind)),
        4 => (0i64..80, 3usize..11, 1usize..8, 0usize..14).prop_map(
            |(after_ms, tenths, max_keys, stop_tenths)| Op::Run {
                after_ms,
                tenths,
                max_keys,
                stop_tenths,
            }
        ),
        1 => (1usize..5).prop_map(Op::Forget),
    ]
}

/// One record as a reader sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    offset: i64,
    key: Option<Bytes>,
    value: Option<Bytes>,
    timestamp: i64,
    aborted: bool,
}

#[derive(Clone, Copy)]
struct Txn {
    first_offset: i64,
    /// Of its marker, once it has ended.
    ended: Option<(i64, ControlType)>,
}

#[derive(Default)]
struct Log {
    /// What was written, and what is left.
    original: Vec<Bytes>,
    batches: Vec<Bytes>,
    txns: BTreeMap<usize, Vec<Txn>>,
    producers: BTreeMap<ProducerId, LastAppend>,
    sequences: BTreeMap<usize, i32>,
    end_offset: i64,
    cleaned_to: i64,
    now_ms: i64,
    /// Of each tombstone, when an earlier record of its key was last there.
    shadowing_until: BTreeMap<i64, i64>,
    /// Of each marker, when a batch of its transaction was last there.
    data_until: BTreeMap<i64, i64>,
    runs: u64,
}

const RETENTION_MS: i64 = 50;

impl Log {
    fn push(&mut self, mut bytes: Vec<u8>) -> BatchHeader {
        patch_position(&mut bytes, self.end_offset, LeaderEpoch(self.runs as i32));
        let bytes = Bytes::from(bytes);
        let header = BatchHeader::parse(&bytes).unwrap();
        self.end_offset = header.next_offset();
        self.original.push(bytes.clone());
        self.batches.push(bytes);
        header
    }

    fn data(&mut self, producer: usize, of: &[(usize, bool)]) {
        let mut builder = BatchBuilder::new(self.now_ms);
        let id = ProducerId(producer as i64);
        if producer > 0 {
            let sequence = self.sequences.entry(producer).or_insert(0);
            builder.producer(id, ProducerEpoch(0), *sequence);
            *sequence += of.len() as i32;
        }
        if producer > 1 {
            builder.transactional();
            let txns = self.txns.entry(producer).or_default();
            if txns.last().is_none_or(|txn| txn.ended.is_some()) {
                txns.push(Txn {
                    first_offset: self.end_offset,
                    ended: None,
                });
            }
        }
        for (n, (key, has_value)) in of.iter().enumerate() {
            let value = format!("{}", self.end_offset + n as i64);
            let value = has_value.then_some(value.as_bytes());
            builder.push_at(self.now_ms + n as i64, KEYS.get(*key).copied(), value, &[]);
        }
        let header = self.push(builder.build());
        if producer > 0 {
            let last_offset = header.last_offset();
            self.producers.insert(id, LastAppend::Data { last_offset });
        }
    }

    fn end(&mut self, producer: usize, kind: ControlType, bare: bool) {
        let txns = self.txns.entry(producer).or_default();
        match txns.last_mut() {
            Some(txn) if txn.ended.is_none() && !bare => txn.ended = Some((self.end_offset, kind)),
            Some(txn) if txn.ended.is_none() => return,
            _ if bare => {}
            _ => return,
        }
        let id = ProducerId(producer as i64);
        // As a second dialect's marker does, every second one begins an epoch without data.
        let epoch = ProducerEpoch(i16::from(self.end_offset % 2 == 0));
        let marker = control_batch(
            0,
            LeaderEpoch(0),
            id,
            epoch,
            kind,
            CoordinatorEpoch(0),
            self.now_ms,
        );
        self.push(marker.to_vec());
        if epoch.0 == 1 {
            let last = LastAppend::Marker {
                producer_epoch: epoch,
            };
            self.producers.insert(id, last);
        }
    }

    fn last_stable_offset(&self) -> i64 {
        let open = self.txns.values().flatten().filter(|t| t.ended.is_none());
        open.map(|txn| txn.first_offset)
            .min()
            .unwrap_or(self.end_offset)
    }

    fn aborted(&self) -> Vec<AbortedRange> {
        let mut found = Vec::new();
        for (producer, txns) in &self.txns {
            for txn in txns {
                if let Some((last_offset, ControlType::Abort)) = txn.ended {
                    found.push(AbortedRange {
                        producer_id: ProducerId(*producer as i64),
                        first_offset: txn.first_offset,
                        last_offset,
                    });
                }
            }
        }
        found
    }

    fn was_aborted(&self, header: &BatchHeader) -> bool {
        header.attributes.is_transactional()
            && Fates::new(self.aborted()).is_aborted(header.producer_id, header.base_offset)
    }

    /// What a read_committed client makes of the batches below the last stable offset. Of the
    /// aborted transactions it is told those whose markers are there.
    fn committed(&self, batches: &[Bytes]) -> Vec<Seen> {
        let headers = batches.iter().map(|b| BatchHeader::parse(b).unwrap());
        let there: BTreeSet<i64> = headers.map(|h| h.base_offset).collect();
        let mut told = self.aborted();
        told.retain(|txn| there.contains(&txn.last_offset));
        told.sort_by_key(|txn| txn.first_offset);
        let mut told = told.into_iter().peekable();
        let mut dropping = BTreeSet::new();
        let mut seen = Vec::new();
        for batch in batches {
            let header = BatchHeader::parse(batch).unwrap();
            if header.base_offset >= self.last_stable_offset() {
                break;
            }
            while let Some(txn) = told.next_if(|t| t.first_offset <= header.last_offset()) {
                dropping.insert(txn.producer_id);
            }
            if let Some((kind, _)) = parse_control(batch).unwrap() {
                if kind == ControlType::Abort {
                    dropping.remove(&header.producer_id);
                }
            } else if !header.attributes.is_transactional()
                || !dropping.contains(&header.producer_id)
            {
                seen.extend(self.seen(batch));
            }
        }
        seen
    }

    fn seen(&self, batch: &Bytes) -> Vec<Seen> {
        let header = BatchHeader::parse(batch).unwrap();
        let aborted = self.was_aborted(&header);
        records(batch, &DecompressLimits::default())
            .unwrap()
            .map(Result::unwrap)
            .map(|record| Seen {
                offset: header.base_offset + i64::from(record.offset_delta),
                key: record.key,
                value: record.value,
                timestamp: record.timestamp,
                aborted,
            })
            .collect()
    }

    fn uncommitted(&self, batches: &[Bytes]) -> Vec<Seen> {
        let data = batches
            .iter()
            .filter(|b| parse_control(b).unwrap().is_none());
        data.flat_map(|b| self.seen(b)).collect()
    }

    /// One run; returns whether it changed anything.
    fn run(&mut self, tenths: usize, max_keys: usize, stop_tenths: usize) -> bool {
        self.runs += 1;
        let stable = self.last_stable_offset();
        let headers: Vec<BatchHeader> = (self.batches.iter())
            .map(|b| BatchHeader::parse(b).unwrap())
            .collect();
        let stable_batches = headers.iter().filter(|h| h.next_offset() <= stable).count();
        let covered = stable_batches * tenths.min(10) / 10;
        let Some(last) = covered.checked_sub(1) else {
            return false;
        };
        let end_offset = headers[last].next_offset();
        let limits = DecompressLimits::default();
        let fates = Fates::new(self.aborted());
        let mut map = OffsetMap::new(self.cleaned_to, max_keys, u128::from(self.runs));
        for (batch, header) in self.batches[..covered].iter().zip(&headers) {
            if header.base_offset >= self.cleaned_to && !map.add(batch, &fates, &limits).unwrap() {
                break;
            }
        }
        let mut cleaner = Cleaner::new(Round {
            map: &map,
            fates: &fates,
            producers: &self.producers,
            end_offset,
            now_ms: self.now_ms,
            delete_retention_ms: RETENTION_MS,
            limits,
        });
        let stop = covered * stop_tenths.min(10) / 10;
        let before = self.batches.clone();
        let mut after = Vec::new();
        for batch in &before[..stop] {
            match cleaner.judge(batch).unwrap() {
                Verdict::Keep => after.push(batch.clone()),
                Verdict::Rewrite(bytes) => after.push(bytes),
                Verdict::Drop => {}
            }
        }
        after.extend_from_slice(&before[stop..]);
        if stop == covered {
            self.cleaned_to = map.end_offset().max(self.cleaned_to);
            assert!(
                after
                    .iter()
                    .any(|b| BatchHeader::parse(b).unwrap().next_offset() == end_offset),
                "the last batch of a run stays"
            );
        }
        self.batches = after;
        self.check(&before);
        self.batches != before
    }

    fn check(&mut self, before: &[Bytes]) {
        self.check_batches(before);
        self.check_removed();
        self.check_last_values();
    }

    /// One to one, and each as it was but for what may change.
    fn check_batches(&mut self, before: &[Bytes]) {
        let original: BTreeMap<i64, &Bytes> = (self.original.iter())
            .map(|b| (BatchHeader::parse(b).unwrap().base_offset, b))
            .collect();
        let mut kept = BTreeSet::new();
        for batch in &self.batches {
            assert!(crc_is_valid(batch));
            let header = BatchHeader::parse(batch).unwrap();
            let first = BatchHeader::parse(original[&header.base_offset]).unwrap();
            let expected = BatchHeader {
                batch_length: header.batch_length,
                crc: header.crc,
                base_timestamp: header.base_timestamp,
                max_timestamp: header.max_timestamp,
                record_count: header.record_count,
                attributes: match header.attributes.has_delete_horizon() {
                    true => first.attributes.with_delete_horizon(),
                    false => first.attributes,
                },
                ..first
            };
            assert_eq!(header, expected);
            assert!(kept.insert(header.base_offset));
        }
        for batch in before {
            let header = BatchHeader::parse(batch).unwrap();
            let last = match self.producers.get(&header.producer_id) {
                Some(LastAppend::Data { last_offset }) => *last_offset == header.last_offset(),
                Some(LastAppend::Marker { producer_epoch }) => {
                    header.attributes.is_control() && *producer_epoch == header.producer_epoch
                }
                None => false,
            };
            if last {
                assert!(
                    kept.contains(&header.base_offset),
                    "an active producer's last batch"
                );
            }
        }
        self.check_markers(before, &kept);
    }

    /// A marker outlives all of its transaction, and by the retention of deletes.
    fn check_markers(&mut self, before: &[Bytes], kept: &BTreeSet<i64>) {
        for (producer, txns) in &self.txns {
            for txn in txns {
                let Some((marker, _)) = txn.ended else {
                    continue;
                };
                let has_data = |batches: &[Bytes]| {
                    batches.iter().any(|batch| {
                        let header = BatchHeader::parse(batch).unwrap();
                        header.producer_id.0 == *producer as i64
                            && (txn.first_offset..marker).contains(&header.base_offset)
                    })
                };
                if has_data(before) {
                    self.data_until.insert(marker, self.now_ms);
                }
                if !kept.contains(&marker) {
                    assert!(
                        !has_data(&self.batches),
                        "the marker at {marker} went before its data"
                    );
                    let until = self.data_until[&marker];
                    assert!(
                        self.now_ms >= until + RETENTION_MS,
                        "the marker at {marker} went at {}, its data at {until}",
                        self.now_ms
                    );
                }
            }
        }
    }

    /// Whatever is gone had a reason.
    fn check_removed(&mut self) {
        let left: BTreeMap<i64, Seen> = (self.uncommitted(&self.batches).into_iter())
            .map(|seen| (seen.offset, seen))
            .collect();
        let all = self.uncommitted(&self.original);
        let committed: Vec<&Seen> = all.iter().filter(|seen| !seen.aborted).collect();
        for seen in &all {
            if let Some(now) = left.get(&seen.offset) {
                assert_eq!(now, seen);
                if let (Some(key), None) = (&seen.key, &seen.value)
                    && (left.values()).any(|other| {
                        other.offset < seen.offset
                            && !other.aborted
                            && other.key.as_ref() == Some(key)
                    })
                {
                    self.shadowing_until.insert(seen.offset, self.now_ms);
                }
                continue;
            }
            let Some(key) = &seen.key else { continue };
            let superseded = committed.iter().any(|other| {
                other.offset > seen.offset
                    && other.offset < self.last_stable_offset()
                    && other.key.as_ref() == Some(key)
            });
            if seen.aborted || superseded {
                continue;
            }
            assert_eq!(seen.value, None, "{seen:?} is gone, it is its key's last");
            let until = self.shadowing_until.get(&seen.offset).copied();
            assert!(
                until.is_none_or(|until| self.now_ms >= until + RETENTION_MS),
                "a tombstone went at {} though what it deleted was there at {until:?}",
                self.now_ms
            );
        }
    }

    /// The last value of each key, as read_committed readers see it.
    fn check_last_values(&self) {
        let last = |seen: Vec<Seen>| {
            let mut values = BTreeMap::new();
            for seen in seen {
                match (seen.key, seen.value) {
                    (None, _) => {}
                    (Some(key), None) => drop(values.remove(&key)),
                    (Some(key), Some(value)) => drop(values.insert(key, value)),
                }
            }
            values
        };
        let committed = self.committed(&self.batches);
        let offsets = committed.windows(2).all(|p| p[0].offset < p[1].offset);
        assert!(offsets && committed.iter().all(|seen| !seen.aborted));
        let original = self.committed(&self.original);
        assert_eq!(last(committed.clone()), last(original));
        // The list of aborted transactions hides nothing that was committed.
        let expected: Vec<Seen> = (self.uncommitted(&self.batches).into_iter())
            .filter(|seen| !seen.aborted && seen.offset < self.last_stable_offset())
            .collect();
        assert_eq!(committed, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn compaction_removes_nothing_that_a_reader_needs(ops in prop::collection::vec(an_op(), 1..70)) {
        let mut log = Log::default();
        for op in &ops {
            match op {
                Op::Data(producer, records) => log.data(*producer, records),
                Op::End(producer, kind) => log.end(*producer, *kind, false),
                Op::Bare(producer, kind) => log.end(*producer, *kind, true),
                Op::Run { after_ms, tenths, max_keys, stop_tenths } => {
                    log.now_ms += after_ms;
                    log.run(*tenths, *max_keys, *stop_tenths);
                }
                Op::Forget(producer) => {
                    log.producers.remove(&ProducerId(*producer as i64));
                }
            }
        }
        // Runs to the end: then one more changes nothing, until the horizons have passed.
        for _ in 0..ops.len() {
            log.run(10, 100, 10);
        }
        prop_assert!(!log.run(10, 100, 10), "a second run at the same time");
        log.now_ms += RETENTION_MS;
        log.run(10, 100, 10);
        log.now_ms += RETENTION_MS;
        log.run(10, 100, 10);
        prop_assert!(!log.run(10, 100, 10));
        let stable = log.last_stable_offset();
        let committed = log.committed(&log.batches);
        let keys: Vec<_> = committed.iter().map(|seen| seen.key.clone()).collect();
        let once: BTreeSet<_> = keys.iter().cloned().collect();
        prop_assert_eq!(keys.len(), once.len(), "one record per key is left");
        prop_assert!(committed.iter().all(|seen| seen.value.is_some() && seen.key.is_some()));
        let all = log.uncommitted(&log.batches);
        prop_assert!(all.iter().all(|seen| !seen.aborted || seen.offset >= stable));
    }
}
