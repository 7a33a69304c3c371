//! What every journal owes its owner, shown on both there are: the one on a disk, and the one in
//! memory that loses and changes hands.

mod common;

use bytes::Bytes;
use tidemark_disk::SimDisk;
use tidemark_journal::{
    Admission, After, AppendRequest, Cluster, Journal, JournalEvent, MemoryJournal, RecoveredRecord,
};
use tidemark_types::{JournalIndex, Tick};

/// A journal under test and who drives it.
trait Subject {
    fn journal(&self) -> &dyn Journal;
    /// The next event. The journal is made to go on until there is one.
    fn event(&mut self) -> JournalEvent;
    /// What a start finds.
    fn kept(self) -> Vec<RecoveredRecord>;
}

/// On a simulated disk.
struct Local {
    running: common::Running,
    disk: SimDisk,
    /// Those that the start took already.
    first: Vec<JournalEvent>,
}

impl Local {
    fn new() -> Local {
        let disk = SimDisk::new(7);
        let running = common::start(&disk);
        let first = vec![
            JournalEvent::Lease { until: None },
            JournalEvent::Owner {
                epoch: running.epoch,
                floor: running.highest_tick,
            },
        ];
        Local {
            running,
            disk,
            first,
        }
    }
}

impl Subject for Local {
    fn journal(&self) -> &dyn Journal {
        &self.running.journal
    }

    fn event(&mut self) -> JournalEvent {
        self.first
            .pop()
            .unwrap_or_else(|| self.running.events.recv().expect("it runs"))
    }

    fn kept(self) -> Vec<RecoveredRecord> {
        self.running.journal.shutdown();
        drop(self.running);
        common::start(&self.disk).recovered
    }
}

/// In memory, with a member beside the one under test.
struct Memory {
    cluster: Cluster,
    journal: MemoryJournal,
    events: Vec<JournalEvent>,
}

impl Memory {
    fn new() -> Memory {
        let cluster = Cluster::new(2, 7);
        cluster.give_to(0, 0);
        // It was a follower before anything was.
        assert_eq!(
            cluster.take_events(0, 1),
            [JournalEvent::Follower { leader: None }]
        );
        Memory {
            journal: cluster.journal(0),
            cluster,
            events: Vec::new(),
        }
    }
}

impl Subject for Memory {
    fn journal(&self) -> &dyn Journal {
        &self.journal
    }

    fn event(&mut self) -> JournalEvent {
        loop {
            self.events.extend(self.cluster.take_events(0, 1));
            if !self.events.is_empty() {
                return self.events.remove(0);
            }
            self.cluster.confirm(1);
        }
    }

    fn kept(self) -> Vec<RecoveredRecord> {
        self.cluster.records()
    }
}

/// An owner as simple as one can be.
struct Writer {
    epoch: u32,
    index: JournalIndex,
    tick: Tick,
}

impl Writer {
    /// What a journal says first of all.
    fn begin(subject: &mut impl Subject) -> Writer {
        let JournalEvent::Owner { epoch, floor } = subject.event() else {
            panic!("nobody owns it");
        };
        assert_eq!(subject.event(), JournalEvent::Lease { until: None });
        Writer {
            epoch,
            index: JournalIndex(0),
            tick: floor,
        }
    }

    fn append(&mut self, journal: &dyn Journal, payload: &Bytes) {
        let after = After {
            epoch: self.epoch,
            tick: self.tick,
        };
        self.index = self.index.next();
        self.tick = Tick(self.tick.0 + 5);
        journal.append(after, self.request(payload));
    }

    fn request(&self, payload: &Bytes) -> AppendRequest {
        AppendRequest {
            index: self.index,
            tick: self.tick,
            wall_ms: self.index.0 as i64,
            must_sync: false,
            unsettled: false,
            pieces: vec![payload.slice(..1), payload.slice(1..)],
        }
    }
}

/// Events up to the confirmation of record `last`.
fn until_confirmed(subject: &mut impl Subject, last: JournalIndex) {
    let mut confirmed = JournalIndex(0);
    while confirmed < last {
        match subject.event() {
            JournalEvent::Confirmed { index, tick } => {
                assert!(
                    confirmed < index && index <= last,
                    "{index} after {confirmed}"
                );
                assert_eq!(tick.0 % 5, 0, "a tick that was appended");
                confirmed = index;
            }
            // How many groups the records become, and how many slots, is a matter of time.
            JournalEvent::NeedCheckpoint | JournalEvent::SpaceFreed => {}
            other => panic!("{other:?}"),
        }
    }
}

fn confirms_everything_in_order_and_keeps_it(mut subject: impl Subject) {
    let mut writer = Writer::begin(&mut subject);
    let payloads: Vec<Bytes> = (1..50)
        .map(|n| common::payload(n, 10 + n as usize))
        .collect();
    for payload in &payloads {
        writer.append(subject.journal(), payload);
    }
    until_confirmed(&mut subject, writer.index);
    let kept = subject.kept();
    let read: Vec<&Bytes> = kept.iter().map(|r| &r.payload).collect();
    assert_eq!(read, payloads.iter().collect::<Vec<_>>());
    assert!(kept.is_sorted_by(|a, b| a.index.next() == b.index && a.tick < b.tick));
    assert!(kept.iter().all(|r| r.wall_ms == r.index.0 as i64));
    assert!(kept.iter().all(|r| r.epoch == kept[0].epoch));
}

fn takes_a_record_of_the_largest_size(mut subject: impl Subject) {
    let mut writer = Writer::begin(&mut subject);
    let most = subject.journal().max_record_bytes();
    for admission in [Admission::Ordinary, Admission::Reserved] {
        assert!(subject.journal().has_space(0, admission));
        assert!(!subject.journal().has_space(u64::MAX / 2, admission));
    }
    // A no may have asked for a checkpoint: this is one.
    subject.journal().release_below(JournalIndex(1));
    writer.append(subject.journal(), &common::payload(1, most as usize));
    loop {
        match subject.event() {
            JournalEvent::Confirmed { index, .. } => break assert_eq!(index, writer.index),
            JournalEvent::NeedCheckpoint | JournalEvent::SpaceFreed => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(subject.kept()[0].payload.len() as u64, most);
}

fn what_was_released_is_no_obstacle(mut subject: impl Subject) {
    let mut writer = Writer::begin(&mut subject);
    for n in 1..4 {
        writer.append(subject.journal(), &common::payload(n, 100));
        until_confirmed_from(&mut subject, &writer);
        subject.journal().release_below(writer.index);
    }
    let kept = subject.kept();
    assert_eq!(kept.last().map(|r| r.index), Some(writer.index));
}

fn until_confirmed_from(subject: &mut impl Subject, writer: &Writer) {
    loop {
        match subject.event() {
            JournalEvent::Confirmed { index, .. } if index == writer.index => return,
            JournalEvent::SpaceFreed | JournalEvent::NeedCheckpoint => {}
            other => panic!("{other:?}"),
        }
    }
}

fn refuses_a_record_out_of_order(mut subject: impl Subject) {
    let mut writer = Writer::begin(&mut subject);
    writer.append(subject.journal(), &common::payload(1, 10));
    let after = After {
        epoch: writer.epoch,
        tick: writer.tick,
    };
    let next = |index: u64, tick: u64| AppendRequest {
        index: JournalIndex(index),
        tick: Tick(tick),
        wall_ms: 0,
        must_sync: false,
        unsettled: false,
        pieces: Vec::new(),
    };
    let tick = writer.tick.0;
    let before = After {
        tick: Tick(tick - 1),
        ..after
    };
    for (after, request) in [
        (after, next(1, tick + 1)),
        (after, next(3, tick + 1)),
        (after, next(2, tick)),
        (before, next(2, tick + 1)),
    ] {
        let what = format!("{request:?}");
        let journal = subject.journal();
        let appended = std::panic::AssertUnwindSafe(|| journal.append(after, request));
        assert!(std::panic::catch_unwind(appended).is_err(), "{what}");
    }
    until_confirmed(&mut subject, writer.index);
    assert_eq!(subject.kept().len(), 1);
}

macro_rules! on_both {
    ($($what:ident),* $(,)?) => {
        mod on_a_disk {
            $(#[test] fn $what() { super::$what(super::Local::new()); })*
        }
        mod in_memory {
            $(#[test] fn $what() { super::$what(super::Memory::new()); })*
        }
    };
}

on_both!(
    confirms_everything_in_order_and_keeps_it,
    takes_a_record_of_the_largest_size,
    what_was_released_is_no_obstacle,
    refuses_a_record_out_of_order,
);

/// A member that follows what it is told, as an owner's state does.
#[derive(Default)]
struct Member {
    /// What it has applied: its own, and others'.
    applied: Vec<(JournalIndex, Tick)>,
    confirmed: usize,
    epoch: Option<u32>,
    floor: Tick,
}

impl Member {
    fn last(&self) -> (JournalIndex, Tick) {
        self.applied.last().copied().unwrap_or_default()
    }

    fn hear(&mut self, event: JournalEvent) {
        match event {
            JournalEvent::Confirmed { index, tick } => {
                let at = self.applied.iter().position(|r| *r == (index, tick));
                let at = at.expect("what it has appended");
                assert!(at + 1 > self.confirmed);
                self.confirmed = at + 1;
            }
            JournalEvent::Lost { index, tick } => {
                let keep = self.applied.iter().rposition(|r| *r == (index, tick));
                let keep = keep.map_or(0, |at| at + 1);
                assert!(keep >= self.confirmed, "what was confirmed is not lost");
                self.applied.truncate(keep);
                self.epoch = None;
            }
            JournalEvent::Owner { epoch, floor } => {
                self.epoch = Some(epoch);
                self.floor = floor;
                self.confirmed = self.applied.len();
            }
            JournalEvent::Follower { .. } => self.epoch = None,
            JournalEvent::Record { after, record } => {
                assert_eq!(self.epoch, None, "an owner is told of its own");
                if after == self.last().1 {
                    assert_eq!(record.index, self.last().0.next());
                    self.applied.push((record.index, record.tick));
                    self.confirmed = self.applied.len();
                }
            }
            JournalEvent::Lease { until } => assert_eq!(until, None),
            other => panic!("{other:?}"),
        }
    }
}

/// Whatever the seed does: what one member was told is durable stays, in one order, for all; ticks
/// rise for ever, also over what was lost.
#[test]
fn whoever_owns_it_the_members_come_to_one_history() {
    let (mut lost, mut moved) = (0, 0);
    for seed in 0..200 {
        let cluster = Cluster::new(3, seed);
        let journals: Vec<MemoryJournal> = (0..3).map(|n| cluster.journal(n)).collect();
        let mut members: Vec<Member> = (0..3).map(|_| Member::default()).collect();
        let mut random = seed;
        let mut ticks = Vec::new();
        for _ in 0..300 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let n = (random >> 33) as usize % 3;
            for event in cluster.take_events(n, (random >> 40) as usize % 4) {
                members[n].hear(event);
            }
            let member = &mut members[n];
            if let Some(epoch) = member.epoch {
                let (index, tick) = member.last();
                let next = Tick(tick.max(member.floor).0 + 1 + (random >> 50) % 3);
                member.floor = next;
                member.applied.push((index.next(), next));
                let request = AppendRequest {
                    index: index.next(),
                    tick: next,
                    wall_ms: 0,
                    must_sync: false,
                    unsettled: false,
                    pieces: vec![Bytes::from_static(b"x")],
                };
                ticks.push(next);
                journals[n].append(After { epoch, tick }, request);
            }
            cluster.advance();
        }
        cluster.give_to(0, 0);
        for (n, member) in members.iter_mut().enumerate() {
            for event in cluster.take_events(n, usize::MAX) {
                member.hear(event);
            }
        }
        let durable: Vec<_> = cluster
            .records()
            .iter()
            .map(|r| (r.index, r.tick))
            .collect();
        assert_eq!(members[0].applied, durable, "seed {seed}");
        assert!(durable.is_sorted_by(|a, b| a.0.next() == b.0 && a.1 < b.1));
        for member in &members {
            let known = &member.applied[..member.confirmed];
            assert_eq!(known, &durable[..known.len()], "seed {seed}");
        }
        let (l, m) = cluster.counts();
        (lost, moved) = (lost + l, moved + m);
    }
    assert!(lost > 1_000 && moved > 1_000, "{lost} {moved}");
}
