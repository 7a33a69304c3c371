//! InitProducerId, with and without a pair (KIP-360).

use crate::cells::*;

#[test]
fn init_producer_id_without_a_pair() {
    hold(
        "InitProducerId",
        |s, _| init(s, None),
        &["none"],
        "
        unknown: first>opens
        empty, empty-given, commit-1, abort-1, commit-2, abort-2, abort-of-nothing: opens>opens
        timeout, operator, exclusive, loss, taken-over, taken-over-given: opens>opens
        ongoing: takes-over>opens
        end-empty, end-commit-1: opens-next>opens
        end-ongoing: takes-over-next>opens
        next-commit-2, next-timeout, next-empty, next-empty-given: opens>opens
        next-ongoing: takes-over>opens
        prepare-commit, prepare-abort, prepare-fence: 51
        ",
        &[
            (
                "first",
                "nobody had the id: a producer id of its own, epoch 0",
            ),
            (
                "opens",
                "whoever asks without a pair is another instance: the one before is fenced. A \
                 repeat cannot be told from a third instance",
            ),
            (
                "takes-over",
                "what was open is aborted at e+1, in the same record, and e+2 given out",
            ),
            (
                "opens-next",
                "32767 is for markers only, so 32766 is followed by the next producer id",
            ),
            (
                "takes-over-next",
                "markers at (id, 32767), the session at (next id, 0)",
            ),
            (
                "51",
                "the markers are on their way to other journals: ask again",
            ),
        ],
    );
}

#[test]
fn init_producer_id_with_a_pair() {
    hold(
        "InitProducerId with a pair",
        |s, pair| init(s, Some(pair)),
        PAIRS,
        "
        unknown: first>90x - - first>90x first>90x
        empty, commit-1, abort-1, taken-over: opens>same - 90 90 90
        empty-given, commit-2, abort-2, abort-of-nothing, taken-over-given: opens>same same 90 90 90
        timeout, operator, exclusive, loss: opens>same same 90 90 90
        ongoing: takes-over>same - 90 90 90
        end-empty, end-commit-1: opens-next>same - 90 90 90
        end-ongoing: takes-over-next>same - 90 90 90
        next-commit-2, next-timeout, next-empty-given: opens>same same 90 90 90
        next-empty: opens>same - 90 90 90
        next-ongoing: takes-over>same - 90 90 90
        prepare-commit, prepare-abort, prepare-fence: 51 51 90 90 90
        ",
        &[
            (
                "first",
                "the id has expired: the instance gets a new producer id, as in Kafka",
            ),
            (
                "90x",
                "the pair it still holds is of no session of the new producer id (as in Kafka): the \
                 one cell where a lost answer fences, a week after the id was last used",
            ),
            ("opens", "the owner asks for the next epoch (KIP-360)"),
            (
                "same",
                "its answer was lost, or the broker ended its transaction: it is given what was \
                 given to it. (P10; Kafka forgets the pair over an open transaction)",
            ),
            (
                "takes-over",
                "its own open transaction is aborted: it has lost track of it",
            ),
            ("opens-next", "the epochs have run out"),
            (
                "takes-over-next",
                "markers at (id, 32767), the session at (next id, 0)",
            ),
            OVERTAKEN,
            (
                "51",
                "the markers are on their way to other journals: ask again",
            ),
        ],
    );
}
