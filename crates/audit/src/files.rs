//! The files of an audit log: `audit-00000001.jsonl` and on.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemark_disk::{Disk, DiskFile};

const BEFORE: &str = "audit-";
const AFTER: &str = ".jsonl";

pub(crate) fn name(number: u64) -> String {
    format!("{BEFORE}{number:08}{AFTER}")
}

/// The number of a file of ours.
pub(crate) fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(BEFORE)?.strip_suffix(AFTER)?;
    let number = digits.parse().ok()?;
    (self::name(number) == name).then_some(number)
}

/// The numbers of the files in a directory, in order.
pub(crate) fn numbers(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<u64>> {
    let mut found: Vec<u64> = (disk.list(dir)?.iter())
        .filter(|entry| !entry.is_dir)
        .filter_map(|entry| number(&entry.name))
        .collect();
    found.sort_unstable();
    Ok(found)
}

pub(crate) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(name(number))
}

/// Reads a file from its beginning to its end.
pub(crate) struct Reader {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) at: u64,
}

impl io::Read for Reader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read_at(buf, self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}
