//! What fits one record. A record is atomic and never spans journal slots, so whatever must happen
//! at one tick has to fit one of them, and is refused before it begins where it could not end.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidemark_record_batch::HEADER_BYTES;
use tidemark_txn_coordinator::TxnMeta;

use crate::Owner;
use crate::record::APPEND_HEAD_BYTES;

/// Room that a record is given until [`Owner::set_max_record_bytes`] says what the journal has.
pub(crate) const MAX_RECORD_BYTES_DEFAULT: usize = 32 << 20;

/// A control batch and its head: `control_batch` writes 78 bytes, whatever is in it.
pub(crate) const MARKER_BYTES: usize = APPEND_HEAD_BYTES + HEADER_BYTES + 17;
/// A partition in a transactional id's record, without its topic's name: name length, partition,
/// count and tags, if it is the only one of its topic.
const ENROLLED_BYTES: usize = 13;
/// The rest of a transactional id's record, and a producer-id block beside it: heads and numbers. Its
/// texts are counted as they are.
const REST_BYTES: usize = 512;

/// The longest that the names of a session's client can be together: its principal, which
/// InitProducerId holds to it, and its client id, which no request header has room for more of.
const NEXT_NAMES_BYTES: usize = 2 * MAX_NAME_BYTES;
pub(crate) const MAX_NAME_BYTES: usize = i16::MAX as usize;

/// Upper bound of what a transaction over these partitions ever takes in one record: to be stored
/// as it is, or to be ended with all its markers, whoever does it.
pub(crate) fn transaction_bytes<'a>(
    meta: &TxnMeta,
    partitions: impl Iterator<Item = &'a (Arc<str>, i32)>,
) -> usize {
    // A new session ends it in its own name.
    NEXT_NAMES_BYTES + end_bytes(meta, partitions)
}

/// The same where the broker ends it, or its own session: the names stay.
pub(crate) fn end_bytes<'a>(
    meta: &TxnMeta,
    partitions: impl Iterator<Item = &'a (Arc<str>, i32)>,
) -> usize {
    let who = &meta.who;
    let texts = meta.transactional_id.len() * 2
        + who.principal.len()
        + who.client_id.len()
        + who.host.len();
    let each: usize = partitions.map(|p| enrolled_bytes(&p.0)).sum();
    REST_BYTES + texts + each
}

/// What one more partition adds to [`transaction_bytes`].
pub(crate) fn enrolled_bytes(topic: &str) -> usize {
    MARKER_BYTES + ENROLLED_BYTES + topic.len()
}

impl Owner {
    /// The largest payload the journal takes as one record. Known once the journal runs; before,
    /// and without this call, 32 MiB.
    pub fn set_max_record_bytes(&mut self, max_record_bytes: usize) {
        self.max_record_bytes = max_record_bytes;
        // A group's batch is the whole of a record, but for heads.
        let max_batch_bytes = self.options.groups.max_batch_bytes;
        self.groups
            .set_max_batch_bytes(max_batch_bytes.min(max_record_bytes / 2));
    }

    /// True if a transaction that also enrols `more` can still be ended in one record.
    pub(crate) fn can_end_with(&self, meta: &TxnMeta, more: &BTreeSet<(Arc<str>, i32)>) -> bool {
        let all = meta.partitions.union(more);
        transaction_bytes(meta, all) <= self.max_record_bytes
    }
}

#[cfg(test)]
mod tests {
    use tidemark_record_batch::{ControlType, control_batch};
    use tidemark_types::{CoordinatorEpoch, LeaderEpoch, ProducerEpoch, ProducerId};

    use super::*;

    #[test]
    fn a_marker_is_no_larger_than_it_is_counted() {
        let marker = control_batch(
            i64::MAX,
            LeaderEpoch(i32::MAX),
            ProducerId(i64::MAX),
            ProducerEpoch::MAX,
            ControlType::Commit,
            CoordinatorEpoch(i32::MAX),
            i64::MAX,
        );
        assert_eq!(APPEND_HEAD_BYTES + marker.len(), MARKER_BYTES);
    }
}
