//! What an answer that a client saw says of what happened.
//!
//! | the client saw | a record outside a transaction | a transaction |
//! |-|-|-|
//! | success | `Ok` | commit: `Ok`; abort: `Fail`, unless a commit was asked for before |
//! | nothing: it went away before it asked to commit | `Unknown` | `Fail`: nobody asked |
//! | an error that a first attempt gets, and nothing is stored | `Fail` | - |
//! | anything else | `Unknown` | commit: `Unknown`; before a commit: `Fail` |
//!
//! All clients that record histories repeat requests by themselves. The error they report is that of the last attempt; an
//! earlier one may have been carried out with its answer lost. So PRODUCER_FENCED, INVALID_PRODUCER_EPOCH,
//! OUT_OF_ORDER_SEQUENCE_NUMBER, NOT_LEADER_OR_FOLLOWER (KAFKA-13574) and INVALID_TXN_STATE leave open what happened,
//! timeouts and lost connections above all. Of a commit every error does: also a fenced producer may have committed first.
//! An unknown transaction of which a read_committed reader saw a record has committed, and is held to it.

/// Did it happen?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Ok,
    Fail,
    Unknown,
}

/// The client took the record back before any attempt was made: full queue, purged queue, refused locally.
pub const NEVER_SENT: &str = "NEVER_SENT";

/// Errors of a Produce that no attempt gets after an earlier one was stored: of the record's or the client's making, not
/// of the moment's.
const REFUSED: [&str; 11] = [
    NEVER_SENT,
    "CORRUPT_MESSAGE",
    "INVALID_RECORD",
    "INVALID_REQUIRED_ACKS",
    "INVALID_TOPIC_EXCEPTION",
    "MESSAGE_TOO_LARGE",
    "RECORD_LIST_TOO_LARGE",
    "CLUSTER_AUTHORIZATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT",
];

/// Of the answer to one record.
pub fn of_send(error: Option<&str>) -> Outcome {
    match error {
        None => Outcome::Ok,
        Some(error) if REFUSED.contains(&error) => Outcome::Fail,
        Some(_) => Outcome::Unknown,
    }
}

/// An attempt to end a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    pub commit: bool,
    pub ok: bool,
}

/// Of a transaction, from the attempts to end it, in their order.
pub fn of_transaction(ends: &[End]) -> Outcome {
    let mut asked_to_commit = false;
    for end in ends {
        match (end.commit, end.ok) {
            (true, true) => return Outcome::Ok,
            (true, false) => asked_to_commit = true,
            // The client says aborted; what the broker did with the commit before, it may not know.
            (false, _) => {}
        }
    }
    match asked_to_commit {
        true => Outcome::Unknown,
        false => Outcome::Fail,
    }
}

#[cfg(test)]
mod tests {
    use super::{End, Outcome, of_send, of_transaction};

    const COMMIT_OK: End = End {
        commit: true,
        ok: true,
    };
    const COMMIT_ERROR: End = End {
        commit: true,
        ok: false,
    };
    const ABORT_OK: End = End {
        commit: false,
        ok: true,
    };
    const ABORT_ERROR: End = End {
        commit: false,
        ok: false,
    };

    #[test]
    fn an_error_of_the_moment_leaves_open_what_happened() {
        for error in [
            "TIMED_OUT",
            "DISCONNECTED",
            "NOT_LEADER_OR_FOLLOWER",
            "UNKNOWN_SERVER_ERROR",
            "PRODUCER_FENCED",
            "OUT_OF_ORDER_SEQUENCE_NUMBER",
            "an error nobody knows",
        ] {
            assert_eq!(of_send(Some(error)), Outcome::Unknown, "{error}");
        }
    }

    #[test]
    fn what_never_left_or_can_never_be_stored_has_failed() {
        for error in ["NEVER_SENT", "MESSAGE_TOO_LARGE", "INVALID_RECORD"] {
            assert_eq!(of_send(Some(error)), Outcome::Fail, "{error}");
        }
        assert_eq!(of_send(None), Outcome::Ok);
    }

    #[test]
    fn a_transaction_that_nobody_asked_to_commit_has_failed() {
        for ends in [&[][..], &[ABORT_OK], &[ABORT_ERROR]] {
            assert_eq!(of_transaction(ends), Outcome::Fail, "{ends:?}");
        }
    }

    #[test]
    fn a_commit_without_success_is_open_also_when_an_abort_follows() {
        for ends in [
            &[COMMIT_ERROR][..],
            &[COMMIT_ERROR, ABORT_OK],
            &[COMMIT_ERROR, ABORT_ERROR],
        ] {
            assert_eq!(of_transaction(ends), Outcome::Unknown, "{ends:?}");
        }
        assert_eq!(of_transaction(&[COMMIT_ERROR, COMMIT_OK]), Outcome::Ok);
    }
}
