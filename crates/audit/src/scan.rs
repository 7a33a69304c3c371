//! Goes through one file, line by line: does each follow the one before, and what is told of what does
//! not.

use std::io::{self, BufRead, Read};

use serde::Deserialize;

use crate::chain::{Line, Link, Sha256};

/// No line of ours is longer.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// What the check needs of a line.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Head {
    pub(crate) seq: u64,
    #[serde(default)]
    pub(crate) time: String,
    #[serde(default)]
    pub(crate) event: String,
    /// In the first line of a file: its number, and the last hash of the file before.
    #[serde(default)]
    pub(crate) file: Option<u64>,
    #[serde(default)]
    pub(crate) after: Option<String>,
    /// In the line that a start writes over an end that was not whole.
    #[serde(default)]
    torn_bytes: Option<u64>,
    #[serde(default)]
    torn_sha256: Option<String>,
    #[serde(default)]
    count: Option<u64>,
}

/// Bytes between two lines of the chain that do not belong to it. A write that was cut short leaves no
/// whole line at their beginning: what it has not written is missing or zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// Of its first byte, from 1.
    pub(crate) line: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) sha256: Link,
    /// A line that follows the chain tells of it: when, as it says.
    pub(crate) told: Option<String>,
    /// The number that the line should have had, and the one that it bears, if it is a line.
    pub(crate) expected_seq: u64,
    pub(crate) seen_seq: Option<u64>,
    /// What the line should have followed.
    pub(crate) expected_after: Link,
    /// Lines that follow what the first of them says of itself.
    pub(crate) goes_on: bool,
}

/// What a file holds.
#[derive(Clone, Debug)]
pub(crate) struct Scanned {
    /// The first line that follows.
    pub(crate) first: Option<Head>,
    /// What the file's first line has to follow: as was asked, or as it says itself.
    pub(crate) start: Link,
    pub(crate) last: Link,
    pub(crate) last_seq: u64,
    pub(crate) last_head: Option<Head>,
    pub(crate) lines: u64,
    pub(crate) bytes: u64,
    pub(crate) gaps: Vec<Gap>,
    /// Events that the log says it lost.
    pub(crate) lost: u64,
    /// The end: bytes that nothing tells of. They are the last of `gaps`, too.
    pub(crate) has_open_end: bool,
    /// The last line is whole, and a write was cut short just before its newline.
    pub(crate) lacks_newline: bool,
}

/// Where the chain is before a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum From {
    /// What is known of the file before: its last hash and number.
    Known(Link, u64),
    /// The file is the first there is: it is believed what it says.
    AsItSays,
}

struct Open {
    gap: Gap,
    sha: Sha256,
    /// The newline of its last piece is not counted yet: before a telling line it is that line's.
    held_newline: bool,
    /// The hash that its last line bears, and its number.
    claimed: Option<(Link, u64)>,
}

impl Open {
    fn add(&mut self, piece: &[u8]) {
        if self.held_newline {
            self.sha.add(b"\n");
            self.gap.bytes += 1;
        }
        let is_first = self.gap.bytes == 0;
        let text = piece.strip_suffix(b"\n");
        self.held_newline = text.is_some();
        let text = text.unwrap_or(piece);
        self.sha.add(text);
        self.gap.bytes += text.len() as u64;
        let line = Line::split(text);
        let head = serde_json::from_slice::<Head>(text).ok();
        if let (Some(line), Some(head)) = (line, head) {
            if is_first {
                self.gap.seen_seq = Some(head.seq);
            }
            self.claimed = Some((line.link, head.seq));
        } else {
            self.claimed = None;
        }
    }

    /// The gap with everything that was read of it, its last newline too.
    fn close_whole(mut self) -> Gap {
        if self.held_newline {
            self.sha.add(b"\n");
            self.gap.bytes += 1;
        }
        self.gap.sha256 = self.sha.finish();
        self.gap
    }
}

/// Sees a line that follows: its number in the file, what the check knows of it, its hash, and its text.
pub(crate) type Each<'a> = dyn FnMut(u64, &Head, &Link, &[u8]) + 'a;

/// Reads a file to its end. `each` sees every line that follows.
pub(crate) fn scan(
    reader: &mut impl BufRead,
    from: From,
    each: &mut Each<'_>,
) -> io::Result<Scanned> {
    let (start, seq) = match from {
        From::Known(link, seq) => (Some(link), Some(seq)),
        From::AsItSays => (None, None),
    };
    let mut done = Scanned {
        first: None,
        start: start.unwrap_or_default(),
        last: start.unwrap_or_default(),
        last_seq: seq.unwrap_or(0),
        last_head: None,
        lines: 0,
        bytes: 0,
        gaps: Vec::new(),
        lost: 0,
        has_open_end: false,
        lacks_newline: false,
    };
    // Whether anything is to be believed of what was before the file.
    let mut believes = start.is_none();
    let mut open: Option<Open> = None;
    let mut piece = Vec::new();
    let mut number = 0;
    loop {
        piece.clear();
        let got = reader.take(MAX_LINE_BYTES).read_until(b'\n', &mut piece)?;
        if got == 0 {
            break;
        }
        number += 1;
        let offset = done.bytes;
        done.bytes += got as u64;
        let text = piece.strip_suffix(b"\n");
        let lacks_newline = text.is_none();
        let text = text.unwrap_or(&piece);
        let parsed = Some(text).and_then(|text| {
            let line = Line::split(text)?;
            let head: Head = serde_json::from_slice(text).ok()?;
            Some((line, head, text))
        });
        if let Some((line, head, text)) = parsed {
            if believes
                && head.event == "opened"
                && let Some(after) = head.after.as_deref().and_then(Link::parse)
            {
                done.start = after;
                done.last = after;
                done.last_seq = head.seq.saturating_sub(1);
                believes = false;
            }
            let follows = line.follows(&done.last) && head.seq == done.last_seq + 1;
            let closes = follows && open.as_ref().is_none_or(|open| tells(open, &head));
            let resumes = !closes
                && open.as_ref().is_some_and(|open| {
                    let claimed = open.claimed.as_ref();
                    claimed.is_some_and(|(link, seq)| line.follows(link) && head.seq == seq + 1)
                });
            if closes || resumes {
                if let Some(open) = open.take() {
                    let mut gap;
                    if closes {
                        gap = open.gap.clone();
                        gap.sha256 = open.sha.finish();
                        gap.told = Some(head.time.clone());
                    } else {
                        gap = open.close_whole();
                        gap.goes_on = true;
                    }
                    done.gaps.push(gap);
                }
                done.lacks_newline = lacks_newline;
                done.last = line.link;
                done.last_seq = head.seq;
                done.lines += 1;
                if head.event == "lost" {
                    done.lost += head.count.unwrap_or(0);
                }
                each(number, &head, &line.link, text);
                done.first.get_or_insert_with(|| head.clone());
                done.last_head = Some(head);
                continue;
            }
        }
        let open = open.get_or_insert_with(|| Open {
            gap: Gap {
                line: number,
                offset,
                bytes: 0,
                sha256: Link::START,
                told: None,
                expected_seq: done.last_seq + 1,
                seen_seq: None,
                expected_after: done.last,
                goes_on: false,
            },
            sha: Sha256::new(),
            held_newline: false,
            claimed: None,
        });
        open.add(&piece);
    }
    if let Some(open) = open {
        done.gaps.push(open.close_whole());
        done.has_open_end = true;
    }
    Ok(done)
}

/// Whether a line tells of exactly these bytes.
fn tells(open: &Open, head: &Head) -> bool {
    head.torn_bytes == Some(open.gap.bytes)
        && head.torn_sha256.as_deref() == Some(&*open.sha.clone().finish().to_string())
}
