//! How queued records become one write.

use std::io::IoSlice;
use std::ops::Range;

use bytes::Bytes;

use crate::frame::{FrameHeader, HEADER_BYTES, PAGE, frame_bytes};

/// Pieces below this are copied together: a system call with thousands of tiny slices costs more.
const COPY_BELOW: usize = 4096;

enum Part {
    Copied(Range<usize>),
    Piece(Bytes),
}

/// The bytes of one write: frames, each at a multiple of 8, filled up with zeroes to the end of a
/// page.
#[derive(Default)]
pub(crate) struct Group {
    copied: Vec<u8>,
    parts: Vec<Part>,
    /// Bytes of the first page that lie before this write.
    lead: u64,
    bytes: u64,
    frames_end: u64,
}

impl Group {
    /// Begins a write at position `pos`.
    pub(crate) fn begin(&mut self, pos: u64) {
        self.copied.clear();
        self.parts.clear();
        self.lead = pos % PAGE;
        self.bytes = 0;
        self.frames_end = 0;
    }

    /// Bytes so far; the next frame starts here.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// End of the last frame, before padding.
    pub(crate) fn frames_end(&self) -> u64 {
        self.frames_end
    }

    /// Adds a frame and returns its CRC.
    pub(crate) fn push(
        &mut self,
        header: &FrameHeader,
        pieces: &[Bytes],
        payload_crc: Option<u32>,
    ) -> u32 {
        let (bytes, crc) = header.encode(pieces, payload_crc);
        self.copy(&bytes);
        for piece in pieces {
            if piece.len() < COPY_BELOW {
                self.copy(piece);
            } else {
                self.bytes += piece.len() as u64;
                self.parts.push(Part::Piece(piece.clone()));
            }
        }
        self.frames_end = self.bytes;
        let payload = u64::from(header.payload_len);
        self.pad(frame_bytes(payload) - HEADER_BYTES as u64 - payload);
        crc
    }

    /// Fills the last page: a whole page is written without being read first, and nothing of an
    /// earlier use stays between two groups.
    pub(crate) fn finish(&mut self) {
        let end = self.lead + self.bytes;
        self.pad(end.next_multiple_of(PAGE) - end);
    }

    pub(crate) fn slices(&self) -> Vec<IoSlice<'_>> {
        self.parts
            .iter()
            .map(|part| match part {
                Part::Copied(range) => IoSlice::new(&self.copied[range.clone()]),
                Part::Piece(piece) => IoSlice::new(piece),
            })
            .collect()
    }

    fn copy(&mut self, bytes: &[u8]) {
        self.copied.extend_from_slice(bytes);
        self.copied_more(bytes.len());
    }

    fn pad(&mut self, zeroes: u64) {
        let zeroes = zeroes as usize;
        self.copied.resize(self.copied.len() + zeroes, 0);
        self.copied_more(zeroes);
    }

    fn copied_more(&mut self, len: usize) {
        let end = self.copied.len();
        self.bytes += len as u64;
        match self.parts.last_mut() {
            Some(Part::Copied(range)) => range.end = end,
            _ if len == 0 => {}
            _ => self.parts.push(Part::Copied(end - len..end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidemark_types::{JournalIndex, Tick};

    use super::*;
    use crate::frame::{FORMAT, KIND_RECORD, is_intact};

    #[test]
    fn frames_follow_each_other_and_large_pieces_are_not_copied() {
        let large = Bytes::from(vec![7; 10_000]);
        let records = [
            vec![Bytes::from_static(b"abc")],
            vec![Bytes::from_static(b"x"), large.clone(), Bytes::new()],
            vec![],
        ];
        let mut group = Group::default();
        let mut starts = Vec::new();
        for pieces in &records {
            let payload_len = pieces.iter().map(Bytes::len).sum::<usize>() as u32;
            starts.push((group.bytes() as usize, payload_len as usize));
            let header = FrameHeader {
                format: FORMAT,
                kind: KIND_RECORD,
                flags: 0,
                prev_crc: 1,
                journal_id: [0; 16],
                index: JournalIndex(1),
                use_number: 1,
                lsn: 0,
                tick: Tick(1),
                wall_ms: 0,
                durable_mark: 0,
                epoch: 0,
                payload_len,
            };
            group.push(&header, pieces, None);
        }
        let frames_end = group.frames_end() as usize;
        group.finish();
        let slices = group.slices();
        assert!(slices.iter().any(|s| s.as_ptr() == large.as_ptr()));
        assert_eq!(slices.len(), 3, "what is small is one slice");
        let all = slices.iter().flat_map(|s| s.iter().copied());
        let all: Vec<u8> = all.collect();
        assert_eq!(all.len() as u64, group.bytes());
        assert_eq!(all.len(), 12_288);
        for (start, payload_len) in starts {
            assert_eq!(start % 8, 0);
            assert!(is_intact(&all[start..start + HEADER_BYTES + payload_len]));
        }
        assert!(all[frames_end..].iter().all(|b| *b == 0));
    }
}
