//! What goes wrong in the model of two instances, how much of it, and what must hold.

use std::collections::BTreeSet;

use stateright::Property;
use tidemark_txn_coordinator::Dialect;

use super::Sights;
use super::broker::Fault;
use super::facts::Wrong;
use super::sessions::State;

#[derive(Clone)]
pub struct Setup {
    pub dialects: [Dialect; 2],
    /// Transactions each instance begins.
    pub txns: [u8; 2],
    /// Where each instance writes in a transaction, in this order.
    pub places: [&'static [u8]; 2],
    /// Answers lost, and requests sent again while the first copy may still be on its way.
    pub repeats: u8,
    pub timeouts: u8,
    pub crashes: u8,
    pub fault: Fault,
    pub seen: Sights,
}

impl Setup {
    pub fn new(dialects: [Dialect; 2]) -> Setup {
        Setup {
            dialects,
            txns: [1, 1],
            places: [&[0, 1], &[0]],
            repeats: 1,
            timeouts: 1,
            crashes: 1,
            fault: Fault::Sound,
            seen: Sights::default(),
        }
    }

    /// True if a copy of a request may come while its sender has moved on. In the classic dialect an
    /// epoch names a session and not a transaction: what comes late cannot be told from what is new
    /// (KIP-890's motivation). That is the protocol's hole, and no broker's to close; the model of
    /// the coordinator (`txn-coordinator/tests/model.rs`) shows it.
    pub fn delays(&self, from: u8) -> bool {
        self.dialects[usize::from(from)] == Dialect::V2
    }

    pub fn all_properties(&self) -> Vec<Property<Setup>> {
        let mut all = vec![
            Property::always("an acknowledged record is in the log", |_, s: &State| {
                let mut acked = s.acked.iter();
                acked.all(|name| s.broker.durable_facts().is_written(*name))
            }),
            Property::always("no record is in the log twice", |_, s: &State| {
                s.has_not(Wrong::Doubled)
            }),
            Property::always("a commit that was answered is whole", |_, s: &State| {
                let committed = |from, txn| {
                    let facts = s.broker.durable_facts();
                    facts.fates(from, txn) == BTreeSet::from([Some(true)])
                };
                let mut ended = s.ended.iter();
                ended.all(|((from, txn), commit)| !commit || committed(*from, *txn))
            }),
            Property::always("an abort that was answered is unseen", |_, s: &State| {
                let seen = |from, txn| s.broker.facts().fates(from, txn).contains(&Some(true));
                let mut ended = s.ended.iter();
                ended.all(|((from, txn), commit)| *commit || !seen(*from, *txn))
            }),
            Property::always("all or nothing", |_, s: &State| {
                let facts = s.broker.facts();
                let mut all = facts.names().map(|(from, txn, _)| facts.fates(from, txn));
                all.all(|fates| !(fates.contains(&Some(true)) && fates.contains(&Some(false))))
            }),
            Property::always(
                "a transaction is one transaction's records",
                |_, s: &State| s.has_not(Wrong::Mixed),
            ),
            Property::always("readers see what was committed", |_, s: &State| {
                s.has_not(Wrong::ReadersDiffer) && s.has_not(Wrong::WentBack)
            }),
            Property::always("no earlier session acts", |_, s: &State| {
                s.has_not(Wrong::ZombieActed)
            }),
            Property::always("asking again has no effect", |_, s: &State| {
                s.has_not(Wrong::EffectTwice)
            }),
            Property::always("the owner's invariants", |_, s: &State| {
                s.has_not(Wrong::Invariant)
            }),
            Property::sometimes("a commit over all places", |m: &Setup, s: &State| {
                let facts = s.broker.facts();
                let whole = m.places[0].iter().all(|p| facts.is_written((0, 1, *p)));
                whole && facts.fates(0, 1) == BTreeSet::from([Some(true)])
            }),
            Property::sometimes("an abort over all places", |m: &Setup, s: &State| {
                let facts = s.broker.facts();
                let whole = m.places[0].iter().all(|p| facts.is_written((0, 1, *p)));
                whole && facts.fates(0, 1) == BTreeSet::from([Some(false)])
            }),
        ];
        if self.txns[1] > 0 {
            all.push(Property::sometimes(
                "both instances commit",
                |_, s: &State| {
                    let facts = s.broker.durable_facts();
                    (0..2).all(|from| facts.fates(from, 1) == BTreeSet::from([Some(true)]))
                },
            ));
        }
        all
    }
}
