//! From segments alone to a directory that a broker starts on.
//!
//! For when neither checkpoint can be read, or the journal is lost. What the segments hold is kept:
//! log ends, last stable offsets, aborted transactions, topics, committed offsets, transactional ids.
//! What they do not hold is named: the newest batches, which were in the journal only; windows of
//! producers whose batches are gone; ticks, where a tick index is. Nothing is deleted: what a start
//! would not use is moved aside.
//!
//! | module | question |
//! |-|-|
//! | `scan` | what do the segments give, and what is missing? |
//! | `settle` | how does a transaction end whose marker is lost? |
//! | `write` | how do checkpoint, journal and files come to be, so that a crash in between is refused by a start and mended by asking again? |

mod scan;
mod settle;
mod write;

use std::path::Path;

use serde_json::json;
use tidemark_histcheck::{DirFiles, Files, Identity};

use crate::check::settings_for;
use crate::directory::{Directory, Refusal};

/// What a rebuild came to, or would.
pub struct Rebuilt {
    /// What is kept, in numbers.
    pub topics: usize,
    pub partitions: usize,
    pub segments: usize,
    pub batches: u64,
    pub offsets: usize,
    pub transactional_ids: usize,
    /// What is lost, or changed by the rebuild; a line each.
    pub lost: Vec<String>,
    /// Files and directories that are moved aside, relative to the data directory.
    pub aside: Vec<String>,
    /// Where to; `None` when it was only looked at.
    pub aside_dir: Option<String>,
}

impl Rebuilt {
    /// Lines for a person; the last one has the numbers.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for line in &self.lost {
            out.push_str(&format!("lost: {line}\n"));
        }
        let to = self
            .aside_dir
            .as_deref()
            .unwrap_or("a directory of its own");
        for file in &self.aside {
            let verb = if self.aside_dir.is_some() {
                "moved"
            } else {
                "would be moved"
            };
            out.push_str(&format!("aside: {file} {verb} to {to}\n"));
        }
        let what = match self.aside_dir {
            Some(_) => "rebuilt",
            None => "nothing was changed; with --yes",
        };
        out.push_str(&format!(
            "{what}: topics={} partitions={} segments={} batches={} offsets={} \
             transactional_ids={} lost={}\n",
            self.topics,
            self.partitions,
            self.segments,
            self.batches,
            self.offsets,
            self.transactional_ids,
            self.lost.len()
        ));
        out
    }

    /// The same as one line of JSON.
    pub fn json(&self) -> String {
        let told = json!({
            "rebuilt": self.aside_dir.is_some(),
            "topics": self.topics,
            "partitions": self.partitions,
            "segments": self.segments,
            "batches": self.batches,
            "offsets": self.offsets,
            "transactional_ids": self.transactional_ids,
            "lost": self.lost,
            "aside": self.aside,
            "aside_dir": self.aside_dir,
        });
        format!("{told}\n")
    }
}

/// Looks at what a rebuild would do, and with `write` does it.
///
/// Errors: it is no data directory, a broker runs on it, its identity or its topics cannot be read,
/// or something could not be written (a rebuild can then be asked for again).
pub fn rebuild(path: &Path, write: bool) -> Result<Rebuilt, Refusal> {
    let directory = Directory::open(path)?;
    let refuse = |what: String| Refusal(format!("{}: {what}", path.display()));
    let files = DirFiles::new(&directory.path);
    let identity = files.whole("identity").map_err(|e| refuse(e.to_string()))?;
    let identity = identity.ok_or_else(|| {
        refuse("identity is missing; restore it from a copy of the data directory".to_owned())
    })?;
    let identity = Identity::parse(&identity)
        .map_err(|bad| refuse(format!("identity: {}; restore it from a copy", bad.what)))?;
    let settings = settings_for(&directory.path, identity.node_id).map_err(refuse)?;
    let mut found = scan::scan(&files, &identity, &settings).map_err(refuse)?;
    let unfinished = settle::plan(&mut found);
    let mut rebuilt = found.summary();
    if write {
        let done = write::write(&directory.path, &identity, &settings, found, unfinished);
        rebuilt.aside_dir = Some(done.map_err(refuse)?);
    }
    Ok(rebuilt)
}
