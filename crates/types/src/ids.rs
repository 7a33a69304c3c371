use std::fmt;

macro_rules! int_id {
    ($(#[$doc:meta])* $name:ident, $int:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

int_id!(
    /// A producer id. `-1` on the wire means "none"; ids are handed out once and never again.
    ProducerId,
    i64
);
int_id!(
    /// A producer epoch: rises with every new session, every fence and (version 2) every end.
    ProducerEpoch,
    i16
);
int_id!(
    /// A partition's leader epoch: its own base plus the journal's epoch; never falls.
    LeaderEpoch,
    i32
);
int_id!(
    /// The leader epoch of the `__transaction_state` partition that decided a marker.
    CoordinatorEpoch,
    i32
);
int_id!(
    /// A broker's id, unique in its cluster.
    NodeId,
    i32
);
int_id!(
    /// Position of a record in a journal: 1 for the first, +1 for each, for ever.
    JournalIndex,
    u64
);

impl ProducerId {
    /// "No producer id" on the wire.
    pub const NONE: ProducerId = ProducerId(-1);

    pub fn is_some(self) -> bool {
        self.0 >= 0
    }
}

impl ProducerEpoch {
    /// "No producer epoch" on the wire.
    pub const NONE: ProducerEpoch = ProducerEpoch(-1);
    /// The last epoch a marker may carry; a session never runs at it (KIP-98, KIP-890).
    pub const MAX: ProducerEpoch = ProducerEpoch(i16::MAX);

    /// True when no further session can be given under this producer id: bumping this epoch would
    /// leave none for the fence itself.
    pub fn is_exhausted(self) -> bool {
        self.0 >= i16::MAX - 1
    }

    /// The next epoch. The caller has checked `is_exhausted` or writes the last marker.
    pub fn next(self) -> ProducerEpoch {
        assert!(self.0 < i16::MAX, "producer epoch {self} cannot be bumped");
        ProducerEpoch(self.0 + 1)
    }
}

impl LeaderEpoch {
    /// "No leader epoch" on the wire.
    pub const NONE: LeaderEpoch = LeaderEpoch(-1);
}

impl JournalIndex {
    pub fn next(self) -> JournalIndex {
        JournalIndex(self.0 + 1)
    }
}

/// A topic's id (KIP-516): 16 bytes, new for every creation of a topic, also of the same name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// "No topic id" on the wire.
    pub const ZERO: TopicId = TopicId([0; 16]);
    /// `__cluster_metadata`, as in Kafka.
    pub const CLUSTER_METADATA: TopicId = TopicId::reserved(1);
    /// `__consumer_offsets`: fixed, so that a record can name it before any topic exists.
    pub const CONSUMER_OFFSETS: TopicId = TopicId::reserved(2);
    /// `__transaction_state`: fixed, like `__consumer_offsets`.
    pub const TRANSACTION_STATE: TopicId = TopicId::reserved(3);

    const fn reserved(n: u8) -> TopicId {
        let mut bytes = [0; 16];
        bytes[15] = n;
        TopicId(bytes)
    }

    /// True for the ids that are never given to a user's topic.
    pub fn is_reserved(self) -> bool {
        self.0[..15] == [0; 15]
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One partition of one creation of a topic. The order (topic id, partition) is the canonical
/// order of the appends of a record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicPartitionId {
    pub topic: TopicId,
    pub partition: i32,
}

impl TopicPartitionId {
    pub fn new(topic: TopicId, partition: i32) -> TopicPartitionId {
        TopicPartitionId { topic, partition }
    }

    /// The one partition of `__cluster_metadata`.
    pub const METADATA: TopicPartitionId = TopicPartitionId {
        topic: TopicId::CLUSTER_METADATA,
        partition: 0,
    };

    pub fn consumer_offsets(partition: i32) -> TopicPartitionId {
        TopicPartitionId::new(TopicId::CONSUMER_OFFSETS, partition)
    }

    pub fn transaction_state(partition: i32) -> TopicPartitionId {
        TopicPartitionId::new(TopicId::TRANSACTION_STATE, partition)
    }
}

impl fmt::Display for TopicPartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}
