//! The moves that may be made, and how likely each is.

use std::collections::BTreeSet;

use proptest::prelude::*;

pub const IDS: [&str; 3] = ["tx-a", "tx-b", "tx-c"];
pub const TOPICS: [(&str, i32); 3] = [("t", 2), ("u", 1), ("v", 3)];
pub const GROUPS: [&str; 2] = ["g", "h"];
/// A topic's config and what it is set to; nothing: back to the default.
pub const CONFIGS: [(&str, &str); 6] = [
    ("cleanup.policy", "delete"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "compact,delete"),
    ("cleanup.policy", ""),
    ("cleanup.policy", "burn"),
    ("retention.ms", "3600000"),
];

#[derive(Clone, Debug)]
pub enum Move {
    /// A new session of an id, with the pair of the n-th last one or without.
    Init {
        id: usize,
        given: Option<usize>,
        v2: bool,
    },
    Add {
        id: usize,
        who: usize,
        partitions: Vec<usize>,
    },
    AddOffsets {
        id: usize,
        who: usize,
        group: usize,
    },
    TxnOffsets {
        id: usize,
        who: usize,
        group: usize,
        partitions: Vec<usize>,
    },
    End {
        id: usize,
        who: usize,
        commit: bool,
    },
    /// A batch for each partition; `back` of the next sequence (0 is the next, 1 a repeat).
    Produce {
        id: usize,
        who: usize,
        partitions: Vec<usize>,
        back: i32,
        plain: bool,
    },
    /// What a good client does: it enrols partitions, and writes to each.
    Write {
        id: usize,
        partitions: Vec<usize>,
    },
    /// And what it has processed: its group's offsets.
    Process {
        id: usize,
        group: usize,
        partitions: Vec<usize>,
    },
    Idempotent {
        partition: usize,
        back: i32,
    },
    NoProducer {
        partition: usize,
    },
    NoteRefused {
        partition: usize,
        sequence: i32,
    },
    OffsetCommit {
        group: usize,
        partition: usize,
    },
    OffsetFetch {
        group: usize,
    },
    Create(Vec<usize>),
    Delete(Vec<usize>),
    /// CreatePartitions of some topics, each with so many partitions more than it has.
    Grow {
        topics: BTreeSet<usize>,
        more: i32,
    },
    /// AlterConfigs of some topics.
    Alter {
        topics: BTreeSet<usize>,
        config: usize,
    },
    /// AlterUserScramCredentials of one user.
    Scram {
        user: usize,
        mechanism: i8,
        set: bool,
    },
    /// DeleteRecords up to so much of the log, in tenths; above ten beyond its end.
    DeleteRecords {
        partition: usize,
        tenths: i64,
    },
    /// The same as retention asks for it.
    Retain {
        partitions: Vec<usize>,
        tenths: i64,
    },
    /// A new member, or the last one again.
    Join {
        group: usize,
        new: bool,
    },
    Sync {
        group: usize,
    },
    Heartbeat {
        group: usize,
    },
    Leave {
        group: usize,
    },
    Pass(u64),
    WallStep(i64),
    JournalEpoch,
    /// The journal confirms all but the last few records.
    Confirm(usize),
    /// The journal loses up to so many records that are not confirmed.
    Lose(usize),
    /// Made by the caller.
    Restart,
    /// Made by the caller.
    Capture {
        salt: usize,
        metadata: bool,
    },
}

pub fn a_move() -> impl Strategy<Value = Move> {
    let id = || 0..IDS.len();
    let group = || 0..GROUPS.len();
    // The last session mostly, or one before it.
    let who = || prop_oneof![4 => Just(0usize), 1 => 1usize..3];
    let partition = || 0usize..6;
    let partitions = || prop::collection::vec(0usize..6, 1..4);
    let topics = || prop::collection::btree_set(0usize..3, 1..3);
    let back = || prop_oneof![6 => Just(0), 2 => Just(1), 1 => -1i32..7];
    prop_oneof![
        5 => (id(), prop::option::weighted(0.3, 0usize..3), any::<bool>())
            .prop_map(|(id, given, v2)| Move::Init { id, given, v2 }),
        8 => (id(), who(), partitions())
            .prop_map(|(id, who, partitions)| Move::Add { id, who, partitions }),
        3 => (id(), who(), group()).prop_map(|(id, who, group)| Move::AddOffsets { id, who, group }),
        4 => (id(), who(), group(), partitions())
            .prop_map(|(id, who, group, partitions)| Move::TxnOffsets { id, who, group, partitions }),
        7 => (id(), who(), any::<bool>()).prop_map(|(id, who, commit)| Move::End { id, who, commit }),
        16 => (id(), who(), partitions(), back(), prop::bool::weighted(0.1))
            .prop_map(|(id, who, partitions, back, plain)| Move::Produce { id, who, partitions, back, plain }),
        12 => (id(), partitions()).prop_map(|(id, partitions)| Move::Write { id, partitions }),
        4 => (id(), group(), partitions())
            .prop_map(|(id, group, partitions)| Move::Process { id, group, partitions }),
        4 => (partition(), back()).prop_map(|(partition, back)| Move::Idempotent { partition, back }),
        2 => partition().prop_map(|partition| Move::NoProducer { partition }),
        1 => (partition(), 0i32..4)
            .prop_map(|(partition, sequence)| Move::NoteRefused { partition, sequence }),
        3 => (group(), partition()).prop_map(|(group, partition)| Move::OffsetCommit { group, partition }),
        2 => group().prop_map(|group| Move::OffsetFetch { group }),
        4 => prop::collection::vec(0usize..3, 1..3).prop_map(Move::Create),
        1 => prop::collection::vec(0usize..3, 1..3).prop_map(Move::Delete),
        2 => (topics(), 0i32..3).prop_map(|(topics, more)| Move::Grow { topics, more }),
        3 => (topics(), 0..CONFIGS.len()).prop_map(|(topics, config)| Move::Alter { topics, config }),
        2 => (0usize..2, 1i8..3, prop::bool::weighted(0.6))
            .prop_map(|(user, mechanism, set)| Move::Scram { user, mechanism, set }),
        6 => (partition(), -1i64..12)
            .prop_map(|(partition, tenths)| Move::DeleteRecords { partition, tenths }),
        2 => (partitions(), 0i64..12)
            .prop_map(|(partitions, tenths)| Move::Retain { partitions, tenths }),
        3 => (group(), prop::bool::weighted(0.3)).prop_map(|(group, new)| Move::Join { group, new }),
        3 => group().prop_map(|group| Move::Sync { group }),
        1 => group().prop_map(|group| Move::Heartbeat { group }),
        1 => group().prop_map(|group| Move::Leave { group }),
        3 => prop_oneof![4 => 0u64..3_000, 1 => Just(70_000u64)].prop_map(Move::Pass),
        1 => (-100_000i64..100_000).prop_map(Move::WallStep),
        1 => Just(Move::JournalEpoch),
        3 => (0usize..6).prop_map(Move::Confirm),
        2 => (1usize..8).prop_map(Move::Lose),
        1 => Just(Move::Restart),
        4 => (0usize..3, prop::bool::weighted(0.2))
            .prop_map(|(salt, metadata)| Move::Capture { salt, metadata }),
    ]
}

pub const WORTH_REACHING: &[&str] = &[
    "commit",
    "abort",
    "retried end",
    "fenced",
    "fenced with an open transaction",
    "timed out",
    "out of order",
    "duplicate",
    "sent",
    "sent in version 2",
    "not enrolled",
    "offsets in a transaction",
    "unstable offset",
    "offset fetched",
    "topic deleted",
    "records deleted",
    "records deleted under an open transaction",
    "log start out of range",
    "retained",
    "metadata cut",
    "transaction cut by a deletion",
    "transaction cut by DeleteRecords",
    "transaction above the deleted records",
    "partitions created",
    "partitions created under an open transaction",
    "transaction cut by CreatePartitions",
    "config altered",
    "cleanup.policy changed under an open transaction",
    "cleanup.policy written down",
    "transaction cut by cleanup.policy",
    "refused, its cuts fit no record",
    "credential set",
    "credential removed",
    "joined",
    "parked",
    "producers forgotten",
    "transactional id forgotten",
    "offsets expired",
    "records lost",
    "a transaction's end lost",
];
