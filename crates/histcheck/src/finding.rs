//! What is wrong, where, the value seen, and what to do.

use std::fmt;

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// As it may be, and worth knowing: the cut end of an interrupted write.
    Note,
    /// Something that was durable is not as it was written, or two places contradict each other.
    Damage,
    /// Whole, but of a format that this version cannot read.
    Newer,
}

impl Severity {
    pub fn word(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Damage => "damage",
            Severity::Newer => "newer format",
        }
    }
}

/// One thing found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub severity: Severity,
    /// Relative to the data directory.
    pub file: String,
    pub position: Option<u64>,
    /// What is wrong, with the value seen.
    pub what: String,
    /// What a person can do.
    pub mend: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity.word(), self.file)?;
        if let Some(position) = self.position {
            write!(f, ": position {position}")?;
        }
        write!(f, ": {}", self.what)?;
        if !self.mend.is_empty() {
            write!(f, "; {}", self.mend)?;
        }
        Ok(())
    }
}

/// What to do about each kind of file.
pub(crate) mod mend {
    pub(crate) const COPY: &str = "restore this file from a copy of the data directory";
    pub(crate) const NEWER: &str =
        "read it with the version of Tidemark that wrote it, or a later one";
    pub(crate) const JOURNAL: &str = "what was acknowledged may be lost: restore the data directory \
                                      from a copy, or tidemark check --rebuild keeps what the \
                                      segments hold";
    pub(crate) const CHECKPOINT: &str = "the other checkpoint is used in its place; if that is damaged \
                                         too, tidemark check --rebuild makes a new one from the \
                                         segments";
    pub(crate) const SEGMENT: &str = "restore this file from a copy of the data directory, or tidemark \
                                      check --rebuild keeps what lies before the damage";
    pub(crate) const INDEX: &str = "Tidemark does not read this file, Kafka's tools do: remove it, \
                                    nothing else needs it";
    pub(crate) const REPORT: &str = "this is a defect of Tidemark: please report it with the output of \
                                     tidemark check --json";
}

/// A place in a file that is not what it should be; the file's name is the caller's to add.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bad {
    pub position: u64,
    pub what: String,
    pub newer: bool,
}

impl Bad {
    pub(crate) fn new(position: u64, what: impl Into<String>) -> Bad {
        Bad {
            position,
            what: what.into(),
            newer: false,
        }
    }

    pub(crate) fn newer(position: u64, what: impl Into<String>) -> Bad {
        Bad {
            newer: true,
            ..Bad::new(position, what)
        }
    }

    pub(crate) fn in_file(self, file: &str, mend: &'static str) -> Finding {
        Finding {
            severity: if self.newer {
                Severity::Newer
            } else {
                Severity::Damage
            },
            file: file.to_owned(),
            position: Some(self.position),
            what: self.what,
            mend: if self.newer { mend::NEWER } else { mend },
        }
    }
}

/// Everything found so far. Of one file only the first few are kept: the rest is more of the same.
#[derive(Clone, Default, Debug)]
pub(crate) struct Findings {
    pub(crate) all: Vec<Finding>,
}

const PER_FILE: usize = 16;

impl Findings {
    pub(crate) fn push(&mut self, finding: Finding) {
        let same = self.all.iter().rev().take(PER_FILE);
        if same.filter(|f| f.file == finding.file).count() < PER_FILE {
            self.all.push(finding);
        }
    }

    pub(crate) fn bad(&mut self, bad: Bad, file: &str, mend: &'static str) {
        self.push(bad.in_file(file, mend));
    }

    pub(crate) fn damage(&mut self, file: &str, what: impl Into<String>, mend: &'static str) {
        self.push(Finding {
            severity: Severity::Damage,
            file: file.to_owned(),
            position: None,
            what: what.into(),
            mend,
        });
    }

    pub(crate) fn note(&mut self, file: &str, position: Option<u64>, what: impl Into<String>) {
        self.push(Finding {
            severity: Severity::Note,
            file: file.to_owned(),
            position,
            what: what.into(),
            mend: "",
        });
    }

    pub(crate) fn io(&mut self, file: &str, error: &std::io::Error) {
        self.damage(file, format!("it cannot be read: {error}"), mend::COPY);
    }
}
