//! EndTxn (26), v0-v5: commits or aborts a transaction.
//!
//! Answered when all its markers are durable and visible: whoever reads afterwards sees it, and the
//! next transaction never meets CONCURRENT_TRANSACTIONS. v2 PRODUCER_FENCED
//! (KIP-588); v3 flexible; v4 TRANSACTION_ABORTABLE; v5 ends a version 2 transaction and carries the
//! producer id and epoch of the next one (KIP-890). Write on the transactional id.

use std::sync::Arc;

use kafka_protocol::messages::{EndTxnRequest, EndTxnResponse};
use tidemark_authorizer::Operation;
use tidemark_owner::{Command, EndTxn, Reply};
use tidemark_txn_coordinator::{Dialect, TxnApi, map_for_version};
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::authorize::Resource;

use super::{Cx, Pending, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: EndTxnRequest) -> Pending {
    let id = Resource::TransactionalId(&request.transactional_id);
    if !cx.may(Operation::Write, id) {
        let code = ErrorCode::TransactionalIdAuthorizationFailed.code();
        return Pending::Ready(cx.answer(&EndTxnResponse::default().with_error_code(code)));
    }
    let command = Command::EndTxn(EndTxn {
        transactional_id: Arc::from(&**request.transactional_id),
        producer_id: ProducerId(request.producer_id.0),
        producer_epoch: ProducerEpoch(request.producer_epoch),
        committed: request.committed,
        dialect: Dialect::of_end_txn(cx.version()),
    });
    let asked = cx.shared.clock.now();
    let command = cx.on_its_connection(command);
    cx.call(command, move |cx, reply| {
        let ended = match reply {
            Some(Reply::EndTxn(ended)) => ended,
            Some(other) => wrong_reply(other),
            None => Err(ErrorCode::CoordinatorNotAvailable),
        };
        if ended.is_ok() {
            // What is answered is visible: the barrier has published it.
            let took = cx.shared.clock.now().since(asked);
            cx.shared.metrics.end_to_visible(took);
        }
        cx.answer(&match ended {
            Ok((id, epoch)) if cx.version() >= 5 => EndTxnResponse::default()
                .with_producer_id(id.0.into())
                .with_producer_epoch(epoch.0),
            Ok(_) => EndTxnResponse::default(),
            Err(error) => EndTxnResponse::default()
                .with_error_code(map_for_version(TxnApi::EndTxn, cx.version(), error).code()),
        })
    })
    .await
}
