//! A participant's side: what a journal knows of transactions whose home is another one. Durable: each
//! change is part of a record of the journal, with the markers that go with it.

use std::collections::BTreeMap;

use tidemark_types::{CoordinatorEpoch, ErrorCode, ProducerEpoch, ProducerId, Tick};

use super::{ToHome, ToParticipant, TxnRef};
use crate::{MarkerSet, Partitions};

/// This journal's share of a transaction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Share {
    /// Its producer may write to these partitions.
    Open(Partitions),
    /// It has ended so.
    Ended { commit: bool },
}

/// The newest transaction of a producer id that this journal has heard of.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Enrolment {
    pub txn_number: u64,
    /// While it is open the epoch of its batches, then that of its markers.
    pub epoch: ProducerEpoch,
    /// The highest that was heard of.
    pub coordinator_epoch: CoordinatorEpoch,
    /// Of the record that made it so.
    pub tick: Tick,
    pub share: Share,
}

/// What a message leads to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// To be recorded and applied, with the markers if there are any; the answer leaves when the
    /// record is durable.
    Record {
        enrolment: Enrolment,
        markers: Option<MarkerSet>,
        answer: ToHome,
    },
    /// It was so before: answered as the first time.
    Known(ToHome),
}

/// What a journal knows of the transactions of others, by producer id.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Participant {
    by_producer_id: BTreeMap<ProducerId, Enrolment>,
}

impl Participant {
    pub fn get(&self, producer_id: ProducerId) -> Option<&Enrolment> {
        self.by_producer_id.get(&producer_id)
    }

    /// The only way it changes, live and at replay alike.
    pub fn apply(&mut self, producer_id: ProducerId, enrolment: Enrolment) {
        self.by_producer_id.insert(producer_id, enrolment);
    }

    /// Decides a message of the home's. `tick` is that of the record that would be written.
    ///
    /// Errors, on which the home goes on as its own state says: TRANSACTION_COORDINATOR_FENCED from
    /// an owner of the home that another has followed; INVALID_TXN_STATE for the enrolment of a
    /// transaction that has ended here; CONCURRENT_TRANSACTIONS while an earlier one is open here
    /// (which no home does: the next one begins when every participant has resolved).
    pub fn decide(&self, message: &ToParticipant, tick: Tick) -> Result<Verdict, ErrorCode> {
        match message {
            ToParticipant::Enroll {
                txn,
                epoch,
                partitions,
                ..
            } => self.enroll(txn, *epoch, partitions, tick),
            ToParticipant::Resolve {
                txn, epoch, commit, ..
            } => self.resolve(txn, *epoch, *commit, tick),
        }
    }

    fn enroll(
        &self,
        txn: &TxnRef,
        epoch: ProducerEpoch,
        partitions: &Partitions,
        tick: Tick,
    ) -> Result<Verdict, ErrorCode> {
        let known = self.heard(txn)?;
        let mut all = partitions.clone();
        if let Some(known) = known {
            match &known.share {
                _ if txn.txn_number < known.txn_number => return Err(ErrorCode::InvalidTxnState),
                Share::Ended { .. } if txn.txn_number == known.txn_number => {
                    return Err(ErrorCode::InvalidTxnState);
                }
                Share::Open(enrolled) if txn.txn_number == known.txn_number => {
                    if partitions.is_subset(enrolled) {
                        return Ok(Verdict::Known(enrolled_answer(txn, partitions, known.tick)));
                    }
                    all.extend(enrolled.iter().cloned());
                }
                Share::Open(_) => return Err(ErrorCode::ConcurrentTransactions),
                Share::Ended { .. } => {}
            }
        }
        Ok(Verdict::Record {
            answer: enrolled_answer(txn, partitions, tick),
            enrolment: Enrolment {
                txn_number: txn.txn_number,
                epoch,
                coordinator_epoch: txn.coordinator_epoch,
                tick,
                share: Share::Open(all),
            },
            markers: None,
        })
    }

    fn resolve(
        &self,
        txn: &TxnRef,
        epoch: ProducerEpoch,
        commit: bool,
        tick: Tick,
    ) -> Result<Verdict, ErrorCode> {
        let known = self.heard(txn)?;
        let resolved = |tick| ToHome::Resolved {
            txn_number: txn.txn_number,
            tick,
        };
        let mut markers = None;
        if let Some(known) = known {
            match &known.share {
                // The home has gone on since: every participant has resolved this one.
                _ if txn.txn_number < known.txn_number => {
                    return Ok(Verdict::Known(resolved(known.tick)));
                }
                Share::Ended { commit: as_before } if txn.txn_number == known.txn_number => {
                    return match *as_before == commit {
                        true => Ok(Verdict::Known(resolved(known.tick))),
                        // A home decides once.
                        false => Err(ErrorCode::InvalidTxnState),
                    };
                }
                Share::Open(partitions) if txn.txn_number == known.txn_number => {
                    markers = Some(MarkerSet {
                        producer_id: txn.producer_id,
                        epoch,
                        commit,
                        partitions: partitions.clone(),
                    });
                }
                Share::Open(_) => return Err(ErrorCode::ConcurrentTransactions),
                Share::Ended { .. } => {}
            }
        }
        // Also where it was not enrolled: its Enroll may still be on the way, and is refused then.
        Ok(Verdict::Record {
            answer: resolved(tick),
            enrolment: Enrolment {
                txn_number: txn.txn_number,
                epoch,
                coordinator_epoch: txn.coordinator_epoch,
                tick,
                share: Share::Ended { commit },
            },
            markers,
        })
    }

    /// What is known of the producer, if the message is not of an owner of the home that another has
    /// followed.
    fn heard(&self, txn: &TxnRef) -> Result<Option<&Enrolment>, ErrorCode> {
        let known = self.get(txn.producer_id);
        match known {
            Some(known) if txn.coordinator_epoch < known.coordinator_epoch => {
                Err(ErrorCode::TransactionCoordinatorFenced)
            }
            known => Ok(known),
        }
    }

    /// Whether a transactional batch may be appended, before the partition looks at its sequence.
    ///
    /// Errors: 47 below the epoch that is known, 48 outside an open transaction.
    pub fn check_produce(
        &self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        topic: &str,
        partition: i32,
    ) -> Result<(), ErrorCode> {
        let known = self.get(producer_id).ok_or(ErrorCode::InvalidTxnState)?;
        if epoch < known.epoch {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        let is_in = |enrolled: &Partitions| {
            enrolled
                .iter()
                .any(|(name, at)| *at == partition && **name == *topic)
        };
        match &known.share {
            Share::Open(enrolled) if epoch == known.epoch && is_in(enrolled) => Ok(()),
            _ => Err(ErrorCode::InvalidTxnState),
        }
    }
}

fn enrolled_answer(txn: &TxnRef, partitions: &Partitions, tick: Tick) -> ToHome {
    ToHome::Enrolled {
        txn_number: txn.txn_number,
        partitions: partitions.clone(),
        tick,
    }
}
