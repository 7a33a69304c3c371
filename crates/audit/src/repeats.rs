//! What keeps one client from filling the log: repeats of a refusal are counted, and what is allowed is
//! told once in a while.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use tidemark_types::MonoTime;

use crate::event::{Detail, Event};

/// Different refusals of one client, in an interval, that are a line each: what it asks for and what it says
/// are its own choice. All further ones are one line with their number.
const MAX_OF_ONE: usize = 200;
/// Refusals that are remembered, to count their repeats. Beyond it all others of a kind are one line.
const MAX_REFUSALS: usize = 10_000;
/// What was allowed and told. Beyond it all is forgotten, and told again.
const MAX_ALLOWED: usize = 100_000;

struct Refused {
    since: MonoTime,
    /// The last of those that were not told, and how many.
    more: Option<(Box<Event>, u64)>,
}

impl Refused {
    fn count(&mut self, event: Event) {
        match &mut self.more {
            Some((_, count)) => *count += 1,
            None => self.more = Some((Box::new(event), 1)),
        }
    }
}

pub(crate) struct Repeats {
    interval: Duration,
    hasher: RandomState,
    refused: DashMap<u64, Refused>,
    /// How many different refusals a client has had.
    of_one: DashMap<u64, (MonoTime, usize)>,
    allowed: DashMap<u64, MonoTime>,
}

impl Repeats {
    pub(crate) fn new(interval: Duration) -> Repeats {
        Repeats {
            interval,
            hasher: RandomState::new(),
            refused: DashMap::new(),
            of_one: DashMap::new(),
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
        let key = self.key(&event);
        // A guard of one map is not held over another.
        if let Some(mut known) = self.refused.get_mut(&key) {
            known.count(event);
            return None;
        }
        let event = match self.is_too_much(&event, now) {
            None => event,
            Some(detail) => event.without(detail),
        };
        match self.refused.entry(self.key(&event)) {
            Entry::Occupied(mut known) => {
                known.get_mut().count(event);
                None
            }
            Entry::Vacant(free) => {
                let since = now;
                free.insert(Refused { since, more: None });
                Some(event)
            }
        }
    }

    fn key(&self, event: &Event) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        event.hash_repeat(&mut hasher);
        std::hash::Hasher::finish(&hasher)
    }

    /// What to leave out of a refusal that is new, so that their number stays bounded.
    fn is_too_much(&self, event: &Event, now: MonoTime) -> Option<Detail> {
        if self.refused.len() >= MAX_REFUSALS || self.of_one.len() >= MAX_REFUSALS {
            return Some(Detail::Who);
        }
        let who = self.hasher.hash_one((&event.principal, &event.address));
        let mut so_many = self.of_one.entry(who).or_insert((now, 0));
        so_many.1 += 1;
        (so_many.1 > MAX_OF_ONE).then_some(Detail::What)
    }

    /// The counted refusals whose interval is over; with `all` every one.
    pub(crate) fn due(&self, now: MonoTime, all: bool) -> Vec<Event> {
        let mut due = Vec::new();
        self.of_one
            .retain(|_, (since, _)| !all && now.since(*since) < self.interval);
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
