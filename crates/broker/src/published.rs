//! The published tick: what readers may see.
//!
//! Publication is one store of one number. A reader takes the number once per request
//! ([`Published::read`]) and answers every watermark, aborted list and offset as of that tick. The
//! guard keeps the versions that the reader may still ask for: whoever prunes asks
//! [`Published::oldest_needed`] first.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidemark_types::Tick;

#[derive(Default)]
struct Inner {
    tick: Tick,
    /// Ticks that running requests read at, and how many each.
    readers: BTreeMap<Tick, usize>,
}

/// The highest tick whose record is durable, and who reads at which tick.
#[derive(Default)]
pub struct Published {
    inner: Mutex<Inner>,
}

impl Published {
    pub fn new() -> Arc<Published> {
        Arc::new(Published::default())
    }

    /// I4: makes everything up to `tick` visible, in all partitions at the same instant.
    pub fn publish(&self, tick: Tick) {
        let mut inner = self.inner.lock();
        assert!(
            tick >= inner.tick,
            "published tick went back from {:?} to {tick:?}",
            inner.tick
        );
        inner.tick = tick;
    }

    /// The published tick, held until the guard is dropped.
    pub fn read(self: &Arc<Self>) -> ReadTick {
        let mut inner = self.inner.lock();
        let tick = inner.tick;
        *inner.readers.entry(tick).or_insert(0) += 1;
        ReadTick {
            published: self.clone(),
            tick,
        }
    }

    pub fn tick(&self) -> Tick {
        self.inner.lock().tick
    }

    /// No present or future reader asks for a tick below this one.
    pub fn oldest_needed(&self) -> Tick {
        let inner = self.inner.lock();
        inner
            .readers
            .first_key_value()
            .map_or(inner.tick, |(&oldest, _)| oldest)
    }
}

/// A reader's tick; versions at it are kept while this lives.
pub struct ReadTick {
    published: Arc<Published>,
    tick: Tick,
}

impl ReadTick {
    pub fn tick(&self) -> Tick {
        self.tick
    }
}

impl Drop for ReadTick {
    fn drop(&mut self) {
        let mut inner = self.published.inner.lock();
        let count = inner
            .readers
            .get_mut(&self.tick)
            .expect("a guard registered its tick");
        *count -= 1;
        if *count == 0 {
            inner.readers.remove(&self.tick);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_holds_its_tick_until_it_is_done() {
        let published = Published::new();
        published.publish(Tick(5));
        let reader = published.read();
        published.publish(Tick(9));
        assert_eq!(reader.tick(), Tick(5));
        assert_eq!(published.oldest_needed(), Tick(5));
        drop(reader);
        assert_eq!(published.oldest_needed(), Tick(9));
    }
}
