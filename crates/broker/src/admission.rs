//! Admission: before a command is decided there is room for what it will write.
//!
//! Past this point nothing is refused for lack of space, so room is *reserved* here: what is on its
//! way to the journal counts as well as what is in it. Whoever waits holds up its own connection
//! only, in order. Data waits for the tail and for the journal's ordinary space; everything else
//! (ends of transactions, offsets, deletions) may also take the journal's reserve, so that a full
//! journal can still be relieved.
//!
//! On a full disk nobody makes room soon: data is then refused at once, so that what else is asked on
//! the same connection, such as the end of the transaction, does not wait behind it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tidemark_journal::{Admission as Space, Journal};
use tokio::sync::Notify;

/// What a command without data may write at most, before its own size is known: states, offsets
/// and markers are far smaller.
const SMALL_BYTES: u64 = 64 << 10;

/// Room that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Batches of clients, with their bytes.
    Data(u64),
    /// Anything else that may be written.
    Control,
}

/// How full the disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskRoom {
    Plenty,
    /// No file can be made or grow. Data is taken while there is room in what there is.
    Short,
    /// The last reserve is in use: no data is taken.
    Full,
    /// The broker has stopped: nobody makes room any more, for anything.
    Gone,
}

/// Waits until the tail is below its budget and the journal has room, and reserves it.
pub struct Admission {
    tail_bytes: Arc<AtomicU64>,
    tail_budget_bytes: u64,
    journal: Arc<dyn Journal>,
    /// Bytes of commands that were admitted and are not in the journal's queue yet.
    reserved: Mutex<u64>,
    room: Notify,
    waiting: AtomicUsize,
    /// [`DiskRoom`]
    disk: AtomicU8,
    /// Asks maintenance to make room.
    pressure: Box<dyn Fn() + Send + Sync>,
    /// Maintenance was asked to make room before somebody has to wait, and has not begun.
    relief_asked: AtomicBool,
}

/// Room that is kept until the command's record is in the journal's queue, where it counts itself.
pub struct Reservation {
    admission: Arc<Admission>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        *self.admission.reserved.lock() -= self.bytes;
        // A command writes less than was kept for it: whoever waits may fit now. Nobody else would
        // say so, as neither tail nor journal has changed.
        if self.admission.is_waited_for() {
            self.admission.room_made();
        }
    }
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoRoom {
    /// Commands on their way have reserved it. It comes back with them.
    Reserved,
    /// It is taken: maintenance has to make some.
    Taken,
}

/// Counts as waiting until it is dropped, also when the connection goes away meanwhile.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn count(waiting: &'a AtomicUsize) -> Waiting<'a> {
        waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Admission {
    pub fn new(
        tail_bytes: Arc<AtomicU64>,
        tail_budget_bytes: u64,
        journal: Arc<dyn Journal>,
        pressure: Box<dyn Fn() + Send + Sync>,
    ) -> Admission {
        Admission {
            tail_bytes,
            tail_budget_bytes,
            journal,
            reserved: Mutex::new(0),
            room: Notify::new(),
            waiting: AtomicUsize::new(0),
            disk: AtomicU8::new(DiskRoom::Plenty as u8),
            pressure,
            relief_asked: AtomicBool::new(false),
        }
    }

    /// Waits for room, until `give_up` ends: then nothing was reserved and `None` is returned. So it
    /// is, at once, for data when the disk is full.
    pub async fn admit(
        self: &Arc<Self>,
        wants: Wants,
        give_up: impl Future<Output = ()>,
    ) -> Option<Reservation> {
        if self.is_refused(wants) {
            (self.pressure)();
            return None;
        }
        if let Ok(reservation) = self.try_reserve(wants) {
            return Some(reservation);
        }
        let _counted = Waiting::count(&self.waiting);
        tokio::select! {
            reservation = self.wait(wants) => reservation,
            () = give_up => None,
        }
    }

    /// Memory that the tails hold.
    pub fn tail_bytes(&self) -> u64 {
        self.tail_bytes.load(Ordering::Relaxed)
    }

    /// Room, if there is any at this moment.
    pub fn admit_now(self: &Arc<Self>, wants: Wants) -> Option<Reservation> {
        if self.is_refused(wants) {
            return None;
        }
        self.try_reserve(wants).ok()
    }

    /// Whether maintenance is to be asked to make room: somebody waits for it, or the tail is half
    /// full and it was not asked since it last began.
    pub fn wants_relief(&self) -> bool {
        self.is_waited_for()
            || (self.tail_bytes() >= self.tail_budget_bytes / 2
                && !self.relief_asked.swap(true, Ordering::Relaxed))
    }

    /// Maintenance begins to make room.
    pub fn relief_begins(&self) {
        self.relief_asked.store(false, Ordering::Relaxed);
    }

    /// Soon somebody will have to wait for room in the tail.
    pub fn tail_is_pressed(&self) -> bool {
        self.is_waited_for() || self.tail_bytes() >= self.tail_budget_bytes / 4 * 3
    }

    /// Somebody waits for room.
    pub fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    pub fn disk_room(&self) -> DiskRoom {
        match self.disk.load(Ordering::Relaxed) {
            0 => DiskRoom::Plenty,
            1 => DiskRoom::Short,
            2 => DiskRoom::Full,
            _ => DiskRoom::Gone,
        }
    }

    /// The disk is as full as that from now on. Returns what it was. Gone is gone.
    pub fn set_disk_room(&self, room: DiskRoom) -> DiskRoom {
        let before = self.disk_room();
        if before == DiskRoom::Gone {
            return before;
        }
        self.disk.store(room as u8, Ordering::Relaxed);
        if before != room {
            // Whoever waits looks again, and gives up or goes on.
            self.room_made();
        }
        before
    }

    /// Refused whatever room there is.
    fn is_refused(&self, wants: Wants) -> bool {
        match (self.disk_room(), wants) {
            (DiskRoom::Gone, _) | (DiskRoom::Full, Wants::Data(_)) => true,
            (DiskRoom::Full, Wants::Control) | (DiskRoom::Plenty | DiskRoom::Short, _) => false,
        }
    }

    /// Not worth waiting for: nobody will make room soon.
    fn is_given_up(&self, wants: Wants) -> bool {
        let is_data = matches!(wants, Wants::Data(_));
        self.is_refused(wants) || (is_data && self.disk_room() == DiskRoom::Short)
    }

    async fn wait(self: &Arc<Self>, wants: Wants) -> Option<Reservation> {
        loop {
            let notified = self.room.notified();
            tokio::pin!(notified);
            // Registered before the look: room made in between is not missed.
            notified.as_mut().enable();
            if self.is_refused(wants) {
                return None;
            }
            match self.try_reserve(wants) {
                Ok(reservation) => return Some(reservation),
                Err(NoRoom::Reserved) => {}
                Err(NoRoom::Taken) => {
                    (self.pressure)();
                    if self.is_given_up(wants) {
                        return None;
                    }
                }
            }
            notified.await;
        }
    }

    fn try_reserve(self: &Arc<Self>, wants: Wants) -> Result<Reservation, NoRoom> {
        let (bytes, space) = match wants {
            Wants::Data(bytes) => (bytes, Space::Ordinary),
            Wants::Control => (
                SMALL_BYTES.min(self.journal.max_record_bytes()),
                Space::Reserved,
            ),
        };
        // Look and reservation are one step under the lock.
        let mut reserved = self.reserved.lock();
        let has_room = |reserved: u64| {
            let tail = match wants {
                Wants::Data(_) => self.tail_bytes.load(Ordering::Relaxed) + reserved,
                Wants::Control => 0,
            };
            // A tail that is empty takes any batch, however small its budget.
            (tail == 0 || tail + bytes <= self.tail_budget_bytes)
                && self.journal.has_space(reserved + bytes, space)
        };
        if !has_room(*reserved) {
            return Err(match has_room(0) {
                true => NoRoom::Reserved,
                false => NoRoom::Taken,
            });
        }
        *reserved += bytes;
        drop(reserved);
        Ok(Reservation {
            admission: self.clone(),
            bytes,
        })
    }

    /// Maintenance, or the journal, made room.
    pub fn room_made(&self) {
        self.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt;
    use tidemark_journal::{After, AppendRequest};
    use tidemark_types::JournalIndex;

    use super::*;

    /// A journal with so much space, of which nothing is ever taken.
    struct Roomy(u64);

    impl Journal for Roomy {
        fn append(&self, _after: After, _request: AppendRequest) {}

        fn release_below(&self, _index: JournalIndex) {}

        fn max_record_bytes(&self) -> u64 {
            u64::MAX
        }

        fn has_space(&self, payload_bytes: u64, _admission: Space) -> bool {
            payload_bytes <= self.0
        }
    }

    fn admission(journal_bytes: u64, asked: &Arc<AtomicUsize>) -> Arc<Admission> {
        let asked = asked.clone();
        Arc::new(Admission::new(
            Arc::default(),
            u64::MAX,
            Arc::new(Roomy(journal_bytes)),
            Box::new(move || {
                asked.fetch_add(1, Ordering::Relaxed);
            }),
        ))
    }

    #[test]
    fn room_that_was_kept_and_not_needed_goes_to_who_waits() {
        let asked = Arc::default();
        let admission = admission(2 * SMALL_BYTES, &asked);
        let admit = || admission.admit(Wants::Control, pending());
        let first = admit().now_or_never().expect("there is room");
        let _second = admit().now_or_never().expect("there is room");
        let mut third = Box::pin(admit());
        assert!((&mut third).now_or_never().is_none());
        drop(first);
        assert!(
            (&mut third).now_or_never().flatten().is_some(),
            "it was woken"
        );
        let relieved = asked.load(Ordering::Relaxed);
        assert_eq!(relieved, 0, "room that comes back by itself is not made");
    }

    #[test]
    fn on_a_full_disk_data_is_refused_and_the_rest_waits_or_goes_on() {
        let asked = Arc::default();
        let admission = admission(2 * SMALL_BYTES, &asked);
        let admit = |wants| admission.admit(wants, pending());
        let data = Wants::Data(SMALL_BYTES);
        admission.set_disk_room(DiskRoom::Short);
        let first = admit(data).now_or_never().flatten();
        let second = admit(data).now_or_never().flatten();
        assert!(first.is_some() && second.is_some(), "there is room");
        let mut waiting = Box::pin(admit(data));
        assert!((&mut waiting).now_or_never().is_none(), "others hold it");
        drop((first, second));
        assert!(waiting.now_or_never().flatten().is_some());
        let too_large = admit(Wants::Data(3 * SMALL_BYTES)).now_or_never();
        assert!(too_large.expect("at once").is_none());
        admission.set_disk_room(DiskRoom::Full);
        assert!(admit(data).now_or_never().expect("at once").is_none());
        assert!(admit(Wants::Control).now_or_never().flatten().is_some());
        admission.set_disk_room(DiskRoom::Plenty);
        assert!(admit(data).now_or_never().flatten().is_some());
    }

    #[test]
    fn room_that_is_taken_is_asked_for() {
        let asked = Arc::default();
        let admission = admission(SMALL_BYTES - 1, &asked);
        let mut waiting = Box::pin(admission.admit(Wants::Control, pending()));
        assert!((&mut waiting).now_or_never().is_none());
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert!(admission.is_waited_for());
        drop(waiting);
        assert!(!admission.is_waited_for());
    }
}
