//! What a connection has asked and was not answered.
//!
//! A request that waits for its turn is kept, decoded: behind a Fetch that waits for records that may
//! be long, and decoded it is larger than it came. So it counts, for its connection and among all
//! that wait. Produce is none of it: its batches are copied and count in tail and journal.

use std::sync::atomic::{AtomicUsize, Ordering};

use tidemark_wire::ApiKey;
use tokio::sync::Notify;

use crate::front::Front;
use crate::limits::Limit;
use crate::memory::{FREE_BYTES, Held};

/// What a large request counts for each of its bytes, once it is decoded.
const DECODED_TIMES: usize = 8;

/// Counted by the half that reads, uncounted by the half that answers.
pub(crate) struct InFlight {
    /// Also the one that is being awaited or written.
    requests: AtomicUsize,
    bytes: AtomicUsize,
    max_bytes: usize,
    fell: Notify,
}

/// One request, until it is answered.
pub(crate) struct Asked {
    bytes: usize,
    _parked: Option<Held>,
}

impl Asked {
    /// Memory that it takes while it is carried out.
    pub(crate) fn memory_bytes(frame: &[u8]) -> usize {
        match is_data(frame) || frame.len() <= FREE_BYTES {
            true => frame.len(),
            false => frame.len().saturating_mul(DECODED_TIMES),
        }
    }
}

fn is_data(frame: &[u8]) -> bool {
    frame.starts_with(&ApiKey::Produce.code().to_be_bytes())
}

impl InFlight {
    pub(crate) fn new(max_bytes: usize) -> InFlight {
        InFlight {
            requests: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            max_bytes,
            fell: Notify::new(),
        }
    }

    /// Counts a request that has come. Where memory for those that wait is used up, a small one
    /// waits for the answers of those before it; for a large one the connection is closed, with the
    /// limit that is given back.
    pub(crate) async fn take(&self, front: &Front, frame: &[u8]) -> Result<Asked, Limit> {
        let parked = match is_data(frame) {
            true => None,
            false => Some(self.park(front, frame).await?),
        };
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(frame.len(), Ordering::Relaxed);
        Ok(Asked {
            bytes: frame.len(),
            _parked: parked,
        })
    }

    async fn park(&self, front: &Front, frame: &[u8]) -> Result<Held, Limit> {
        if frame.len() > front.settings.control_request_max_bytes {
            return Err(Limit::ControlRequestSize);
        }
        let wanted = Asked::memory_bytes(frame);
        let mut held = front.parked.grant(wanted);
        if held.bytes() < wanted {
            if frame.len() > FREE_BYTES {
                return Err(Limit::ParkedRequests);
            }
            self.until(|| self.is_empty()).await;
            held.settle(wanted);
        }
        Ok(held)
    }

    pub(crate) fn answered(&self, asked: &Asked) {
        self.bytes.fetch_sub(asked.bytes, Ordering::Relaxed);
        self.requests.fetch_sub(1, Ordering::Relaxed);
        self.fell.notify_one();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0
    }

    /// So many bytes wait that no more requests are to be read.
    pub(crate) fn is_over(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.max_bytes
    }

    /// Waits until it is not over.
    pub(crate) async fn room(&self) {
        self.until(|| !self.is_over()).await;
    }

    /// One waits at a time: the half that reads.
    async fn until(&self, is_so: impl Fn() -> bool) {
        while !is_so() {
            self.fell.notified().await;
        }
    }
}
