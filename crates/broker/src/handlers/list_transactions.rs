//! ListTransactions (66), v0-v2: the transactional ids that this coordinator keeps (KIP-664).
//!
//! v1 only those that have run for longer (KIP-994); v2 only those whose id matches a pattern
//! (KIP-1152). Those that the client may describe.

use std::collections::BTreeSet;

use kafka_protocol::messages::list_transactions_response::TransactionState;
use kafka_protocol::messages::{
    ListTransactionsRequest, ListTransactionsResponse, ProducerId as WireProducerId,
    TransactionalId,
};
use regex::{Regex, RegexBuilder};
use tidemark_authorizer::Operation;
use tidemark_owner::{Command, ListTransactions, Reply};
use tidemark_txn_coordinator::TxnState;
use tidemark_types::{ErrorCode, ProducerId};

use crate::authorize::Resource;

use super::{Cx, Pending, text, wrong_reply};

/// Memory that a client's pattern may take once it is compiled.
const PATTERN_BYTES: usize = 1 << 20;

pub(crate) async fn handle(cx: Cx, request: ListTransactionsRequest) -> Pending {
    let of_name = |name: &str| TxnState::ALL.into_iter().find(|s| s.name() == name);
    let mut unknown = Vec::new();
    let mut known = BTreeSet::new();
    for name in request.state_filters {
        match of_name(&name) {
            Some(state) => {
                known.insert(state);
            }
            None => unknown.push(name),
        }
    }
    let any = known.is_empty() && unknown.is_empty();
    let pattern = match pattern(request.transactional_id_pattern.as_deref()) {
        Ok(pattern) => pattern,
        Err(_) => {
            let error = ErrorCode::InvalidRegularExpression.code();
            let answer = ListTransactionsResponse::default().with_error_code(error);
            return Pending::Ready(cx.answer(&answer));
        }
    };
    let command = Command::ListTransactions(ListTransactions {
        states: (!any).then_some(known),
        producer_ids: (request.producer_id_filters.iter())
            .map(|id| ProducerId(id.0))
            .collect(),
        longer_than_ms: request.duration_filter,
    });
    cx.call(command, move |cx, reply| {
        let listed = match reply {
            Some(Reply::ListTransactions(listed)) => listed,
            Some(other) => wrong_reply(other),
            None => {
                let error = ErrorCode::CoordinatorNotAvailable.code();
                return cx.answer(&ListTransactionsResponse::default().with_error_code(error));
            }
        };
        let rights = cx.rights();
        let sees = |id: &str| rights.might(Operation::Describe, Resource::TransactionalId(id));
        let matches = |id: &str| pattern.as_ref().is_none_or(|p| p.is_match(id));
        let states = listed
            .into_iter()
            .filter(|listed| matches(&listed.transactional_id))
            .filter(|listed| sees(&listed.transactional_id))
            .map(|listed| {
                TransactionState::default()
                    .with_transactional_id(TransactionalId(text(&listed.transactional_id)))
                    .with_producer_id(WireProducerId(listed.producer_id.0))
                    .with_transaction_state(text(listed.state.name()))
            })
            .collect();
        cx.answer(
            &ListTransactionsResponse::default()
                .with_unknown_state_filters(unknown)
                .with_transaction_states(states),
        )
    })
    .await
}

/// The whole id must match, as in Kafka. Null and empty match every id.
fn pattern(pattern: Option<&str>) -> Result<Option<Regex>, regex::Error> {
    pattern
        .filter(|pattern| !pattern.is_empty())
        .map(|pattern| {
            RegexBuilder::new(&format!("^(?:{pattern})$"))
                .size_limit(PATTERN_BYTES)
                .dfa_size_limit(PATTERN_BYTES)
                .build()
        })
        .transpose()
}
