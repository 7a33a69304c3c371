//! Checks a recorded history: what clients did and saw, and what became of it.
//!
//! Clients of any language write down their calls as lines of JSON ([`Event`]); this module says whether a broker that
//! keeps its promises can have answered so. It knows no broker and no client.
//!
//! | module | question |
//! |-|-|
//! | `event` | how does a history stand in its file? |
//! | `outcome` | what does an error say of what happened? |
//! | `model` | who did what, and what became of it? |
//! | `positions` | 1 one record per offset; 2 nothing lost, doubled, aborted and read |
//! | `transactions` | 3 transactions whole, offsets included; earlier instances fenced |
//! | `order` | 4 producers' order kept, readers' positions only grow |
//! | `cycles` | 5 nothing comes from what came later |
//! | `stability` | 6 nothing read beyond an open transaction; 7 watermarks right and never back |
//! | `ledger` | 8 moved what was read, once; 9 a bank's total constant |
//! | `replay` | 10 the log, read by other code, is what was served |
//! | `log` | what does the stopped broker's directory say? |
//! | `verdict` | how is it told what is wrong? |
//!
//! All of it takes time and memory about in proportion to the history.

mod cycles;
mod event;
mod ledger;
mod log;
mod model;
mod order;
pub mod outcome;
mod positions;
mod replay;
mod stability;
mod transactions;
mod verdict;

use std::collections::BTreeSet;

pub use event::{Event, Position, Seen, VERSION, line, read};
pub use log::{LogPartition, LogRecord, LogView, value_of};
pub use verdict::{Check, Verdict};

use model::Model;
use outcome::Outcome;

/// The topics that a history declares.
pub fn topics(files: &[Vec<Event>]) -> BTreeSet<String> {
    let events = files.iter().flatten();
    let topics = events.filter_map(|event| match event {
        Event::Topic { topic, .. } => Some(topic.clone()),
        _ => None,
    });
    topics.collect()
}

/// Judges a history, given as the events of its files. With `log` also against the log.
///
/// Errors: the events are no whole history, so that nothing can be said of it.
pub fn check(files: &[Vec<Event>], log: Option<&LogView>) -> Result<Verdict, String> {
    let model = Model::new(files)?;
    let outcomes = |wanted: Outcome| {
        let of = model.txns.iter().filter(|txn| txn.outcome == wanted);
        of.count() as u64
    };
    let mut verdict = Verdict {
        operations: model.operations,
        sends: model.values.len() as u64,
        reads: model
            .polls
            .iter()
            .map(|poll| poll.records.len() as u64)
            .sum(),
        transactions: model.txns.len() as u64,
        commits: outcomes(Outcome::Ok),
        aborts: outcomes(Outcome::Fail),
        unknown: outcomes(Outcome::Unknown),
        faults: model.faults.len() as u64,
        log_read: log.is_some(),
        ..Verdict::default()
    };
    positions::check(&model, &mut verdict);
    transactions::check(&model, &mut verdict);
    order::check(&model, &mut verdict);
    cycles::check(&model, &mut verdict);
    stability::check(&model, &mut verdict);
    ledger::check(&model, log, &mut verdict);
    if let Some(log) = log {
        replay::check(&model, log, &mut verdict);
    }
    Ok(verdict)
}
