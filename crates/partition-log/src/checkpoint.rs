//! Writing checkpoint files and finding the newest good one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tidemark_disk::{Disk, DiskFile, OpenMode, create_dir_all_durable, read_all};

use crate::bytes_io::{crc32c, crc32c_combine};
use crate::checkpoint_format::{
    Fault, decode, decode_header, encode_block, encode_end, encode_header,
};
use crate::{Block, BlockKind, CheckpointHeader};

const PREFIX: &str = "checkpoint-";
const TMP: &str = "checkpoint.tmp";
/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// Why a checkpoint could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// There are checkpoints, and none can be read.
    #[error(
        "no checkpoint can be read ({faults}); restore the data directory from a copy, or keep what \
         the segments hold: tidemark check DIR --rebuild"
    )]
    AllDamaged { faults: String },
    /// A whole checkpoint of a later version.
    #[error(
        "{} was written by a newer version of Tidemark ({what}); start that version again, or a \
         later one",
        path.display()
    )]
    Newer { path: PathBuf, what: String },
    #[error(
        "{} belongs to another cluster; give this broker a data directory of its own, or the one \
         it had",
        path.display()
    )]
    Foreign { path: PathBuf },
}

impl CheckpointError {
    /// True for what comes of a full disk and the like: the previous checkpoint stands, and the next
    /// one may be written.
    pub fn is_shortage(&self) -> bool {
        matches!(self, CheckpointError::Io { source, .. } if tidemark_disk::is_shortage(source))
    }

    fn io(path: &Path, source: io::Error) -> CheckpointError {
        CheckpointError::Io {
            path: path.to_owned(),
            source,
        }
    }
}

/// A checkpoint that was read whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    pub header: CheckpointHeader,
    /// In the order in which they were written.
    pub blocks: Vec<Block>,
    /// A newer checkpoint was damaged, and this is the one before: what was wrong, with file and
    /// position. To be reported.
    pub fell_back: Option<String>,
    /// The header of the older checkpoint that is kept. Journal records it needs must stay.
    pub previous: Option<CheckpointHeader>,
    /// Generation for the next checkpoint.
    pub next_generation: u64,
}

fn file_name(generation: u64) -> String {
    format!("{PREFIX}{generation:020}")
}

fn parse_file_name(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    let generation: u64 = digits.parse().ok()?;
    // No checkpoint could follow the last number there is: such a file is none of ours.
    (file_name(generation) == name && generation < u64::MAX).then_some(generation)
}

/// The generations in `dir`, newest first.
fn generations(disk: &dyn Disk, dir: &Path) -> Result<Vec<u64>, CheckpointError> {
    let on_dir = |e| CheckpointError::io(dir, e);
    if !disk.exists(dir).map_err(on_dir)? {
        return Ok(Vec::new());
    }
    let mut found: Vec<u64> = disk
        .list(dir)
        .map_err(on_dir)?
        .iter()
        .filter_map(|entry| parse_file_name(&entry.name))
        .collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

/// The newest good checkpoint in `dir`; the one before when the newest is damaged; `None` when
/// there was never one.
///
/// `known` names each kind of block that the caller can read and the newest format version of its
/// payload. A block of another kind or a newer format means that a newer Tidemark wrote the file:
/// that is refused, not skipped, and no older checkpoint is tried, because the journal may hold
/// what this version cannot read either.
///
/// Errors: `AllDamaged`, `Newer`, `Foreign`, I/O errors.
pub fn read_latest(
    disk: &dyn Disk,
    dir: &Path,
    cluster_id: [u8; 16],
    known: &[(BlockKind, u16)],
) -> Result<Option<Checkpoint>, CheckpointError> {
    read_newest_of(disk, dir, cluster_id, known, &generations(disk, dir)?)
}

/// The newest good checkpoint that is older than `generation`: the other one that is kept. What it
/// names must not be removed ([`crate::remove_unreferenced`]).
///
/// Errors: as of [`read_latest`].
pub fn read_previous(
    disk: &dyn Disk,
    dir: &Path,
    cluster_id: [u8; 16],
    known: &[(BlockKind, u16)],
    generation: u64,
) -> Result<Option<Checkpoint>, CheckpointError> {
    let mut older = generations(disk, dir)?;
    older.retain(|known| *known < generation);
    match read_newest_of(disk, dir, cluster_id, known, &older) {
        Err(CheckpointError::AllDamaged { .. }) => Ok(None),
        read => read,
    }
}

/// `generations` newest first.
fn read_newest_of(
    disk: &dyn Disk,
    dir: &Path,
    cluster_id: [u8; 16],
    known: &[(BlockKind, u16)],
    generations: &[u64],
) -> Result<Option<Checkpoint>, CheckpointError> {
    let Some(newest) = generations.first() else {
        return Ok(None);
    };
    let next_generation = newest + 1;
    let mut faults: Vec<String> = Vec::new();
    for (at, generation) in generations.iter().enumerate() {
        let path = dir.join(file_name(*generation));
        let bytes = read_all(disk, &path).map_err(|e| CheckpointError::io(&path, e))?;
        let (header, blocks) = match decode(&Bytes::from(bytes)) {
            Ok(whole) => whole,
            Err(Fault::Newer(version)) => {
                return Err(CheckpointError::Newer {
                    path,
                    what: format!("checkpoint format {version}"),
                });
            }
            Err(Fault::Damaged(position, what)) => {
                faults.push(format!("{}: position {position}: {what}", path.display()));
                continue;
            }
        };
        if header.cluster_id != cluster_id {
            return Err(CheckpointError::Foreign { path });
        }
        if header.generation != *generation {
            faults.push(format!(
                "{}: it is generation {}",
                path.display(),
                header.generation
            ));
            continue;
        }
        if let Some(block) = blocks.iter().find(|block| !is_known(block, known)) {
            return Err(CheckpointError::Newer {
                what: format!(
                    "block of kind {}, format {}",
                    block.kind.0, block.format_version
                ),
                path,
            });
        }
        let previous = generations[at + 1..]
            .iter()
            .find_map(|generation| good_header(disk, &dir.join(file_name(*generation))));
        return Ok(Some(Checkpoint {
            header,
            blocks,
            fell_back: (!faults.is_empty()).then(|| faults.join("; ")),
            previous,
            next_generation,
        }));
    }
    Err(CheckpointError::AllDamaged {
        faults: faults.join("; "),
    })
}

fn is_known(block: &Block, known: &[(BlockKind, u16)]) -> bool {
    known
        .iter()
        .any(|(kind, newest)| *kind == block.kind && block.format_version <= *newest)
}

/// The header of the file if it looks like one of ours. Its blocks are not looked at: were they
/// damaged, its header would at worst keep more of the journal than is needed.
fn good_header(disk: &dyn Disk, path: &Path) -> Option<CheckpointHeader> {
    let file = disk.open(path, OpenMode::Read).ok()?;
    let mut bytes = vec![0; 56];
    let got = file.read_at(&mut bytes, 0).ok()?;
    decode_header(&bytes[..got]).ok()
}

/// Writes one checkpoint. Nothing is seen of it before [`CheckpointWriter::finish`]; dropped
/// earlier, it leaves only a temporary file that the next one overwrites.
pub struct CheckpointWriter {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    header: CheckpointHeader,
    /// The older generation that is kept.
    previous: Option<u64>,
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    /// Bytes written to the file.
    written: u64,
    /// CRC-32C of everything before the buffer.
    crc: u32,
    blocks: u64,
}

impl CheckpointWriter {
    /// Begins checkpoint `header.generation` in `dir`. `previous` is the generation of the last
    /// good checkpoint, which will be kept beside the new one.
    ///
    /// Everything the blocks will say of segments must be synced already
    /// ([`crate::WriteBehind::sync_dirty`]).
    pub fn begin(
        disk: Arc<dyn Disk>,
        dir: &Path,
        header: CheckpointHeader,
        previous: Option<u64>,
    ) -> Result<CheckpointWriter, CheckpointError> {
        assert!(previous.is_none_or(|previous| previous < header.generation));
        create_dir_all_durable(&*disk, dir).map_err(|e| CheckpointError::io(dir, e))?;
        let path = dir.join(TMP);
        let file = disk
            .open(&path, OpenMode::OpenOrCreate)
            .and_then(|file| file.set_len(0).map(|()| file))
            .map_err(|e| CheckpointError::io(&path, e))?;
        Ok(CheckpointWriter {
            disk,
            dir: dir.to_owned(),
            previous,
            file,
            buffer: encode_header(&header),
            header,
            written: 0,
            crc: crc32c(&[]),
            blocks: 0,
        })
    }

    /// Adds a block.
    pub fn block(&mut self, block: &Block) -> Result<(), CheckpointError> {
        let (head, crc) = encode_block(block);
        self.buffer.extend_from_slice(&head);
        self.buffer.extend_from_slice(&block.payload);
        self.buffer.extend_from_slice(&crc);
        self.blocks += 1;
        if self.buffer.len() >= BUFFER_BYTES {
            self.write_out()?;
        }
        Ok(())
    }

    fn on_tmp(&self, source: io::Error) -> CheckpointError {
        CheckpointError::io(&self.dir.join(TMP), source)
    }

    fn write_out(&mut self) -> Result<(), CheckpointError> {
        let len = self.buffer.len() as u64;
        self.file
            .write_at(&self.buffer, self.written)
            .map_err(|e| self.on_tmp(e))?;
        self.crc = crc32c_combine(self.crc, crc32c(&self.buffer), len);
        self.written += len;
        self.buffer.clear();
        Ok(())
    }

    /// Makes the checkpoint durable and removes those older than the previous one. Returns its
    /// size in bytes.
    ///
    /// When this fails the previous checkpoint still stands, and nothing it needs may be given up.
    pub fn finish(mut self) -> Result<u64, CheckpointError> {
        self.buffer.extend_from_slice(&encode_end(self.blocks));
        self.write_out()?;
        self.buffer.extend_from_slice(&self.crc.to_be_bytes());
        self.write_out()?;
        self.file.sync_data().map_err(|e| self.on_tmp(e))?;
        let path = self.dir.join(file_name(self.header.generation));
        self.disk
            .rename(&self.dir.join(TMP), &path)
            .map_err(|e| self.on_tmp(e))?;
        self.disk
            .sync_dir(&self.dir)
            .map_err(|e| CheckpointError::io(&self.dir, e))?;
        for generation in generations(&*self.disk, &self.dir)? {
            if generation != self.header.generation && Some(generation) != self.previous {
                let path = self.dir.join(file_name(generation));
                self.disk
                    .remove_file(&path)
                    .map_err(|e| CheckpointError::io(&path, e))?;
            }
        }
        Ok(self.written)
    }
}
