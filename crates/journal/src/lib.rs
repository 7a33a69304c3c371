//! The write-ahead log of a broker: one total order of records, durable before anyone hears of
//! them.
//!
//! A journal is a directory of **slots**: files of one size, filled with zeroes and synced before
//! their first use, never renamed, recycled once a checkpoint no longer needs what is in them. The
//! records that are queued at one moment form a **group**, written with one call and made durable
//! with one sync, beside which the next group is written and synced while another gathers. A group
//! starts on a fresh 4 KiB page, so bytes that were acknowledged are never written again.
//!
//! | module      | question                                                            |
//! |-------------|---------------------------------------------------------------------|
//! | `frame`     | how is one record laid out, and when is one intact?                 |
//! | `slot`      | how is a slot file laid out?                                        |
//! | `scan`      | where do the intact frames of a slot end, and what lies beyond?     |
//! | `recover`   | which slots belong to the journal, in which order, and is it whole? |
//! | `space`     | which slots are in use, free, or still to be prepared?              |
//! | `prepare`   | how does a slot file come to be?                                    |
//! | `begin`     | how does a journal begin that follows a lost one?                  |
//! | `group`     | how do queued records become one write?                             |
//! | `writer`    | how does a group come to be, and where is it written?               |
//! | `turns`     | when is it synced and confirmed, and by which thread?               |
//! | `memory`    | what may a journal of several copies do to its owner? (for tests)    |
//!
//! Positions that leave this crate are logical ([`JournalIndex`]); byte positions (LSN) do not.

mod begin;
mod error;
mod frame;
mod group;
mod local;
mod memory;
mod prepare;
mod recover;
mod scan;
mod slot;
mod space;
mod turns;
mod writer;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use tidemark_types::{JournalIndex, MonoTime, NodeId, Tick};

pub use begin::begin_at;
pub use error::JournalError;
pub use local::LocalJournal;
pub use memory::{Cluster, MemoryJournal};
pub use recover::{CutReport, RecoveredRecord, Recovery, oldest_index, recover};
pub use space::Usage;

/// Slot size of a journal that was not told otherwise.
pub const SLOT_BYTES_DEFAULT: u64 = 64 << 20;
/// Space for all slots of a journal that was not told otherwise; it bounds the time a start takes.
pub const BUDGET_BYTES_DEFAULT: u64 = 1 << 30;
/// The least slot size that makes sense outside tests.
pub const SLOT_BYTES_MIN: u64 = 1 << 20;
/// A journal has at least this many slots, whatever its budget: the one being written, one for
/// ordinary records, and the [`RESERVED_SLOTS`].
pub const SLOTS_MIN: u64 = 4;
/// Free slots that only [`Admission::Reserved`] records may fill.
pub const RESERVED_SLOTS: usize = 2;

/// When what was written is synced. Records that say so ([`AppendRequest::must_sync`]) are synced
/// before they are confirmed in every mode; so is the first group of a run, so that the next start
/// finds out that this one did not end in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncMode {
    /// Each group, before anyone hears of it.
    Always,
    /// This long after the first write that was not. Until then a loss of power may take it away.
    Interval(Duration),
    /// When the operating system writes it back, and when somebody asks ([`Journal::request_sync`]).
    Os,
}

/// Where a journal lies and how large it may grow.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// The directory of the slots; nothing else should be in it.
    pub dir: PathBuf,
    /// Size of a slot file, rounded down to whole pages of 4 KiB. A changed value applies to slots
    /// as they are recycled.
    pub slot_bytes: u64,
    /// Space for all slots; at least [`SLOTS_MIN`] slots are used.
    pub budget_bytes: u64,
    /// Which journal this is. Slots of another one are refused.
    pub journal_id: [u8; 16],
    /// After this long without a record a mark says that the last groups were synced, so that damage
    /// to them can be told from a torn write. Not a delay of anything.
    pub mark_after: Duration,
    /// When what was written is synced.
    pub sync: SyncMode,
}

impl JournalOptions {
    /// The default sizes.
    pub fn new(dir: impl Into<PathBuf>, journal_id: [u8; 16]) -> JournalOptions {
        JournalOptions {
            dir: dir.into(),
            slot_bytes: SLOT_BYTES_DEFAULT,
            budget_bytes: BUDGET_BYTES_DEFAULT,
            journal_id,
            mark_after: Duration::from_millis(20),
            sync: SyncMode::Always,
        }
    }
}

/// A record to be made durable.
#[derive(Clone, Debug)]
pub struct AppendRequest {
    /// One more than the last appended (or recovered) record's.
    pub index: JournalIndex,
    /// Higher than every tick before it.
    pub tick: Tick,
    /// The wall clock passed to decide, in milliseconds.
    pub wall_ms: i64,
    /// The payload is their concatenation; large pieces are written from where they lie.
    pub pieces: Vec<Bytes>,
    /// It counts only once it is synced, whatever [`SyncMode`] says. As all before it is synced with
    /// it, nothing that it builds on can be lost without it.
    pub must_sync: bool,
    /// Written by a start that has yet to make good what an earlier run may have lost. Should it not
    /// come to that, [`Recovery::may_have_lost`] tells the next start so.
    pub unsettled: bool,
}

impl AppendRequest {
    /// Bytes of the payload.
    pub fn payload_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }
}

/// What a record is appended after. A journal that several brokers share tells by it whether its
/// owner still is one and knows of every record before; one that does not is passed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct After {
    /// Of the last [`JournalEvent::Owner`].
    pub epoch: u32,
    /// Tick of the record before: the last appended, or the last one told of; a start may know of a
    /// higher one.
    pub tick: Tick,
}

/// What the journal tells its owner, in order, on a thread of the journal's, one at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JournalEvent {
    /// Everything up to this record is durable.
    Confirmed { index: JournalIndex, tick: Tick },
    /// Everything up to this record is written, and what must be synced of it is. It survives the
    /// end of the process, and not yet a loss of power: `Confirmed` follows when it does. Never
    /// sent with [`SyncMode::Always`]; a `Confirmed` says the same of its own record.
    Written { index: JournalIndex, tick: Tick },
    /// Every record after this one is lost: it was not durable, and whatever becomes of it is told
    /// anew. What is appended from here on is dropped until the next [`JournalEvent::Owner`]. Never
    /// of a record that was confirmed, and never from a journal on one disk.
    Lost { index: JournalIndex, tick: Tick },
    /// This broker owns the journal. It has been told of every record there is, appends the next one
    /// after them under this epoch, which it was never told before, and with a tick above `floor`.
    /// A journal on one disk says so once, first of all.
    Owner { epoch: u32, floor: Tick },
    /// Another broker owns the journal, or none that is known of. Comes after `Lost`, if anything was.
    Follower { leader: Option<NodeId> },
    /// To a follower: a durable record, after the one with this tick. A follower passes over one
    /// whose predecessor is not its last: it has it already.
    Record {
        after: Tick,
        record: RecoveredRecord,
    },
    /// To a follower: records up to this one are only to be had as a checkpoint of the owner's. No
    /// journal of this release sends it.
    Replaced { checkpoint: JournalIndex },
    /// What is published may be shown until then by the monotonic clock; `None`: for ever, as nobody
    /// else can own the journal.
    Lease { until: Option<MonoTime> },
    /// The journal has stopped: what was not confirmed never will be, later appends are dropped.
    Failed { message: String },
    /// More than half of the slots are in use: a checkpoint and [`Journal::release_below`] are
    /// needed. Sent at each new slot while that is so, and when the writer has none left.
    NeedCheckpoint,
    /// No further slot can be prepared for now, as on a full disk. It is tried again; what
    /// [`Journal::has_space`] still admits is safe.
    NoSpace { message: String },
    /// There is space again, after [`Journal::has_space`] said no or after `NoSpace`.
    SpaceFreed,
}

/// Which space a record may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// All but the reserve.
    Ordinary,
    /// Also the reserve: ends of transactions, offsets, deletions, whatever frees space.
    Reserved,
}

/// The seam between the owner and what makes its records durable.
pub trait Journal: Send + Sync {
    /// Queues a record. Never blocks and never refuses: ask [`Journal::has_space`] and
    /// [`Journal::max_record_bytes`] before deciding. Confirmed in order. After `Failed` it is
    /// dropped.
    ///
    /// # Panics
    /// When the index is not the next one or the tick does not rise: the owner's state would no
    /// longer be what replay makes of the journal. (Not under an epoch that is over: then the record
    /// is dropped.)
    fn append(&self, after: After, request: AppendRequest);
    /// Declares that no checkpoint needs records below `index` any more. Their slots are reused.
    fn release_below(&self, index: JournalIndex);
    /// Asks that records up to `index` be synced now; `Confirmed` tells. A journal that confirms
    /// nothing before it is synced has nothing to do.
    fn request_sync(&self, _index: JournalIndex) {}
    /// The largest payload of a record.
    fn max_record_bytes(&self) -> u64;
    /// Whether a record with this many bytes of payload has a place, besides all that is queued.
    /// After a no, [`JournalEvent::SpaceFreed`] tells when to ask again.
    fn has_space(&self, payload_bytes: u64, admission: Admission) -> bool;
}

/// Counters since the start of the process.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct JournalStats {
    /// Groups of records that a writer has begun to write.
    pub groups: u64,
    /// Syncs for groups: as many as groups with [`SyncMode::Always`], fewer otherwise.
    pub syncs: u64,
    /// Syncs for slot headers and marks.
    pub other_syncs: u64,
    /// Bytes written for groups, page padding included.
    pub bytes: u64,
    /// Records in those groups.
    pub records: u64,
}
