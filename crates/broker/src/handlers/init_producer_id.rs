//! InitProducerId (22), v0-v5: a producer id, and for a transactional id a new session.
//!
//! v2 flexible; v3 the present producer id and epoch (KIP-360); v4 PRODUCER_FENCED (KIP-588);
//! v5 TRANSACTION_ABORTABLE (KIP-890). Write on the transactional id; without one IdempotentWrite on the
//! cluster, or Write on any topic.

use std::sync::Arc;

use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};
use tidemark_authorizer::Operation;
use tidemark_owner::{Command, InitProducerId, Reply};
use tidemark_txn_coordinator::{TxnApi, map_for_version};
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::authorize::Resource;

use super::{Cx, Pending, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: InitProducerIdRequest) -> Pending {
    if let Err(error) = permit(&cx, request.transactional_id.as_deref().map(|id| &**id)) {
        return Pending::Ready(cx.answer(&refuse(error)));
    }
    let (producer_id, producer_epoch) = match cx.version() {
        3.. => (
            ProducerId(request.producer_id.0),
            ProducerEpoch(request.producer_epoch),
        ),
        _ => (ProducerId::NONE, ProducerEpoch::NONE),
    };
    let command = Command::InitProducerId(InitProducerId {
        context: cx.context(),
        transactional_id: request.transactional_id.map(|id| Arc::from(&**id)),
        transaction_timeout_ms: request.transaction_timeout_ms,
        producer_id,
        producer_epoch,
    });
    cx.call(command, |cx, reply| {
        let decided = match reply {
            Some(Reply::InitProducerId(decided)) => decided,
            Some(other) => wrong_reply(other),
            None => Err(ErrorCode::CoordinatorNotAvailable),
        };
        cx.answer(&match decided {
            Ok((id, epoch)) => InitProducerIdResponse::default()
                .with_producer_id(id.0.into())
                .with_producer_epoch(epoch.0),
            Err(error) => refuse(map_for_version(TxnApi::InitProducerId, cx.version(), error)),
        })
    })
    .await
}

fn permit(cx: &Cx, transactional_id: Option<&str>) -> Result<(), ErrorCode> {
    let rights = cx.rights();
    match transactional_id {
        Some(id) if rights.may(Operation::Write, Resource::TransactionalId(id)) => Ok(()),
        Some(_) => Err(ErrorCode::TransactionalIdAuthorizationFailed),
        None if rights.might(Operation::IdempotentWrite, Resource::Cluster)
            || rights.may_to_some_topic(Operation::Write) =>
        {
            Ok(())
        }
        None => Err(ErrorCode::ClusterAuthorizationFailed),
    }
}

fn refuse(error: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse::default()
        .with_error_code(error.code())
        .with_producer_id((-1).into())
        .with_producer_epoch(-1)
}
