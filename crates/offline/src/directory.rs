//! A data directory that nobody uses.

use std::fmt;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

const LOCK: &str = "lock";
/// What a data directory holds, some of it at least.
const PARTS: [&str; 4] = ["identity", "journal", "checkpoints", "partitions"];

/// Why nothing is done: what, where, how to mend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

/// A data directory, locked against a broker's start as long as this lives.
pub struct Directory {
    pub path: PathBuf,
    _lock: Option<File>,
}

impl Directory {
    /// Errors: it is no data directory, or a broker runs on it.
    pub fn open(path: &Path) -> Result<Directory, Refusal> {
        let refuse = |what: String| Err(Refusal(format!("{}: {what}", path.display())));
        match std::fs::metadata(path) {
            Err(e) => {
                return refuse(format!(
                    "{e}; name the directory that --data-dir of the broker names"
                ));
            }
            Ok(meta) if !meta.is_dir() => {
                return refuse("it is no directory; name the data directory itself".to_owned());
            }
            Ok(_) => {}
        }
        if !PARTS.iter().any(|part| path.join(part).exists()) {
            return refuse(
                "it holds no data of a broker; name the directory that --data-dir of the broker names"
                    .to_owned(),
            );
        }
        // Only opened: a directory that must not change, or may not, is looked at all the same.
        let lock = match File::open(path.join(LOCK)) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return refuse(format!("{LOCK} cannot be opened: {e}")),
            Ok(file) => Some(file),
        };
        if let Some(lock) = &lock {
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return refuse(
                        "a broker runs on it, and what it writes now would look like damage; stop it \
                         first (SIGTERM), or work on a copy of the stopped directory"
                            .to_owned(),
                    );
                }
                Err(TryLockError::Error(e)) => return refuse(format!("{LOCK}: {e}")),
            }
        }
        Ok(Directory {
            path: path.to_owned(),
            _lock: lock,
        })
    }
}
