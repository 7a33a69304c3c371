use std::io;
use std::path::PathBuf;

/// Why a journal cannot be recovered. Every message says where and what to do.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("journal: {action} {file}: {source}")]
    Io {
        action: &'static str,
        file: PathBuf,
        source: io::Error,
    },
    /// Bytes that had been synced are no longer what was written.
    #[error(
        "journal: {file} is damaged at position {position}: {detail}. Records that had been \
         acknowledged are missing from here on, so nothing is cut. Restore the data directory from \
         a copy, or keep what the segments hold: tidemark check DIR --rebuild"
    )]
    Damaged {
        file: PathBuf,
        position: u64,
        detail: String,
    },
    /// A slot, frame or field of a later version.
    #[error(
        "journal: {file} at position {position} holds {what}, which this version does not know. \
         It was written by a later version of Tidemark: start that version"
    )]
    Unknown {
        file: PathBuf,
        position: u64,
        what: String,
    },
    #[error(
        "journal: {file} belongs to another journal ({found}, not {expected}). Move the file \
         away, or start with the data directory it belongs to"
    )]
    OtherJournal {
        file: PathBuf,
        found: String,
        expected: String,
    },
    /// The journal and the checkpoint do not meet.
    #[error(
        "journal: {dir}: records {from} and later are needed, but {detail}. Restore the data \
         directory from a copy"
    )]
    Gap {
        dir: PathBuf,
        from: u64,
        detail: String,
    },
    #[error("journal: the options are wrong: {0}")]
    Options(String),
    /// The visitor refused a record.
    #[error("journal: record {index} cannot be applied: {message}")]
    Visit { index: u64, message: String },
}

/// A journal id as people see it.
pub(crate) fn hex(id: &[u8; 16]) -> String {
    id.iter().map(|b| format!("{b:02x}")).collect()
}
