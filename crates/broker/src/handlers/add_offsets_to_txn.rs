//! AddOffsetsToTxn (25), v0-v4: a transaction will commit a group's offsets.
//!
//! v2 PRODUCER_FENCED (KIP-588); v3 flexible; v4 TRANSACTION_ABORTABLE (KIP-890). Write on the
//! transactional id, Read on the group.

use std::sync::Arc;

use kafka_protocol::messages::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};
use tidemark_authorizer::Operation;
use tidemark_owner::{AddOffsets, Command, Reply};
use tidemark_txn_coordinator::{TxnApi, map_for_version};
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::authorize::Resource;

use super::{Cx, Pending, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: AddOffsetsToTxnRequest) -> Pending {
    if let Err(error) = permit(&cx, &request) {
        let refused = AddOffsetsToTxnResponse::default().with_error_code(error.code());
        return Pending::Ready(cx.answer(&refused));
    }
    let command = Command::AddOffsets(AddOffsets {
        transactional_id: Arc::from(&**request.transactional_id),
        producer_id: ProducerId(request.producer_id.0),
        producer_epoch: ProducerEpoch(request.producer_epoch),
        group_id: request.group_id.to_string(),
    });
    let command = cx.on_its_connection(command);
    cx.call(command, |cx, reply| {
        let error = match reply {
            Some(Reply::AddOffsets(error)) => error,
            Some(other) => wrong_reply(other),
            None => ErrorCode::CoordinatorNotAvailable,
        };
        let error = map_for_version(TxnApi::AddOffsetsToTxn, cx.version(), error);
        cx.answer(&AddOffsetsToTxnResponse::default().with_error_code(error.code()))
    })
    .await
}

fn permit(cx: &Cx, request: &AddOffsetsToTxnRequest) -> Result<(), ErrorCode> {
    let rights = cx.rights();
    let id = Resource::TransactionalId(&request.transactional_id);
    if !rights.may(Operation::Write, id) {
        return Err(ErrorCode::TransactionalIdAuthorizationFailed);
    }
    match rights.may(Operation::Read, Resource::Group(&request.group_id)) {
        true => Ok(()),
        false => Err(ErrorCode::GroupAuthorizationFailed),
    }
}
