//! OffsetCommit and TxnOffsetCommit.

use tidemark_types::{ErrorCode, MonoTime};

use crate::group::GroupState;
use crate::groups::{Groups, MAX_STRING_BYTES};
use crate::record::{GroupRecord, OffsetAndMetadata, OffsetKey};
use crate::request::{OffsetCommitRequest, OffsetToCommit, TxnOffsetCommitRequest};

/// What a commit is answered and what it appends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommitDecision {
    /// One for every offset of the request, in its order.
    pub results: Vec<OffsetResult>,
    /// For one batch of the group's partition of `__consumer_offsets`; empty when every partition
    /// is refused. In a transaction the batch is transactional.
    pub records: Vec<GroupRecord>,
}

/// The answer for one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetResult {
    pub topic: String,
    pub partition: i32,
    pub error: ErrorCode,
}

/// Who commits: as the request says it.
struct Committer<'a> {
    member_id: &'a str,
    generation_id: i32,
    group_instance_id: Option<&'a str>,
}

impl Groups {
    /// Decides an OffsetCommit. A member that commits has also shown that it lives, unless the
    /// group waits for its assignment.
    ///
    /// Errors, for every partition: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
    /// ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, GROUP_ID_NOT_FOUND, INVALID_COMMIT_OFFSET_SIZE;
    /// for one: OFFSET_METADATA_TOO_LARGE, INVALID_TOPIC_EXCEPTION.
    pub fn decide_offset_commit(
        &mut self,
        request: OffsetCommitRequest,
        now: MonoTime,
        wall_ms: i64,
    ) -> OffsetCommitDecision {
        let committer = Committer {
            member_id: &request.member_id,
            generation_id: request.generation_id,
            group_instance_id: request.group_instance_id.as_deref(),
        };
        let error = self.check_offset_commit(&request, &committer);
        if error.is_err() {
            return refuse_all(request.offsets, error);
        }
        if let Some(group) = self.live.get(&request.group_id)
            && matches!(
                group.state,
                GroupState::Stable | GroupState::PreparingRebalance
            )
        {
            let mut step = self.step(&request.group_id, now, wall_ms);
            step.restart_session(&request.member_id);
        }
        let expires = match request.retention_time_ms {
            0.. => wall_ms.saturating_add(request.retention_time_ms),
            _ => -1,
        };
        self.commit(&request.group_id, request.offsets, wall_ms, expires)
    }

    /// Decides a TxnOffsetCommit. Its records go into a transactional batch of the producer, and
    /// the offsets count when that transaction commits. A rebalance is no obstacle (KIP-447): what
    /// fences a former owner of the partitions is its generation.
    ///
    /// Errors, for every partition: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
    /// ILLEGAL_GENERATION, INVALID_COMMIT_OFFSET_SIZE; for one: OFFSET_METADATA_TOO_LARGE,
    /// INVALID_TOPIC_EXCEPTION.
    pub fn decide_txn_offset_commit(
        &self,
        request: TxnOffsetCommitRequest,
        wall_ms: i64,
    ) -> OffsetCommitDecision {
        let error = self.check_txn_offset_commit(&request);
        if error.is_err() {
            return refuse_all(request.offsets, error);
        }
        self.commit(&request.group_id, request.offsets, wall_ms, -1)
    }

    fn check_offset_commit(
        &self,
        request: &OffsetCommitRequest,
        committer: &Committer<'_>,
    ) -> ErrorCode {
        // An empty group id is legal here, unlike for members: Kafka keeps it for old consumers.
        if request.group_id.len() > MAX_STRING_BYTES {
            return ErrorCode::InvalidGroupId;
        }
        let state = self.state_of(&request.group_id);
        match state {
            GroupState::Dead if committer.generation_id >= 0 => {
                return if request.reports_missing_group {
                    ErrorCode::GroupIdNotFound
                } else {
                    ErrorCode::IllegalGeneration
                };
            }
            // A simple consumer, which assigns itself, or an administrator.
            GroupState::Dead | GroupState::Empty if committer.generation_id < 0 => {
                return ErrorCode::None;
            }
            _ => {}
        }
        let error = self.check_member(&request.group_id, committer);
        if error.is_err() {
            return error;
        }
        if committer.is_anonymous() {
            // Nobody may move the offsets of partitions that members own.
            return ErrorCode::UnknownMemberId;
        }
        if state == GroupState::CompletingRebalance {
            // The member has the generation but not yet its partitions.
            return ErrorCode::RebalanceInProgress;
        }
        ErrorCode::None
    }

    fn check_txn_offset_commit(&self, request: &TxnOffsetCommitRequest) -> ErrorCode {
        if request.group_id.is_empty() || request.group_id.len() > MAX_STRING_BYTES {
            return ErrorCode::InvalidGroupId;
        }
        let committer = Committer {
            member_id: &request.member_id,
            generation_id: request.generation_id,
            group_instance_id: request.group_instance_id.as_deref(),
        };
        match self.state_of(&request.group_id) {
            GroupState::Dead if committer.generation_id >= 0 => ErrorCode::IllegalGeneration,
            GroupState::Dead | GroupState::Empty if committer.generation_id < 0 => ErrorCode::None,
            _ => self.check_member(&request.group_id, &committer),
        }
    }

    /// Nothing is checked of a committer that says nothing of itself.
    fn check_member(&self, group_id: &str, committer: &Committer<'_>) -> ErrorCode {
        if committer.is_anonymous() {
            return ErrorCode::None;
        }
        let Some(group) = self.live.get(group_id) else {
            // An empty group has no members, whatever its last generation was.
            return ErrorCode::UnknownMemberId;
        };
        let error = group.validate_member(committer.member_id, committer.group_instance_id);
        if error.is_err() {
            error
        } else if committer.generation_id != group.generation_id {
            ErrorCode::IllegalGeneration
        } else {
            ErrorCode::None
        }
    }

    fn commit(
        &self,
        group_id: &str,
        offsets: Vec<OffsetToCommit>,
        wall_ms: i64,
        expire_timestamp_ms: i64,
    ) -> OffsetCommitDecision {
        let mut results = Vec::new();
        let mut records = Vec::new();
        for offset in offsets {
            let metadata = offset.metadata.unwrap_or_default();
            let error = if self.metadata_is_too_large(&metadata) {
                ErrorCode::OffsetMetadataTooLarge
            } else if offset.topic.len() > MAX_STRING_BYTES {
                ErrorCode::InvalidTopicException
            } else {
                ErrorCode::None
            };
            results.push(OffsetResult {
                topic: offset.topic.clone(),
                partition: offset.partition,
                error,
            });
            if error.is_err() {
                continue;
            }
            records.push(GroupRecord::Offset {
                key: OffsetKey {
                    group_id: group_id.to_owned(),
                    topic: offset.topic,
                    partition: offset.partition,
                },
                value: Some(OffsetAndMetadata {
                    offset: offset.offset,
                    leader_epoch: offset.leader_epoch,
                    metadata,
                    commit_timestamp_ms: wall_ms,
                    expire_timestamp_ms,
                }),
            });
        }
        let size_bytes: usize = records.iter().map(GroupRecord::size_bytes).sum();
        if size_bytes > self.config.max_batch_bytes {
            records.clear();
            for result in &mut results {
                result.error = ErrorCode::InvalidCommitOffsetSize;
            }
        }
        OffsetCommitDecision { results, records }
    }

    /// The setting counts UTF-16 code units, as Java's strings do.
    fn metadata_is_too_large(&self, metadata: &str) -> bool {
        let max = self.config.offset_metadata_max_bytes;
        metadata.len() > MAX_STRING_BYTES
            || (metadata.len() > max && metadata.encode_utf16().count() > max)
    }
}

impl Committer<'_> {
    fn is_anonymous(&self) -> bool {
        self.generation_id < 0 && self.member_id.is_empty() && self.group_instance_id.is_none()
    }
}

fn refuse_all(offsets: Vec<OffsetToCommit>, error: ErrorCode) -> OffsetCommitDecision {
    let refuse = |offset: OffsetToCommit| OffsetResult {
        topic: offset.topic,
        partition: offset.partition,
        error,
    };
    OffsetCommitDecision {
        results: offsets.into_iter().map(refuse).collect(),
        records: Vec::new(),
    }
}
