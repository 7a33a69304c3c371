//! What keeps one client from filling the log: repeats of a refusal are counted, and what is allowed is
//! told once in a while.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use tidemark_types::MonoTime;

use crate::event::Event;

/// Refusals that are remembered, to count their repeats. Beyond it each is a line.
const MAX_REFUSALS: usize = 10_000;
/// What was allowed and told. Beyond it all is forgotten, and told again.
const MAX_ALLOWED: usize = 100_000;

struct Refused {
    since: MonoTime,
    /// The last of those that were not told, and how many.
    more: Option<(Box<Event>, u64)>,
}

pub(crate) struct Repeats {
    interval: Duration,
    hasher: RandomState,
    refused: DashMap<u64, Refused>,
    allowed: DashMap<u64, MonoTime>,
}

impl Repeats {
    pub(crate) fn new(interval: Duration) -> Repeats {
        Repeats {
            interval,
            hasher: RandomState::new(),
            refused: DashMap::new(),
            allowed: DashMap::new(),
        }
    }

    /// Whether this was not told within the interval; it is from now on.
    pub(crate) fn is_news(&self, key: impl Hash, now: MonoTime) -> bool {
        let key = self.hasher.hash_one(key);
        // Many requests of one client ask this at a time, and hardly one of them is news.
        if let Some(told) = self.allowed.get(&key)
            && now.since(*told) < self.interval
        {
            return false;
        }
        if self.allowed.len() >= MAX_ALLOWED {
            self.allowed.clear();
        }
        self.allowed.insert(key, now);
        true
    }

    /// Gives the event back if it is to be told now; else it was counted.
    pub(crate) fn first(&self, event: Event, now: MonoTime) -> Option<Event> {
        let mut hasher = self.hasher.build_hasher();
        event.hash_repeat(&mut hasher);
        let key = std::hash::Hasher::finish(&hasher);
        let is_full = self.refused.len() >= MAX_REFUSALS;
        match self.refused.entry(key) {
            Entry::Occupied(mut known) => {
                let more = &mut known.get_mut().more;
                match more {
                    Some((_, count)) => *count += 1,
                    None => *more = Some((Box::new(event), 1)),
                }
                None
            }
            Entry::Vacant(_) if is_full => Some(event),
            Entry::Vacant(free) => {
                let since = now;
                free.insert(Refused { since, more: None });
                Some(event)
            }
        }
    }

    /// The counted refusals whose interval is over; with `all` every one.
    pub(crate) fn due(&self, now: MonoTime, all: bool) -> Vec<Event> {
        let mut due = Vec::new();
        self.refused.retain(|_, refused| {
            let over = all || now.since(refused.since) >= self.interval;
            if over && let Some((event, count)) = refused.more.take() {
                let mut event = *event;
                event.count = Some(count);
                due.push(event);
            }
            !over
        });
        due
    }
}
