use std::collections::BTreeMap;
use std::fmt;

use crate::row::Row;
use crate::rows::{row, rows};

/// Where a value is from. A later one is stronger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Default,
    /// `serve --secure` stands for it.
    Secure,
    File {
        path: String,
        line: usize,
    },
    Env {
        name: String,
    },
    Flag {
        name: String,
    },
}

impl Source {
    /// Defaults < file < environment < flags.
    pub(crate) fn strength(&self) -> u8 {
        match self {
            Source::Default | Source::Secure => 0,
            Source::File { .. } => 1,
            Source::Env { .. } => 2,
            Source::Flag { .. } => 3,
        }
    }

    /// A word for it in machine-read output.
    pub fn kind(&self) -> &'static str {
        match self {
            Source::Default => "default",
            Source::Secure => "secure",
            Source::File { .. } => "file",
            Source::Env { .. } => "environment",
            Source::Flag { .. } => "flag",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::Secure => f.write_str("--secure"),
            Source::File { path, line } => write!(f, "{path}:{line}"),
            Source::Env { name } => write!(f, "environment variable {name}"),
            Source::Flag { name } => write!(f, "flag --{name}"),
        }
    }
}

/// A value that somebody set. It may be a secret: without `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SetValue {
    pub(crate) text: String,
    pub(crate) source: Source,
}

/// Every setting's text and where it is from.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Values {
    /// What was set, checked and in its one form, by the row's name.
    pub(crate) set: BTreeMap<&'static str, SetValue>,
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |name: &&'static str| row(name).is_some_and(|row| !row.sensitive);
        let set = self.set.iter().map(|(name, value)| {
            let text = Some(value.text.as_str()).filter(|_| shown(name));
            (name, (text.unwrap_or("[hidden]"), &value.source))
        });
        f.debug_map().entries(set).finish()
    }
}

impl Values {
    /// The value in force of a setting, by its name or an alias; None where it has none.
    pub fn text(&self, name: &str) -> Option<&str> {
        let row = row(name)?;
        self.set
            .get(row.name)
            .map(|value| value.text.as_str())
            .or(row.default.as_deref())
    }

    /// The value somebody set, None where the default is in force.
    pub fn set_text(&self, name: &str) -> Option<&str> {
        let row = row(name)?;
        self.set.get(row.name).map(|value| value.text.as_str())
    }

    pub fn source(&self, name: &str) -> Source {
        row(name)
            .and_then(|row| self.set.get(row.name))
            .map_or(Source::Default, |value| value.source.clone())
    }

    /// Every setting with its value, None where it has none or must not be shown, and its source.
    pub fn explain(&self) -> impl Iterator<Item = (&'static Row, Option<&str>, Source)> {
        rows().iter().map(|row| {
            let shown = self.text(row.name).filter(|_| !row.sensitive);
            (row, shown, self.source(row.name))
        })
    }
}
