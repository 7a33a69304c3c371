//! OffsetCommit and OffsetFetch: a group's offsets outside transactions, and reading them back.

use bytes::BytesMut;
use tidemark_group_coordinator::{FetchedOffset, Groups, OffsetCommitRequest};
use tidemark_record_batch::BatchBuilder;
use tidemark_types::{ErrorCode, TopicPartitionId};

use crate::Owner;
use crate::command::{Now, Step};
use crate::record::APPEND_HEAD_BYTES;

/// The group to read, and what of it.
#[derive(Clone, Debug)]
pub struct OffsetFetch {
    pub groups: Vec<OffsetFetchGroup>,
    /// Pending offsets of open transactions are UNSTABLE_OFFSET_COMMIT instead of the last
    /// committed value (KIP-447).
    pub require_stable: bool,
}

#[derive(Clone, Debug)]
pub struct OffsetFetchGroup {
    pub group_id: String,
    /// `None`: every partition the group has an offset for.
    pub partitions: Option<Vec<(String, Vec<i32>)>>,
}

impl Owner {
    /// One code per offset of the request, in its order.
    pub(crate) fn offset_commit(
        &mut self,
        mut request: OffsetCommitRequest,
        now: &Now<'_>,
        step: &mut Step,
    ) -> Vec<ErrorCode> {
        let known = self.known(request.offsets.iter().map(|o| (&*o.topic, o.partition)));
        keep(&mut request.offsets, &known);
        let partition = Groups::partition_of(&request.group_id);
        let decided = self
            .groups
            .decide_offset_commit(request, now.mono, now.wall_ms);
        if !decided.records.is_empty() {
            let mut batch = BatchBuilder::new(now.wall_ms);
            for record in &decided.records {
                batch.push(Some(&record.encode_key()), record.encode_value().as_deref());
            }
            let batch = batch.build();
            let mut draft = self.begin(now);
            if draft.bytes + APPEND_HEAD_BYTES + batch.len() > self.max_record_bytes {
                return vec![ErrorCode::InvalidCommitOffsetSize; known.len()];
            }
            self.append(
                &mut draft,
                TopicPartitionId::consumer_offsets(partition),
                BytesMut::from(&batch[..]),
            );
            self.finish(draft, step);
        }
        spread(&known, decided.results.into_iter().map(|r| r.error))
    }

    pub(crate) fn offset_fetch(&self, request: &OffsetFetch) -> Vec<Vec<FetchedOffset>> {
        request
            .groups
            .iter()
            .map(|group| {
                self.groups.offset_fetch(
                    &group.group_id,
                    group.partitions.as_deref(),
                    request.require_stable,
                )
            })
            .collect()
    }

    /// Which of these partitions exist.
    pub(crate) fn known<'a>(&self, partitions: impl Iterator<Item = (&'a str, i32)>) -> Vec<bool> {
        partitions
            .map(|(topic, partition)| self.metadata.partition(topic, partition).is_some())
            .collect()
    }
}

/// Keeps the items whose flag is set.
pub(crate) fn keep<T>(items: &mut Vec<T>, flags: &[bool]) {
    let mut flags = flags.iter();
    items.retain(|_| *flags.next().expect("one flag per item"));
}

/// The codes of the known partitions and UNKNOWN_TOPIC_OR_PARTITION for the others, in the order of
/// the request.
pub(crate) fn spread(known: &[bool], mut codes: impl Iterator<Item = ErrorCode>) -> Vec<ErrorCode> {
    known
        .iter()
        .map(|known| match known {
            true => codes.next().expect("one code per known partition"),
            false => ErrorCode::UnknownTopicOrPartition,
        })
        .collect()
}
