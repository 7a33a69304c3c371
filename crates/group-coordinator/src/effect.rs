use bytes::Bytes;
use tidemark_types::ErrorCode;

use crate::record::GroupRecord;

/// Names a request that waits for its answer. The owner gives a new one to every request; it is
/// answered exactly once, perhaps after other requests or a timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupReplyToken(pub u64);

/// What follows from a request or a timer, to be carried out in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Append these records as one batch to a partition of `__consumer_offsets` and apply them,
    /// before the next call.
    Append {
        /// Partition of `__consumer_offsets`.
        partition: i32,
        group_id: String,
        records: Vec<GroupRecord>,
    },
    /// Answer a request, once every append so far is durable.
    Reply(GroupReplyToken, GroupReply),
}

/// An answer, by the API it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupReply {
    Join(JoinReply),
    Sync(SyncReply),
    Heartbeat(ErrorCode),
    Leave(LeaveReply),
}

/// JoinGroup's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinReply {
    pub error: ErrorCode,
    /// -1 with an error.
    pub generation_id: i32,
    pub protocol_type: Option<String>,
    /// JoinGroup before v7 says `None` as an empty string.
    pub protocol_name: Option<String>,
    /// Member id of the leader; empty with an error.
    pub leader: String,
    /// The leader keeps the assignment there is (KIP-814).
    pub skip_assignment: bool,
    pub member_id: String,
    /// Every member, for the leader only.
    pub members: Vec<JoinReplyMember>,
}

/// A member as the leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinReplyMember {
    pub member_id: String,
    pub group_instance_id: Option<String>,
    /// The member's metadata for the protocol that was chosen.
    pub metadata: Bytes,
}

impl JoinReply {
    pub(crate) fn error(member_id: &str, error: ErrorCode) -> JoinReply {
        JoinReply {
            error,
            generation_id: -1,
            protocol_type: None,
            protocol_name: None,
            leader: String::new(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members: Vec::new(),
        }
    }
}

/// SyncGroup's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncReply {
    pub error: ErrorCode,
    pub protocol_type: Option<String>,
    pub protocol_name: Option<String>,
    pub assignment: Bytes,
}

impl SyncReply {
    pub(crate) fn error(error: ErrorCode) -> SyncReply {
        SyncReply {
            error,
            protocol_type: None,
            protocol_name: None,
            assignment: Bytes::new(),
        }
    }
}

/// LeaveGroup's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaveReply {
    /// An error of the request as a whole.
    pub error: ErrorCode,
    pub members: Vec<LeaveReplyMember>,
}

/// What became of one member that was to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaveReplyMember {
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub error: ErrorCode,
}

impl LeaveReply {
    /// The one error code that LeaveGroup before v3 has room for.
    pub fn single_error(&self) -> ErrorCode {
        match (self.error, self.members.as_slice()) {
            (ErrorCode::None, [member]) => member.error,
            (error, _) => error,
        }
    }
}
