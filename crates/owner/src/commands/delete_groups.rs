//! DeleteGroups and OffsetDelete: what a group has committed is taken back.

use bytes::BytesMut;
use tidemark_group_coordinator::{GroupRecord, Groups};
use tidemark_record_batch::{BatchBuilder, HEADER_BYTES};
use tidemark_types::{ErrorCode, TopicPartitionId};

use crate::Owner;
use crate::command::{Now, Step};
use crate::draft::Draft;
use crate::record::APPEND_HEAD_BYTES;

use super::offsets::{keep, spread};

/// A record's own head in a batch is below this.
const RECORD_HEAD_BYTES: usize = 64;

/// Offsets of one group to delete.
#[derive(Clone, Debug)]
pub struct OffsetDelete {
    pub group_id: String,
    pub partitions: Vec<(String, i32)>,
}

impl Owner {
    /// One code per group, in the order of the request. A group that is named twice is gone the
    /// second time.
    ///
    /// A group whose tombstones do not fit the record, alone or after the others, loses as many of
    /// its offsets as fit and is answered COORDINATOR_LOAD_IN_PROGRESS: the client asks again, and
    /// finds less to delete.
    pub(crate) fn delete_groups(
        &mut self,
        group_ids: &[String],
        now: &Now<'_>,
        step: &mut Step,
    ) -> Vec<ErrorCode> {
        let mut draft = self.begin(now);
        let codes = group_ids
            .iter()
            .map(|group_id| match self.groups.decide_delete(group_id) {
                Err(code) => code,
                Ok(records) => {
                    let fits = self.append_tombstones(&mut draft, group_id, &records);
                    match fits == records.len() {
                        true => ErrorCode::None,
                        false => ErrorCode::CoordinatorLoadInProgress,
                    }
                }
            })
            .collect();
        self.finish(draft, step);
        codes
    }

    /// One code per partition, in the order of the request.
    pub(crate) fn offset_delete(
        &mut self,
        mut request: OffsetDelete,
        now: &Now<'_>,
        step: &mut Step,
    ) -> Result<Vec<ErrorCode>, ErrorCode> {
        let partitions = &request.partitions;
        let known = self.known(partitions.iter().map(|(topic, p)| (topic.as_str(), *p)));
        keep(&mut request.partitions, &known);
        let group_id = &request.group_id;
        let (codes, records) = self
            .groups
            .decide_delete_offsets(group_id, &request.partitions)?;
        let mut draft = self.begin(now);
        let fits = self.append_tombstones(&mut draft, group_id, &records);
        self.finish(draft, step);
        match fits == records.len() {
            true => Ok(spread(&known, codes.into_iter())),
            false => Err(ErrorCode::CoordinatorLoadInProgress),
        }
    }

    /// Appends as many of a group's tombstones as the record has room for, the first ones, as one
    /// batch. Returns how many that are. Where not all fit, the last offset is left as well: whoever
    /// asks again finds the group.
    fn append_tombstones(
        &mut self,
        draft: &mut Draft,
        group_id: &str,
        records: &[GroupRecord],
    ) -> usize {
        let id = TopicPartitionId::consumer_offsets(Groups::partition_of(group_id));
        let keys: Vec<_> = records.iter().map(GroupRecord::encode_key).collect();
        let mut room = self
            .max_record_bytes
            .saturating_sub(draft.bytes + APPEND_HEAD_BYTES + HEADER_BYTES);
        let fit = keys.iter().take_while(|key| {
            let bytes = key.len() + RECORD_HEAD_BYTES;
            let fits = bytes <= room;
            room = room.saturating_sub(bytes);
            fits
        });
        let fits = match fit.count() {
            all if all == records.len() => all,
            some => some.min(records.len().saturating_sub(2)),
        };
        if fits > 0 {
            let mut batch = BatchBuilder::new(draft.wall_ms);
            for key in &keys[..fits] {
                batch.push(Some(key), None);
            }
            self.append(draft, id, BytesMut::from(&batch.build()[..]));
        }
        fits
    }
}
