//! How long a transaction and an idle transactional id live.

use crate::{TxnMeta, TxnState};

/// When the ongoing transaction times out, wall clock: `transaction.timeout.ms` after its first
/// partition. None if there is none. Whoever arms it uses the monotonic clock; this is what
/// outlives a restart.
pub fn deadline_wall_ms(meta: &TxnMeta) -> Option<i64> {
    (meta.state == TxnState::Ongoing).then(|| {
        meta.start_wall_ms
            .saturating_add(i64::from(meta.timeout_ms))
    })
}

/// True if the id has been idle for `expiration_ms` (`transactional.id.expiration.ms`) and may be
/// forgotten with a tombstone. An ongoing transaction never expires this way: it times out first.
pub fn is_expired(meta: &TxnMeta, now_wall_ms: i64, expiration_ms: i64) -> bool {
    meta.state.is_expirable()
        && now_wall_ms.saturating_sub(meta.last_update_wall_ms) >= expiration_ms
}
