//! Which slots are in use, free, or still to be prepared? And does another record have a place?

use std::collections::VecDeque;

use tidemark_types::JournalIndex;

use crate::frame::{PAGE, group_bytes};
use crate::slot::{SlotFile, SlotId, records_end};
use crate::{Admission, RESERVED_SLOTS};

/// How full the journal is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// Slots that hold records not yet released, with the one being written.
    pub slots_in_use: usize,
    /// Prepared and ready.
    pub free_slots: usize,
    /// The budget, in slots.
    pub max_slots: usize,
    /// Bytes queued or being written, in whole pages.
    pub queued_bytes: u64,
    /// Bytes of the slots in use that are written: what a start would read.
    pub written_bytes: u64,
    /// The last attempt to prepare a slot failed.
    pub no_space: bool,
    /// Bytes that can be written before a slot is needed that is not prepared yet.
    pub room_bytes: u64,
    /// The writer waits for a slot with records that were admitted.
    pub starving: bool,
    /// A slot is being prepared.
    pub preparing: bool,
}

impl Usage {
    /// The writer waits for a slot, and there is no space for one.
    pub fn is_stuck(&self) -> bool {
        self.no_space && self.starving && !self.preparing
    }
}

struct InUse {
    slot: SlotFile,
    last_index: JournalIndex,
}

pub(crate) struct Space {
    slot_bytes: u64,
    max_slots: usize,
    /// Oldest first.
    in_use: VecDeque<InUse>,
    free: VecDeque<SlotFile>,
    /// Files that exist and must be prepared before use.
    blank: VecDeque<SlotId>,
    /// Files of another size, or beyond the budget.
    doomed: Vec<SlotFile>,
    next_id: SlotId,
    preparing: bool,
    /// The writer waits for a slot.
    starving: bool,
    /// (size, position) of the slot being written: the last in use.
    current: Option<(u64, u64)>,
    pub(crate) released: JournalIndex,
    pub(crate) no_space: bool,
    /// Space may have come free since the attempt began that is going on.
    pub(crate) try_again: bool,
    /// The least that `has_space` said no to since it was last freed.
    refused: Option<(u64, Admission)>,
    queued_bytes: u64,
    /// The largest record since the queue was last empty.
    queued_max: u64,
}

impl Space {
    pub(crate) fn new(slot_bytes: u64, max_slots: usize) -> Space {
        Space {
            slot_bytes,
            max_slots,
            in_use: VecDeque::new(),
            free: VecDeque::new(),
            blank: VecDeque::new(),
            doomed: Vec::new(),
            next_id: 0,
            preparing: false,
            starving: false,
            current: None,
            released: JournalIndex(0),
            no_space: false,
            try_again: false,
            refused: None,
            queued_bytes: 0,
            queued_max: 0,
        }
    }

    fn know(&mut self, id: SlotId) {
        self.next_id = self.next_id.max(id + 1);
    }

    pub(crate) fn adopt_in_use(&mut self, slot: SlotFile, last_index: JournalIndex) {
        self.know(slot.id);
        self.in_use.push_back(InUse { slot, last_index });
    }

    pub(crate) fn adopt_free(&mut self, slot: SlotFile) {
        self.know(slot.id);
        self.recycle(slot);
    }

    pub(crate) fn adopt_blank(&mut self, id: SlotId) {
        self.know(id);
        self.blank.push_back(id);
    }

    fn recycle(&mut self, slot: SlotFile) {
        if slot.bytes == self.slot_bytes && self.files() < self.max_slots {
            self.free.push_back(slot);
        } else {
            self.doomed.push(slot);
        }
    }

    /// Files that count against the budget.
    fn files(&self) -> usize {
        self.in_use.len() + self.free.len() + usize::from(self.preparing)
    }

    pub(crate) fn set_current(&mut self, slot_bytes: u64, pos: u64) {
        self.current = Some((slot_bytes, pos));
    }

    /// The next slot to be written, taken into use.
    pub(crate) fn take_free(&mut self, first_index: JournalIndex) -> Option<SlotFile> {
        let Some(slot) = self.free.pop_front() else {
            self.starving = true;
            return None;
        };
        self.starving = false;
        self.current = Some((slot.bytes, PAGE));
        self.in_use.push_back(InUse {
            slot: slot.clone(),
            last_index: JournalIndex(first_index.0 - 1),
        });
        Some(slot)
    }

    /// Records up to `last_index` were written to the current slot, which is full up to `pos`.
    pub(crate) fn wrote(&mut self, last_index: JournalIndex, pos: u64) {
        if let Some(back) = self.in_use.back_mut() {
            back.last_index = last_index;
        }
        if let Some((_, at)) = &mut self.current {
            *at = pos;
        }
    }

    /// Frees the slots all of whose records are below `index`; whether there were any.
    pub(crate) fn release_below(&mut self, index: JournalIndex) -> bool {
        let before = self.in_use.len();
        self.released = self.released.max(index);
        let keep = usize::from(self.current.is_some());
        while self.in_use.len() > keep && self.in_use[0].last_index < self.released {
            if let Some(freed) = self.in_use.pop_front() {
                self.recycle(freed.slot);
            }
        }
        self.in_use.len() < before
    }

    /// Slots there may be. When the writer has none left and needs one for what was queued, it gets
    /// one beyond the budget: the checkpoint that would free some may wait for just these records.
    fn slots_allowed(&self) -> usize {
        self.max_slots + usize::from(self.starving && self.in_use.len() >= self.max_slots)
    }

    /// Whether a slot should be prepared now. The first at once; from the moment that a journal is
    /// used in earnest, as many as are reserved.
    pub(crate) fn wants_slot(&self) -> bool {
        let half_used = self
            .current
            .is_some_and(|(bytes, pos)| pos >= records_end(bytes) / 2);
        let want = match self.current {
            None => 1,
            Some(_) if half_used || self.in_use.len() > 1 => RESERVED_SLOTS,
            Some(_) => usize::from(self.starving),
        };
        let want = want.max(usize::from(self.starving));
        // Whether there is space again is found out by trying, wanted or not.
        let want = if self.no_space {
            want.max(self.free.len() + 1)
        } else {
            want
        };
        !self.preparing && self.free.len() < want && self.files() < self.slots_allowed()
    }

    /// Bytes that can be written before another slot is needed.
    pub(crate) fn room(&self) -> u64 {
        let rest = self
            .current
            .map_or(0, |(bytes, pos)| records_end(bytes).saturating_sub(pos));
        rest + self.free.len() as u64 * self.slot_bytes
    }

    /// The writer waits for a slot.
    pub(crate) fn is_starving(&self) -> bool {
        self.starving
    }

    /// The slot to be prepared, if one is wanted.
    pub(crate) fn next_to_prepare(&mut self) -> Option<SlotId> {
        if !self.wants_slot() {
            return None;
        }
        self.preparing = true;
        self.try_again = false;
        Some(self.blank.pop_front().unwrap_or_else(|| {
            let id = self.next_id;
            self.know(id);
            id
        }))
    }

    pub(crate) fn prepared(&mut self, slot: SlotFile) {
        self.preparing = false;
        self.free.push_back(slot);
    }

    pub(crate) fn not_prepared(&mut self, id: SlotId) {
        self.preparing = false;
        self.blank.push_front(id);
    }

    pub(crate) fn next_doomed(&mut self) -> Option<SlotFile> {
        self.doomed.pop()
    }

    /// Whether a slot may still come without a release.
    pub(crate) fn may_prepare(&self) -> bool {
        !self.no_space && (self.preparing || self.files() < self.slots_allowed())
    }

    /// Whether a checkpoint should free slots.
    pub(crate) fn needs_checkpoint(&self) -> bool {
        self.in_use.len() * 2 >= self.max_slots
            || (self.in_use.len() > 1 && self.slots_to_come() <= RESERVED_SLOTS)
    }

    /// Free slots, with those that can still be prepared.
    fn slots_to_come(&self) -> usize {
        if self.no_space {
            self.free.len()
        } else {
            self.max_slots.saturating_sub(self.in_use.len())
        }
    }

    /// Whether a further record has a place whatever groups the queued ones end up in: each is
    /// counted in whole pages, and each slot as if the largest did not fit at its end.
    pub(crate) fn has_space(&mut self, payload_bytes: u64, admission: Admission) -> bool {
        let fits = self.fits(payload_bytes, admission);
        if !fits {
            self.refused = Some(match self.refused {
                Some((least, by)) if least <= payload_bytes => (least, by),
                _ => (payload_bytes, admission),
            });
        }
        fits
    }

    fn fits(&self, payload_bytes: u64, admission: Admission) -> bool {
        let bytes = group_bytes(payload_bytes);
        let need = self.queued_bytes + bytes;
        let largest = self.queued_max.max(bytes);
        let rest = self.current.map_or(0, |(slot_bytes, pos)| {
            records_end(slot_bytes).saturating_sub(pos)
        });
        if need <= rest {
            return true;
        }
        let slots = match admission {
            Admission::Ordinary => self.slots_to_come().saturating_sub(RESERVED_SLOTS),
            Admission::Reserved => self.slots_to_come(),
        };
        let per_slot = records_end(self.slot_bytes) - PAGE;
        if self.queued_bytes == 0 && slots > 0 {
            return bytes <= per_slot;
        }
        let usable = per_slot.saturating_sub(largest).max(per_slot / 2);
        need <= rest.saturating_sub(largest) + slots as u64 * usable
    }

    /// Whether `SpaceFreed` is owed; asked after something was freed, prepared or written.
    pub(crate) fn owes_space_freed(&mut self) -> bool {
        let owed = (self.refused).is_some_and(|(bytes, admission)| self.fits(bytes, admission));
        if owed {
            self.refused = None;
        }
        owed
    }

    pub(crate) fn enqueue(&mut self, payload_bytes: u64) {
        let bytes = group_bytes(payload_bytes);
        self.queued_bytes += bytes;
        self.queued_max = self.queued_max.max(bytes);
    }

    /// Counted as `enqueue` did, once the records are durable or dropped.
    pub(crate) fn dequeue(&mut self, bytes: u64) {
        self.queued_bytes = self.queued_bytes.saturating_sub(bytes);
        if self.queued_bytes == 0 {
            self.queued_max = 0;
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        let full = self.in_use.len() - usize::from(self.current.is_some());
        let written: u64 = (self.in_use.iter().take(full))
            .map(|used| used.slot.bytes)
            .sum();
        Usage {
            slots_in_use: self.in_use.len(),
            free_slots: self.free.len(),
            max_slots: self.max_slots,
            queued_bytes: self.queued_bytes,
            written_bytes: written + self.current.map_or(0, |(_, pos)| pos),
            no_space: self.no_space,
            room_bytes: self.room(),
            starving: self.starving,
            preparing: self.preparing,
        }
    }
}
