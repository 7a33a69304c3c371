//! A journal on a simulated disk, its events, and the records it is compared with.
#![allow(dead_code)]

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use tidemark_disk::{Disk, SimDisk};
use tidemark_journal::{
    After, AppendRequest, CutReport, Journal, JournalError, JournalEvent, JournalOptions,
    LocalJournal, RecoveredRecord, recover,
};
use tidemark_types::{JournalIndex, Tick};

pub const SLOT: u64 = 64 << 10;
pub const ID: [u8; 16] = *b"journal-of-tests";
pub const EIO: i32 = 5;

pub fn options() -> JournalOptions {
    JournalOptions {
        slot_bytes: SLOT,
        budget_bytes: 8 * SLOT,
        // Only tests of the mark wait for one.
        mark_after: Duration::from_secs(3600),
        ..JournalOptions::new("/data/journal", ID)
    }
}

pub fn slot_path(id: u32) -> PathBuf {
    Path::new("/data/journal").join(format!("{id:06}.slot"))
}

/// A running journal and what was found at its start.
pub struct Running {
    pub journal: LocalJournal,
    pub events: Receiver<JournalEvent>,
    /// Events that were passed over while waiting for another.
    seen: RefCell<Vec<JournalEvent>>,
    pub recovered: Vec<RecoveredRecord>,
    pub next_index: u64,
    pub highest_tick: Tick,
    pub epoch: u32,
    pub clean: bool,
    pub may_have_lost: bool,
    pub cut: Option<CutReport>,
}

pub fn start_from(
    disk: Arc<dyn Disk>,
    options: JournalOptions,
    from: u64,
) -> Result<Running, JournalError> {
    let mut recovered = Vec::new();
    let recovery = recover(disk, options, JournalIndex(from), &mut |record| {
        recovered.push(record);
        Ok(())
    })?;
    let (next_index, highest_tick) = (recovery.next_index.0, recovery.highest_tick);
    let (epoch, clean, cut) = (recovery.epoch, recovery.clean, recovery.cut.clone());
    let may_have_lost = recovery.may_have_lost;
    assert_eq!(recovery.records, recovered.len() as u64);
    let (sender, events) = channel();
    let journal = recovery.start(Box::new(move |event| {
        // The test may have stopped listening.
        let _ = sender.send(event);
    }));
    let owner = JournalEvent::Owner {
        epoch,
        floor: highest_tick,
    };
    assert_eq!(events.recv(), Ok(owner), "first of all");
    assert_eq!(events.recv(), Ok(JournalEvent::Lease { until: None }));
    Ok(Running {
        journal,
        events,
        seen: RefCell::default(),
        recovered,
        next_index,
        highest_tick,
        epoch,
        clean,
        may_have_lost,
        cut,
    })
}

pub fn start(disk: &SimDisk) -> Running {
    start_from(Arc::new(disk.clone()), options(), 1).unwrap()
}

pub fn refusal(disk: &SimDisk) -> JournalError {
    match start_from(Arc::new(disk.clone()), options(), 1) {
        Ok(_) => panic!("the journal must be refused"),
        Err(e) => e,
    }
}

/// The payload of record `index`: any length, and no two alike.
pub fn payload(index: u64, len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = (index as usize * 31 + i * 7 + i / 256) as u8;
    }
    Bytes::from(bytes)
}

impl Running {
    /// Appends the next record, in two pieces.
    pub fn append(&mut self, payload: &Bytes) {
        self.append_as(payload, false, false);
    }

    pub fn append_as(&mut self, payload: &Bytes, must_sync: bool, unsettled: bool) {
        let half = payload.len() / 2;
        let tick = Tick(self.highest_tick.0 + 3);
        let after = After {
            epoch: self.epoch,
            tick: self.highest_tick,
        };
        let request = AppendRequest {
            index: JournalIndex(self.next_index),
            tick,
            wall_ms: 1_000 + self.next_index as i64,
            pieces: vec![payload.slice(..half), payload.slice(half..)],
            must_sync,
            unsettled,
        };
        self.journal.append(after, request);
        self.next_index += 1;
        self.highest_tick = tick;
    }

    /// Waits until record `index` is confirmed; `Err` with the message when the journal fails or
    /// finds no space first.
    pub fn confirmed(&self, index: u64) -> Result<(), String> {
        loop {
            match self.events.recv().map_err(|_| "stopped".to_string())? {
                JournalEvent::Confirmed { index: at, .. } if at.0 >= index => return Ok(()),
                JournalEvent::Failed { message } | JournalEvent::NoSpace { message } => {
                    return Err(message);
                }
                other => self.seen.borrow_mut().push(other),
            }
        }
    }

    /// Waits until record `index` is written.
    pub fn written(&self, index: u64) {
        self.event(|event| {
            matches!(event, JournalEvent::Written { index: at, .. }
                | JournalEvent::Confirmed { index: at, .. } if at.0 >= index)
        });
    }

    pub fn append_and_wait(&mut self, payload: &Bytes) {
        self.append(payload);
        self.confirmed(self.next_index - 1).unwrap();
    }

    pub fn payloads(&self) -> Vec<Bytes> {
        self.recovered.iter().map(|r| r.payload.clone()).collect()
    }

    /// The next event that `wanted` accepts, seen already or still to come.
    pub fn event(&self, wanted: impl Fn(&JournalEvent) -> bool) -> JournalEvent {
        let at = self.seen.borrow().iter().position(&wanted);
        if let Some(at) = at {
            return self.seen.borrow_mut().remove(at);
        }
        loop {
            let event = self.events.recv().expect("the journal runs");
            if wanted(&event) {
                return event;
            }
        }
    }
}
