//! Everything read once more, and held against what the clients were told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::Duration;

use anyhow::{Context, Result};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::topic_partition_list::TopicPartitionList;
use tidemark_examples::broker_process::BrokerProcess;
use tidemark_examples::ledger::{Cleaning, Evidence, Verdict, judge};

use crate::producers::group_of;
use crate::readers::{log_starts, scan, wait_until_settled};
use crate::{
    Args, COMPACTED, EXPIRING, IDEMPOTENT_PRODUCERS, MAX_BYTES_PER_OFFSET, NUMBERS,
    RETENTION_BYTES, Shared, TRANSACTIONAL_PRODUCERS,
};

fn group_offsets(shared: &Shared) -> Result<BTreeMap<usize, i64>> {
    let mut offsets = BTreeMap::new();
    for producer in IDEMPOTENT_PRODUCERS..IDEMPOTENT_PRODUCERS + TRANSACTIONAL_PRODUCERS {
        let consumer: BaseConsumer = shared
            .config()
            .set("group.id", group_of(producer))
            .create()?;
        let mut list = TopicPartitionList::new();
        list.add_partition(NUMBERS, (producer - IDEMPOTENT_PRODUCERS) as i32);
        let committed = consumer
            .committed_offsets(list, Duration::from_secs(30))
            .context("committed offsets")?;
        let offset = committed
            .elements()
            .first()
            .and_then(|element| element.offset().to_raw())
            .unwrap_or(0);
        offsets.insert(producer, offset.max(0));
    }
    Ok(offsets)
}

/// What was found in the end, but for what the files and the log tell.
pub(super) struct Finding {
    verdict: Verdict,
    clean: bool,
}

pub(super) fn report(shared: &Shared, broker: &BrokerProcess) -> Result<Finding> {
    wait_until_settled(shared)?;
    let before = log_starts(shared)?;
    let (committed, raw) = (
        scan(shared, "read_committed")?,
        scan(shared, "read_uncommitted")?,
    );
    let after = log_starts(shared)?;
    let mut cleaning = Cleaning {
        compacted: BTreeSet::from([COMPACTED.to_owned()]),
        ..Cleaning::default()
    };
    let mut clean = true;
    for (partition, (start, left)) in after {
        let starts = (before[&partition].0, start);
        (cleaning.log_starts).insert((EXPIRING.to_owned(), partition), starts);
        if start > 0 && left * MAX_BYTES_PER_OFFSET < RETENTION_BYTES {
            eprintln!(
                "{EXPIRING}-{partition}: retention has left {left} offsets, which cannot be {RETENTION_BYTES} bytes"
            );
            clean = false;
        }
    }
    let verdict = judge(&Evidence {
        ledger: &shared.ledger(),
        live: &shared.live.lock().unwrap_or_else(PoisonError::into_inner),
        committed: &committed,
        raw: &raw,
        group_offsets: &group_offsets(shared)?,
        cleaning: &cleaning,
    });
    for finding in &verdict.findings {
        eprintln!("{finding}");
    }
    clean &= verdict.is_clean();
    if verdict.inconsistent > 0 {
        eprintln!("{} inconsistent offsets", verdict.inconsistent);
    }
    let panics = broker.panics();
    for line in &panics {
        eprintln!("the broker panicked: {line}");
    }
    clean &= panics.is_empty() && shared.complaints.count() == 0;
    eprintln!(
        "of the acknowledged records retention has taken {}, and compaction {} for newer ones",
        verdict.retired, verdict.superseded
    );
    Ok(Finding { verdict, clean })
}

impl Finding {
    /// Prints the last line; whether everything is as it must be and enough happened.
    pub(super) fn told(self, args: &Args, compactions: usize, segments_retired: usize) -> bool {
        let Finding { verdict, mut clean } = self;
        let rounds = args.rounds;
        let minimums = [
            ("acked", verdict.acked, args.min_acked, 100 * rounds),
            ("commits", verdict.commits, args.min_commits, 10 * rounds),
            ("aborts", verdict.aborts, args.min_aborts, 2 * rounds),
            (
                "compactions",
                compactions,
                args.min_compactions,
                rounds.div_ceil(2),
            ),
            (
                "segments_retired",
                segments_retired,
                args.min_retired,
                rounds,
            ),
        ];
        for (name, got, asked, default) in minimums {
            let minimum = asked.unwrap_or(default);
            if got < minimum {
                eprintln!("too little happened: {name}={got}, at least {minimum} is asked for");
                clean = false;
            }
        }
        println!(
            "kill9: rounds={rounds} acked={} commits={} aborts={} lost={} duplicated={} torn={} aborted_read={} \
             compactions={compactions} segments_retired={segments_retired}",
            verdict.acked,
            verdict.commits,
            verdict.aborts,
            verdict.lost,
            verdict.duplicated,
            verdict.torn,
            verdict.aborted_read
        );
        clean
    }
}
