//! Moves of transactional and idempotent producers.

use tidemark_types::ErrorCode;

use crate::common::Producer;
use crate::moves::{GROUPS, IDS};
use crate::player::{Player, nth};

impl Player {
    pub fn txn_offsets(&mut self, p: &Producer, group: usize, partitions: &[usize], n: usize) {
        let offsets: Vec<_> = partitions
            .iter()
            .map(|p| (nth(*p).0, nth(*p).1, n as i64))
            .collect();
        let codes = p.commit_offsets(&mut self.world, GROUPS[group], &offsets);
        let id = p.transactional_id.as_deref();
        for ((topic, index, offset), code) in offsets.iter().zip(&codes) {
            if *code == ErrorCode::None {
                let place = (GROUPS[group], *topic, *index);
                self.ledger.offset(place, *offset, id);
            }
        }
        if codes.contains(&ErrorCode::None) {
            self.check_may_write(p);
            self.reach("offsets in a transaction");
        }
    }

    pub fn init(&mut self, id: usize, given: Option<usize>, v2: bool) {
        let pair = given
            .and_then(|who| self.session(id, who))
            .map(|p| (p.producer_id, p.epoch));
        let before = self.world.events.len();
        if let Ok((producer_id, epoch)) = self.world.init(Some(IDS[id]), pair) {
            let session = Producer {
                transactional_id: Some(IDS[id].to_owned()),
                producer_id,
                epoch,
                version: if v2 { 12 } else { 9 },
                transactional: true,
            };
            self.begin_session(id, session);
        }
        if self.world.events.len() > before {
            self.reach("fenced with an open transaction");
        }
    }

    pub fn end(&mut self, id: usize, who: usize, commit: bool) {
        let Some(p) = self.session(id, who) else {
            return;
        };
        let records = self.world.records.len();
        match p.end_as_is(&mut self.world, commit) {
            Ok((producer_id, epoch)) => {
                if self.world.records.len() == records {
                    self.reach("retried end");
                } else {
                    self.check_may_write(&p);
                    self.reach(if commit { "commit" } else { "abort" });
                    self.ledger.ended(IDS[id], commit);
                }
                if p.version >= 12 {
                    let next = Producer {
                        producer_id,
                        epoch,
                        ..p
                    };
                    self.begin_session(id, next);
                }
            }
            Err(code) => self.reach_code(code),
        }
    }

    pub fn produce(&mut self, p: &Producer, partitions: &[usize], back: i32, n: usize) {
        let mut batches = Vec::new();
        let mut keys = Vec::new();
        for partition in partitions.iter().filter(|p| self.exists(**p)) {
            let (topic, index) = nth(*partition);
            let key = (p.producer_id, p.epoch, *partition);
            let next = self.next_sequence.get(&key).copied().unwrap_or(0);
            let sequence = (next - back).max(0);
            let value = format!("{n}");
            batches.push(p.batch(&self.world, topic, index, sequence, &[&value]));
            keys.push((key, sequence, self.world.id(topic, index), value));
        }
        let count = batches.len();
        let records = self.world.records.len();
        let produced = self.world.produce(p.version, batches);
        assert_eq!(produced.len(), count);
        let wrote = self.world.records.len() > records;
        let transaction = p.transactional_id.as_deref().filter(|_| p.transactional);
        for (result, (key, sequence, id, value)) in produced.into_iter().zip(keys) {
            if let Ok(offset) = result {
                self.ledger.written(id, offset, value, transaction);
                let whose = (id, p.producer_id, p.epoch);
                self.ledger.counted(whose, sequence, offset);
            }
            match result {
                Ok(_) if !wrote => self.reach("duplicate"),
                Ok(_) => {
                    self.check_may_write(p);
                    let next = self.next_sequence.entry(key).or_default();
                    *next = (*next).max(sequence + 1);
                    let v2 = p.version >= 12 && p.transactional;
                    self.reach(if v2 { "sent in version 2" } else { "sent" });
                }
                Err(code) => self.reach_code(code),
            }
        }
    }
}
