//! InitProducerId (22), v0-v5: a producer id, and for a transactional id a new session.
//!
//! v2 flexible; v3 the present producer id and epoch (KIP-360); v4 PRODUCER_FENCED (KIP-588);
//! v5 TRANSACTION_ABORTABLE (KIP-890).

use std::sync::Arc;

use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};
use tidemark_owner::{Command, InitProducerId, Reply};
use tidemark_txn_coordinator::{TxnApi, map_for_version};
use tidemark_types::{ErrorCode, ProducerEpoch, ProducerId};

use super::{Cx, Pending, wrong_reply};

pub(crate) async fn handle(cx: Cx, request: InitProducerIdRequest) -> Pending {
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
            Err(error) => InitProducerIdResponse::default()
                .with_error_code(
                    map_for_version(TxnApi::InitProducerId, cx.version(), error).code(),
                )
                .with_producer_id((-1).into())
                .with_producer_epoch(-1),
        })
    })
    .await
}
