//! Memory of requests that come in and of answers that go out, counted in bytes.
//!
//! A request counts from its first bytes to the moment at which it is carried out: what is kept
//! afterwards is a copy and counts where it is kept (tail, journal). An answer to a Fetch counts until
//! its socket has taken it: batches of the tail are not copied, but they are kept alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a connection may hold of a frame without asking: the room of one read.
pub(crate) const FREE_BYTES: usize = 8 << 10;

/// `request.memory.bytes`, in units of 1 KiB.
///
/// Frames take it bit by bit, as their bytes arrive: a client that claims much and sends little holds
/// little. So it can happen that parts of frames use it up and none can be completed. Therefore one
/// frame at a time may go on beyond the budget, which ends at the budget and one frame.
pub(crate) struct RequestMemory {
    units: Arc<Semaphore>,
    all: usize,
    /// Held by the one that may go on.
    finisher: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// What one frame holds; given back when dropped.
#[derive(Default)]
pub(crate) struct Reserved {
    units: Option<OwnedSemaphorePermit>,
    finisher: Option<OwnedSemaphorePermit>,
}

impl Reserved {
    fn units(&self) -> usize {
        self.units
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.units.is_none()
    }
}

impl RequestMemory {
    pub(crate) fn new(bytes: u64) -> RequestMemory {
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize);
        let all = usize::try_from(bytes / 1024).map_or(most, |units| units.clamp(1, most));
        RequestMemory {
            units: Arc::new(Semaphore::new(all)),
            all,
            finisher: Arc::new(Semaphore::new(1)),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Bytes that frames hold.
    pub(crate) fn in_use(&self) -> u64 {
        (self.all - self.units.available_permits()) as u64 * 1024
    }

    /// Somebody waits for room.
    pub(crate) fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Waits until `held` covers `bytes` of its frame.
    pub(crate) async fn reserve(&self, held: &mut Reserved, bytes: usize) {
        // A request larger than the whole budget has it to itself.
        let wanted = (bytes / 1024 + 1).min(self.all);
        let missing = wanted.saturating_sub(held.units());
        if missing == 0 || held.finisher.is_some() {
            return;
        }
        let missing = u32::try_from(missing).expect("the budget is bounded");
        if let Ok(more) = self.units.clone().try_acquire_many_owned(missing) {
            add(&mut held.units, more);
            return;
        }
        let _counted = Waiting::count(&self.waiting);
        tokio::select! {
            more = self.units.clone().acquire_many_owned(missing) => {
                add(&mut held.units, more.expect("the budget is never closed"));
            }
            finisher = self.finisher.clone().acquire_owned() => {
                held.finisher = Some(finisher.expect("it is never closed"));
            }
        }
    }
}

fn add(held: &mut Option<OwnedSemaphorePermit>, more: OwnedSemaphorePermit) {
    match held {
        Some(held) => held.merge(more),
        None => *held = Some(more),
    }
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

/// `fetch.memory.bytes`: nobody waits for it. Each answer may take half of what is left, so that
/// readers who do not read leave room for others; when nothing is left an answer is one batch.
pub struct AnswerMemory {
    limit: u64,
    used: AtomicU64,
}

/// What one answer holds; given back when dropped.
pub struct Held {
    memory: Arc<AnswerMemory>,
    bytes: u64,
}

impl AnswerMemory {
    pub fn new(limit: u64) -> Arc<AnswerMemory> {
        Arc::new(AnswerMemory {
            limit,
            used: AtomicU64::new(0),
        })
    }

    /// Bytes that answers hold.
    pub fn in_use(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Room for an answer of at most `wanted` bytes.
    pub fn grant(self: &Arc<Self>, wanted: usize) -> Held {
        let share = |used: u64| (wanted as u64).min(self.limit.saturating_sub(used) / 2);
        let before = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                Some(used + share(used))
            })
            .expect("it always has a value");
        Held {
            memory: self.clone(),
            bytes: share(before),
        }
    }
}

impl Held {
    pub fn bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    /// The answer has become this large: less than was granted, or more by a part of one batch.
    pub fn settle(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        let used = &self.memory.used;
        match bytes < self.bytes {
            true => used.fetch_sub(self.bytes - bytes, Ordering::Relaxed),
            false => used.fetch_add(bytes - self.bytes, Ordering::Relaxed),
        };
        self.bytes = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_gets_half_of_what_is_left_and_gives_back_what_it_does_not_need() {
        let memory = AnswerMemory::new(1000);
        let mut first = memory.grant(10_000);
        assert_eq!((first.bytes(), memory.in_use()), (500, 500));
        let second = memory.grant(100);
        assert_eq!((second.bytes(), memory.in_use()), (100, 600));
        first.settle(20);
        assert_eq!(memory.in_use(), 120);
        first.settle(5000);
        assert_eq!(memory.in_use(), 5100, "one batch is sent whatever its size");
        assert_eq!(memory.grant(1).bytes(), 0);
        drop((first, second));
        assert_eq!(memory.in_use(), 0);
    }

    #[tokio::test]
    async fn one_frame_goes_on_when_parts_of_frames_used_the_budget_up() {
        let memory = RequestMemory::new(100 << 10);
        let mut parts = [Reserved::default(), Reserved::default()];
        for part in &mut parts {
            memory.reserve(part, 49 << 10).await;
        }
        assert_eq!(memory.in_use(), 100 << 10);
        let [first, second] = &mut parts;
        memory.reserve(first, 90 << 10).await;
        memory.reserve(first, 99 << 10).await;
        assert_eq!(memory.in_use(), 100 << 10, "beyond the budget, one only");
        let mut waits = Box::pin(memory.reserve(second, 90 << 10));
        assert!(futures_util::FutureExt::now_or_never(&mut waits).is_none());
        assert!(memory.is_short());
        *first = Reserved::default();
        waits.await;
        assert!(!memory.is_short());
    }
}
