//! The open log: the newest file, and the end of the chain.

use std::collections::VecDeque;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use tidemark_disk::{Disk, DiskFile, OpenMode, create_dir_all_durable};
use tracing::{info, warn};

use crate::chain::{Link, seal};
use crate::event::{Event, Kind, time_text};
use crate::files::{self, Reader};
use crate::scan::{From, scan};

/// The format of the lines.
const FORMAT: u32 = 1;
const LOCK: &str = "lock";

/// Where the log is, and how much of it is kept.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) max_bytes: u64,
    pub(crate) files: usize,
}

/// A line's fields that are the log's own.
#[derive(Serialize)]
struct Body<'a> {
    seq: u64,
    time: String,
    #[serde(flatten)]
    event: &'a Event,
    #[serde(flatten)]
    extra: Extra,
}

#[derive(Default, Serialize)]
struct Extra {
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    torn_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    torn_sha256: Option<String>,
}

pub(crate) struct Log {
    place: Place,
    number: u64,
    file: Arc<dyn DiskFile>,
    /// Bytes of the file, those of `pending` not counted.
    written: u64,
    pending: Vec<u8>,
    is_dirty: bool,
    /// The end of the chain, with `pending`.
    pub(crate) last: Link,
    pub(crate) seq: u64,
    /// Files there are, the oldest first, without the newest.
    older: VecDeque<u64>,
    _lock: Box<dyn Send + Sync>,
}

impl Log {
    /// Opens the newest file and goes on with the chain. What is not whole at its end stays, and is told
    /// in a line.
    pub(crate) fn open(place: Place, wall_ms: i64) -> io::Result<Log> {
        let Place { disk, dir, .. } = &place;
        create_dir_all_durable(&**disk, dir)?;
        disk.make_private(dir)?;
        let lock = disk.lock(&dir.join(LOCK))?;
        let mut older: VecDeque<u64> = files::numbers(&**disk, dir)?.into();
        let newest = older.pop_back();
        let (number, file) = match newest {
            Some(number) => (
                number,
                disk.open(&files::path(dir, number), OpenMode::ReadWrite)?,
            ),
            None => (1, create(&place, 1)?),
        };
        let mut log = Log {
            number,
            file,
            written: 0,
            pending: Vec::new(),
            // What a killed broker wrote is followed by this one's lines, and may not be durable.
            is_dirty: newest.is_some(),
            last: Link::START,
            seq: 0,
            older,
            _lock: lock,
            place,
        };
        match newest {
            None => log.write_opened(wall_ms, Extra::default()),
            Some(_) => log.go_on(wall_ms)?,
        }
        Ok(log)
    }

    fn go_on(&mut self, wall_ms: i64) -> io::Result<()> {
        let mut reader = BufReader::with_capacity(
            1 << 16,
            Reader {
                file: self.file.clone(),
                at: 0,
            },
        );
        let mut scanned = scan(&mut reader, From::AsItSays, &mut |_, _, _, _| {})?;
        let path = files::path(&self.place.dir, self.number);
        if scanned.first.is_none() {
            // The file was made and its first line is not there: the chain ends in the one before.
            let before = self.end_before()?;
            (scanned.last, scanned.last_seq) = before;
        }
        self.written = scanned.bytes;
        if scanned.lacks_newline {
            self.pending.push(b'\n');
        }
        (self.last, self.seq) = (scanned.last, scanned.last_seq);
        let open_end = scanned.gaps.pop_if(|_| scanned.has_open_end);
        let untold: Vec<_> = scanned
            .gaps
            .iter()
            .filter(|gap| gap.told.is_none())
            .collect();
        if let Some(gap) = untold.first() {
            warn!(
                "the audit log {} was changed: line {} does not follow the one before; `tidemark audit \
                 verify` tells more",
                path.display(),
                gap.line
            );
        }
        let told = open_end.map(|gap| {
            warn!(
                "the audit log {}: its last {} bytes, from line {} on, are not a whole line that follows \
                 the one before; they stay, and the log tells of them",
                path.display(),
                gap.bytes,
                gap.line
            );
            // So that what is written next begins a line.
            self.pending.push(b'\n');
            Extra {
                torn_bytes: Some(gap.bytes),
                torn_sha256: Some(gap.sha256.to_string()),
                ..Extra::default()
            }
        });
        match (scanned.first.is_some(), told) {
            (false, told) => self.write_opened(wall_ms, told.unwrap_or_default()),
            (true, Some(told)) => {
                let reason =
                    "the end of the file was not a whole line that follows the one before it";
                let event = Event::new(Kind::Recovered).reason(reason);
                self.write(wall_ms, &event, told);
            }
            (true, None) => {}
        }
        Ok(())
    }

    /// The chain's end in the files before the newest.
    fn end_before(&self) -> io::Result<(Link, u64)> {
        let Some(number) = self.older.back() else {
            return Ok((Link::START, 0));
        };
        let path = files::path(&self.place.dir, *number);
        let file = self.place.disk.open(&path, OpenMode::Read)?;
        let mut reader = BufReader::new(Reader { file, at: 0 });
        let scanned = scan(&mut reader, From::AsItSays, &mut |_, _, _, _| {})?;
        Ok((scanned.last, scanned.last_seq))
    }

    fn write_opened(&mut self, wall_ms: i64, extra: Extra) {
        let extra = Extra {
            format: Some(FORMAT),
            file: Some(self.number),
            after: Some(self.last.to_string()),
            ..extra
        };
        self.write(wall_ms, &Event::new(Kind::Opened), extra);
    }

    /// Adds a line to what is to be written next.
    pub(crate) fn add(&mut self, wall_ms: i64, event: &Event) -> io::Result<()> {
        if self.written + self.pending.len() as u64 >= self.place.max_bytes {
            self.rotate(wall_ms)?;
        }
        self.write(wall_ms, event, Extra::default());
        Ok(())
    }

    fn write(&mut self, wall_ms: i64, event: &Event, extra: Extra) {
        let body = Body {
            seq: self.seq + 1,
            time: time_text(wall_ms),
            event,
            extra,
        };
        let body = serde_json::to_string(&body).expect("strings and numbers are JSON");
        self.last = seal(&self.last, &body, &mut self.pending);
        self.seq += 1;
    }

    /// Writes what was added.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.file.write_at(&self.pending, self.written)?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        self.is_dirty = true;
        Ok(())
    }

    /// Makes durable what was written.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        if std::mem::take(&mut self.is_dirty) {
            self.file.sync_data()?;
        }
        Ok(())
    }

    fn rotate(&mut self, wall_ms: i64) -> io::Result<()> {
        self.sync()?;
        info!(
            "audit log: {} is full and closed at line {}, hash {}",
            files::name(self.number),
            self.seq,
            self.last
        );
        let file = create(&self.place, self.number + 1)?;
        self.older.push_back(self.number);
        self.number += 1;
        self.file = file;
        self.written = 0;
        self.write_opened(wall_ms, Extra::default());
        while self.older.len() + 1 > self.place.files {
            let Some(oldest) = self.older.pop_front() else {
                break;
            };
            let removed = self
                .place
                .disk
                .remove_file(&files::path(&self.place.dir, oldest));
            let text = match removed {
                Ok(()) => format!(
                    "{} was removed: more than audit.log.files",
                    files::name(oldest)
                ),
                Err(e) => format!("{} could not be removed: {e}", files::name(oldest)),
            };
            self.write(
                wall_ms,
                &Event::new(Kind::Removed).reason(&text),
                Extra::default(),
            );
        }
        Ok(())
    }
}

fn create(place: &Place, number: u64) -> io::Result<Arc<dyn DiskFile>> {
    let path = files::path(&place.dir, number);
    let file = place.disk.open(&path, OpenMode::CreateNew)?;
    place.disk.make_private(&path)?;
    place.disk.sync_dir(&place.dir)?;
    Ok(file)
}
