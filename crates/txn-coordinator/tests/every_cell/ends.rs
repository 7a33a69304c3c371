//! How a transaction ends: by EndTxn in both dialects, and by the broker.

use tidemark_txn_coordinator::*;
use tidemark_types::{ErrorCode, ProducerId};

use crate::cells::*;
use crate::common::*;

const CONTRADICTS: &str = "the transaction has ended the other way";
const NOTHING: &str = "nothing was begun";
const ONCE: &str = "asked again: the answer of the first time, nothing is written";

#[test]
fn end_txn_of_the_classic_dialect() {
    hold(
        "EndTxn(commit), classic",
        |s, pair| end_txn(s, pair, Dialect::V1, true),
        PAIRS,
        "
        unknown: 49 - - 49 49
        empty, taken-over, end-empty, next-empty: 48n - 90 90 49
        empty-given, taken-over-given, next-empty-given: 48n 90 90 90 49
        commit-1, end-commit-1: same - 90 90 49
        commit-2, next-commit-2: same 90 90 90 49
        abort-1: 48c - 90 90 49
        abort-2, abort-of-nothing: 48c 90 90 90 49
        timeout, operator, exclusive, loss, next-timeout: 48c 90 90 90 49
        ongoing, end-ongoing, next-ongoing: commits>same - 90 90 49
        prepare-commit: 51 90 90 90 49
        prepare-abort: 48c 90 90 90 49
        prepare-fence: 90 90 90 90 49
        ",
        &[
            ("48n", NOTHING),
            ("48c", CONTRADICTS),
            ("same", ONCE),
            (
                "commits",
                "markers at e, the epoch stays (at 32766 too). A delayed commit of the last \
                 transaction does the same: that hole is the dialect's",
            ),
            ("51", "it is decided and not written everywhere yet"),
            NOT_OURS,
            OVERTAKEN,
        ],
    );
    hold(
        "EndTxn(abort), classic",
        |s, pair| end_txn(s, pair, Dialect::V1, false),
        PAIRS,
        "
        unknown: 49 - - 49 49
        empty, taken-over, end-empty, next-empty: 48n - 90 90 49
        empty-given, taken-over-given, next-empty-given: 48n 90 90 90 49
        commit-1, end-commit-1: 48c - 90 90 49
        commit-2, next-commit-2: 48c 90 90 90 49
        abort-1: same - 90 90 49
        abort-2, abort-of-nothing: same 90 90 90 49
        timeout, operator, exclusive, loss, next-timeout: same 90 90 90 49
        ongoing, end-ongoing, next-ongoing: aborts>same - 90 90 49
        prepare-commit: 48c 90 90 90 49
        prepare-abort: 51 90 90 90 49
        prepare-fence: 90 90 90 90 49
        ",
        &[
            ("48n", NOTHING),
            ("48c", CONTRADICTS),
            ("same", ONCE),
            ("aborts", "markers at e, the epoch stays"),
            ("51", "it is decided and not written everywhere yet"),
            NOT_OURS,
            OVERTAKEN,
        ],
    );
}

#[test]
fn end_txn_of_version_2() {
    hold(
        "EndTxn(commit), version 2",
        |s, pair| end_txn(s, pair, Dialect::V2, true),
        PAIRS,
        "
        unknown: 49 - - 49 49
        empty, taken-over, end-empty, next-empty: 48n - 90 90 49
        empty-given, taken-over-given, next-empty-given: 48n 90 90 90 49
        commit-1, abort-1, end-commit-1: 48n - 90 90 49
        commit-2, next-commit-2: 48n same 90 90 49
        abort-2, abort-of-nothing: 48n 48c 90 90 49
        timeout, operator, exclusive, loss, next-timeout: 48n 120 90 90 49
        ongoing, next-ongoing: commits+1>same - 90 90 49
        end-ongoing: commits-next>same - 90 90 49
        prepare-commit: 90p 51 90 90 49
        prepare-abort: 90p 48c 90 90 49
        prepare-fence: 90p 90 90 90 49
        ",
        &[
            ("48n", "nothing was begun under this epoch"),
            ("48c", CONTRADICTS),
            ("same", ONCE),
            (
                "commits+1",
                "markers and state at e+1: what is delayed of it meets the epoch",
            ),
            (
                "commits-next",
                "markers at (id, 32767), the state at (next id, 0)",
            ),
            (
                "120",
                "the broker has aborted it, and its client does not know: it aborts (`same` there) \
                 and goes on. Kafka's 48 is fatal although nothing is wrong with the instance",
            ),
            ("51", "it is decided and not written everywhere yet"),
            (
                "90p",
                "nobody was given the epoch of a transaction that is still being ended",
            ),
            NOT_OURS,
            OVERTAKEN,
        ],
    );
    hold(
        "EndTxn(abort), version 2",
        |s, pair| end_txn(s, pair, Dialect::V2, false),
        PAIRS,
        "
        unknown: 49 - - 49 49
        empty, taken-over, next-empty: nothing-aborted+1>same - 90 90 49
        empty-given, taken-over-given, next-empty-given: nothing-aborted+1>same 90 90 90 49
        end-empty, end-commit-1: nothing-aborted-next>same - 90 90 49
        commit-1, abort-1: nothing-aborted+1>same - 90 90 49
        commit-2, next-commit-2: nothing-aborted+1>same 48c 90 90 49
        abort-2, abort-of-nothing: nothing-aborted+1>same same 90 90 49
        timeout, operator, exclusive, loss, next-timeout: nothing-aborted+1>same same 90 90 49
        ongoing, next-ongoing: aborts+1>same - 90 90 49
        end-ongoing: aborts-next>same - 90 90 49
        prepare-commit: 90p 48c 90 90 49
        prepare-abort: 90p 51 90 90 49
        prepare-fence: 90p 90 90 90 49
        ",
        &[
            (
                "nothing-aborted+1",
                "a batch of it may still be on its way: the next epoch shuts it out",
            ),
            (
                "nothing-aborted-next",
                "the same where the epochs have run out",
            ),
            ("48c", CONTRADICTS),
            (
                "same",
                "asked again, or the broker has aborted it before: the pair to go on with",
            ),
            ("aborts+1", "markers and state at e+1"),
            (
                "aborts-next",
                "markers at (id, 32767), the state at (next id, 0)",
            ),
            ("51", "it is decided and not written everywhere yet"),
            (
                "90p",
                "nobody was given the epoch of a transaction that is still being ended",
            ),
            NOT_OURS,
            OVERTAKEN,
        ],
    );
}

#[test]
fn aborts_by_the_broker() {
    for reason in [
        AbortReason::Timeout,
        AbortReason::Operator,
        AbortReason::Exclusive,
        AbortReason::Loss,
    ] {
        let asks: [Ask; 4] = [
            |s, _| broker_abort(s, AbortReason::Timeout),
            |s, _| broker_abort(s, AbortReason::Operator),
            |s, _| broker_abort(s, AbortReason::Exclusive),
            |s, _| broker_abort(s, AbortReason::Loss),
        ];
        hold(
            &format!("{reason:?}"),
            asks[reason as usize],
            &["none"],
            "
            unknown: 49
            empty, empty-given, commit-1, abort-1, commit-2, abort-2, abort-of-nothing: 48
            timeout, operator, exclusive, loss, taken-over, taken-over-given: 48
            ongoing, next-ongoing: aborts+1>48
            end-empty, end-commit-1: 48
            end-ongoing: aborts-next>48
            next-commit-2, next-timeout, next-empty, next-empty-given: 48
            prepare-commit, prepare-abort, prepare-fence: 48
            ",
            &[
                ("49", "there is no such id (the owner does not ask then)"),
                (
                    "48",
                    "nothing is open, or its end is decided: there is nothing to abort",
                ),
                (
                    "aborts+1",
                    "every abort by the broker raises the epoch: otherwise a classic client's next \
                     partition would open a second transaction, and its commit keep half",
                ),
                (
                    "aborts-next",
                    "at 32766 too, once: markers at (id, 32767), the state at (next id, 0), where \
                     nobody is stuck",
                ),
            ],
        );
    }
}

fn broker_abort(s: &Shard, reason: AbortReason) -> Result<Outcome, ErrorCode> {
    let meta = meta(s).ok_or(ErrorCode::InvalidProducerIdMapping)?;
    decide_abort_by_broker(meta, reason, ProducerId(s.next_pid), 1_000)
}
