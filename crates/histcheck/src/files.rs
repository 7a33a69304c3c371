//! Where the bytes come from: a directory of the operating system, or files in memory (a simulated
//! disk after a power cut).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of one read.
const PIECE_BYTES: u64 = 1 << 20;

/// One name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub name: String,
    pub is_dir: bool,
    /// Bytes of a file.
    pub len: u64,
}

/// A data directory that can only be read. Paths are relative to it, with `/`.
pub trait Files {
    /// The names in a directory, sorted; empty when there is no such directory.
    fn list(&self, dir: &str) -> io::Result<Vec<Entry>>;
    /// Length of a file, `None` when there is none.
    fn len(&self, path: &str) -> io::Result<Option<u64>>;
    /// Fills `buf` from `position`, with less only at the end of the file.
    fn read_at(&self, path: &str, buf: &mut [u8], position: u64) -> io::Result<usize>;

    /// Up to `len` bytes from `position`.
    fn bytes(&self, path: &str, position: u64, len: usize) -> io::Result<Vec<u8>> {
        let held = self.len(path)?.unwrap_or(0).saturating_sub(position);
        let mut buf = vec![0; held.min(len as u64) as usize];
        let got = self.read_at(path, &mut buf, position)?;
        buf.truncate(got);
        Ok(buf)
    }

    /// A whole file that is known to be of moderate size; `None` when there is none.
    fn whole(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        let Some(len) = self.len(path)? else {
            return Ok(None);
        };
        let len = usize::try_from(len).map_err(io::Error::other)?;
        self.bytes(path, 0, len).map(Some)
    }
}

/// A directory of the operating system.
pub struct DirFiles {
    root: PathBuf,
    /// The file read last.
    open: Mutex<Option<(String, Arc<File>)>>,
}

impl DirFiles {
    pub fn new(root: impl Into<PathBuf>) -> DirFiles {
        DirFiles {
            root: root.into(),
            open: Mutex::new(None),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    fn file(&self, path: &str) -> io::Result<Arc<File>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((held, file)) = &*open
            && held == path
        {
            return Ok(file.clone());
        }
        let file = Arc::new(File::open(self.root.join(path))?);
        *open = Some((path.to_owned(), file.clone()));
        Ok(file)
    }
}

impl Files for DirFiles {
    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        let entries = match std::fs::read_dir(self.root.join(dir)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let meta = entry.metadata()?;
            found.push(Entry {
                name: entry.file_name().to_string_lossy().into_owned(),
                is_dir: meta.is_dir(),
                len: if meta.is_dir() { 0 } else { meta.len() },
            });
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn len(&self, path: &str) -> io::Result<Option<u64>> {
        match std::fs::metadata(self.root.join(path)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            meta => meta.map(|meta| meta.is_file().then_some(meta.len())),
        }
    }

    fn read_at(&self, path: &str, buf: &mut [u8], position: u64) -> io::Result<usize> {
        let file = self.file(path)?;
        let mut done = 0;
        while done < buf.len() {
            match file.read_at(&mut buf[done..], position + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
}

/// Files in memory, by path.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct MemoryFiles(pub BTreeMap<String, Vec<u8>>);

impl Files for MemoryFiles {
    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        let prefix = match dir {
            "" => String::new(),
            dir => format!("{dir}/"),
        };
        let mut found: BTreeMap<&str, Entry> = BTreeMap::new();
        for (path, bytes) in &self.0 {
            let Some(below) = path.strip_prefix(&prefix) else {
                continue;
            };
            let (name, is_dir) = match below.split_once('/') {
                Some((name, _)) => (name, true),
                None => (below, false),
            };
            found.entry(name).or_insert_with(|| Entry {
                name: name.to_owned(),
                is_dir,
                len: if is_dir { 0 } else { bytes.len() as u64 },
            });
        }
        Ok(found.into_values().collect())
    }

    fn len(&self, path: &str) -> io::Result<Option<u64>> {
        Ok(self.0.get(path).map(|bytes| bytes.len() as u64))
    }

    fn read_at(&self, path: &str, buf: &mut [u8], position: u64) -> io::Result<usize> {
        let bytes = self.0.get(path).ok_or(io::ErrorKind::NotFound)?;
        let rest = bytes
            .get(usize::try_from(position).unwrap_or(usize::MAX)..)
            .unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

/// A file read from front to back, a piece at a time.
pub(crate) struct Window<'a> {
    files: &'a dyn Files,
    path: &'a str,
    /// The file ends here, whatever follows.
    end: u64,
    buf: Vec<u8>,
    start: u64,
}

impl<'a> Window<'a> {
    pub(crate) fn new(files: &'a dyn Files, path: &'a str, end: u64) -> Window<'a> {
        Window {
            files,
            path,
            end,
            buf: Vec::new(),
            start: 0,
        }
    }

    /// `len` bytes from `position`, fewer at the end.
    pub(crate) fn bytes(&mut self, position: u64, len: u64) -> io::Result<&[u8]> {
        let left = self.end.saturating_sub(position);
        let len = len.min(left);
        let held = self.start + self.buf.len() as u64;
        if position < self.start || position + len > held {
            let want = len.max(PIECE_BYTES.min(left));
            self.buf.resize(want as usize, 0);
            let got = self.files.read_at(self.path, &mut self.buf, position)?;
            self.buf.truncate(got);
            self.start = position;
        }
        let at = (position - self.start) as usize;
        let end = (at + len as usize).min(self.buf.len());
        Ok(self.buf.get(at..end).unwrap_or_default())
    }
}
