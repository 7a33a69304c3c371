//! Files for their owner alone, whole or not there.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use tidemark_config::Secret;

/// Makes a directory that only its owner looks into; true if it was not there.
pub(super) fn make_dir(dir: &Path) -> Result<bool, String> {
    let cannot = |e: io::Error| {
        format!(
            "{} cannot be made: {e}; make the data directory writable, or choose another with --data-dir",
            dir.display()
        )
    };
    if let Some(parent) = dir.parent() {
        std::fs::create_dir_all(parent).map_err(cannot)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            // Whoever copied it here may have opened it.
            std::fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(cannot)?;
            Ok(false)
        }
        Err(e) => Err(cannot(e)),
    }
}

/// A file's text, `None` if it is not there.
pub(super) fn read(path: &Path) -> Result<Option<Secret>, String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(Secret::new(text))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("{} cannot be read: {e}", path.display())),
    }
}

/// Writes a file whole, in the place of one that is there: a crash leaves the one or the other.
pub(super) fn write_new(path: &Path, text: &str) -> Result<(), String> {
    let tmp = path.with_extension("tmp");
    let write = || -> io::Result<()> {
        let left_over = std::fs::remove_file(&tmp);
        if let Err(e) = left_over
            && e.kind() != io::ErrorKind::NotFound
        {
            return Err(e);
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&tmp)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&tmp, path)?;
        match path.parent() {
            Some(dir) => File::open(dir)?.sync_all(),
            None => Ok(()),
        }
    };
    write().map_err(|e| format!("{} cannot be written: {e}", path.display()))
}

/// 160 random bits as letters and digits.
pub(super) fn random_text() -> Result<Secret, String> {
    let mut bytes = [0; 20];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| "the system has no random numbers".to_owned())?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Secret::new(text))
}
