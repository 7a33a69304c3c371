use std::io;
use std::path::{Path, PathBuf};

/// Why a log could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The offset is below what is kept or above the end (OFFSET_OUT_OF_RANGE).
    #[error("offset {offset} is outside {start}..={end}")]
    OutOfRange { offset: i64, start: i64, end: i64 },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The bytes at `position` are not what was written there (CORRUPT_MESSAGE for a reader).
    #[error("{} is damaged at position {position}: {what}", path.display())]
    Damaged {
        path: PathBuf,
        position: u64,
        what: &'static str,
    },
    /// A file has fewer bytes than its checkpoint says were synced.
    #[error(
        "{} ends at position {len}, but {expected} bytes of it were synced before the last checkpoint",
        path.display()
    )]
    Short {
        path: PathBuf,
        len: u64,
        expected: u64,
    },
    /// As `Short`, and the journal does not have what is missing.
    #[error(
        "{found}, and {why}; restore the data directory from a copy, or let tidemark check DIR --rebuild \
         keep what is left and name what is lost"
    )]
    Unmendable { found: String, why: String },
    /// The directory belongs to another cluster, or is not ours.
    #[error("{}: {what}", path.display())]
    Foreign { path: PathBuf, what: String },
    /// An earlier sync failed: what was written since the last good one may be lost, so nothing
    /// more is written.
    #[error("segments are no longer written: an earlier sync failed ({0})")]
    SyncFailed(String),
    /// The next checkpoint could not be made.
    #[error("checkpoint not written: {0}")]
    Checkpoint(#[from] crate::CheckpointError),
    /// The partition was deleted.
    #[error("the partition was deleted")]
    Closed,
}

impl LogError {
    /// `path` could not be read or written.
    pub fn io(path: &Path, source: io::Error) -> LogError {
        LogError::Io {
            path: path.to_owned(),
            source,
        }
    }

    /// True for what comes of a full disk and the like: nothing is wrong with what is written.
    pub fn is_shortage(&self) -> bool {
        match self {
            LogError::Io { source, .. } => tidemark_disk::is_shortage(source),
            LogError::Checkpoint(e) => e.is_shortage(),
            _ => false,
        }
    }

    /// True when the disk did not do what it was told and it is not for lack of space: what is on it
    /// is not known any more, and a second try would not tell.
    pub fn is_disk_failure(&self) -> bool {
        match self {
            LogError::SyncFailed(_) => true,
            LogError::Io { source, .. } => {
                !tidemark_disk::is_shortage(source) && source.kind() != io::ErrorKind::NotFound
            }
            LogError::Checkpoint(e) => !e.is_shortage(),
            _ => false,
        }
    }

    /// True when the file was not there: it was retired between the look and the read.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, LogError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}
