//! The events of a history, as they stand in its file.
//!
//! One JSON object per line; `kind` says which. Times are nanoseconds of the machine's monotonic clock (all clients run
//! on one machine), `from` when a call was made and `to` when it returned. `error` is absent after success; otherwise
//! Kafka's name of the error (`PRODUCER_FENCED`) or one of the client's own that [`super::outcome`] lists. What an error
//! means is decided there and never by who writes the history.

use serde::{Deserialize, Serialize};

/// The version of the format.
pub const VERSION: u32 = 1;

/// Topic, partition, offset.
pub type Position = (String, i32, i64);
/// Topic, partition, offset, value.
pub type Seen = (String, i32, i64, u64);

/// A line of a history.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// The first line of a file.
    History { version: u32, seed: u64 },
    /// A topic whose records are all the history's own. Records of other topics are not looked at.
    Topic { topic: String, partitions: i32 },
    /// A group whose offsets in `source` move with what is sent to `target`: each record of `source` below the group's
    /// offset has led to one record there.
    Move {
        group: String,
        source: String,
        target: String,
    },
    /// An instance of a client. One that is made anew, with the same transactional id or not, has another name.
    Client {
        at: u64,
        client: String,
        library: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        transactional_id: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        transaction_timeout_ms: Option<u64>,
    },
    /// InitProducerId of a transactional client: what earlier instances of its id left open is over.
    Init {
        from: u64,
        to: u64,
        client: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A transaction begins. `txn` is unique in the history.
    Begin { at: u64, client: String, txn: u64 },
    /// A record was handed to the client. `value` is unique in the history and stands, in decimal digits up to the first
    /// space, at the start of the record's value.
    Send {
        at: u64,
        client: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        txn: Option<u64>,
        topic: String,
        partition: i32,
        value: u64,
        /// The value of the record from which it was made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<u64>,
        /// What it adds to an account. The amounts of a transaction add up to nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        amount: Option<i64>,
    },
    /// The client's last word on a record.
    Sent {
        at: u64,
        value: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offset: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Offsets of a group became part of a transaction.
    Offsets {
        from: u64,
        to: u64,
        client: String,
        txn: u64,
        group: String,
        positions: Vec<Position>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A transaction was to be ended. One that has no such event was left open.
    End {
        from: u64,
        to: u64,
        client: String,
        txn: u64,
        commit: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A consumer's position was set: what it polls next may lie anywhere.
    Assign { at: u64, client: String },
    /// What a consumer was given.
    Poll {
        from: u64,
        to: u64,
        client: String,
        read_committed: bool,
        records: Vec<Seen>,
    },
    /// A partition's log start, and its last stable offset (`read_committed`) or high watermark.
    Watermarks {
        from: u64,
        to: u64,
        client: String,
        read_committed: bool,
        topic: String,
        partition: i32,
        start: i64,
        end: i64,
    },
    /// What was done to the broker or its connections. `fault`: kill, pause, clock, disconnect.
    Fault { from: u64, to: u64, fault: String },
    /// Everything a partition holds, read at the end, when nothing was open any more.
    Scan {
        read_committed: bool,
        topic: String,
        partition: i32,
        start: i64,
        end: i64,
        records: Vec<(i64, u64)>,
    },
    /// A group's offset at the end; -1: none.
    Committed {
        group: String,
        topic: String,
        partition: i32,
        offset: i64,
    },
}

/// The line for an event.
pub fn line(event: &Event) -> String {
    // Plain structures of numbers and texts: there is nothing in them that JSON cannot say.
    serde_json::to_string(event).unwrap_or_default()
}

/// Reads the lines of one file of a history.
///
/// Errors: the number of the first line that is none, and what is wrong with it.
pub fn read(text: impl std::io::BufRead) -> Result<Vec<Event>, String> {
    let mut events = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let at = at + 1;
        let line = line.map_err(|error| format!("line {at}: {error}"))?;
        if line.trim().is_empty() {
            continue;
        }
        let event = serde_json::from_str(&line).map_err(|error| format!("line {at}: {error}"))?;
        match event {
            Event::History { version, .. } if version != VERSION => {
                return Err(format!(
                    "line {at}: a history of version {version}; this reader knows {VERSION}"
                ));
            }
            Event::History { .. } => {}
            _ if events.is_empty() => {
                return Err(format!("line {at}: the first line must be of kind history"));
            }
            _ => {}
        }
        events.push(event);
    }
    match events.is_empty() {
        true => Err("the history is empty".to_owned()),
        false => Ok(events),
    }
}
