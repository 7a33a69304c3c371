//! Space kept back for a full disk.
//!
//! A file of the data directory reserves as much as a slot of the journal and a quarter: after the
//! journal has taken a slot of it a checkpoint, which frees others, still finds space. It is given up when
//! nothing else helps: so that a checkpoint can be written, after which deleted data goes, or so that
//! the journal's writer, which has used up its reserve, gets one more slot. As long as it is gone no
//! data is taken; ends of transactions, offsets and deletions are. It is taken again when there is
//! space.
//!
//! Nothing is ever read from the file, and it need not survive anything.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemark_disk::{Disk, OpenMode, is_shortage};

const FILE: &str = "ballast";

pub struct Ballast {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    bytes: u64,
    /// There is a file: an earlier run's may be shorter than it should be, or empty.
    is_there: bool,
    /// All of it is reserved.
    is_whole: bool,
    /// There was no space to make it whole: what is there may be less than a slot.
    is_too_small: bool,
}

impl Ballast {
    /// Nothing is reserved yet but what an earlier run left: on a full disk that is all there is to
    /// give up.
    pub fn new(disk: Arc<dyn Disk>, data_dir: &Path, bytes: u64) -> io::Result<Ballast> {
        let path = data_dir.join(FILE);
        Ok(Ballast {
            is_there: disk.exists(&path)?,
            is_whole: false,
            is_too_small: false,
            disk,
            path,
            bytes,
        })
    }

    /// There is something to give up.
    pub fn is_held(&self) -> bool {
        self.is_there
    }

    /// There is something to give up, and as far as is known it is enough.
    pub fn is_of_use(&self) -> bool {
        self.is_there && !self.is_too_small
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reserves the space unless it is reserved; whether it is. Where there is not enough, what an
    /// earlier run left stays. The error is none of a full disk.
    pub fn take(&mut self) -> io::Result<bool> {
        if !self.is_whole {
            let reserved = self
                .disk
                .open(&self.path, OpenMode::OpenOrCreate)
                .and_then(|file| file.allocate(0, self.bytes));
            match reserved {
                Ok(()) => {
                    (self.is_there, self.is_whole) = (true, true);
                    self.is_too_small = false;
                }
                Err(e) if is_shortage(&e) && self.is_there => self.is_too_small = true,
                Err(e) if is_shortage(&e) => self.give_up()?,
                Err(e) => return Err(e),
            }
        }
        Ok(self.is_whole)
    }

    /// Gives the space back to the disk.
    pub fn give_up(&mut self) -> io::Result<()> {
        (self.is_there, self.is_whole) = (false, false);
        self.is_too_small = false;
        match self.disk.remove_file(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_disk::SimDisk;

    #[test]
    fn it_takes_space_and_gives_it_back() {
        let disk = SimDisk::new(1);
        let new = || Ballast::new(Arc::new(disk.clone()), Path::new("/"), 1 << 20).unwrap();
        let mut ballast = new();
        assert!(!ballast.is_held());
        assert!(ballast.take().unwrap());
        assert_eq!(disk.used_bytes(), 1 << 20);
        ballast.give_up().unwrap();
        assert_eq!(disk.used_bytes(), 0);
        disk.set_capacity(Some(1 << 19));
        assert!(!ballast.take().unwrap());
        assert_eq!(disk.used_bytes(), 0, "half of it is of no use");
        disk.set_capacity(None);
        assert!(ballast.take().unwrap());
        // One that an earlier run left is the same.
        let mut again = new();
        assert!(again.is_held());
        assert!(again.take().unwrap());
        assert_eq!(disk.used_bytes(), 1 << 20);
    }

    #[test]
    fn what_an_earlier_run_left_is_made_whole_or_kept_as_it_is() {
        let disk = SimDisk::new(1);
        let new = || Ballast::new(Arc::new(disk.clone()), Path::new("/"), 1 << 20).unwrap();
        // Of a run that was cut short, or that reserved less.
        let file = disk.open(Path::new("/ballast"), OpenMode::OpenOrCreate);
        file.unwrap().allocate(0, 1 << 18).unwrap();
        let mut left = new();
        assert!(left.is_held() && left.is_of_use());
        disk.set_capacity(Some(1 << 19));
        assert!(!left.take().unwrap());
        assert!(left.is_held() && !left.is_of_use());
        assert_eq!(disk.used_bytes(), 1 << 18, "it is not given up for nothing");
        disk.set_capacity(None);
        assert!(left.take().unwrap());
        assert!(left.is_of_use());
        assert_eq!(disk.used_bytes(), 1 << 20);
    }
}
