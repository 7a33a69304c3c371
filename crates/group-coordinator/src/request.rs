use bytes::Bytes;

/// JoinGroup, without its version: what depends on it is a flag here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRequest {
    pub group_id: String,
    /// Empty: the member asks for an id.
    pub member_id: String,
    /// `group.instance.id` of a static member (KIP-345).
    pub group_instance_id: Option<String>,
    pub client_id: String,
    /// As Kafka shows it: `/127.0.0.1`.
    pub client_host: String,
    pub session_timeout_ms: i32,
    /// Negative (JoinGroup v0 has none): the session timeout.
    pub rebalance_timeout_ms: i32,
    /// `consumer` for consumers, `connect` for Kafka Connect, ...
    pub protocol_type: String,
    /// Name and metadata, the member's preference first.
    pub protocols: Vec<(String, Bytes)>,
    /// JoinGroup v4 and later: a dynamic member must come back with the id it is given (KIP-394).
    pub require_known_member_id: bool,
    /// JoinGroup v9 and later: a static leader that came back is told to skip the assignment.
    pub supports_skip_assignment: bool,
    /// Why the client joins, for people (KIP-800).
    pub reason: Option<String>,
}

/// SyncGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncRequest {
    pub group_id: String,
    pub generation_id: i32,
    pub member_id: String,
    pub group_instance_id: Option<String>,
    /// SyncGroup v5 and later.
    pub protocol_type: Option<String>,
    /// SyncGroup v5 and later.
    pub protocol_name: Option<String>,
    /// Member id and assignment; of interest from the leader only.
    pub assignments: Vec<(String, Bytes)>,
}

/// Heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatRequest {
    pub group_id: String,
    pub generation_id: i32,
    pub member_id: String,
    pub group_instance_id: Option<String>,
}

/// LeaveGroup; before v3 with the one member of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaveRequest {
    pub group_id: String,
    pub members: Vec<LeaveMember>,
}

/// One member that leaves, or that an administrator removes by its instance id alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaveMember {
    /// Empty when a static member is removed by its instance id.
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub reason: Option<String>,
}

/// OffsetCommit. The owner has answered the partitions of topics that do not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommitRequest {
    pub group_id: String,
    /// -1 with an empty member id: a simple consumer or an administrator.
    pub generation_id: i32,
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub offsets: Vec<OffsetToCommit>,
    /// How long the offsets are to be kept (OffsetCommit v2 to v4); -1: as the broker keeps them.
    pub retention_time_ms: i64,
    /// OffsetCommit v9 and later: a missing group is GROUP_ID_NOT_FOUND, before ILLEGAL_GENERATION.
    pub reports_missing_group: bool,
}

/// TxnOffsetCommit, without the producer: the owner checks the transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnOffsetCommitRequest {
    pub group_id: String,
    /// -1 (TxnOffsetCommit before v3 has none): only with an empty member id.
    pub generation_id: i32,
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub offsets: Vec<OffsetToCommit>,
}

/// One offset of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetToCommit {
    pub topic: String,
    pub partition: i32,
    /// The next offset to read.
    pub offset: i64,
    /// Epoch of the last record read, -1 for none.
    pub leader_epoch: i32,
    pub metadata: Option<String>,
}
