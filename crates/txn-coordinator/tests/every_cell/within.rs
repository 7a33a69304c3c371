//! What happens within a transaction: enrolment, batches, offsets.

use tidemark_txn_coordinator::*;

use crate::cells::*;
use crate::common::*;

#[test]
fn add_partitions_and_add_offsets() {
    // AddOffsetsToTxn is the same with the group's partition of __consumer_offsets.
    let reasons = |known: bool| {
        let mut reasons = vec![
            (
                "begins",
                "the first partition begins a transaction. One of the last transaction that is \
                 delayed until here does the same: the classic epoch names the session",
            ),
            ("same", "it is enrolled: nothing is written"),
            NOT_OURS,
            OVERTAKEN,
            (
                "51",
                "the end before is not done in every journal: ask again",
            ),
        ];
        if !known {
            reasons.push(("grows", "one more partition"));
        }
        reasons
    };
    let table = |ongoing: &str| {
        format!(
            "
        unknown: 49 - - 49 49
        empty, commit-1, abort-1, taken-over: begins>same - 90 90 49
        empty-given, commit-2, abort-2, abort-of-nothing, taken-over-given: begins>same 90 90 90 49
        timeout, operator, exclusive, loss: begins>same 90 90 90 49
        ongoing, end-ongoing, next-ongoing: {ongoing} - 90 90 49
        end-empty, end-commit-1, next-empty: begins>same - 90 90 49
        next-commit-2, next-timeout, next-empty-given: begins>same 90 90 90 49
        prepare-commit, prepare-abort, prepare-fence: 51 90 90 90 49
        "
        )
    };
    let known: Ask = |s, pair| add(s, pair, ("t", 0));
    hold(
        "AddPartitions, known",
        known,
        PAIRS,
        &table("same"),
        &reasons(true),
    );
    let new: Ask = |s, pair| add(s, pair, ("u", 3));
    hold(
        "AddPartitions, new",
        new,
        PAIRS,
        &table("grows>same"),
        &reasons(false),
    );
}

#[test]
fn enrolment_by_produce_12() {
    let table = |ongoing: &str| {
        format!(
            "
        unknown: 49 - - 49 49
        empty, commit-1, abort-1, taken-over: begins>same - 47 47 49
        empty-given, commit-2, abort-2, abort-of-nothing, taken-over-given: begins>same 47 47 47 49
        timeout, operator, exclusive, loss: begins>same 47 47 47 49
        ongoing, end-ongoing, next-ongoing: {ongoing} - 47 47 49
        end-empty, end-commit-1, next-empty: begins>same - 47 47 49
        next-commit-2, next-timeout, next-empty-given: begins>same 47 47 47 49
        prepare-commit, prepare-abort, prepare-fence: 51 47 47 47 49
        "
        )
    };
    let mut reasons = vec![
        (
            "begins",
            "the first batch begins the transaction, in the batch's own record",
        ),
        ("same", "the partition is in it: only the batch is written"),
        NOT_OURS,
        (
            "47",
            "a batch of an earlier transaction, or of a fenced instance: version 2's epoch names a \
             transaction, so that a delayed batch is always here. 47 aborts, and is not fatal",
        ),
        (
            "51",
            "the end before is not done in every journal: ask again",
        ),
    ];
    let known: Ask = |s, pair| enrol(s, pair, ("t", 0));
    hold("Produce v12, known", known, PAIRS, &table("same"), &reasons);
    reasons.push(("grows", "one more partition"));
    let new: Ask = |s, pair| enrol(s, pair, ("u", 3));
    hold(
        "Produce v12, new",
        new,
        PAIRS,
        &table("grows>same"),
        &reasons,
    );
}

#[test]
fn classic_batches() {
    let table = |refused: &str, enrolled: &str| {
        format!(
            "
        unknown: 49 - - 49 49
        empty, commit-1, abort-1, taken-over: {refused} - 47 47 49
        empty-given, commit-2, abort-2, abort-of-nothing, taken-over-given: {refused} 47 47 47 49
        timeout, operator, exclusive, loss: {refused} 47 47 47 49
        ongoing, end-ongoing, next-ongoing: {enrolled} - 47 47 49
        end-empty, end-commit-1, next-empty: {refused} - 47 47 49
        next-commit-2, next-timeout, next-empty-given: {refused} 47 47 47 49
        prepare-commit, prepare-abort, prepare-fence: {refused} 47 47 47 49
        "
        )
    };
    let fenced = (
        "47",
        "fenced: by a new session, a timeout, an operator, an operation",
    );
    let late = "its transaction has ended, or the partition was never added: it must not open one \
                that no coordinator knows (KIP-890)";
    let within = (
        "same",
        "in the transaction: the partition looks at its sequence",
    );
    let in_9: Ask = |s, pair| produce(s, pair, 0, 9);
    let reasons = [NOT_OURS, fenced, ("48", late), within];
    hold("Produce v9", in_9, PAIRS, &table("48", "same"), &reasons);
    let in_11: Ask = |s, pair| produce(s, pair, 0, 11);
    let reasons = [NOT_OURS, fenced, ("120", late), within];
    hold("Produce v11", in_11, PAIRS, &table("120", "same"), &reasons);
    let elsewhere: Ask = |s, pair| produce(s, pair, 5, 9);
    let reasons = [NOT_OURS, fenced, ("48", late)];
    hold(
        "Produce v9 elsewhere",
        elsewhere,
        PAIRS,
        &table("48", "48"),
        &reasons,
    );
}

#[test]
fn plain_batches_of_a_transactional_producer() {
    hold(
        "Produce outside of transactions",
        |s, pair| {
            let (id, epoch) = typed(pair);
            let meta = s.coordinator.by_producer_id(id);
            checked(s, check_any_produce(meta, id, epoch))
        },
        PAIRS,
        "
        unknown: same - - same same
        empty, commit-1, abort-1, taken-over, ongoing: same - 47 47 same
        empty-given, commit-2, abort-2, abort-of-nothing, taken-over-given: same 47 47 47 same
        timeout, operator, exclusive, loss: same 47 47 47 same
        end-empty, end-commit-1, end-ongoing, next-empty, next-ongoing: same - 47 47 same
        next-commit-2, next-timeout, next-empty-given: same 47 47 47 same
        prepare-commit, prepare-abort, prepare-fence: same 47 47 47 same
        ",
        &[
            (
                "same",
                "of the present instance, or of a producer without a transactional id: the \
                 partition decides, and refuses it inside an open transaction (48)",
            ),
            ("47", "P7: a fenced instance writes nowhere, in no way"),
        ],
    );
}

#[test]
fn transactional_offsets() {
    hold(
        "TxnOffsetCommit, classic",
        |s, pair| commit_offsets(s, pair, Dialect::V1),
        PAIRS,
        "
        unknown: 49 - - 49 49
        empty, commit-1, abort-1, taken-over: 120 - 47 47 49
        empty-given, commit-2, abort-2, abort-of-nothing, taken-over-given: 120 47 47 47 49
        timeout, operator, exclusive, loss: 120 47 47 47 49
        ongoing, end-ongoing, next-ongoing: same - 47 47 49
        end-empty, end-commit-1, next-empty: 120 - 47 47 49
        next-commit-2, next-timeout, next-empty-given: 120 47 47 47 49
        prepare-commit, prepare-abort, prepare-fence: 120 47 47 47 49
        ",
        &[
            NOT_OURS,
            ("47", "fenced"),
            (
                "120",
                "the group was not added, or the transaction is over; 48 below v4",
            ),
            (
                "same",
                "in the transaction: the group looks at the generation",
            ),
        ],
    );
    hold(
        "TxnOffsetCommit, version 2",
        |s, pair| commit_offsets(s, pair, Dialect::V2),
        PAIRS,
        "
        unknown: 49 - - 49 49
        empty, commit-1, abort-1, taken-over: begins>same - 47 47 49
        empty-given, commit-2, abort-2, abort-of-nothing, taken-over-given: begins>same 47 47 47 49
        timeout, operator, exclusive, loss: begins>same 120 47 47 49
        ongoing, end-ongoing, next-ongoing: same - 47 47 49
        end-empty, end-commit-1, next-empty: begins>same - 47 47 49
        next-commit-2, next-empty-given: begins>same 47 47 47 49
        next-timeout: begins>same 120 47 47 49
        prepare-commit, prepare-abort, prepare-fence: 51 47 47 47 49
        ",
        &[
            NOT_OURS,
            (
                "begins",
                "the offsets enrol their partition and begin the transaction",
            ),
            ("same", "the group's partition is in it"),
            ("47", "of an earlier transaction, or fenced"),
            (
                "120",
                "the broker aborted that very transaction: nothing is wrong with the instance, and \
                 47 is fatal to it here; on 120 it aborts and goes on",
            ),
            (
                "51",
                "the end before is not done in every journal: ask again",
            ),
        ],
    );
}
