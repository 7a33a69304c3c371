//! Every state of a transactional id × every request × whose it is × the same request again: what is
//! answered, what is written, and why. The tables are the rules; the test holds the decisions to them,
//! and every table to naming every state and to having a reason for every cell.
//!
//! A cell is what the request leads to and, behind `>`, what the same request is answered when the
//! first answer was lost and it comes again. Without `>` nothing was written, so that a repeat is
//! answered the same, which the test asks too. A delayed request is the cell of the state it arrives
//! in: in version 2 under `last` or `stale`, in the classic dialect, whose epoch names a session and no
//! transaction, under `current`.
//!
//! Whose it is: `current` the pair that the state stands at; `last` the pair that was exchanged for it
//! and whose owner may not know; `stale` an earlier pair of this id; `newer` an epoch nobody was given;
//! `other` a producer id that was never this id's. `-`: the state has no such pair.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::*;
use tidemark_txn_coordinator::*;
use tidemark_types::{
    CONSUMER_OFFSETS, COORDINATOR_PARTITIONS, ErrorCode, ProducerEpoch, ProducerId,
    coordinator_partition,
};

const LAST: i16 = 32_766;

/// A state, how it came about, and the pairs it is asked under.
struct Case {
    name: &'static str,
    shard: Shard,
    current: Pair,
    last: Option<Pair>,
    stale: Option<Pair>,
}

/// The group's partition of `__consumer_offsets`.
fn offsets() -> (&'static str, i32) {
    (
        CONSUMER_OFFSETS,
        coordinator_partition("g", COORDINATOR_PARTITIONS),
    )
}

/// At (7, `epoch`), and what brings it to the state that is wanted.
fn from(epoch: i16, story: impl FnOnce(&mut Shard)) -> Shard {
    let mut s = Shard::at(empty_at(epoch));
    story(&mut s);
    s
}

fn begin(s: &mut Shard) {
    s.enrol(Dialect::V1, s.pair(), &[("t", 0), offsets()])
        .unwrap();
}

fn end(s: &mut Shard, dialect: Dialect, commit: bool) {
    begin(s);
    s.end(dialect, s.pair(), commit).unwrap();
}

fn prepared(state: TxnState) -> Shard {
    let mut meta = empty_at(5);
    meta.state = state;
    meta.last_epoch = ProducerEpoch(4);
    meta.partitions = parts(&[("t", 0), offsets()]);
    Shard::at(meta)
}

fn cases() -> Vec<Case> {
    use Dialect::{V1, V2};
    let mut cases = Vec::new();
    let mut case = |name, shard: Shard, last, stale| {
        let current = match shard.coordinator.get("tx1") {
            Some(meta) => (meta.producer_id.0, meta.epoch.0),
            // Of an id that nobody knows, or that has expired.
            None => (3, 5),
        };
        cases.push(Case {
            name,
            shard,
            current,
            last,
            stale,
        });
    };
    case("unknown", Shard::new(), None, None);
    // Quiet, at (7, 5).
    let opened = |given| {
        from(4, move |s| {
            s.init(given).unwrap();
        })
    };
    case("empty", opened(None), None, Some((7, 4)));
    case(
        "empty-given",
        opened(Some((7, 4))),
        Some((7, 4)),
        Some((7, 3)),
    );
    for (name, commit) in [("commit-1", true), ("abort-1", false)] {
        case(name, from(5, |s| end(s, V1, commit)), None, Some((7, 4)));
    }
    for (name, commit) in [("commit-2", true), ("abort-2", false)] {
        case(
            name,
            from(4, |s| end(s, V2, commit)),
            Some((7, 4)),
            Some((7, 3)),
        );
    }
    let nothing = from(4, |s| {
        s.abort(V2, (7, 4)).unwrap();
    });
    case("abort-of-nothing", nothing, Some((7, 4)), Some((7, 3)));
    for (name, reason) in [
        ("timeout", AbortReason::Timeout),
        ("operator", AbortReason::Operator),
        ("exclusive", AbortReason::Exclusive),
        ("loss", AbortReason::Loss),
    ] {
        let aborted = from(4, |s| {
            begin(s);
            s.broker_abort(reason).unwrap();
        });
        case(name, aborted, Some((7, 4)), Some((7, 3)));
    }
    // A new session aborted what was open under (7, 3).
    for (name, given, last) in [
        ("taken-over", None, None),
        ("taken-over-given", Some((7, 3)), Some((7, 3))),
    ] {
        let taken = from(3, |s| {
            begin(s);
            s.init(given).unwrap();
        });
        case(name, taken, last, Some((7, 4)));
    }
    case("ongoing", from(5, begin), None, Some((7, 4)));
    // The last epoch of producer id 7.
    case("end-empty", from(LAST, |_| {}), None, Some((7, 4)));
    case(
        "end-commit-1",
        from(LAST, |s| end(s, V1, true)),
        None,
        Some((7, 4)),
    );
    case("end-ongoing", from(LAST, begin), None, Some((7, 4)));
    // Beyond it, at (8, 0).
    let old = Some((7, LAST));
    let older = Some((7, LAST - 1));
    case(
        "next-commit-2",
        from(LAST, |s| end(s, V2, true)),
        old,
        older,
    );
    let timed_out = from(LAST, |s| {
        begin(s);
        s.broker_abort(AbortReason::Timeout).unwrap();
    });
    case("next-timeout", timed_out, old, older);
    for (name, given, last, stale) in [
        ("next-empty", None, None, old),
        ("next-empty-given", old, old, older),
    ] {
        let opened = from(LAST, |s| {
            s.init(given).unwrap();
        });
        case(name, opened, last, stale);
    }
    let next_ongoing = from(LAST, |s| {
        end(s, V2, true);
        begin(s);
    });
    case("next-ongoing", next_ongoing, None, old);
    // Between decided and written: several journals.
    for (name, state) in [
        ("prepare-commit", TxnState::PrepareCommit),
        ("prepare-abort", TxnState::PrepareAbort),
        ("prepare-fence", TxnState::PrepareEpochFence),
    ] {
        case(name, prepared(state), Some((7, 4)), Some((7, 3)));
    }
    cases
}

/// What a request leads to, in the words of the tables. The numbers behind a word are checked here.
fn word(before: Option<&TxnMeta>, decided: &Result<Outcome, ErrorCode>) -> String {
    let outcome = match decided {
        Err(code) => return code.code().to_string(),
        Ok(outcome) => outcome,
    };
    let Some(next) = &outcome.next else {
        assert!(outcome.markers.is_none() && !outcome.used_fresh_producer_id);
        return "same".to_owned();
    };
    assert_eq!(outcome.reply, (next.producer_id, next.epoch));
    let Some(before) = before else {
        assert!(outcome.used_fresh_producer_id && next.epoch == ProducerEpoch(0));
        return "first".to_owned();
    };
    let rotated = next.producer_id != before.producer_id;
    assert_eq!(rotated, outcome.used_fresh_producer_id);
    if rotated {
        assert_eq!(next.epoch, ProducerEpoch(0));
        assert_eq!(next.previous_producer_id, before.producer_id);
        assert!(before.epoch.0 >= LAST - 1, "epochs were left");
    }
    let step = next.epoch.0 - before.epoch.0;
    if let Some(markers) = &outcome.markers {
        assert_eq!(markers.producer_id, before.producer_id);
        assert_eq!(markers.partitions, before.partitions);
        let fenced = next.ended_by != EndedBy::Client || next.dialect == Dialect::V2;
        assert_eq!(markers.epoch.0, before.epoch.0 + i16::from(fenced));
        assert_eq!(markers.commit, next.state == TxnState::CompleteCommit);
    }
    let marked = outcome.markers.is_some();
    let beyond = if rotated { "-next" } else { "" };
    match next.state {
        TxnState::Ongoing => {
            assert!(!marked && step == 0);
            let grows = before.state == TxnState::Ongoing;
            (if grows { "grows" } else { "begins" }).to_owned()
        }
        TxnState::Empty => {
            assert!(rotated || step == if marked { 2 } else { 1 });
            format!("{}{beyond}", if marked { "takes-over" } else { "opens" })
        }
        TxnState::CompleteCommit | TxnState::CompleteAbort => {
            let end = match (marked, next.state == TxnState::CompleteCommit) {
                (true, true) => "commits",
                (true, false) => "aborts",
                (false, false) => "nothing-aborted",
                (false, true) => panic!("a commit without markers"),
            };
            let bump = match (rotated, step) {
                (true, _) => "-next",
                (false, 0) => "",
                (false, 1) => "+1",
                other => panic!("{other:?}"),
            };
            format!("{end}{bump}")
        }
        other => panic!("{other:?}"),
    }
}

/// A request of one kind, under a pair.
type Ask = fn(&Shard, Pair) -> Result<Outcome, ErrorCode>;

fn meta(s: &Shard) -> Option<&TxnMeta> {
    s.coordinator.get("tx1")
}

/// Where only a check stands before the partition has its say.
fn checked(s: &Shard, check: Result<(), ErrorCode>) -> Result<Outcome, ErrorCode> {
    check.map(|()| Outcome {
        next: None,
        markers: None,
        reply: meta(s).map_or((ProducerId::NONE, ProducerEpoch::NONE), |m| {
            (m.producer_id, m.epoch)
        }),
        used_fresh_producer_id: false,
    })
}

fn init(s: &Shard, given: Option<Pair>) -> Result<Outcome, ErrorCode> {
    let request = InitProducerId {
        transactional_id: "tx1".into(),
        timeout_ms: TIMEOUT_MS,
        given: given.map(typed),
    };
    let fresh = ProducerId(s.next_pid);
    decide_init_producer_id(meta(s), &request, MAX_TIMEOUT_MS, fresh, 1_000, who("c1"))
}

fn add(s: &Shard, pair: Pair, partition: (&str, i32)) -> Result<Outcome, ErrorCode> {
    let (id, epoch) = typed(pair);
    decide_add_partitions(meta(s), id, epoch, &parts(&[partition]), 1_000)
}

fn enrol(s: &Shard, pair: Pair, partition: (&str, i32)) -> Result<Outcome, ErrorCode> {
    let (id, epoch) = typed(pair);
    decide_implicit_enrolment(meta(s), id, epoch, &parts(&[partition]), 1_000)
}

fn produce(s: &Shard, pair: Pair, partition: i32, version: i16) -> Result<Outcome, ErrorCode> {
    let (id, epoch) = typed(pair);
    let meta = s.coordinator.by_producer_id(id);
    let check = check_any_produce(meta, id, epoch)
        .and_then(|()| check_transactional_produce(meta, id, epoch, "t", partition, version));
    checked(s, check)
}

fn commit_offsets(s: &Shard, pair: Pair, dialect: Dialect) -> Result<Outcome, ErrorCode> {
    let (id, epoch) = typed(pair);
    check_txn_offset_commit(meta(s), id, epoch, offsets().1, dialect)?;
    match dialect {
        Dialect::V1 => checked(s, Ok(())),
        Dialect::V2 => enrol(s, pair, offsets()),
    }
}

fn end_txn(s: &Shard, pair: Pair, dialect: Dialect, commit: bool) -> Result<Outcome, ErrorCode> {
    let (producer_id, epoch) = typed(pair);
    let request = EndTxn {
        producer_id,
        epoch,
        commit,
        dialect,
    };
    decide_end_txn(meta(s), &request, ProducerId(s.next_pid), 1_000)
}

/// What the owner does with a decision.
fn carry_out(s: &mut Shard, decided: &Result<Outcome, ErrorCode>) {
    if let Ok(outcome) = decided {
        s.next_pid += i64::from(outcome.used_fresh_producer_id);
        if let Some(next) = &outcome.next {
            s.coordinator.apply("tx1", Some(next.clone()));
        }
    }
}

/// Asks under a pair, twice, and puts both answers into words.
fn cell(case: &Case, pair: Pair, ask: Ask) -> String {
    let mut s = Shard {
        coordinator: case.shard.coordinator.clone(),
        markers: Vec::new(),
        ..case.shard
    };
    let before = meta(&s).cloned();
    let first = ask(&s, pair);
    let said = word(before.as_ref(), &first);
    carry_out(&mut s, &first);
    // The answer is lost, and the broker starts anew before it is asked again.
    s.restart();
    let between = meta(&s).cloned();
    let again = ask(&s, pair);
    let said_again = word(between.as_ref(), &again);
    if matches!(&first, Ok(outcome) if outcome.next.is_some()) {
        if said_again == "same" {
            let reply = |decided: &Result<Outcome, ErrorCode>| decided.as_ref().unwrap().reply;
            assert_eq!(
                reply(&first),
                reply(&again),
                "{}: another answer",
                case.name
            );
        }
        format!("{said}>{said_again}")
    } else {
        assert_eq!(before, between);
        assert_eq!(said, said_again);
        said
    }
}

/// Checks a table: lines of `state, state: cells`, then its reasons, `word: why`.
fn hold(what: &str, ask: Ask, columns: &[&str], table: &str, reasons: &[(&str, &str)]) {
    let cases = cases();
    let mut rows: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in table.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (names, cells) = line.split_once(':').unwrap_or_else(|| panic!("{line}"));
        for name in names.split(',').map(str::trim) {
            let cells: Vec<&str> = cells.split_whitespace().collect();
            assert_eq!(cells.len(), columns.len(), "{what}: {line}");
            assert!(rows.insert(name, cells).is_none(), "{what}: {name} twice");
        }
    }
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    for case in &cases {
        let row = rows.remove(case.name);
        let row = row.unwrap_or_else(|| panic!("{what}: no line for {}", case.name));
        for (column, said) in columns.iter().zip(row) {
            let (pid, epoch) = case.current;
            let pair = match *column {
                "current" | "none" => Some(case.current),
                "last" => case.last,
                "stale" => case.stale,
                "newer" => Some((pid, epoch + 1)),
                "other" => Some((99, epoch)),
                other => panic!("{other}"),
            };
            let found = pair.map_or("-".to_owned(), |pair| cell(case, pair, ask));
            if said != "-" {
                used.extend(said.split('>').map(str::to_owned));
            }
            // Letters behind a code tell its reasons apart.
            let bare = |word: &str| match word.starts_with(|c: char| c.is_ascii_digit()) {
                true => word.trim_end_matches(char::is_alphabetic).to_owned(),
                false => word.to_owned(),
            };
            let expected: Vec<String> = said.split('>').map(bare).collect();
            if expected.join(">") != found {
                wrong.push(format!("{} under {column}: {found}, not {said}", case.name));
            }
        }
    }
    assert!(rows.is_empty(), "{what}: no such states: {:?}", rows.keys());
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
    let given: BTreeSet<String> = reasons.iter().map(|(w, _)| (*w).to_owned()).collect();
    assert_eq!(
        used, given,
        "{what}: each cell has a reason, and each reason a cell"
    );
}

const PAIRS: &[&str] = &["current", "last", "stale", "newer", "other"];
const NOT_OURS: (&str, &str) = ("49", "the producer id is of no session of this id");
const OVERTAKEN: (&str, &str) = (
    "90",
    "another session, or another transaction, has come since",
);

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

/// Dead is not among the states: it is a tombstone, and never recorded.
#[test]
fn no_state_is_left_out() {
    let reached: BTreeSet<TxnState> = cases()
        .iter()
        .filter_map(|case| meta(&case.shard).map(|meta| meta.state))
        .collect();
    let all: BTreeSet<TxnState> = TxnState::ALL.into_iter().collect();
    let missing: Vec<_> = all.difference(&reached).collect();
    assert_eq!(missing, [&TxnState::Dead]);
    let mut dead = empty_at(5);
    dead.state = TxnState::Dead;
    assert!(check(&dead).is_err());
}
