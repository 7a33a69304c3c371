//! Fetch sessions (KIP-227): a consumer names its partitions once, then only what changes.
//!
//! A full fetch (epoch 0) opens a session, the next ones are incremental: they carry the epoch after
//! the last one's, new positions and forgotten partitions, and are answered with the partitions that
//! have news. Sessions are soft state. One that is gone, by eviction or a restart, is answered with
//! FETCH_SESSION_ID_NOT_FOUND, and the consumer opens another; a session id of 0 in an answer
//! declines, and the consumer goes on without. So everything here may be bounded and forgotten.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::protocol::StrBytes;
use parking_lot::Mutex;
use tidemark_types::{ErrorCode, MonoTime, TopicId};
use tidemark_wire::FetchPartition;

use crate::clock::Entropy;

/// A full fetch that opens a session.
const INITIAL_EPOCH: i32 = 0;
/// A full fetch that opens none.
const FINAL_EPOCH: i32 = -1;
/// "No session" in answers.
pub const NO_SESSION: i32 = 0;
/// A session that was used within this time gives way to none that is smaller.
const EVICTION_AGE: Duration = Duration::from_secs(120);
/// Most partitions of all sessions together, at some 200 bytes each.
const MAX_PARTITIONS: usize = 500_000;

/// A topic as a Fetch names it: by name below v13, by id from v13 on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TopicKey {
    Name(StrBytes),
    Id(TopicId),
}

/// A partition that a Fetch reads, and from where.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub topic: TopicKey,
    /// The name of a topic that is asked for by id, once there was one: when the id is gone it tells
    /// a topic that was deleted from one that was made again.
    pub known_as: Option<Arc<str>>,
    pub partition: i32,
    pub current_leader_epoch: i32,
    /// The epoch of the last batch that the client has; -1 where it does not say (below v12).
    pub last_fetched_epoch: i32,
    pub fetch_offset: i64,
    pub max_bytes: i32,
}

/// The session part of a Fetch, with its partitions.
pub struct Opening {
    /// v7 and later; 0 and the final epoch before.
    pub id: i32,
    pub epoch: i32,
    pub by_id: bool,
    pub wanted: Vec<Wanted>,
    pub forgotten: Vec<(TopicKey, i32)>,
}

/// How a Fetch is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    Sessionless,
    /// All partitions are answered, and a session is opened over them.
    Full {
        by_id: bool,
    },
    /// Partitions with news are answered.
    Incremental {
        id: i32,
        /// The epoch of this request.
        epoch: i32,
    },
}

/// What an answered Fetch sends.
pub struct Closing {
    pub session_id: i32,
    /// Whether each partition is in the answer, in the order of reading.
    pub sends: Vec<bool>,
}

/// All sessions of a broker.
pub struct FetchSessions {
    /// `max.incremental.fetch.session.cache.slots`.
    max_sessions: usize,
    entropy: Arc<dyn Entropy>,
    entries: Mutex<HashMap<i32, Entry>>,
}

struct Entry {
    session: Arc<Mutex<Session>>,
    created: MonoTime,
    last_used: MonoTime,
    partitions: usize,
}

struct Session {
    /// Of the next request.
    epoch: i32,
    by_id: bool,
    /// In the order of reading: what had records goes to the end, so that no partition starves
    /// behind another that fills every answer.
    order: BTreeMap<u64, Cached>,
    places: BTreeMap<(TopicKey, i32), u64>,
    next_place: u64,
}

struct Cached {
    wanted: Wanted,
    /// As last told; -1 after an error, so that its end is news.
    high_watermark: i64,
    log_start_offset: i64,
}

impl FetchSessions {
    pub fn new(max_sessions: usize, entropy: Arc<dyn Entropy>) -> FetchSessions {
        FetchSessions {
            max_sessions,
            entropy,
            entries: Mutex::default(),
        }
    }

    /// Finds what a Fetch reads, in order. `name_of` is the present name of a topic id.
    ///
    /// Errors, all of the request as a whole: FETCH_SESSION_ID_NOT_FOUND,
    /// INVALID_FETCH_SESSION_EPOCH, and FETCH_SESSION_TOPIC_ID_ERROR where a session over names is
    /// used with ids or the other way round.
    pub fn open(
        &self,
        opening: Opening,
        now: MonoTime,
        name_of: impl Fn(TopicId) -> Option<Arc<str>>,
    ) -> Result<(Context, Vec<Wanted>), ErrorCode> {
        let Opening {
            id,
            epoch,
            by_id,
            mut wanted,
            forgotten,
        } = opening;
        if epoch == INITIAL_EPOCH || epoch == FINAL_EPOCH {
            // A full fetch ends the session it names.
            self.entries.lock().remove(&id);
            wanted
                .iter_mut()
                .for_each(|wanted| wanted.look_up(&name_of));
            return Ok(match epoch {
                FINAL_EPOCH => (Context::Sessionless, wanted),
                _ => (Context::Full { by_id }, wanted),
            });
        }
        let session = {
            let mut entries = self.entries.lock();
            let entry = entries.get_mut(&id);
            let entry = entry.ok_or(ErrorCode::FetchSessionIdNotFound)?;
            entry.last_used = now;
            entry.session.clone()
        };
        let mut session = session.lock();
        if session.epoch != epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.by_id != by_id {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        for wanted in &wanted {
            session.put(wanted.clone());
        }
        for (topic, partition) in forgotten {
            session.remove(&(topic, partition));
        }
        if session.order.is_empty() {
            self.entries.lock().remove(&id);
            return Ok((Context::Sessionless, wanted));
        }
        self.resize(id, session.order.len())?;
        session.epoch = next_epoch(epoch);
        let read = session
            .order
            .values_mut()
            .map(|cached| {
                cached.wanted.look_up(&name_of);
                cached.wanted.clone()
            })
            .collect();
        Ok((Context::Incremental { id, epoch }, read))
    }

    /// Decides what of the partitions that were read is sent, and remembers it. `read` is in the
    /// order that [`FetchSessions::open`] gave.
    ///
    /// Fails with INVALID_FETCH_SESSION_EPOCH when another request of the session has come between.
    pub fn close(
        &self,
        context: Context,
        wanted: Vec<Wanted>,
        read: &[FetchPartition],
        now: MonoTime,
    ) -> Result<Closing, ErrorCode> {
        match context {
            Context::Sessionless => Ok(Closing {
                session_id: NO_SESSION,
                sends: vec![true; read.len()],
            }),
            Context::Full { by_id } => Ok(Closing {
                session_id: self.create(by_id, wanted, read, now),
                sends: vec![true; read.len()],
            }),
            Context::Incremental { id, epoch } => {
                let session = self.entries.lock().get(&id).map(|e| e.session.clone());
                let session = session.ok_or(ErrorCode::FetchSessionIdNotFound)?;
                let mut session = session.lock();
                if session.epoch != next_epoch(epoch) {
                    return Err(ErrorCode::InvalidFetchSessionEpoch);
                }
                let sends = wanted
                    .into_iter()
                    .zip(read)
                    .map(|(wanted, read)| session.tell((wanted.topic, wanted.partition), read))
                    .collect();
                Ok(Closing {
                    session_id: id,
                    sends,
                })
            }
        }
    }

    /// How many sessions there are, and partitions in them.
    #[cfg(test)]
    fn size(&self) -> (usize, usize) {
        let entries = self.entries.lock();
        (entries.len(), partitions(&entries))
    }

    /// Opens a session over what was answered; [`NO_SESSION`] where there is no room for it.
    fn create(
        &self,
        by_id: bool,
        wanted: Vec<Wanted>,
        read: &[FetchPartition],
        now: MonoTime,
    ) -> i32 {
        let mut session = Session {
            epoch: next_epoch(INITIAL_EPOCH),
            by_id,
            order: BTreeMap::new(),
            places: BTreeMap::new(),
            next_place: 0,
        };
        for (wanted, read) in wanted.into_iter().zip(read) {
            let place = session.put(wanted);
            if let Some(cached) = session.order.get_mut(&place) {
                cached.remember(read);
            }
        }
        let partitions = session.order.len();
        let mut entries = self.entries.lock();
        if !make_room(&mut entries, self.max_sessions, partitions, now) {
            return NO_SESSION;
        }
        let id = loop {
            let random = self.entropy.uuid();
            let id = i32::from_be_bytes([random[0] & 0x7f, random[1], random[2], random[3]]);
            if id != NO_SESSION && !entries.contains_key(&id) {
                break id;
            }
        };
        let entry = Entry {
            session: Arc::new(Mutex::new(session)),
            created: now,
            last_used: now,
            partitions,
        };
        entries.insert(id, entry);
        id
    }

    /// Notes a session's new size. One that outgrows the bound of all is ended.
    fn resize(&self, id: i32, to: usize) -> Result<(), ErrorCode> {
        let mut entries = self.entries.lock();
        let all = partitions(&entries);
        let entry = entries.get_mut(&id);
        let entry = entry.ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if all - entry.partitions + to > MAX_PARTITIONS {
            entries.remove(&id);
            return Err(ErrorCode::FetchSessionIdNotFound);
        }
        entry.partitions = to;
        Ok(())
    }
}

fn partitions(entries: &HashMap<i32, Entry>) -> usize {
    entries.values().map(|entry| entry.partitions).sum()
}

fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

/// KIP-227's order: the session that was idle longest goes if it was idle long; else, of those that
/// have lived long, the smallest, if the new one is not smaller.
fn make_room(
    entries: &mut HashMap<i32, Entry>,
    max_sessions: usize,
    partitions_to_come: usize,
    now: MonoTime,
) -> bool {
    loop {
        let fits = partitions(entries) + partitions_to_come <= MAX_PARTITIONS;
        if entries.len() < max_sessions && fits {
            return true;
        }
        let stale = entries
            .iter()
            .filter(|(_, entry)| now.since(entry.last_used) > EVICTION_AGE)
            .min_by_key(|(id, entry)| (entry.last_used, **id));
        let smallest = || {
            entries
                .iter()
                .filter(|(_, entry)| now.since(entry.created) > EVICTION_AGE)
                .min_by_key(|(id, entry)| (entry.partitions, **id))
                .filter(|(_, entry)| entry.partitions <= partitions_to_come)
        };
        let Some(id) = stale.or_else(smallest).map(|(id, _)| *id) else {
            return false;
        };
        entries.remove(&id);
    }
}

impl Session {
    /// Adds a partition at the end of the order, or takes its new position. Returns its place.
    fn put(&mut self, wanted: Wanted) -> u64 {
        let key = (wanted.topic.clone(), wanted.partition);
        if let Some(place) = self.places.get(&key)
            && let Some(cached) = self.order.get_mut(place)
        {
            cached.wanted.current_leader_epoch = wanted.current_leader_epoch;
            cached.wanted.last_fetched_epoch = wanted.last_fetched_epoch;
            cached.wanted.fetch_offset = wanted.fetch_offset;
            cached.wanted.max_bytes = wanted.max_bytes;
            return *place;
        }
        let wanted = wanted.detached();
        self.places
            .insert((wanted.topic.clone(), wanted.partition), self.next_place);
        let cached = Cached {
            wanted,
            high_watermark: -1,
            log_start_offset: -1,
        };
        self.order.insert(self.next_place, cached);
        self.next_place += 1;
        self.next_place - 1
    }

    fn remove(&mut self, key: &(TopicKey, i32)) {
        if let Some(place) = self.places.remove(key) {
            self.order.remove(&place);
        }
    }

    /// Whether what was read of a partition is news, which is remembered as told. A partition that
    /// was forgotten meanwhile is none.
    fn tell(&mut self, key: (TopicKey, i32), read: &FetchPartition) -> bool {
        let Some(place) = self.places.get_mut(&key) else {
            return false;
        };
        let Some(cached) = self.order.get_mut(place) else {
            return false;
        };
        let has_records = read.records.iter().any(|chunk| !chunk.is_empty());
        let is_news = has_records
            || read.error_code.is_err()
            || read.diverging_epoch.is_some()
            || cached.high_watermark != read.high_watermark
            || cached.log_start_offset != read.log_start_offset;
        cached.remember(read);
        if has_records && let Some(cached) = self.order.remove(place) {
            *place = self.next_place;
            self.order.insert(self.next_place, cached);
            self.next_place += 1;
        }
        is_news
    }
}

impl Cached {
    fn remember(&mut self, read: &FetchPartition) {
        self.high_watermark = match read.error_code {
            ErrorCode::None => read.high_watermark,
            _ => -1,
        };
        self.log_start_offset = read.log_start_offset;
    }
}

impl Wanted {
    fn look_up(&mut self, name_of: &impl Fn(TopicId) -> Option<Arc<str>>) {
        if let (TopicKey::Id(id), None) = (&self.topic, &self.known_as) {
            self.known_as = name_of(*id);
        }
    }

    /// With a name of its own: a slice would keep the request's whole frame alive.
    fn detached(mut self) -> Wanted {
        if let TopicKey::Name(name) = &self.topic {
            self.topic = TopicKey::Name(StrBytes::from_string(name.to_string()));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use bytes::Bytes;

    use super::*;

    /// Ids 1, 2, 3, ...
    struct Counting(AtomicU32);

    impl Entropy for Counting {
        fn uuid(&self) -> [u8; 16] {
            let mut bytes = [0; 16];
            let next = self.0.fetch_add(1, Ordering::Relaxed);
            bytes[..4].copy_from_slice(&next.to_be_bytes());
            bytes
        }
    }

    fn sessions(max_sessions: usize) -> FetchSessions {
        FetchSessions::new(max_sessions, Arc::new(Counting(AtomicU32::new(0))))
    }

    fn at(seconds: u64) -> MonoTime {
        MonoTime::ZERO + Duration::from_secs(seconds)
    }

    fn wanted(partition: i32, fetch_offset: i64) -> Wanted {
        Wanted {
            topic: TopicKey::Name(StrBytes::from_static_str("t")),
            known_as: None,
            partition,
            current_leader_epoch: -1,
            last_fetched_epoch: -1,
            fetch_offset,
            max_bytes: 100,
        }
    }

    fn opening(id: i32, epoch: i32, partitions: std::ops::Range<i32>) -> Opening {
        Opening {
            id,
            epoch,
            by_id: false,
            wanted: partitions.map(|p| wanted(p, 0)).collect(),
            forgotten: Vec::new(),
        }
    }

    fn read(partition: i32, high_watermark: i64, records: &'static [u8]) -> FetchPartition {
        FetchPartition {
            partition_index: partition,
            error_code: ErrorCode::None,
            high_watermark,
            last_stable_offset: high_watermark,
            log_start_offset: 0,
            aborted_transactions: None,
            diverging_epoch: None,
            current_leader: None,
            records: match records {
                [] => Vec::new(),
                some => vec![Bytes::from_static(some)],
            },
        }
    }

    fn open(
        s: &FetchSessions,
        opening: Opening,
        now: u64,
    ) -> Result<(Context, Vec<Wanted>), ErrorCode> {
        s.open(opening, at(now), |_| None)
    }

    /// A full fetch over `partitions` partitions: its session.
    fn create(s: &FetchSessions, partitions: i32, now: u64) -> i32 {
        let (context, wanted) = open(s, opening(0, 0, 0..partitions), now).unwrap();
        let read: Vec<_> = (0..partitions).map(|p| read(p, 0, b"")).collect();
        s.close(context, wanted, &read, at(now)).unwrap().session_id
    }

    /// An incremental fetch that finds nothing new.
    fn touch(s: &FetchSessions, id: i32, epoch: i32, now: u64) -> Result<usize, ErrorCode> {
        let (context, wanted) = open(s, opening(id, epoch, 0..0), now)?;
        let read: Vec<_> = wanted.iter().map(|w| read(w.partition, 0, b"")).collect();
        let closing = s.close(context, wanted, &read, at(now))?;
        Ok(closing.sends.iter().filter(|sent| **sent).count())
    }

    #[test]
    fn only_news_is_sent_and_what_had_records_is_read_last() {
        let s = sessions(10);
        let id = create(&s, 3, 0);
        let (context, asked) = open(&s, opening(id, 1, 0..0), 0).unwrap();
        let order: Vec<i32> = asked.iter().map(|w| w.partition).collect();
        assert_eq!(order, [0, 1, 2]);
        let found = [read(0, 1, b"x"), read(1, 0, b""), read(2, 5, b"")];
        let closing = s.close(context, asked, &found, at(0)).unwrap();
        assert_eq!(closing.session_id, id);
        assert_eq!(closing.sends, [true, false, true]);

        // A new position, a new partition, and one that is forgotten.
        let next = Opening {
            wanted: vec![wanted(0, 1), wanted(7, 3)],
            forgotten: vec![(TopicKey::Name(StrBytes::from_static_str("t")), 1)],
            ..opening(id, 2, 0..0)
        };
        let (context, asked) = open(&s, next, 0).unwrap();
        let order: Vec<_> = asked
            .iter()
            .map(|w| (w.partition, w.fetch_offset))
            .collect();
        assert_eq!(order, [(2, 0), (0, 1), (7, 3)]);
        let unknown = FetchPartition {
            error_code: ErrorCode::UnknownTopicOrPartition,
            high_watermark: -1,
            log_start_offset: -1,
            ..read(7, 0, b"")
        };
        let found = [read(2, 5, b""), read(0, 1, b""), unknown.clone()];
        let closing = s.close(context, asked, &found, at(0)).unwrap();
        assert_eq!(closing.sends, [false, false, true]);

        // An error is told each time, and so is its end.
        for (epoch, last, told) in [
            (3, unknown, true),
            (4, read(7, 0, b""), true),
            (5, read(7, 0, b""), false),
        ] {
            let (context, asked) = open(&s, opening(id, epoch, 0..0), 0).unwrap();
            let found = [read(2, 5, b""), read(0, 1, b""), last];
            let closing = s.close(context, asked, &found, at(0)).unwrap();
            assert_eq!(closing.sends, [false, false, told], "epoch {epoch}");
        }
    }

    #[test]
    fn a_session_is_used_in_the_order_of_its_epochs() {
        let s = sessions(10);
        let id = create(&s, 1, 0);
        let not_found = Err(ErrorCode::FetchSessionIdNotFound);
        let wrong_epoch = Err(ErrorCode::InvalidFetchSessionEpoch);
        assert_eq!(touch(&s, id + 1, 1, 0), not_found);
        assert_eq!(touch(&s, 0, 1, 0), not_found);
        assert_eq!(touch(&s, id, 2, 0), wrong_epoch);
        assert_eq!(touch(&s, id, 1, 0), Ok(0));
        assert_eq!(touch(&s, id, 1, 0), wrong_epoch);
        let by_id = Opening {
            by_id: true,
            ..opening(id, 2, 0..0)
        };
        let refused = open(&s, by_id, 0).unwrap_err();
        assert_eq!(refused, ErrorCode::FetchSessionTopicIdError);
        // Overtaken between reading and answering.
        let (context, asked) = open(&s, opening(id, 2, 0..0), 0).unwrap();
        assert_eq!(touch(&s, id, 3, 0), Ok(0));
        let closed = s.close(context, asked, &[read(0, 0, b"")], at(0));
        assert_eq!(closed.err(), Some(ErrorCode::InvalidFetchSessionEpoch));
        // The epoch after the last is 1: 0 opens.
        assert_eq!(next_epoch(i32::MAX), 1);
    }

    #[test]
    fn a_session_ends_by_a_full_fetch_and_without_partitions() {
        let s = sessions(10);
        for end in [0, -1] {
            let id = create(&s, 1, 0);
            let (context, _) = open(&s, opening(id, end, 0..1), 0).unwrap();
            assert_eq!(context == Context::Sessionless, end == -1);
            assert_eq!(touch(&s, id, 1, 0), Err(ErrorCode::FetchSessionIdNotFound));
        }
        let id = create(&s, 1, 0);
        let empty = Opening {
            forgotten: vec![(TopicKey::Name(StrBytes::from_static_str("t")), 0)],
            ..opening(id, 1, 0..0)
        };
        let (context, asked) = open(&s, empty, 0).unwrap();
        assert_eq!((context, asked.len()), (Context::Sessionless, 0));
        assert_eq!(s.size(), (0, 0));
    }

    #[test]
    fn sessions_are_bounded_and_the_least_useful_goes() {
        let s = sessions(2);
        let small = create(&s, 1, 0);
        let large = create(&s, 5, 0);
        // Both are young and in use.
        assert_eq!(create(&s, 100, 60), NO_SESSION);
        // Old enough: the smaller one goes, but not for one that is smaller still.
        touch(&s, small, 1, 100).unwrap();
        touch(&s, large, 1, 100).unwrap();
        let zero = create(&s, 0, 121);
        assert_eq!(zero, NO_SESSION);
        let other = create(&s, 2, 121);
        assert_ne!(other, NO_SESSION);
        assert_eq!(
            touch(&s, small, 2, 121),
            Err(ErrorCode::FetchSessionIdNotFound)
        );
        assert_eq!(touch(&s, large, 2, 121), Ok(0));
        // Idle for long: gone, whatever its size.
        touch(&s, other, 1, 200).unwrap();
        assert_ne!(create(&s, 0, 250), NO_SESSION);
        assert_eq!(
            touch(&s, large, 3, 250),
            Err(ErrorCode::FetchSessionIdNotFound)
        );
        assert_eq!(touch(&s, other, 2, 250), Ok(0));
        assert_eq!(sessions(0).size(), (0, 0));
        assert_eq!(create(&sessions(0), 1, 0), NO_SESSION);
    }

    #[test]
    fn all_partitions_together_are_bounded() {
        let s = sessions(10);
        let all = i32::try_from(MAX_PARTITIONS).unwrap();
        let id = create(&s, all, 0);
        assert_ne!(id, NO_SESSION);
        assert_eq!(create(&s, 1, 0), NO_SESSION);
        // Nor does a session grow beyond it.
        let more = opening(id, 1, all..all + 1);
        let refused = open(&s, more, 0).unwrap_err();
        assert_eq!(refused, ErrorCode::FetchSessionIdNotFound);
        assert_eq!(s.size(), (0, 0));
    }
}
