//! What a file holds, as text for people or a line of JSON for each thing for programs.
//!
//! Reading changes nothing. A broker may run meanwhile; what it writes may then be seen in part.

mod checkpoint;
mod journal;
mod segment;
mod state;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tidemark_histcheck::{DirFiles, Finding, Metadata, topics};

use crate::directory::Refusal;
use crate::value::Names;

pub use checkpoint::checkpoint;
pub use journal::journal;
pub use segment::{segment, tick_index};
pub use state::state;

/// How it is printed.
#[derive(Clone, Copy, Default, Debug)]
pub struct Options {
    /// A line of JSON for each thing.
    pub json: bool,
    /// The records of each batch too.
    pub records: bool,
    /// First record of the journal, or first offset.
    pub from: Option<i64>,
    /// Last record of the journal, or last offset.
    pub to: Option<i64>,
}

impl Options {
    fn wants(&self, first: i64, last: i64) -> bool {
        self.from.is_none_or(|from| last >= from) && self.to.is_none_or(|to| first <= to)
    }
}

/// Why a dump ended early.
#[derive(Debug)]
pub enum DumpError {
    Refused(Refusal),
    /// The reader went away (`| head`), or the output is full.
    Output(io::Error),
}

impl From<io::Error> for DumpError {
    fn from(error: io::Error) -> DumpError {
        DumpError::Output(error)
    }
}

fn refuse<T>(path: &Path, what: &str) -> Result<T, DumpError> {
    let text = format!("{}: {what}", path.display());
    Err(DumpError::Refused(Refusal(text)))
}

/// A file or directory, as seen from its data directory.
struct Target {
    files: DirFiles,
    /// Relative to the data directory, empty for that itself.
    inside: String,
    is_dir: bool,
    /// The path is in a data directory: topics' names can be found.
    in_data_dir: bool,
}

impl Target {
    fn find(path: &Path) -> Result<Target, DumpError> {
        let meta = match std::fs::metadata(path) {
            Ok(meta) => meta,
            Err(e) => return refuse(path, &e.to_string()),
        };
        let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let root = (full.ancestors()).find(|dir| dir.join("identity").is_file());
        let (root, in_data_dir): (PathBuf, bool) = match root {
            Some(root) => (root.to_owned(), true),
            None if meta.is_dir() => (full.clone(), true),
            None => (full.parent().unwrap_or(&full).to_owned(), false),
        };
        let inside = full.strip_prefix(&root).unwrap_or(Path::new(""));
        Ok(Target {
            inside: inside.to_string_lossy().into_owned(),
            is_dir: meta.is_dir(),
            files: DirFiles::new(root),
            in_data_dir,
        })
    }

    fn names(&self) -> Names {
        Names(match self.in_data_dir {
            true => topics(&self.files),
            false => Metadata::default(),
        })
    }
}

/// Where lines go.
struct Out<'a> {
    to: &'a mut dyn Write,
    json: bool,
}

impl Out<'_> {
    fn line(
        &mut self,
        text: impl FnOnce() -> String,
        json: impl FnOnce() -> Map<String, Value>,
    ) -> io::Result<()> {
        match self.json {
            true => writeln!(self.to, "{}", Value::Object(json())),
            false => writeln!(self.to, "{}", text()),
        }
    }

    /// What could not be read is part of what is printed.
    fn findings(&mut self, findings: &[Finding]) -> io::Result<()> {
        for finding in findings {
            self.line(
                || finding.to_string(),
                || {
                    let mut fields = object(&[("kind", "finding".into())]);
                    fields.insert("severity".to_owned(), finding.severity.word().into());
                    fields.insert("file".to_owned(), finding.file.clone().into());
                    fields.insert("position".to_owned(), finding.position.into());
                    fields.insert("what".to_owned(), finding.what.clone().into());
                    fields
                },
            )?;
        }
        Ok(())
    }
}

fn object(fields: &[(&str, Value)]) -> Map<String, Value> {
    let fields = fields.iter();
    fields
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
}
