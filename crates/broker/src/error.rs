//! Why a broker does not start: what, where, the value seen, how to mend.

use std::io;
use std::path::{Path, PathBuf};

use tidemark_journal::JournalError;
use tidemark_oauth::JwksError;
use tidemark_partition_log::{CheckpointError, LogError};
use tidemark_tls::TlsError;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// It cannot be made, or not be written to.
    #[error(
        "the data directory {} cannot be used: {source}; make it writable, or choose another with \
         --data-dir",
        path.display()
    )]
    DataDir { path: PathBuf, source: io::Error },
    #[error(
        "the data directory {} is in use by another process; stop that one, or give this broker \
         another directory with --data-dir",
        path.display()
    )]
    InUse { path: PathBuf },
    #[error("{}: {what}; {mend}", path.display())]
    Identity {
        path: PathBuf,
        what: String,
        mend: String,
    },
    #[error(
        "cannot listen on {address} (listener {listener}): {source}; free that port, or choose \
         another with --listen HOST:PORT"
    )]
    Listen {
        listener: String,
        address: String,
        source: io::Error,
    },
    /// Key, certificates or CAs of the listeners with TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Oauth(#[from] JwksError),
    #[error("ssl.principal.mapping.rules: {0}")]
    PrincipalRules(String),
    /// `WouldBlock`: another process writes there.
    #[error(
        "the audit log in {} cannot be used: {}; {}",
        path.display(),
        audit_why(source),
        "make the directory writable, or name another in audit.log.path"
    )]
    Audit { path: PathBuf, source: io::Error },
    /// Users that the settings name. The text quotes no password.
    #[error(
        "{0}; write one NAME:PASSWORD a line in auth.users.file, or separate them by commas in auth.users"
    )]
    Users(String),
    #[error(
        "nobody could authenticate: {listeners} asks clients who they are, and there are no users; name \
         the first ones in auth.users.file (NAME:PASSWORD, one a line) or auth.users"
    )]
    NoUsers { listeners: String },
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Log(#[from] LogError),
    /// The journal or a checkpoint says what cannot follow from what was before it.
    #[error("{0}; the data directory is damaged: restore it from a copy")]
    Replay(String),
    /// Journal and checkpoints are gone, segments are not.
    #[error(
        "{} holds the segments of {partitions} partitions, and neither journal nor checkpoint: \
         restore it from a copy, or see what `tidemark check {} --rebuild` can make of the segments",
        path.display(),
        path.display()
    )]
    Orphaned { path: PathBuf, partitions: usize },
    #[error("the broker's start was cut short: {0}")]
    Stopped(String),
}

fn audit_why(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::WouldBlock => "another process writes there".to_owned(),
        _ => source.to_string(),
    }
}

impl StartError {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> StartError {
        StartError::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }
}
