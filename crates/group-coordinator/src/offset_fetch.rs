//! OffsetFetch.

use tidemark_types::ErrorCode;

use crate::durable::CommittedOffset;
use crate::groups::Groups;

/// The answer for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedOffset {
    pub topic: String,
    pub partition: i32,
    /// -1: nothing is committed, or an error.
    pub offset: i64,
    /// -1: none.
    pub leader_epoch: i32,
    pub metadata: String,
    /// UNSTABLE_OFFSET_COMMIT, or none.
    pub error: ErrorCode,
}

impl Groups {
    /// The committed offsets of a group: of the partitions asked for, in their order, or, with
    /// `None`, of all that have one, ordered by topic and partition. An unknown group has none.
    ///
    /// With `require_stable` (KIP-447) a partition with an offset that waits for the end of its
    /// transaction answers UNSTABLE_OFFSET_COMMIT, which clients retry; the others are not held up.
    pub fn offset_fetch(
        &self,
        group_id: &str,
        partitions: Option<&[(String, Vec<i32>)]>,
        require_stable: bool,
    ) -> Vec<FetchedOffset> {
        let state = self.durable_partition(group_id);
        let group = self.durable_group(group_id);
        let fetch = |topic: &str, partition: i32| {
            let is_unstable =
                require_stable && state.is_some_and(|s| s.has_pending(group_id, topic, partition));
            if is_unstable {
                return FetchedOffset::none(topic, partition, ErrorCode::UnstableOffsetCommit);
            }
            match group.and_then(|g| g.offset(topic, partition)) {
                Some(committed) => FetchedOffset::of(topic, partition, committed),
                None => FetchedOffset::none(topic, partition, ErrorCode::None),
            }
        };
        match partitions {
            Some(topics) => topics
                .iter()
                .flat_map(|(topic, partitions)| partitions.iter().map(move |p| (topic, *p)))
                .map(|(topic, partition)| fetch(topic, partition))
                .collect(),
            None => group
                .into_iter()
                .flat_map(|g| &g.offsets)
                .flat_map(|(topic, partitions)| partitions.keys().map(move |p| (topic, *p)))
                .map(|(topic, partition)| fetch(topic, partition))
                .collect(),
        }
    }

    /// One committed offset, and where its record stands.
    pub fn committed_offset(
        &self,
        group_id: &str,
        topic: &str,
        partition: i32,
    ) -> Option<&CommittedOffset> {
        self.durable_group(group_id)?.offset(topic, partition)
    }
}

impl FetchedOffset {
    fn of(topic: &str, partition: i32, committed: &CommittedOffset) -> FetchedOffset {
        FetchedOffset {
            topic: topic.to_owned(),
            partition,
            offset: committed.value.offset,
            leader_epoch: committed.value.leader_epoch,
            metadata: committed.value.metadata.clone(),
            error: ErrorCode::None,
        }
    }

    fn none(topic: &str, partition: i32, error: ErrorCode) -> FetchedOffset {
        FetchedOffset {
            topic: topic.to_owned(),
            partition,
            offset: -1,
            leader_epoch: -1,
            metadata: String::new(),
            error,
        }
    }
}
