//! Fetches that wait for a partition to grow.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// Names a registration; unique per fetch, chosen by the caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WaiterId(pub u64);

type Wake = Arc<dyn Fn() + Send + Sync>;

/// A list of callbacks to run when a partition's published state may have changed.
///
/// A waiter stays registered until it is removed, and may be woken for nothing. To miss nothing, a
/// fetch registers first and looks at the published tick afterwards; the publisher stores the tick
/// first and wakes afterwards.
#[derive(Default)]
pub struct Waiters {
    list: Mutex<Vec<(WaiterId, Wake)>>,
}

impl Waiters {
    /// Registers `wake`, in place of an earlier registration of the same id. `wake` must be short
    /// and must not block; it may call back into this list.
    pub fn add(&self, id: WaiterId, wake: Wake) {
        let mut list = self.list.lock();
        match list.iter_mut().find(|(known, _)| *known == id) {
            Some(entry) => entry.1 = wake,
            None => list.push((id, wake)),
        }
    }

    /// Takes the registration away; false when there was none.
    pub fn remove(&self, id: WaiterId) -> bool {
        let mut list = self.list.lock();
        let before = list.len();
        list.retain(|(known, _)| *known != id);
        let removed = list.len() != before;
        if list.is_empty() {
            list.shrink_to_fit();
        }
        removed
    }

    /// Runs every registered callback, outside the lock.
    pub fn wake_all(&self) {
        let woken: Vec<Wake> = {
            let list = self.list.lock();
            if list.is_empty() {
                return;
            }
            list.iter().map(|(_, wake)| wake.clone()).collect()
        };
        for wake in woken {
            wake();
        }
    }

    pub fn len(&self) -> usize {
        self.list.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Waiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiters({})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_waiter_is_woken_each_time_until_it_is_removed() {
        let waiters = Arc::new(Waiters::default());
        let woken = Arc::new(AtomicUsize::new(0));
        for id in 0..3 {
            let woken = woken.clone();
            waiters.add(
                WaiterId(id),
                Arc::new(move || {
                    woken.fetch_add(1, Ordering::SeqCst);
                }),
            );
        }
        waiters.wake_all();
        assert_eq!(woken.load(Ordering::SeqCst), 3);
        assert!(waiters.remove(WaiterId(1)));
        assert!(!waiters.remove(WaiterId(1)));
        waiters.wake_all();
        assert_eq!(woken.load(Ordering::SeqCst), 5);
    }

    #[test]
    fn a_callback_may_remove_itself() {
        let waiters = Arc::new(Waiters::default());
        let inner = waiters.clone();
        waiters.add(
            WaiterId(7),
            Arc::new(move || {
                inner.remove(WaiterId(7));
            }),
        );
        waiters.wake_all();
        assert!(waiters.is_empty());
    }
}
