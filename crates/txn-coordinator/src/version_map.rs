use tidemark_types::ErrorCode;

/// The requests whose error codes depend on their version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TxnApi {
    InitProducerId,
    AddPartitionsToTxn,
    AddOffsetsToTxn,
    EndTxn,
    TxnOffsetCommit,
    Produce,
}

impl TxnApi {
    /// The first version whose clients know PRODUCER_FENCED (KIP-588). A fenced Produce or
    /// TxnOffsetCommit is INVALID_PRODUCER_EPOCH in every version.
    fn knows_producer_fenced(self, version: i16) -> bool {
        match self {
            TxnApi::InitProducerId => version >= 4,
            TxnApi::AddPartitionsToTxn | TxnApi::AddOffsetsToTxn | TxnApi::EndTxn => version >= 2,
            TxnApi::TxnOffsetCommit | TxnApi::Produce => false,
        }
    }

    /// The first version whose clients know TRANSACTION_ABORTABLE (KIP-890).
    fn knows_transaction_abortable(self, version: i16) -> bool {
        match self {
            TxnApi::InitProducerId | TxnApi::AddPartitionsToTxn => version >= 5,
            TxnApi::AddOffsetsToTxn | TxnApi::EndTxn | TxnApi::TxnOffsetCommit => version >= 4,
            TxnApi::Produce => version >= 11,
        }
    }
}

/// The code as clients of that version know it: PRODUCER_FENCED (90) is INVALID_PRODUCER_EPOCH (47)
/// and TRANSACTION_ABORTABLE (120) is INVALID_TXN_STATE (48) for those that came before them.
pub fn map_for_version(api: TxnApi, version: i16, code: ErrorCode) -> ErrorCode {
    match code {
        ErrorCode::ProducerFenced if !api.knows_producer_fenced(version) => {
            ErrorCode::InvalidProducerEpoch
        }
        ErrorCode::TransactionAbortable if !api.knows_transaction_abortable(version) => {
            ErrorCode::InvalidTxnState
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_clients_get_the_code_they_know() {
        let fenced = |api, version| map_for_version(api, version, ErrorCode::ProducerFenced);
        for (api, first) in [
            (TxnApi::InitProducerId, 4),
            (TxnApi::AddPartitionsToTxn, 2),
            (TxnApi::AddOffsetsToTxn, 2),
            (TxnApi::EndTxn, 2),
        ] {
            assert_eq!(fenced(api, first - 1), ErrorCode::InvalidProducerEpoch);
            assert_eq!(fenced(api, first), ErrorCode::ProducerFenced);
        }
        assert_eq!(fenced(TxnApi::Produce, 12), ErrorCode::InvalidProducerEpoch);

        let abortable =
            |api, version| map_for_version(api, version, ErrorCode::TransactionAbortable);
        for (api, first) in [
            (TxnApi::InitProducerId, 5),
            (TxnApi::AddPartitionsToTxn, 5),
            (TxnApi::AddOffsetsToTxn, 4),
            (TxnApi::EndTxn, 4),
            (TxnApi::TxnOffsetCommit, 4),
            (TxnApi::Produce, 11),
        ] {
            assert_eq!(abortable(api, first - 1), ErrorCode::InvalidTxnState);
            assert_eq!(abortable(api, first), ErrorCode::TransactionAbortable);
        }
    }

    #[test]
    fn other_codes_are_left_alone() {
        for code in [
            ErrorCode::None,
            ErrorCode::InvalidTxnState,
            ErrorCode::InvalidProducerEpoch,
            ErrorCode::InvalidProducerIdMapping,
        ] {
            assert_eq!(map_for_version(TxnApi::EndTxn, 0, code), code);
        }
    }
}
