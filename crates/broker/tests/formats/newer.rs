//! The fixture with one thing in it of a later format, its checksums right.

use tidemark_histcheck::{FrameAt, FrameKind, MemoryFiles, inspect, slot_frames};

/// The files, and what of them is newer.
pub struct Newer {
    pub what: &'static str,
    pub file: String,
    pub files: MemoryFiles,
}

/// The words by which a refusal tells what to do.
pub fn says_what_to_do(text: &str) -> bool {
    [
        "start that version",
        "start the release that wrote it",
        "later one",
    ]
    .iter()
    .any(|words| text.contains(words))
}

fn crc_be(bytes: &mut [u8], covered: std::ops::Range<usize>, at: usize) {
    let crc = crc32c::crc32c(&bytes[covered]);
    bytes[at..at + 4].copy_from_slice(&crc.to_be_bytes());
}

struct Maker<'a> {
    files: &'a MemoryFiles,
    made: Vec<Newer>,
}

impl Maker<'_> {
    fn with(&mut self, what: &'static str, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut files = self.files.clone();
        change(files.0.get_mut(file).expect("a file of the fixture"));
        self.made.push(Newer {
            what,
            file: file.to_owned(),
            files,
        });
    }
}

/// One of each kind.
pub fn all(files: &MemoryFiles) -> Vec<Newer> {
    let mut maker = Maker {
        files,
        made: Vec::new(),
    };
    maker.with("identity", "identity", |bytes| {
        let text = String::from_utf8(bytes.clone()).expect("a text");
        *bytes = text.replace("format = 1", "format = 2").into_bytes();
    });
    journal(&mut maker);
    checkpoint(&mut maker);
    let tick = files.0.keys().find(|name| name.ends_with(".tickindex"));
    maker.with("tick index", tick.expect("a segment"), |bytes| {
        bytes[9] = 2;
        crc_be(bytes, 0..92, 92);
    });
    maker.made
}

fn journal(maker: &mut Maker<'_>) {
    let inspection = inspect(maker.files, &mut |_| {});
    let (slot, _) = inspection.data.journal.end.expect("a journal");
    maker.with("slot header", &slot, |bytes| {
        bytes[8] = 2;
        let crc = crc32c::crc32c(&bytes[..112]);
        bytes[112..116].copy_from_slice(&crc.to_le_bytes());
    });
    let mut last = None;
    let mut each = |at: &FrameAt<'_>| {
        if at.frame.kind == FrameKind::Record {
            last = Some((at.position as usize, at.payload.len()));
        }
    };
    slot_frames(maker.files, &slot, &mut each);
    let (at, payload) = last.expect("a record");
    for (what, byte, value) in [
        ("frame format", 8, 2),
        ("frame kind", 9, 9),
        ("record format", 88, 2),
    ] {
        maker.with(what, &slot, |bytes| {
            let end = at + 88 + payload;
            bytes[at + byte] = value;
            let crc = crc32c::crc32c(&bytes[at + 4..end]);
            bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
            // What follows continues another frame.
            bytes[end..].fill(0);
        });
    }
}

fn checkpoint(maker: &mut Maker<'_>) {
    let names = maker.files.0.keys();
    let newest = names.filter(|name| name.starts_with("checkpoints/")).max();
    let newest = newest.expect("a checkpoint").clone();
    maker.with("checkpoint header", &newest, |bytes| {
        bytes[9] = 2;
        crc_be(bytes, 0..52, 52);
        whole(bytes);
    });
    // The first block is of segments, the second of state, both of `__cluster_metadata`.
    for (what, block, byte, value) in [
        ("block kind", 0, 2, 9),
        ("segments block", 0, 4, 2),
        ("state block", 1, 4, 2),
        ("state payload", 1, 37, 2),
    ] {
        maker.with(what, &newest, |bytes| {
            let mut at = 56;
            for _ in 0..block {
                at += 41 + length(bytes, at);
            }
            bytes[at + byte] = value;
            let end = at + 37 + length(bytes, at);
            crc_be(bytes, at..end, end);
            whole(bytes);
        });
    }
}

/// Bytes of the payload of the block at `at`.
fn length(bytes: &[u8], at: usize) -> usize {
    let field = bytes[at + 33..at + 37].try_into().expect("four bytes");
    u32::from_be_bytes(field) as usize
}

/// The checksum at the end of a checkpoint.
fn whole(bytes: &mut [u8]) {
    let end = bytes.len() - 4;
    crc_be(bytes, 0..end, end);
}
