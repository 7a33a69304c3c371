//! Random histories against a model that keeps the whole log and reads it from the start for every
//! question.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tidemark_producer_state::{AppendVerdict, Origin, PartitionProducers};
use tidemark_record_batch::{Attributes, BatchHeader, ControlType};
use tidemark_types::{CoordinatorEpoch, ErrorCode, LeaderEpoch, ProducerEpoch, ProducerId};

/// Of every batch: what a repeat is answered with.
const MAX_TIMESTAMP: i64 = 77;

#[derive(Clone, Copy, Debug)]
struct Sent {
    producer_id: i64,
    epoch: i16,
    base_sequence: i32,
    records: i32,
    transactional: bool,
}

#[derive(Clone, Copy, Debug)]
enum Logged {
    Batch(Sent, i64),
    Marker(i64, i16, i64),
    Expired(i64),
}

/// What the log says of one producer.
#[derive(Default)]
struct Known {
    epoch: i16,
    batches: Vec<(i32, i32, i64)>,
    open: Option<i64>,
}

#[derive(Default)]
struct Model {
    log: Vec<Logged>,
    leo: i64,
}

impl Model {
    fn known(&self, producer_id: i64) -> Option<Known> {
        let mut known: Option<Known> = None;
        for logged in &self.log {
            match *logged {
                Logged::Batch(sent, base_offset) if sent.producer_id == producer_id => {
                    let known = known.get_or_insert_with(Known::default);
                    if known.epoch != sent.epoch {
                        known.batches.clear();
                    }
                    known.epoch = sent.epoch;
                    known
                        .batches
                        .push((sent.base_sequence, sent.records, base_offset));
                    if sent.transactional && known.open.is_none() {
                        known.open = Some(base_offset);
                    }
                }
                Logged::Marker(of, epoch, _) if of == producer_id => {
                    let known = known.get_or_insert_with(Known::default);
                    if known.epoch != epoch {
                        known.batches.clear();
                    }
                    known.epoch = epoch;
                    known.open = None;
                }
                Logged::Expired(of) if of == producer_id => known = None,
                _ => {}
            }
        }
        known
    }

    fn decide(&self, sent: Sent, v2: bool) -> Result<AppendVerdict, ErrorCode> {
        let known = self.known(sent.producer_id);
        if let Some(known) = &known {
            let repeat = known
                .batches
                .iter()
                .rev()
                .take(5)
                .find(|(base, records, _)| *base == sent.base_sequence && *records == sent.records);
            if known.epoch == sent.epoch
                && let Some((_, _, base_offset)) = repeat
            {
                return Ok(AppendVerdict::Duplicate {
                    base_offset: *base_offset,
                    log_append_time: MAX_TIMESTAMP,
                });
            }
            if sent.epoch < known.epoch {
                return Err(ErrorCode::InvalidProducerEpoch);
            }
        }
        let expected = match &known {
            Some(known) if known.epoch == sent.epoch => match known.batches.last() {
                // Sequences are numbers modulo 2^31.
                Some((base, records, _)) => {
                    Some((i64::from(*base) + i64::from(*records)).rem_euclid(1 << 31))
                }
                None => Some(0),
            },
            Some(_) => Some(0),
            None if v2 && sent.transactional => Some(0),
            None => None,
        };
        if expected.is_some_and(|expected| expected != i64::from(sent.base_sequence)) {
            return Err(ErrorCode::OutOfOrderSequenceNumber);
        }
        if known.is_some_and(|known| known.open.is_some()) && !sent.transactional {
            return Err(ErrorCode::InvalidTxnState);
        }
        Ok(AppendVerdict::Append)
    }

    fn producers(&self) -> BTreeSet<i64> {
        self.log
            .iter()
            .map(|logged| match *logged {
                Logged::Batch(sent, _) => sent.producer_id,
                Logged::Marker(producer_id, ..) | Logged::Expired(producer_id) => producer_id,
            })
            .collect()
    }

    fn open(&self) -> Vec<(i64, i64)> {
        let mut open: Vec<(i64, i64)> = self
            .producers()
            .into_iter()
            .filter_map(|producer_id| Some((self.known(producer_id)?.open?, producer_id)))
            .collect();
        open.sort_unstable();
        open
    }
}

fn header(sent: Sent, base_offset: i64) -> BatchHeader {
    let attributes = Attributes::default();
    BatchHeader {
        base_offset,
        batch_length: 49,
        leader_epoch: LeaderEpoch(0),
        magic: 2,
        crc: 0,
        attributes: if sent.transactional {
            attributes.with_transactional()
        } else {
            attributes
        },
        last_offset_delta: sent.records - 1,
        base_timestamp: 0,
        max_timestamp: MAX_TIMESTAMP,
        producer_id: ProducerId(sent.producer_id),
        producer_epoch: ProducerEpoch(sent.epoch),
        base_sequence: sent.base_sequence,
        record_count: sent.records,
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// The next sequence of the producer's epoch, moved by `shift`, in its epoch moved by `bump`.
    Send {
        producer_id: i64,
        shift: i32,
        bump: i16,
        records: i32,
        transactional: bool,
        v2: bool,
    },
    /// A batch sent before, again.
    Repeat(prop::sample::Index),
    /// Near the end of the sequences, by a producer of its own.
    Wrapping {
        records: i32,
    },
    Marker {
        producer_id: i64,
        bump: i16,
        abort: bool,
    },
    Expire {
        now_wall_ms: i64,
    },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0i64..4, prop_oneof![8 => Just(0), 2 => -12i32..12], prop_oneof![8 => Just(0i16), 1 => -1i16..3], 1i32..5, any::<bool>(), any::<bool>())
            .prop_map(|(producer_id, shift, bump, records, transactional, v2)| Step::Send {
                producer_id, shift, bump, records, transactional, v2,
            }),
        4 => any::<prop::sample::Index>().prop_map(Step::Repeat),
        1 => (1i32..5).prop_map(|records| Step::Wrapping { records }),
        4 => (0i64..4, -1i16..2, any::<bool>())
            .prop_map(|(producer_id, bump, abort)| Step::Marker { producer_id, bump, abort }),
        1 => (0i64..200).prop_map(|now_wall_ms| Step::Expire { now_wall_ms }),
        1 => Just(Step::Restart),
    ]
}

#[derive(Default)]
struct Run {
    model: Model,
    state: PartitionProducers,
    sent: Vec<Sent>,
    verdicts: BTreeSet<String>,
}

impl Run {
    fn send(&mut self, sent: Sent, v2: bool) {
        let verdict = self
            .state
            .decide_append(&header(sent, -1), Origin::client(v2));
        assert_eq!(verdict, self.model.decide(sent, v2), "{sent:?}");
        let name = match verdict {
            Ok(AppendVerdict::Append) => "append".to_string(),
            Ok(AppendVerdict::Duplicate { .. }) => "duplicate".to_string(),
            Err(code) => code.to_string(),
        };
        self.verdicts.insert(name);
        self.sent.push(sent);
        if verdict == Ok(AppendVerdict::Append) {
            let base_offset = self.model.leo;
            self.state
                .apply_append(&header(sent, base_offset), base_offset);
            self.model.log.push(Logged::Batch(sent, base_offset));
            self.model.leo += i64::from(sent.records);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send {
                producer_id,
                shift,
                bump,
                records,
                transactional,
                v2,
            } => {
                let known = self.model.known(producer_id).unwrap_or_default();
                let next = match known.batches.last() {
                    Some((base, records, _)) if bump == 0 => base + records,
                    _ => 0,
                };
                let sent = Sent {
                    producer_id,
                    epoch: (known.epoch + bump).max(0),
                    base_sequence: (next + shift).max(0),
                    records,
                    transactional,
                };
                self.send(sent, v2);
            }
            Step::Repeat(index) if !self.sent.is_empty() => {
                let sent = *index.get(&self.sent);
                self.send(sent, false);
            }
            Step::Repeat(_) => {}
            Step::Wrapping { records } => {
                let known = self.model.known(100).unwrap_or_default();
                let next = match known.batches.last() {
                    Some((base, records, _)) => {
                        (i64::from(*base) + i64::from(*records)).rem_euclid(1 << 31) as i32
                    }
                    None => i32::MAX - 5,
                };
                let sent = Sent {
                    producer_id: 100,
                    epoch: 0,
                    base_sequence: next,
                    records,
                    transactional: false,
                };
                self.send(sent, false);
            }
            Step::Marker {
                producer_id,
                bump,
                abort,
            } => {
                let known = self.model.known(producer_id);
                let current = known.as_ref().map(|known| known.epoch);
                let epoch = (current.unwrap_or(0) + bump).max(0);
                let decided = self.state.decide_marker(
                    ProducerId(producer_id),
                    ProducerEpoch(epoch),
                    CoordinatorEpoch(0),
                );
                let stale = current.is_some_and(|current| epoch < current);
                assert_eq!(decided.is_err(), stale);
                if stale {
                    return;
                }
                let sent = Sent {
                    producer_id,
                    epoch,
                    base_sequence: -1,
                    records: 1,
                    transactional: true,
                };
                let offset = self.model.leo;
                let control_type = if abort {
                    ControlType::Abort
                } else {
                    ControlType::Commit
                };
                let completed = self.state.apply_marker(
                    &header(sent, offset),
                    control_type,
                    CoordinatorEpoch(0),
                    offset,
                    offset,
                );
                self.model
                    .log
                    .push(Logged::Marker(producer_id, epoch, offset));
                self.model.leo += 1;
                assert_eq!(
                    completed.map(|completed| completed.first_offset),
                    known.and_then(|known| known.open)
                );
                if let Some(completed) = completed {
                    assert_eq!(completed.last_offset, offset);
                    assert_eq!(completed.aborted, abort);
                    let lso = self.model.open().first().map_or(offset + 1, |txn| txn.0);
                    assert_eq!(completed.last_stable_offset, lso);
                }
            }
            Step::Expire { now_wall_ms } => {
                // Wall time is the offset of each write here.
                let now_wall_ms = self.model.leo + now_wall_ms;
                let everyone = (ProducerId(0), usize::MAX);
                let (idle, _) = self
                    .state
                    .expirable(everyone.0, everyone.1, now_wall_ms - 100);
                for producer_id in idle {
                    assert!(self.model.known(producer_id.0).unwrap().open.is_none());
                    self.state.remove(producer_id);
                    self.model.log.push(Logged::Expired(producer_id.0));
                }
            }
            Step::Restart => {
                let decoded = PartitionProducers::decode(&self.state.encode()).unwrap();
                assert_eq!(decoded, self.state);
                self.state = decoded;
            }
        }
    }

    fn check(&self) {
        self.state.check();
        let open: Vec<(i64, i64)> = self
            .state
            .open_transactions()
            .map(|txn| (txn.first_offset, txn.producer_id.0))
            .collect();
        assert_eq!(open, self.model.open());
        let lso = open.first().map_or(self.model.leo, |txn| txn.0);
        assert_eq!(self.state.lso(self.model.leo, 0), lso);
        for producer_id in self.model.producers() {
            let known = self.model.known(producer_id);
            let entry = self.state.get(ProducerId(producer_id));
            assert_eq!(entry.is_some(), known.is_some());
            if let (Some(entry), Some(known)) = (entry, known) {
                assert_eq!(entry.epoch().0, known.epoch);
                let window: Vec<(i32, i32, i64)> = entry
                    .window()
                    .iter()
                    .map(|b| (b.base_sequence, b.last_offset_delta + 1, b.base_offset))
                    .collect();
                let from = known.batches.len().saturating_sub(5);
                assert_eq!(window, known.batches[from..]);
            }
        }
    }

    /// The state that comes of the log alone.
    fn replay(&self) -> PartitionProducers {
        let mut state = PartitionProducers::new();
        for logged in &self.model.log {
            match *logged {
                Logged::Batch(sent, base_offset) => {
                    state.apply_append(&header(sent, base_offset), base_offset);
                }
                Logged::Marker(producer_id, epoch, offset) => {
                    let sent = Sent {
                        producer_id,
                        epoch,
                        base_sequence: -1,
                        records: 1,
                        transactional: true,
                    };
                    state.apply_marker(
                        &header(sent, offset),
                        ControlType::Commit,
                        CoordinatorEpoch(0),
                        offset,
                        offset,
                    );
                }
                Logged::Expired(producer_id) => state.remove(ProducerId(producer_id)),
            }
        }
        state
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_state_is_what_the_log_says(steps in prop::collection::vec(step(), 1..120)) {
        let mut run = Run::default();
        for step in steps {
            run.step(step);
            run.check();
        }
        prop_assert_eq!(run.replay(), run.state);
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = PartitionProducers::decode(&bytes);
        if bytes.len() > 4 {
            bytes[..5].copy_from_slice(&[1, 0, 0, 0, 1]);
        }
        if let Ok(state) = PartitionProducers::decode(&bytes) {
            state.check();
        }
    }

    /// What decodes is a state, and is encoded to the same bytes again.
    #[test]
    fn damaged_bytes_never_make_an_impossible_state(
        steps in prop::collection::vec(step(), 1..40),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3),
        cut: Option<prop::sample::Index>,
    ) {
        let mut run = Run::default();
        for step in steps {
            run.step(step);
        }
        let mut bytes = run.state.encode();
        for (index, byte) in damage {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(state) = PartitionProducers::decode(&bytes) {
            state.check();
            prop_assert_eq!(state.encode(), bytes);
        }
    }
}

/// The histories above are no test if some verdict never comes up.
#[test]
fn random_histories_meet_every_verdict() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let mut verdicts = BTreeSet::new();
    for _ in 0..50 {
        let steps = prop::collection::vec(step(), 100..120);
        let steps = steps.new_tree(&mut runner).unwrap().current();
        let mut run = Run::default();
        for step in steps {
            run.step(step);
        }
        verdicts.append(&mut run.verdicts);
    }
    let expected = [
        "append",
        "duplicate",
        "INVALID_PRODUCER_EPOCH (47)",
        "INVALID_TXN_STATE (48)",
        "OUT_OF_ORDER_SEQUENCE_NUMBER (45)",
    ];
    for verdict in expected {
        assert!(verdicts.contains(verdict), "{verdict} of {verdicts:?}");
    }
}
