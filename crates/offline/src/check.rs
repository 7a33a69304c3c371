//! Is everything as it was written?
//!
//! Three times over: the independent reader checks every byte that a start depends on and computes
//! what a start would serve; the broker's own start is run up to where it would write; and what the
//! two came to is compared.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tidemark_broker::{DryStart, dry_start};
use tidemark_config::{Inputs, Settings, load};
use tidemark_disk::OsDisk;
use tidemark_histcheck::{
    Aborted, DataDir, DirFiles, Finding, Inspection, PartitionId, Progress, Severity, StateBlock,
    TopicId, Totals, contradictions, inspect, internal_contradictions,
};
use tidemark_owner::Owner;
use tidemark_types::TopicPartitionId;

use crate::directory::{Directory, Refusal};

const REPORT: &str = "this is a defect of Tidemark: please report it with the output of tidemark \
                      check --json";

/// What a check came to.
pub struct Checked {
    pub findings: Vec<Finding>,
    pub totals: Totals,
    /// Partitions of all topics.
    pub partitions: u64,
}

impl Checked {
    /// Findings that are more than notes.
    pub fn faults(&self) -> usize {
        let faults = self
            .findings
            .iter()
            .filter(|f| f.severity != Severity::Note);
        faults.count()
    }

    /// A line for each finding and one with the numbers.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for finding in &self.findings {
            out.push_str(&format!("{finding}\n"));
        }
        let t = &self.totals;
        let notes = self.findings.len() - self.faults();
        out.push_str(&format!(
            "check: segments={} segment_bytes={} batches={} journal_records={} checkpoints={} \
             partitions={} notes={notes} faults={}\n",
            t.segments,
            t.segment_bytes,
            t.batches,
            t.journal_records,
            t.checkpoints,
            self.partitions,
            self.faults()
        ));
        out
    }

    /// The same as one line of JSON.
    pub fn json(&self) -> String {
        let findings: Vec<Value> = self
            .findings
            .iter()
            .map(|f| {
                json!({
                    "severity": f.severity.word(),
                    "file": f.file,
                    "position": f.position,
                    "what": f.what,
                    "mend": f.mend,
                })
            })
            .collect();
        let t = &self.totals;
        let told = json!({
            "ok": self.faults() == 0,
            "faults": self.faults(),
            "findings": findings,
            "segments": t.segments,
            "segment_bytes": t.segment_bytes,
            "batches": t.batches,
            "journal_records": t.journal_records,
            "checkpoints": t.checkpoints,
            "partitions": self.partitions,
        });
        format!("{told}\n")
    }
}

/// Checks a directory; `progress` tells how far it is on standard error.
///
/// Errors: it is no data directory, or a broker runs on it.
pub fn check(path: &Path, progress: bool) -> Result<Checked, Refusal> {
    let directory = Directory::open(path)?;
    let files = DirFiles::new(&directory.path);
    let mut meter = Meter {
        shown: progress && std::io::stderr().is_terminal(),
        told: false,
    };
    let Inspection {
        data,
        mut findings,
        totals,
    } = inspect(&files, &mut |progress| meter.tell(progress));
    meter.end();
    match replayed(&directory.path, &data) {
        Ok(start) => compare(&start, &data, &mut findings),
        Err(what) => findings.push(Finding {
            severity: Severity::Damage,
            file: ".".to_owned(),
            position: None,
            what: format!("a start would be refused: {what}"),
            mend: "",
        }),
    }
    Ok(Checked {
        findings,
        totals,
        partitions: data.partitions.len() as u64,
    })
}

/// Runs the broker's own start.
fn replayed(path: &Path, data: &DataDir) -> Result<DryStart, String> {
    let node_id = data
        .identity
        .as_ref()
        .map_or(0, |identity| identity.node_id);
    let settings = settings_for(path, node_id)?;
    dry_start(&settings, Arc::new(OsDisk)).map_err(|e| e.to_string())
}

/// The default settings, for this directory.
pub(crate) fn settings_for(path: &Path, node_id: i32) -> Result<Settings, String> {
    let text = path.to_str().ok_or("its path is not UTF-8")?;
    let inputs = Inputs {
        flags: vec![
            ("data-dir".to_owned(), text.to_owned()),
            ("node-id".to_owned(), node_id.to_string()),
        ],
        ..Inputs::default()
    };
    let loaded = load(&inputs).map_err(|e| e.to_string())?;
    Ok(loaded.settings)
}

fn raw_id(id: TopicPartitionId) -> PartitionId {
    PartitionId {
        topic: TopicId(id.topic.0),
        partition: id.partition,
    }
}

/// A partition of the broker's state, as its checkpoint block says it.
fn state_of(owner: &Owner, id: TopicPartitionId) -> Option<StateBlock> {
    let (_, block) = owner.encode_block(id)?;
    StateBlock::parse_payload(raw_id(id), &block, 0).ok()
}

/// The broker's state against the independent reader's.
fn compare(start: &DryStart, data: &DataDir, findings: &mut Vec<Finding>) {
    let mut bad = |file: String, what: String| {
        findings.push(Finding {
            severity: Severity::Damage,
            file,
            position: None,
            what: format!("the broker and the independent reader: {what}"),
            mend: REPORT,
        });
    };
    let ids = start.owner.partition_ids();
    for id in data.partitions.keys() {
        if !ids.iter().any(|known| raw_id(*known) == *id) {
            bad(
                format!("partitions/{id}"),
                "only the latter has it".to_owned(),
            );
        }
    }
    for id in &ids {
        let file = format!("partitions/{id}");
        let (Some(found), Some(state)) = (
            data.partitions.get(&raw_id(*id)),
            state_of(&start.owner, *id),
        ) else {
            bad(file, "only the former has it".to_owned());
            continue;
        };
        let aborted: Vec<Aborted> = (start.aborted.get(id).into_iter().flatten())
            .map(|txn| Aborted {
                producer_id: txn.producer_id.0,
                first_offset: txn.first_offset,
                last_offset: txn.last_offset,
                last_stable_offset: txn.last_stable_offset,
            })
            .collect();
        for what in contradictions(&aborted, &state, found) {
            bad(file.clone(), what);
        }
    }
    let internal = ids
        .iter()
        .filter(|id| id.topic.is_reserved())
        .filter_map(|id| Some((raw_id(*id), state_of(&start.owner, *id)?)));
    for what in internal_contradictions(internal, data) {
        bad("partitions".to_owned(), what);
    }
    let image = start.owner.metadata();
    for topic in image.topics() {
        let seen = data.metadata.topics.get(&*topic.name);
        let same = seen.is_some_and(|seen| {
            seen.id.0 == topic.id.0
                && seen.partitions == topic.partitions
                && seen.config == topic.config
        });
        if !same {
            let what = format!("topic {:?} is {topic:?}, and {seen:?}", topic.name);
            bad("partitions".to_owned(), what);
        }
    }
    if image.next_producer_id() != data.metadata.next_producer_id {
        let what = format!(
            "the next producer id is {}, and {}",
            image.next_producer_id(),
            data.metadata.next_producer_id
        );
        bad("partitions".to_owned(), what);
    }
}

/// How far it is, on a terminal.
struct Meter {
    shown: bool,
    told: bool,
}

impl Meter {
    fn tell(&mut self, progress: Progress) {
        if self.shown && progress.bytes_total > 0 {
            self.told = true;
            eprint!(
                "\r{} of {} MiB of segments ({} %) ",
                progress.bytes_done >> 20,
                progress.bytes_total >> 20,
                progress.bytes_done * 100 / progress.bytes_total
            );
        }
    }

    fn end(&self) {
        if self.told {
            eprintln!();
        }
    }
}
