//! Consumer groups and their offsets as a pure state machine.
//!
//! Kafka's classic groups (JoinGroup, SyncGroup, Heartbeat, LeaveGroup, static membership of
//! KIP-345, member ids of KIP-394) and the offsets that groups commit, plain and inside
//! transactions (KIP-98, KIP-447).
//!
//! Two kinds of state live in [`Groups`]:
//!
//! - **Durable**: stored group metadata, committed offsets, pending transactional offsets. Changed
//!   only by [`Groups::apply`] and [`Groups::apply_marker`], from records of `__consumer_offsets`
//!   in Kafka's own formats. Replay is the same apply.
//! - **Soft**: members that are joining, parked requests, timers. Lost at a restart;
//!   [`Groups::restore_after_replay`] gives the members of every stored generation a fresh session.
//!
//! A request is *decided* here (`join`, `sync`, `decide_offset_commit`, ...) and answers with
//! [`Effect`]s or records. The owner applies the records at once, before the next call, and
//! releases the replies when they are durable.
//!
//! Pure: no clock, file, socket or randomness; time and the random part of member ids are
//! arguments. Not here: consumer groups of KIP-848.

mod admin;
mod codec;
mod config;
mod durable;
mod effect;
mod expire;
mod expire_offsets;
mod group;
mod groups;
mod heartbeat;
mod invariants;
mod join;
mod leave;
mod offset_commit;
mod offset_fetch;
mod rebalance;
mod record;
mod request;
mod subscription;
mod sync;
mod timers;
mod undo;

pub use admin::{DescribedGroup, DescribedMember, ListedGroup};
pub use config::GroupConfig;
pub use durable::CommittedOffset;
pub use effect::{
    Effect, GroupReply, GroupReplyToken, JoinReply, JoinReplyMember, LeaveReply, LeaveReplyMember,
    SyncReply,
};
pub use expire_offsets::{ExpiredOffsets, OffsetsCursor};
pub use group::GroupState;
pub use groups::{Ctx, Groups};
pub use offset_commit::{OffsetCommitDecision, OffsetResult};
pub use offset_fetch::FetchedOffset;
pub use record::{
    DecodeError, GroupMetadata, GroupRecord, OffsetAndMetadata, OffsetKey, StoredMember,
};
pub use request::{
    HeartbeatRequest, JoinRequest, LeaveMember, LeaveRequest, OffsetCommitRequest, OffsetToCommit,
    SyncRequest, TxnOffsetCommitRequest,
};
pub use undo::GroupUndo;
