//! One file per command: what is asked, how it is decided, what is answered.

mod acls;
mod allowance;
mod alter_configs;
mod create_partitions;
mod deadlines;
mod delete_groups;
mod delete_topics;
mod describe_transactions;
mod end_txn;
mod enrol;
mod exclusive;
mod expire;
mod groups;
mod init_producer_id;
mod inspect;
mod log_start;
mod note_refused;
mod offsets;
mod on_connection;
mod ownership;
mod produce;
mod scram;
mod snapshot_metadata;
mod sweep;
mod topics;
mod transactions;
mod txn_offset_commit;
mod write_txn_markers;

pub use allowance::{TxnLimit, TxnLimits};
pub use alter_configs::{AlterConfigs, AlterResource, Alteration, ConfigResource};
pub use create_partitions::{CreatePartitions, GrowTopic};
pub(crate) use deadlines::Deadline;
pub use delete_groups::OffsetDelete;
pub(crate) use delete_topics::Deletion;
pub use delete_topics::{DeleteTopic, DeleteTopics, DeletedTopic};
pub use describe_transactions::{
    DescribedProducer, DescribedTransaction, ListTransactions, ListedTransaction,
};
pub use end_txn::EndTxn;
pub use enrol::{AddOffsets, AddPartitions};
pub use exclusive::{ExclusiveOperation, ExclusiveOptions};
pub use init_producer_id::InitProducerId;
pub use inspect::{
    AbortTransaction, Enrolled, Inspect, Inspected, InspectedPartition, InspectedTransaction,
    OpenHere,
};
pub use log_start::{DeleteRecords, MAX_LOG_START_MOVES, MoveLogStarts};
pub use note_refused::{NoteRefused, RefusedBatch};
pub use offsets::{OffsetFetch, OffsetFetchGroup};
pub use produce::{Produce, ProduceBatch, Produced};
pub use scram::AlterScram;
pub use snapshot_metadata::{SnapshotMetadata, snapshot_room_bytes};
pub use sweep::ExpiryOptions;
pub(crate) use sweep::Sweeps;
pub use topics::{CreateTopic, CreateTopics, CreatedTopic};
pub use txn_offset_commit::TxnOffsetCommit;
pub use write_txn_markers::WriteTxnMarkers;

use tidemark_group_coordinator::{GroupReply, GroupReplyToken};

use crate::Owner;
use crate::command::{Command, Now, Reply, Step, Token};
use crate::draft::Draft;

impl Owner {
    /// Decides `command` and applies what follows. The reply for `token` is in the step, or comes
    /// with a later one (JoinGroup and SyncGroup wait for others).
    pub fn step(&mut self, token: Token, command: Command, now: &mut Now<'_>) -> Step {
        let mut step = Step::default();
        let reply = match command {
            Command::On {
                connection,
                principal,
                command,
            } => return self.step_on(token, connection, &principal, *command, now),
            Command::Produce(request) => Reply::Produce(self.produce(request, now, &mut step)),
            Command::NoteRefused(request) => {
                self.note_refused(&request);
                Reply::NoteRefused
            }
            Command::InitProducerId(request) => {
                Reply::InitProducerId(self.init_producer_id(request, now, &mut step))
            }
            Command::AddPartitions(request) => {
                Reply::AddPartitions(self.add_partitions(request, now, &mut step))
            }
            Command::AddOffsets(request) => {
                Reply::AddOffsets(self.add_offsets(request, now, &mut step))
            }
            Command::TxnOffsetCommit(request) => {
                Reply::TxnOffsetCommit(self.txn_offset_commit(request, now, &mut step))
            }
            Command::EndTxn(request) => Reply::EndTxn(self.end_txn(request, now, &mut step)),
            Command::CreateTopics(request) => {
                Reply::CreateTopics(self.create_topics(request, now, &mut step))
            }
            Command::CreatePartitions(request) => {
                Reply::CreatePartitions(self.create_partitions(request, now, &mut step))
            }
            Command::AlterConfigs(request) => {
                Reply::AlterConfigs(self.alter_configs(request, now, &mut step))
            }
            Command::AlterScram(request) => {
                Reply::AlterScram(self.alter_scram(&request, now, &mut step))
            }
            Command::CreateAcls(acls) => Reply::CreateAcls(self.create_acls(&acls, now, &mut step)),
            Command::DeleteAcls(filters) => {
                Reply::DeleteAcls(self.delete_acls(&filters, now, &mut step))
            }
            Command::DeleteTopics(request) => {
                self.delete_topics(token, request, now, &mut step);
                return step;
            }
            Command::DeleteRecords(request) => {
                Reply::DeleteRecords(self.delete_records(&request, now, &mut step))
            }
            Command::MoveLogStarts(request) => {
                self.move_log_starts(&request, now, &mut step);
                return step;
            }
            Command::SnapshotMetadata(request) => {
                self.snapshot_metadata(&request, now, &mut step);
                return step;
            }
            Command::OffsetCommit(request) => {
                Reply::OffsetCommit(self.offset_commit(request, now, &mut step))
            }
            Command::OffsetFetch(request) => Reply::OffsetFetch(self.offset_fetch(&request)),
            Command::ListGroups => Reply::ListGroups(self.groups.list()),
            Command::DescribeGroups(ids) => {
                Reply::DescribeGroups(ids.iter().map(|id| self.groups.describe(id)).collect())
            }
            Command::DeleteGroups(ids) => {
                Reply::DeleteGroups(self.delete_groups(&ids, now, &mut step))
            }
            Command::ListTransactions(request) => {
                Reply::ListTransactions(self.list_transactions(&request, now.wall_ms))
            }
            Command::DescribeTransactions(ids) => {
                Reply::DescribeTransactions(self.describe_transactions(&ids))
            }
            Command::DescribeProducers(partitions) => {
                Reply::DescribeProducers(self.describe_producers(&partitions))
            }
            Command::WriteTxnMarkers(request) => {
                Reply::WriteTxnMarkers(self.write_txn_markers(&request, now, &mut step))
            }
            Command::Inspect(what) => Reply::Inspect(self.inspect(&what, now)),
            Command::AbortTransaction(request) => {
                Reply::AbortTransaction(self.abort_transaction(&request, now, &mut step))
            }
            Command::OffsetDelete(request) => {
                Reply::OffsetDelete(self.offset_delete(request, now, &mut step))
            }
            Command::Join(request) => {
                let effects = self.with_group_clock(now, |groups, clock| {
                    groups.join(GroupReplyToken(token.0), request, clock)
                });
                self.carry_out(effects, now, &mut step);
                return step;
            }
            Command::Sync(request) => {
                let token = GroupReplyToken(token.0);
                let effects = self.groups.sync(token, request, now.mono, now.wall_ms);
                self.carry_out(effects, now, &mut step);
                return step;
            }
            Command::Heartbeat(request) => {
                let token = GroupReplyToken(token.0);
                let effects = self.groups.heartbeat(token, request, now.mono, now.wall_ms);
                self.carry_out(effects, now, &mut step);
                return step;
            }
            Command::Leave(request) => {
                let token = GroupReplyToken(token.0);
                let effects = self.groups.leave(token, request, now.mono, now.wall_ms);
                self.carry_out(effects, now, &mut step);
                return step;
            }
            Command::Settle => Reply::Settle,
            Command::Expire => {
                self.expire(now, &mut step);
                return step;
            }
            Command::Sweep => {
                self.sweep(now, &mut step);
                return step;
            }
        };
        step.replies.push((token, reply));
        step
    }

    /// Seals a draft into the step.
    pub(crate) fn finish(&mut self, draft: Draft, step: &mut Step) {
        let (record, observations) = self.seal(draft);
        assert!(
            record.is_none() || step.record.is_none(),
            "a step writes at most one record (I7)"
        );
        if record.is_some() {
            step.record = record;
        }
        step.observations.extend(observations);
    }
}

fn group_reply(reply: GroupReply) -> Reply {
    match reply {
        GroupReply::Join(reply) => Reply::Join(reply),
        GroupReply::Sync(reply) => Reply::Sync(reply),
        GroupReply::Heartbeat(error) => Reply::Heartbeat(error),
        GroupReply::Leave(reply) => Reply::Leave(reply),
    }
}
