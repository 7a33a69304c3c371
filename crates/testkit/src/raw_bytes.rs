//! The bytes of a simulated disk, for readers that know nothing of the broker.

use std::path::Path;

use tidemark_disk::{Disk, SimDisk, read_all};
use tidemark_histcheck::MemoryFiles;

use crate::broker::DATA_DIR;

/// The data directory on a disk, as it stands.
///
/// # Panics
/// When the disk has no power or a file cannot be read.
pub fn raw_bytes(disk: &SimDisk) -> MemoryFiles {
    let mut files = MemoryFiles::default();
    collect(disk, Path::new(DATA_DIR), "", &mut files);
    files
}

fn collect(disk: &SimDisk, dir: &Path, prefix: &str, files: &mut MemoryFiles) {
    for entry in disk.list(dir).expect("a directory of the data directory") {
        let path = dir.join(&entry.name);
        let name = format!("{prefix}{}", entry.name);
        if entry.is_dir {
            collect(disk, &path, &format!("{name}/"), files);
        } else {
            let bytes = read_all(disk, &path).expect("a file of the data directory");
            files.0.insert(name, bytes);
        }
    }
}
