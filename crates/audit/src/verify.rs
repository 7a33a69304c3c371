//! Checks the files of an audit log: is the chain whole, where is it broken, which end is missing.

use std::fmt;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::chain::Link;
use crate::files;
use crate::scan::{From, Gap, scan};

/// A hash that somebody noted: the line of that number must bear it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    pub seq: u64,
    /// The hash, or its first digits.
    pub hash: String,
}

impl Anchor {
    /// From `NUMBER:HASH`; the hash's first 12 hex digits are enough.
    ///
    /// Errors: what is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Anchor, String> {
        let example =
            "write NUMBER:HASH, as the log of the broker and `tidemark audit verify` show them";
        let (seq, hash) = text.split_once(':').ok_or(example)?;
        let seq = seq.parse().map_err(|_| example)?;
        let hash = hash.to_ascii_lowercase();
        let is_hash =
            (12..=64).contains(&hash.len()) && hash.bytes().all(|c| c.is_ascii_hexdigit());
        match is_hash {
            true => Ok(Anchor { seq, hash }),
            false => Err(format!("{example}; at least 12 hex digits of the hash")),
        }
    }
}

/// Something to be told. `broken` is what makes the log not whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub broken: bool,
    pub file: String,
    /// From 1; 0 where it is about the whole file.
    pub line: u64,
    pub what: String,
}

/// What the check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verified {
    pub whole: bool,
    pub files: usize,
    pub lines: u64,
    /// The numbers of the first and the last line.
    pub first_seq: u64,
    pub last_seq: u64,
    /// When the first and the last line were written, by their own words.
    pub first_time: String,
    pub last_time: String,
    /// The last line's: note it elsewhere.
    pub last_hash: String,
    /// Events that the log itself says were lost.
    pub lost: u64,
    pub findings: Vec<Finding>,
}

/// Why there was no check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError(String);

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for VerifyError {}

/// The files that are meant: those of directories, by number, and files as they are given.
fn files_of(paths: &[PathBuf]) -> Result<Vec<PathBuf>, VerifyError> {
    let cannot = |path: &Path, e: std::io::Error| {
        VerifyError(format!("{} cannot be read: {e}", path.display()))
    };
    let mut found = Vec::new();
    for path in paths {
        if !path.is_dir() {
            std::fs::metadata(path).map_err(|e| cannot(path, e))?;
            found.push(path.clone());
            continue;
        }
        let numbers = files::numbers(&tidemark_disk::OsDisk, path).map_err(|e| cannot(path, e))?;
        if numbers.is_empty() {
            return Err(VerifyError(format!(
                "{} holds no audit log (audit-00000001.jsonl and on)",
                path.display()
            )));
        }
        found.extend(numbers.into_iter().map(|number| files::path(path, number)));
    }
    Ok(found)
}

/// Checks files, the oldest first, or whole directories.
///
/// Errors: there is nothing to check, or it cannot be read.
pub fn verify(paths: &[PathBuf], anchors: &[Anchor]) -> Result<Verified, VerifyError> {
    let mut check = Check {
        done: Verified {
            whole: true,
            files: 0,
            lines: 0,
            first_seq: 0,
            last_seq: 0,
            first_time: String::new(),
            last_time: String::new(),
            last_hash: String::new(),
            lost: 0,
            findings: Vec::new(),
        },
        end: From::AsItSays,
        file_before: None,
        last_event: String::new(),
        anchors: anchors.iter().map(|anchor| (anchor, false)).collect(),
    };
    for path in files_of(paths)? {
        check.file(&path)?;
    }
    Ok(check.finish())
}

/// The newest lines of a log, as they stand, the oldest of them first.
///
/// Errors: as [`verify`].
pub fn newest_lines(paths: &[PathBuf], lines: usize) -> Result<String, VerifyError> {
    let mut found: Vec<String> = Vec::new();
    for path in files_of(paths)?.iter().rev() {
        let text = std::fs::read(path)
            .map_err(|e| VerifyError(format!("{} cannot be read: {e}", path.display())))?;
        let text = String::from_utf8_lossy(&text);
        let missing = lines - found.len();
        let some: Vec<String> = text
            .lines()
            .rev()
            .take(missing)
            .map(str::to_owned)
            .collect();
        found.extend(some);
        if found.len() >= lines {
            break;
        }
    }
    Ok(found.into_iter().rev().map(|line| line + "\n").collect())
}

struct Check<'a> {
    done: Verified,
    end: From,
    /// The number of the file before, as it says.
    file_before: Option<u64>,
    last_event: String,
    /// Whether each was met.
    anchors: Vec<(&'a Anchor, bool)>,
}

impl Check<'_> {
    fn find(&mut self, broken: bool, file: &str, line: u64, what: String) {
        self.done.whole &= !broken;
        self.done.findings.push(Finding {
            broken,
            file: file.to_owned(),
            line,
            what,
        });
    }

    fn file(&mut self, path: &Path) -> Result<(), VerifyError> {
        let cannot = |e| VerifyError(format!("{} cannot be read: {e}", path.display()));
        let mut reader = BufReader::with_capacity(1 << 16, File::open(path).map_err(cannot)?);
        let name = path.display().to_string();
        let mut wrong_anchors = Vec::new();
        let anchors = &mut self.anchors;
        // Each file is believed what it says of its beginning; whether that is the end of the one
        // before is looked at by itself, so that one break is told once.
        let scanned = scan(&mut reader, From::AsItSays, &mut |line, head, link, _| {
            for (anchor, met) in anchors
                .iter_mut()
                .filter(|(anchor, _)| anchor.seq == head.seq)
            {
                *met = true;
                if !link.to_string().starts_with(&anchor.hash) {
                    wrong_anchors.push((line, anchor.hash.clone(), *link));
                }
            }
        })
        .map_err(cannot)?;
        self.done.files += 1;
        let number = scanned.first.as_ref().and_then(|first| first.file);
        let named = path.file_name().and_then(|name| name.to_str());
        if let (Some(says), Some(named)) = (number, named.and_then(files::number))
            && says != named
        {
            let what = format!("it says that it is {}", files::name(says));
            self.find(true, &name, 1, what);
        }
        self.joint(
            &name,
            &scanned.start,
            scanned.first.as_ref().map(|f| f.seq),
            number,
        );
        let last_gap = scanned.gaps.len();
        for (n, gap) in scanned.gaps.iter().enumerate() {
            let is_end = scanned.has_open_end && n + 1 == last_gap;
            let (broken, what) = told_of(gap, is_end);
            self.find(broken, &name, gap.line, what);
        }
        for (line, noted, link) in wrong_anchors {
            let what = format!("the hash that was noted is {noted}, and the line bears {link}");
            self.find(true, &name, line, what);
        }
        if let Some(first) = &scanned.first {
            if self.done.first_seq == 0 {
                self.done.first_seq = first.seq;
                self.done.first_time.clone_from(&first.time);
            }
            self.file_before = number;
            self.end = From::Known(scanned.last, scanned.last_seq);
        }
        if let Some(last) = &scanned.last_head {
            self.done.last_seq = last.seq;
            self.done.last_time.clone_from(&last.time);
            self.done.last_hash = scanned.last.to_string();
            self.last_event.clone_from(&last.event);
        }
        self.done.lines += scanned.lines;
        self.done.lost += scanned.lost;
        Ok(())
    }

    /// Where one file ends and the next begins.
    fn joint(&mut self, name: &str, start: &Link, first: Option<u64>, number: Option<u64>) {
        let Some(first) = first else {
            let empty = "no line of it follows what it says of its beginning".to_owned();
            return self.find(true, name, 0, empty);
        };
        match self.end {
            From::AsItSays if first == 1 && *start == Link::START => {}
            From::AsItSays if first == 1 => {
                let what = "its first line has number 1 and does not begin a chain".to_owned();
                self.find(true, name, 1, what);
            }
            From::AsItSays => {
                let what = format!(
                    "the log begins with line {first}; lines 1 to {} are not here (older files are \
                     removed as audit.log.files says); the last of them had the hash {start}",
                    first - 1
                );
                self.find(false, name, 1, what);
            }
            From::Known(last, seq) if last == *start && seq + 1 == first => {}
            From::Known(last, seq) => {
                let missing = match (self.file_before, number) {
                    (Some(before), Some(this)) if this > before + 1 => format!(
                        ": {} to {} are missing",
                        files::name(before + 1),
                        files::name(this - 1)
                    ),
                    (_, Some(this)) if first > seq + 1 => format!(
                        ": the end of the file before {} is missing, lines {} to {}",
                        files::name(this),
                        seq + 1,
                        first - 1
                    ),
                    _ => String::new(),
                };
                let what = format!(
                    "it does not follow the file before, which ends with line {seq}, hash {last}, and \
                     this one begins with line {first} after the hash {start}{missing}"
                );
                self.find(true, name, 1, what);
            }
        }
    }

    fn finish(mut self) -> Verified {
        let name = String::new();
        for (anchor, met) in std::mem::take(&mut self.anchors) {
            if met {
                continue;
            }
            let (seq, last) = (anchor.seq, self.done.last_seq);
            let what = match seq > last {
                true => format!(
                    "a hash was noted of line {seq}, and the log ends with line {last}: its end is \
                     missing"
                ),
                false => format!("a hash was noted of line {seq}, which is not here"),
            };
            self.find(true, &name, 0, what);
        }
        if self.last_event != "stop" && self.done.lines > 0 {
            let what =
                "the last line tells of no stop: the broker is running or was killed, or the end \
                        is missing; a hash that was noted elsewhere (--expect) can tell"
                    .to_owned();
            self.find(false, &name, 0, what);
        }
        if self.done.lost > 0 {
            let what = format!(
                "{} events were lost before they were written, as the log itself says",
                self.done.lost
            );
            self.find(false, &name, 0, what);
        }
        self.done
    }
}

/// What there is to say of bytes that do not belong to the chain.
fn told_of(gap: &Gap, is_end: bool) -> (bool, String) {
    let Gap {
        bytes,
        offset,
        expected_seq,
        expected_after,
        ..
    } = gap;
    if let Some(when) = &gap.told {
        return match gap.seen_seq {
            None => (
                false,
                format!(
                    "a write was cut short here ({bytes} bytes at position {offset}); the start at \
                     {when} tells of it"
                ),
            ),
            Some(_) => (
                true,
                format!(
                    "{bytes} bytes at position {offset} do not follow line {} (hash {expected_after}): \
                     line {expected_seq} was expected; the start at {when} found them so",
                    expected_seq - 1
                ),
            ),
        };
    }
    if is_end && gap.seen_seq.is_none() {
        return (
            false,
            format!(
                "the file ends with {bytes} bytes of a line that is not whole, at position {offset}: a \
                 write was cut short or is under way; the next start tells of it"
            ),
        );
    }
    let seen = match gap.seen_seq {
        Some(seen) if seen == *expected_seq => {
            format!("line {seen} was changed, or follows another one")
        }
        Some(seen) if seen > *expected_seq => {
            format!("lines {expected_seq} to {} are missing", seen - 1)
        }
        Some(seen) => format!("line {seen} is here a second time or was put in"),
        None => "what is here is no line of an audit log".to_owned(),
    };
    let after = match gap.goes_on {
        true => "; the lines after it follow what it says",
        false => "; nothing after it in the file follows",
    };
    (
        true,
        format!(
            "line {expected_seq} was expected, after the hash {expected_after}, and {seen}{after}"
        ),
    )
}
