//! How much of what a history is to show is in it: of too little a clean verdict says nothing.

use std::collections::{BTreeMap, HashMap, HashSet};

use tidemark_histcheck::history::Event;

/// Names of the errors that an instance gets when another one has taken its place.
const REPLACED: [&str; 3] = ["FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"];

/// What one file of a history holds.
#[derive(Default)]
pub struct Tally {
    pub commits: u64,
    /// Records that readers got, which are not movers.
    pub committed_reads: u64,
    pub raw_reads: u64,
    /// Records that anybody got.
    pub polled: u64,
    pub committed_watermarks: u64,
    pub raw_watermarks: u64,
    /// Records moved by transactions that committed, by the mover's transactional id.
    pub moved: BTreeMap<String, u64>,
    /// Committed transactions that moved an amount.
    pub transfers: u64,
    /// Replaced instances that went on and were told that they are replaced.
    pub refused: u64,
}

impl Tally {
    pub fn of(events: &[Event]) -> Tally {
        let mut tally = Tally::default();
        let ids = transactional_ids(events);
        let committed: HashSet<u64> = events.iter().filter_map(committed).collect();
        tally.commits = committed.len() as u64;
        let mut transfers = HashSet::new();
        for event in events {
            match event {
                Event::Send {
                    client,
                    txn: Some(txn),
                    input,
                    amount,
                    ..
                } if committed.contains(txn) => {
                    if let (Some(_), Some(id)) = (input, ids.get(client.as_str())) {
                        *tally.moved.entry((*id).to_owned()).or_insert(0) += 1;
                    }
                    if amount.is_some() {
                        transfers.insert(*txn);
                    }
                }
                Event::Poll {
                    client,
                    read_committed,
                    records,
                    ..
                } => {
                    let count = records.len() as u64;
                    tally.polled += count;
                    match (ids.contains_key(client.as_str()), read_committed) {
                        (true, _) => {}
                        (false, true) => tally.committed_reads += count,
                        (false, false) => tally.raw_reads += count,
                    }
                }
                Event::Watermarks { read_committed, .. } => match read_committed {
                    true => tally.committed_watermarks += 1,
                    false => tally.raw_watermarks += 1,
                },
                _ => {}
            }
        }
        tally.transfers = transfers.len() as u64;
        tally.refused = refused(events, &ids);
        tally
    }
}

/// The transaction that this event says has committed.
fn committed(event: &Event) -> Option<u64> {
    match event {
        Event::End {
            txn,
            commit: true,
            error: None,
            ..
        } => Some(*txn),
        _ => None,
    }
}

/// Of each instance of a client that has one.
fn transactional_ids(events: &[Event]) -> HashMap<&str, &str> {
    let of = events.iter().filter_map(|event| match event {
        Event::Client {
            client,
            transactional_id: Some(id),
            ..
        } => Some((client.as_str(), id.as_str())),
        _ => None,
    });
    of.collect()
}

/// Counts the instances that tried to commit after a later one of their id had been answered, and were refused.
fn refused(events: &[Event], ids: &HashMap<&str, &str>) -> u64 {
    // Of each id: when InitProducerId was asked for and answered, and for which instance.
    let mut inits: HashMap<&str, Vec<(u64, u64, &str)>> = HashMap::new();
    for event in events {
        if let Event::Init {
            from,
            to,
            client,
            error: None,
        } = event
            && let Some(id) = ids.get(client.as_str())
        {
            inits.entry(id).or_default().push((*from, *to, client));
        }
    }
    let replaced = |client: &str, at: u64| {
        let of_id = ids.get(client).and_then(|id| inits.get(id))?;
        let began = of_id.iter().find(|(_, _, other)| *other == client)?.1;
        of_id
            .iter()
            .find(|(from, to, other)| *other != client && *from > began && *to < at)
    };
    let instances = events.iter().filter_map(|event| match event {
        Event::End {
            from,
            client,
            commit: true,
            error: Some(error),
            ..
        } if REPLACED.contains(&error.as_str()) => replaced(client, *from).map(|_| client.as_str()),
        _ => None,
    });
    instances.collect::<HashSet<_>>().len() as u64
}

/// Something of which at least so much is asked for.
pub struct Minimum {
    pub what: String,
    pub got: u64,
    pub least: u64,
}

impl Minimum {
    pub fn new(what: impl Into<String>, got: u64, least: u64) -> Minimum {
        Minimum {
            what: what.into(),
            got,
            least,
        }
    }
}

/// Prints a line with all of them, `WHAT=GOT/LEAST`; whether each is reached. What is not is told on standard error too.
pub fn reached(minimums: &[Minimum]) -> bool {
    let all: Vec<String> = minimums
        .iter()
        .map(|Minimum { what, got, least }| format!("{what}={got}/{least}"))
        .collect();
    println!("of at least: {}", all.join(" "));
    let short = minimums
        .iter()
        .filter(|minimum| minimum.got < minimum.least);
    let mut reached = true;
    for Minimum { what, got, least } in short {
        eprintln!("too little happened: {what}={got}, at least {least} is asked for");
        reached = false;
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::{Event, Minimum, Tally, reached};

    fn client(client: &str, id: Option<&str>) -> Event {
        Event::Client {
            at: 0,
            client: client.to_owned(),
            library: String::new(),
            transactional_id: id.map(str::to_owned),
            transaction_timeout_ms: None,
        }
    }

    fn init(client: &str, from: u64) -> Event {
        Event::Init {
            from,
            to: from + 1,
            client: client.to_owned(),
            error: None,
        }
    }

    fn end(client: &str, txn: u64, from: u64, error: Option<&str>) -> Event {
        Event::End {
            from,
            to: from + 1,
            client: client.to_owned(),
            txn,
            commit: true,
            error: error.map(str::to_owned),
        }
    }

    fn send(client: &str, txn: u64, input: Option<u64>, amount: Option<i64>) -> Event {
        Event::Send {
            at: 0,
            client: client.to_owned(),
            txn: Some(txn),
            topic: "t".to_owned(),
            partition: 0,
            value: 0,
            input,
            amount,
        }
    }

    fn poll(client: &str, read_committed: bool, count: usize) -> Event {
        Event::Poll {
            from: 0,
            to: 0,
            client: client.to_owned(),
            read_committed,
            records: vec![("t".to_owned(), 0, 0, 0); count],
        }
    }

    #[test]
    fn only_what_committed_is_moved_or_transferred() {
        let events = [
            client("m.1", Some("m")),
            send("m.1", 1, Some(7), None),
            send("m.1", 2, Some(7), None),
            send("m.1", 3, None, Some(5)),
            send("m.1", 3, None, Some(-5)),
            send("m.1", 4, None, Some(5)),
            end("m.1", 1, 10, None),
            end("m.1", 2, 20, Some("TIMED_OUT")),
            end("m.1", 3, 30, None),
        ];
        let tally = Tally::of(&events);
        assert_eq!((tally.commits, tally.transfers), (2, 1));
        assert_eq!(tally.moved.get("m"), Some(&1));
    }

    #[test]
    fn what_movers_read_is_no_readers_read() {
        let events = [
            client("m.1", Some("m")),
            client("r", None),
            poll("m.1", true, 2),
            poll("r", true, 3),
            poll("r", false, 4),
        ];
        let tally = Tally::of(&events);
        assert_eq!((tally.committed_reads, tally.raw_reads), (3, 4));
        assert_eq!(tally.polled, 9);
    }

    #[test]
    fn refused_is_who_was_replaced_before_it_tried_and_is_told_so() {
        let at = |from: u64, error: Option<&str>| {
            let events = [
                client("p.1", Some("p")),
                client("p.2", Some("p")),
                client("q.1", Some("q")),
                init("p.1", 10),
                init("q.1", 20),
                init("p.2", 30),
                end("p.1", 1, from, error),
                end("q.1", 2, 50, Some("FENCED")),
            ];
            Tally::of(&events).refused
        };
        assert_eq!(at(40, Some("FENCED")), 1);
        assert_eq!(at(40, Some("TIMED_OUT")), 0, "that is no refusal");
        assert_eq!(at(40, None), 0, "it was not refused");
        assert_eq!(at(25, Some("FENCED")), 0, "nobody had taken its place yet");
    }

    #[test]
    fn one_thing_short_is_too_little() {
        assert!(reached(&[Minimum::new("a", 1, 1), Minimum::new("b", 0, 0)]));
        assert!(!reached(&[
            Minimum::new("a", 1, 1),
            Minimum::new("b", 1, 2)
        ]));
    }
}
