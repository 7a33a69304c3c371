//! A cell: which states there are, what is asked in them, and how a table is held to what is decided.

use std::collections::{BTreeMap, BTreeSet};

use tidemark_txn_coordinator::*;
use tidemark_types::{
    CONSUMER_OFFSETS, COORDINATOR_PARTITIONS, ErrorCode, ProducerEpoch, ProducerId,
    coordinator_partition,
};

use crate::common::*;

pub const LAST: i16 = 32_766;

/// A state, how it came about, and the pairs it is asked under.
pub struct Case {
    pub name: &'static str,
    pub shard: Shard,
    pub current: Pair,
    pub last: Option<Pair>,
    pub stale: Option<Pair>,
}

/// The group's partition of `__consumer_offsets`.
pub fn offsets() -> (&'static str, i32) {
    (
        CONSUMER_OFFSETS,
        coordinator_partition("g", COORDINATOR_PARTITIONS),
    )
}

/// At (7, `epoch`), and what brings it to the state that is wanted.
pub fn from(epoch: i16, story: impl FnOnce(&mut Shard)) -> Shard {
    let mut s = Shard::at(empty_at(epoch));
    story(&mut s);
    s
}

pub fn begin(s: &mut Shard) {
    s.enrol(Dialect::V1, s.pair(), &[("t", 0), offsets()])
        .unwrap();
}

pub fn end(s: &mut Shard, dialect: Dialect, commit: bool) {
    begin(s);
    s.end(dialect, s.pair(), commit).unwrap();
}

pub fn prepared(state: TxnState) -> Shard {
    let mut meta = empty_at(5);
    meta.state = state;
    meta.last_epoch = ProducerEpoch(4);
    meta.partitions = parts(&[("t", 0), offsets()]);
    Shard::at(meta)
}

pub fn cases() -> Vec<Case> {
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
pub fn word(before: Option<&TxnMeta>, decided: &Result<Outcome, ErrorCode>) -> String {
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
pub type Ask = fn(&Shard, Pair) -> Result<Outcome, ErrorCode>;

pub fn meta(s: &Shard) -> Option<&TxnMeta> {
    s.coordinator.get("tx1")
}

/// Where only a check stands before the partition has its say.
pub fn checked(s: &Shard, check: Result<(), ErrorCode>) -> Result<Outcome, ErrorCode> {
    check.map(|()| Outcome {
        next: None,
        markers: None,
        reply: meta(s).map_or((ProducerId::NONE, ProducerEpoch::NONE), |m| {
            (m.producer_id, m.epoch)
        }),
        used_fresh_producer_id: false,
    })
}

pub fn init(s: &Shard, given: Option<Pair>) -> Result<Outcome, ErrorCode> {
    let request = InitProducerId {
        transactional_id: "tx1".into(),
        timeout_ms: TIMEOUT_MS,
        given: given.map(typed),
    };
    let fresh = ProducerId(s.next_pid);
    decide_init_producer_id(meta(s), &request, MAX_TIMEOUT_MS, fresh, 1_000, who("c1"))
}

pub fn add(s: &Shard, pair: Pair, partition: (&str, i32)) -> Result<Outcome, ErrorCode> {
    let (id, epoch) = typed(pair);
    decide_add_partitions(meta(s), id, epoch, &parts(&[partition]), 1_000)
}

pub fn enrol(s: &Shard, pair: Pair, partition: (&str, i32)) -> Result<Outcome, ErrorCode> {
    let (id, epoch) = typed(pair);
    decide_implicit_enrolment(meta(s), id, epoch, &parts(&[partition]), 1_000)
}

pub fn produce(s: &Shard, pair: Pair, partition: i32, version: i16) -> Result<Outcome, ErrorCode> {
    let (id, epoch) = typed(pair);
    let meta = s.coordinator.by_producer_id(id);
    let check = check_any_produce(meta, id, epoch)
        .and_then(|()| check_transactional_produce(meta, id, epoch, "t", partition, version));
    checked(s, check)
}

pub fn commit_offsets(s: &Shard, pair: Pair, dialect: Dialect) -> Result<Outcome, ErrorCode> {
    let (id, epoch) = typed(pair);
    check_txn_offset_commit(meta(s), id, epoch, offsets().1, dialect)?;
    match dialect {
        Dialect::V1 => checked(s, Ok(())),
        Dialect::V2 => enrol(s, pair, offsets()),
    }
}

pub fn end_txn(
    s: &Shard,
    pair: Pair,
    dialect: Dialect,
    commit: bool,
) -> Result<Outcome, ErrorCode> {
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
pub fn carry_out(s: &mut Shard, decided: &Result<Outcome, ErrorCode>) {
    if let Ok(outcome) = decided {
        s.next_pid += i64::from(outcome.used_fresh_producer_id);
        if let Some(next) = &outcome.next {
            s.coordinator.apply("tx1", Some(next.clone()));
        }
    }
}

/// Asks under a pair, twice, and puts both answers into words.
pub fn cell(case: &Case, pair: Pair, ask: Ask) -> String {
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
pub fn hold(what: &str, ask: Ask, columns: &[&str], table: &str, reasons: &[(&str, &str)]) {
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

pub const PAIRS: &[&str] = &["current", "last", "stale", "newer", "other"];
pub const NOT_OURS: (&str, &str) = ("49", "the producer id is of no session of this id");
pub const OVERTAKEN: (&str, &str) = (
    "90",
    "another session, or another transaction, has come since",
);
