//! The reply barrier: first publish, then release.
//!
//! Whatever the owner answers leaves only when everything applied at that moment is durable (I3).
//! The owner puts each step here before its record goes to the writer; the writer's confirmation
//! publishes the tick, wakes parked fetches and releases the replies, in that order.
//!
//! There are two levels. *Released* is what readers see and clients are told; *synced* is what a
//! loss of power leaves. With `journal.sync=always` they are one. In the other modes data is
//! released when it is written and synced later; a record that must be synced, and so everything
//! before it, is released only then. Whoever derives files from records (write-behind, checkpoints)
//! goes by what is synced, in every mode.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tidemark_owner::Reply;
use tidemark_partition_log::PartitionLog;
use tidemark_types::{JournalIndex, Tick, mutant};
use tokio::sync::oneshot;

use crate::published::Published;

/// A reply and where it goes. A client that went away no longer listens: that is no error.
pub struct Parked {
    pub to: oneshot::Sender<Reply>,
    pub reply: Reply,
}

/// One step of the owner that waits for its record, or for an earlier one, to be durable.
struct Waiting {
    index: JournalIndex,
    touched: Vec<Arc<PartitionLog>>,
    replies: Vec<Parked>,
}

struct Inner {
    /// Up to here readers see and clients are told.
    released: JournalIndex,
    /// Up to here everything survives a loss of power.
    synced: JournalIndex,
    synced_tick: Tick,
    failed: bool,
    waiting: VecDeque<Waiting>,
    /// Rises when records are lost: an index before it and one after it are of two records.
    era: u64,
}

pub struct Barrier {
    inner: Mutex<Inner>,
    /// Signalled at each confirmation, for threads that wait for one.
    confirmations: Condvar,
    published: Arc<Published>,
}

impl Barrier {
    /// `confirmed`: the last record that is durable already, and published.
    pub fn new(confirmed: JournalIndex, published: Arc<Published>) -> Barrier {
        Barrier {
            inner: Mutex::new(Inner {
                released: confirmed,
                synced: confirmed,
                synced_tick: published.tick(),
                failed: false,
                waiting: VecDeque::new(),
                era: 0,
            }),
            confirmations: Condvar::new(),
            published,
        }
    }

    /// Parks the replies of a step until record `index`, the last one applied when the step was
    /// decided, may be told of. Released at once when it may.
    ///
    /// Called with the new record's index before the record is handed to the writer, so that its
    /// confirmation cannot come first.
    pub fn park(&self, index: JournalIndex, touched: Vec<Arc<PartitionLog>>, replies: Vec<Parked>) {
        let mut inner = self.inner.lock();
        if inner.failed {
            // The senders are dropped: the connection answers a storage error.
            return;
        }
        if index <= inner.released {
            debug_assert!(
                touched.is_empty(),
                "a confirmed record cannot still be parked"
            );
            drop(inner);
            release(replies);
            return;
        }
        let replies = match mutant!("ack-early") {
            true => {
                release(replies);
                Vec::new()
            }
            false => replies,
        };
        inner.waiting.push_back(Waiting {
            index,
            touched,
            replies,
        });
    }

    /// Record `index` and all before it are durable: publish their tick, wake, release.
    pub fn confirm(&self, index: JournalIndex, tick: Tick) {
        self.release_up_to(index, tick, true);
    }

    /// Record `index` and all before it are written, and those that must be synced are: publish
    /// their tick, wake, release.
    pub fn written(&self, index: JournalIndex, tick: Tick) {
        self.release_up_to(index, tick, false);
    }

    fn release_up_to(&self, index: JournalIndex, tick: Tick, synced: bool) {
        let ready: Vec<Waiting> = {
            let mut inner = self.inner.lock();
            assert!(index >= inner.released, "the confirmed index went back");
            inner.released = index;
            if synced {
                inner.synced = index;
                inner.synced_tick = tick;
            }
            // I3, I4: the tick is published before any reply of it leaves, and under the lock, so
            // that a step parked in between sees both or neither.
            self.published.publish(tick);
            let done = inner
                .waiting
                .iter()
                .position(|w| w.index > index)
                .unwrap_or(inner.waiting.len());
            inner.waiting.drain(..done).collect()
        };
        self.confirmations.notify_all();
        for waiting in &ready {
            waiting
                .touched
                .iter()
                .for_each(|log| log.waiters().wake_all());
        }
        for waiting in ready {
            release(waiting.replies);
        }
    }

    /// Every record after `index` is lost. What waits for one is answered as if another broker led:
    /// never as done, also where it only read. Called by the owner's thread, which has taken the
    /// records back; what it parks from now on is of new ones.
    pub fn lose(&self, index: JournalIndex) {
        let lost: Vec<Waiting> = {
            let mut inner = self.inner.lock();
            assert!(index >= inner.released, "a confirmed record was lost");
            inner.era += 1;
            let kept = inner.waiting.partition_point(|w| w.index <= index);
            inner.waiting.drain(kept..).collect()
        };
        self.confirmations.notify_all();
        for parked in lost.into_iter().flat_map(|waiting| waiting.replies) {
            // Without a reply the connection answers that it got none.
            if let Some(reply) = parked.reply.lost() {
                let _client_may_be_gone = parked.to.send(reply);
            }
        }
    }

    /// Counts the losses: of which of the records with one index somebody speaks.
    pub fn era(&self) -> u64 {
        self.inner.lock().era
    }

    /// The journal stopped: nothing parked will ever be durable, nothing of it may be answered as
    /// done. Dropping the senders lets each connection answer with a storage error.
    pub fn fail(&self) {
        let mut inner = self.inner.lock();
        inner.failed = true;
        inner.waiting.clear();
        self.confirmations.notify_all();
    }

    /// Waits until record `index` of an era is durable; false if that takes longer, or never comes.
    pub fn wait_confirmed(&self, index: JournalIndex, era: u64, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut inner = self.inner.lock();
        while inner.synced < index && inner.era == era && !inner.failed {
            if self.confirmations.wait_until(&mut inner, until).timed_out() {
                break;
            }
        }
        inner.synced >= index && inner.era == era && !inner.failed
    }

    /// The last record that is durable.
    pub fn confirmed(&self) -> JournalIndex {
        self.inner.lock().synced
    }

    /// Its tick.
    pub fn confirmed_tick(&self) -> Tick {
        self.inner.lock().synced_tick
    }

    /// The last record that clients may have been told of, durable or not.
    pub fn released(&self) -> JournalIndex {
        self.inner.lock().released
    }

    pub fn has_failed(&self) -> bool {
        self.inner.lock().failed
    }
}

fn release(replies: Vec<Parked>) {
    for parked in replies {
        let _client_may_be_gone = parked.to.send(parked.reply);
    }
}
