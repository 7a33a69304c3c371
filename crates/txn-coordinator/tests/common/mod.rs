//! A coordinator that a test talks to as clients do, in one line per request.
#![allow(dead_code)] // each test binary uses a part of it

use std::sync::Arc;

use tidemark_txn_coordinator::*;
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

pub const MAX_TIMEOUT_MS: i32 = 900_000;
pub const TIMEOUT_MS: i32 = 60_000;
/// The producer id a new shard hands out first; the next ones follow.
pub const FIRST_PID: i64 = 7;

/// The two dialects, for tests that hold for both.
pub const DIALECTS: [Dialect; 2] = [Dialect::V1, Dialect::V2];

/// What a client holds: a producer id and an epoch.
pub type Pair = (i64, i16);

pub fn who(client_id: &str) -> Who {
    Who {
        principal: "User:alice".into(),
        client_id: client_id.into(),
        host: "10.0.0.1".into(),
    }
}

pub fn parts(partitions: &[(&str, i32)]) -> Partitions {
    partitions
        .iter()
        .map(|(topic, p)| (Arc::from(*topic), *p))
        .collect()
}

pub fn typed(pair: Pair) -> (ProducerId, ProducerEpoch) {
    (ProducerId(pair.0), ProducerEpoch(pair.1))
}

/// An id "tx1" at (7, `epoch`), Empty, as after a session was opened without a pair.
pub fn empty_at(epoch: i16) -> TxnMeta {
    TxnMeta {
        transactional_id: "tx1".into(),
        producer_id: ProducerId(FIRST_PID),
        previous_producer_id: ProducerId::NONE,
        next_producer_id: ProducerId::NONE,
        epoch: ProducerEpoch(epoch),
        last_epoch: ProducerEpoch::NONE,
        timeout_ms: TIMEOUT_MS,
        state: TxnState::Empty,
        partitions: Partitions::new(),
        start_wall_ms: TxnMeta::NO_START,
        last_update_wall_ms: 1_000,
        txn_number: 0,
        dialect: Dialect::V1,
        ended_by: EndedBy::Unknown,
        who: who("c1"),
    }
}

/// One transactional id, "tx1", and the time.
pub struct Shard {
    pub coordinator: Coordinator,
    pub now_wall_ms: i64,
    pub next_pid: i64,
    /// The markers written so far, oldest first.
    pub markers: Vec<MarkerSet>,
    /// How many records were written.
    pub records: usize,
}

impl Shard {
    pub fn new() -> Shard {
        Shard {
            coordinator: Coordinator::default(),
            now_wall_ms: 1_000,
            next_pid: FIRST_PID,
            markers: Vec::new(),
            records: 0,
        }
    }

    pub fn at(meta: TxnMeta) -> Shard {
        let mut shard = Shard::new();
        shard.next_pid = meta.producer_id.0 + 1;
        shard.coordinator.restore("tx1", Some(meta)).unwrap();
        shard
    }

    pub fn meta(&self) -> &TxnMeta {
        self.coordinator.get("tx1").expect("tx1 exists")
    }

    pub fn state(&self) -> TxnState {
        self.meta().state
    }

    pub fn pair(&self) -> Pair {
        (self.meta().producer_id.0, self.meta().epoch.0)
    }

    /// Records and applies, as the owner does, and gives the reply.
    fn run(&mut self, decided: Result<Outcome, ErrorCode>) -> Result<Pair, ErrorCode> {
        let outcome = decided?;
        if outcome.used_fresh_producer_id {
            self.next_pid += 1;
        }
        assert!(
            outcome.markers.is_none() || outcome.next.is_some(),
            "markers without a state"
        );
        if let Some(next) = outcome.next {
            self.records += 1;
            self.coordinator.apply("tx1", Some(next));
        }
        self.markers.extend(outcome.markers);
        Ok((outcome.reply.0.0, outcome.reply.1.0))
    }

    pub fn init(&mut self, given: Option<Pair>) -> Result<Pair, ErrorCode> {
        self.init_with(given, TIMEOUT_MS)
    }

    pub fn init_with(&mut self, given: Option<Pair>, timeout_ms: i32) -> Result<Pair, ErrorCode> {
        let request = InitProducerId {
            transactional_id: "tx1".into(),
            timeout_ms,
            given: given.map(typed),
        };
        let decided = decide_init_producer_id(
            self.coordinator.get("tx1"),
            &request,
            MAX_TIMEOUT_MS,
            ProducerId(self.next_pid),
            self.now_wall_ms,
            who("c1"),
        );
        self.run(decided)
    }

    /// Enrols partitions the way the dialect does.
    pub fn enrol(
        &mut self,
        dialect: Dialect,
        pair: Pair,
        partitions: &[(&str, i32)],
    ) -> Result<Pair, ErrorCode> {
        let decide = match dialect {
            Dialect::V1 => decide_add_partitions,
            Dialect::V2 => decide_implicit_enrolment,
        };
        let (producer_id, epoch) = typed(pair);
        let decided = decide(
            self.coordinator.get("tx1"),
            producer_id,
            epoch,
            &parts(partitions),
            self.now_wall_ms,
        );
        self.run(decided)
    }

    pub fn end(&mut self, dialect: Dialect, pair: Pair, commit: bool) -> Result<Pair, ErrorCode> {
        let (producer_id, epoch) = typed(pair);
        let request = EndTxn {
            producer_id,
            epoch,
            commit,
            dialect,
        };
        let decided = decide_end_txn(
            self.coordinator.get("tx1"),
            &request,
            ProducerId(self.next_pid),
            self.now_wall_ms,
        );
        self.run(decided)
    }

    pub fn commit(&mut self, dialect: Dialect, pair: Pair) -> Result<Pair, ErrorCode> {
        self.end(dialect, pair, true)
    }

    pub fn abort(&mut self, dialect: Dialect, pair: Pair) -> Result<Pair, ErrorCode> {
        self.end(dialect, pair, false)
    }

    pub fn broker_abort(&mut self, reason: AbortReason) -> Result<Pair, ErrorCode> {
        let decided = decide_abort_by_broker(
            self.meta(),
            reason,
            ProducerId(self.next_pid),
            self.now_wall_ms,
        );
        self.run(decided)
    }

    /// A transactional batch of the classic dialect, Produce v9.
    pub fn produce(&self, pair: Pair, topic: &str, partition: i32) -> Result<(), ErrorCode> {
        let (producer_id, epoch) = typed(pair);
        let meta = self.coordinator.by_producer_id(producer_id);
        check_any_produce(meta, producer_id, epoch)?;
        check_transactional_produce(meta, producer_id, epoch, topic, partition, 9)
    }

    /// Starts anew from the records of every partition.
    pub fn restart(&mut self) {
        let mut replayed = Coordinator::default();
        for partition in 0..tidemark_types::COORDINATOR_PARTITIONS {
            for (key, value) in self.coordinator.records_of_partition(partition) {
                replayed.apply_record(&key, Some(&value)).unwrap();
            }
        }
        assert_eq!(replayed, self.coordinator);
        self.coordinator = replayed;
    }

    /// The last markers written: (producer id, epoch, commit).
    pub fn last_markers(&self) -> (i64, i16, bool) {
        let markers = self.markers.last().expect("markers were written");
        (markers.producer_id.0, markers.epoch.0, markers.commit)
    }
}
