//! What can be wrong with the files: what, where, and how to mend it.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{setting} names {}, which cannot be read: {source}", path.display())]
    Read {
        setting: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "{} is a {kind} store, and only PEM is read; convert it: {convert}",
        path.display()
    )]
    NotPem {
        path: PathBuf,
        kind: &'static str,
        convert: String,
    },
    #[error("{} has no {what}; {mend}", path.display())]
    Missing {
        path: PathBuf,
        what: &'static str,
        mend: &'static str,
    },
    #[error(
        "the key in {} is encrypted; write it without a password, readable by the broker's user \
         alone: openssl pkey -in {} -out key.pem",
        path.display(),
        path.display()
    )]
    EncryptedKey { path: PathBuf },
    #[error("{}: {what}", path.display())]
    Bad { path: PathBuf, what: String },
    #[error("{0}")]
    Options(String),
}
