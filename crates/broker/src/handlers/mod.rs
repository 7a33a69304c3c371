//! One API, one file. A handler decodes into plain data, routes, calls and answers; what it may
//! answer and when is decided elsewhere (owner, barrier, published tick).

mod acl_words;
mod add_offsets_to_txn;
mod add_partitions_to_txn;
mod alter_client_quotas;
mod alter_configs;
mod alter_user_scram_credentials;
pub(crate) mod api_versions;
mod authorized_operations;
mod config_resources;
mod create_acls;
mod create_partitions;
mod create_topics;
mod delete_acls;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_acls;
mod describe_client_quotas;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_producers;
mod describe_transactions;
mod describe_user_scram_credentials;
mod end_txn;
mod fetch;
mod find_coordinator;
mod heartbeat;
mod incremental_alter_configs;
mod init_producer_id;
mod join_group;
mod leave_group;
mod list_groups;
mod list_offsets;
mod list_transactions;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
mod produce;
mod sync_group;
mod txn_offset_commit;
mod write_txn_markers;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::RequestKind;
use kafka_protocol::protocol::{Encodable, StrBytes};
use tidemark_owner::{Command, Reply, RequestContext};
use tidemark_types::TopicId;
use tidemark_wire::{ApiKey, RequestHeader, WireError, decode_body, encode_response};
use tracing::error;

use crate::admission::Wants;
use crate::audit::Changes;
use crate::connection::ConnectionInfo;
use crate::limits::Limit;
use crate::memory::Held;
use crate::shared::{ADMISSION_PATIENCE, Shared};

/// What is sent for a request.
pub(crate) enum Outcome {
    /// A whole response frame, in pieces.
    Answer(Vec<Bytes>),
    /// The same, with the memory that it counts for until it is written.
    Budgeted(Vec<Bytes>, Held),
    /// The last response of a connection, which is closed once it is written; none if it is empty.
    Last(Vec<Bytes>),
    /// No response (acks=0).
    Nothing,
    /// Close the connection: the answer the protocol has for what it cannot answer.
    Close,
}

/// A request that was started: its command, if it has one, is in the owner's queue.
pub(crate) enum Pending {
    Ready(Outcome),
    Later(Pin<Box<dyn Future<Output = Outcome> + Send>>),
}

impl Pending {
    pub(crate) fn later(future: impl Future<Output = Outcome> + Send + 'static) -> Pending {
        Pending::Later(Box::pin(future))
    }
}

/// A request and where it came from.
pub(crate) struct Cx {
    pub shared: Arc<Shared>,
    pub connection: Arc<ConnectionInfo>,
    pub header: RequestHeader,
}

impl Cx {
    pub(crate) fn version(&self) -> i16 {
        self.header.api_version
    }

    /// A transactional command, with the connection that it came on.
    pub(crate) fn on_its_connection(&self, command: Command) -> Command {
        Command::On {
            connection: self.connection.id,
            principal: self.connection.principal.clone(),
            command: Box::new(command),
        }
    }

    /// Encodes the response. A field that the version lacks is a bug of ours: it is said and the
    /// connection closed, other connections go on.
    pub(crate) fn answer<T: Encodable>(&self, body: &T) -> Outcome {
        let header = &self.header;
        match encode_response(
            header.api_key,
            header.api_version,
            header.correlation_id,
            body,
        ) {
            Ok(frame) => Outcome::Answer(vec![frame]),
            Err(e) => {
                error!("{e}; connection of {} closed", self.connection.peer);
                Outcome::Close
            }
        }
    }

    /// The client ran into a limit and is refused: counted, and said once a minute.
    pub(crate) fn reached(&self, limit: Limit, why: impl FnOnce() -> String) {
        let peer = self.connection.peer;
        self.shared.limits.reached(limit, peer, || {
            format!("client {:?} at {peer} refused: {}", self.client_id(), why())
        });
    }

    pub(crate) fn client_id(&self) -> &str {
        self.header.client_id.as_deref().unwrap_or_default()
    }

    pub(crate) fn client_host(&self) -> String {
        format!("/{}", self.connection.peer.ip())
    }

    pub(crate) fn context(&self) -> RequestContext {
        RequestContext {
            principal: self.connection.principal.clone(),
            client_id: Arc::from(self.client_id()),
            client_host: Arc::from(self.client_host()),
            listener: self.connection.listener.clone(),
        }
    }

    /// Submits `command` and answers with what `respond` makes of the reply; without one (the
    /// journal stopped) with what it makes of `None`.
    pub(crate) async fn call(
        self,
        command: Command,
        respond: impl FnOnce(&Cx, Option<Reply>) -> Outcome + Send + 'static,
    ) -> Pending {
        self.call_with(command, Wants::Control, respond).await
    }

    /// As [`Cx::call`], for a command that needs other room than most.
    pub(crate) async fn call_with(
        self,
        command: Command,
        wants: Wants,
        respond: impl FnOnce(&Cx, Option<Reply>) -> Outcome + Send + 'static,
    ) -> Pending {
        let changes = match self.shared.audit.is_on() {
            true => Changes::of(&command),
            false => None,
        };
        match self.shared.submit(command, wants, ADMISSION_PATIENCE).await {
            Err(_) => {
                if let Some(changes) = changes {
                    changes.tell(&self, None);
                }
                Pending::Ready(respond(&self, None))
            }
            Ok(reply) => Pending::later(async move {
                let reply = reply.await.ok();
                if let Some(changes) = changes {
                    changes.tell(&self, reply.as_ref());
                }
                respond(&self, reply)
            }),
        }
    }

    /// Host and port that this client is told to reach us at.
    pub(crate) fn advertised(&self) -> (String, i32) {
        self.connection.advertised()
    }
}

/// A reply of another command's variant: the owner answers each command with its own.
pub(crate) fn wrong_reply(reply: Reply) -> ! {
    unreachable!("a command was answered with {reply:?}")
}

pub(crate) fn text(s: &str) -> StrBytes {
    StrBytes::from_string(s.to_owned())
}

pub(crate) fn uuid(id: TopicId) -> uuid::Uuid {
    uuid::Uuid::from_bytes(id.0)
}

/// Starts a request: returns when its command, if any, is in the owner's queue.
pub(crate) async fn dispatch(cx: Cx, body: Bytes) -> Result<Pending, WireError> {
    if cx.header.api_key == ApiKey::Produce {
        return produce::handle(cx, &body).await;
    }
    Ok(match decode_body(&cx.header, body)? {
        RequestKind::Fetch(r) => fetch::handle(cx, r),
        RequestKind::ListOffsets(r) => list_offsets::handle(cx, r),
        RequestKind::OffsetForLeaderEpoch(r) => offset_for_leader_epoch::handle(cx, r),
        RequestKind::Metadata(r) => metadata::handle(cx, r).await,
        RequestKind::OffsetCommit(r) => offset_commit::handle(cx, r).await,
        RequestKind::OffsetFetch(r) => offset_fetch::handle(cx, r).await,
        RequestKind::FindCoordinator(r) => find_coordinator::handle(&cx, &r),
        RequestKind::JoinGroup(r) => join_group::handle(cx, r).await,
        RequestKind::Heartbeat(r) => heartbeat::handle(cx, r).await,
        RequestKind::LeaveGroup(r) => leave_group::handle(cx, r).await,
        RequestKind::SyncGroup(r) => sync_group::handle(cx, r).await,
        RequestKind::DescribeGroups(r) => describe_groups::handle(cx, r).await,
        RequestKind::ListGroups(r) => list_groups::handle(cx, r).await,
        RequestKind::DeleteGroups(r) => delete_groups::handle(cx, r).await,
        RequestKind::OffsetDelete(r) => offset_delete::handle(cx, r).await,
        RequestKind::CreateTopics(r) => create_topics::handle(cx, r).await,
        RequestKind::DeleteTopics(r) => delete_topics::handle(cx, r).await,
        RequestKind::DeleteRecords(r) => delete_records::handle(cx, r).await,
        RequestKind::CreatePartitions(r) => create_partitions::handle(cx, r).await,
        RequestKind::AlterConfigs(r) => alter_configs::handle(cx, r).await,
        RequestKind::IncrementalAlterConfigs(r) => incremental_alter_configs::handle(cx, r).await,
        RequestKind::DescribeLogDirs(r) => describe_log_dirs::handle(cx, r),
        RequestKind::DescribeCluster(r) => describe_cluster::handle(cx, r),
        RequestKind::InitProducerId(r) => init_producer_id::handle(cx, r).await,
        RequestKind::AddPartitionsToTxn(r) => add_partitions_to_txn::handle(cx, r).await,
        RequestKind::AddOffsetsToTxn(r) => add_offsets_to_txn::handle(cx, r).await,
        RequestKind::EndTxn(r) => end_txn::handle(cx, r).await,
        RequestKind::TxnOffsetCommit(r) => txn_offset_commit::handle(cx, r).await,
        RequestKind::WriteTxnMarkers(r) => write_txn_markers::handle(cx, r).await,
        RequestKind::DescribeProducers(r) => describe_producers::handle(cx, r).await,
        RequestKind::DescribeTransactions(r) => describe_transactions::handle(cx, r).await,
        RequestKind::ListTransactions(r) => list_transactions::handle(cx, r).await,
        RequestKind::DescribeClientQuotas(r) => describe_client_quotas::handle(&cx, &r),
        RequestKind::AlterClientQuotas(r) => alter_client_quotas::handle(&cx, &r),
        RequestKind::DescribeUserScramCredentials(r) => {
            describe_user_scram_credentials::handle(&cx, &r)
        }
        RequestKind::AlterUserScramCredentials(r) => {
            alter_user_scram_credentials::handle(cx, r).await
        }
        RequestKind::DescribeAcls(r) => describe_acls::handle(cx, r),
        RequestKind::CreateAcls(r) => create_acls::handle(cx, r).await,
        RequestKind::DeleteAcls(r) => delete_acls::handle(cx, r).await,
        RequestKind::DescribeConfigs(r) => describe_configs::handle(&cx, &r),
        other => unreachable!("the API table serves {other:?} and no handler does"),
    })
}
