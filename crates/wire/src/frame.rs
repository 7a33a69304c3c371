//! Splits a connection's bytes into frames: a 4-byte size and that many bytes.

use bytes::{Buf, Bytes, BytesMut};

use crate::error::WireError;

/// A frame holds at least the key, the version and the correlation id.
pub const MIN_FRAME_BYTES: usize = 8;

const SIZE_BYTES: usize = 4;
/// Free room offered to a read when no large frame is on its way.
const READ_STEP_MIN_BYTES: usize = 8 * 1024;
/// Most room added at once, however large the frame claims to be.
const READ_STEP_MAX_BYTES: usize = 1024 * 1024;

/// Collects bytes and gives out frames. It knows no socket: the caller reads into
/// [`read_buffer`](FrameSplitter::read_buffer).
///
/// A claimed size is compared with the limit before anything is reserved, and even an allowed one
/// reserves in steps: room at most doubles with the bytes that have arrived, by at most 1 MiB at
/// a time. A client that claims 100 MiB and sends nothing costs 8 KiB.
#[derive(Debug)]
pub struct FrameSplitter {
    buffer: BytesMut,
    min_frame_bytes: usize,
    max_frame_bytes: usize,
    /// The most that the buffer had room for since it was last empty and new: what is left of it after
    /// a frame was split off keeps all of that alive.
    largest: usize,
}

impl FrameSplitter {
    /// A splitter that refuses frames above `max_frame_bytes`.
    pub fn new(max_frame_bytes: usize) -> FrameSplitter {
        FrameSplitter {
            buffer: BytesMut::new(),
            min_frame_bytes: MIN_FRAME_BYTES,
            max_frame_bytes,
            largest: 0,
        }
    }

    /// Changes the limit, when a client has authenticated. It holds for the next frame looked at.
    pub fn set_max_frame_bytes(&mut self, max_frame_bytes: usize) {
        self.max_frame_bytes = max_frame_bytes;
    }

    /// Whether frames are SASL tokens without a header, which may be of any size down to none at all.
    /// It holds for the next frame looked at.
    pub fn set_bare_tokens(&mut self, bare: bool) {
        self.min_frame_bytes = if bare { 0 } else { MIN_FRAME_BYTES };
    }

    /// Bytes of memory that the frame on its way takes once [`FrameSplitter::read_buffer`] has made
    /// room for more of it; 0 between two frames.
    pub fn room_of_next_read(&self) -> usize {
        match self.buffer.len() {
            0 => 0,
            received => received + self.step(),
        }
    }

    /// Between two frames: gives the memory of large ones back.
    pub fn give_back(&mut self) {
        if self.buffer.is_empty() && self.largest > READ_STEP_MIN_BYTES {
            self.buffer = BytesMut::new();
            self.largest = 0;
        }
    }

    /// Between two frames with memory that [`FrameSplitter::give_back`] would give back.
    pub fn holds_spare_memory(&self) -> bool {
        self.buffer.is_empty() && self.largest > 8 * READ_STEP_MIN_BYTES
    }

    /// The buffer to append received bytes to, with free room for the next read.
    pub fn read_buffer(&mut self) -> &mut BytesMut {
        let step = self.step();
        if self.buffer.capacity() - self.buffer.len() < step {
            self.buffer.reserve(step);
        }
        self.largest = self.largest.max(self.buffer.capacity());
        &mut self.buffer
    }

    fn step(&self) -> usize {
        let received = self.buffer.len();
        let missing = match self.claimed_size() {
            Some(size) => {
                (SIZE_BYTES + usize::try_from(size).unwrap_or(0)).saturating_sub(received)
            }
            None => 0,
        };
        missing
            .min(received)
            .clamp(READ_STEP_MIN_BYTES, READ_STEP_MAX_BYTES)
    }

    /// The next whole frame without its size, or `None` until more bytes have been received.
    ///
    /// Fails on a size that is negative, below [`MIN_FRAME_BYTES`] or above the limit. The bytes
    /// stay, so that it fails again: the connection cannot be used any more.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, WireError> {
        let Some(claimed) = self.claimed_size() else {
            return Ok(None);
        };
        let refused = WireError::FrameSize {
            size_bytes: claimed,
            max_bytes: self.max_frame_bytes,
        };
        let size = usize::try_from(claimed).map_err(|_| refused)?;
        if size < self.min_frame_bytes || size > self.max_frame_bytes {
            return Err(refused);
        }
        if self.buffer.len() < SIZE_BYTES + size {
            return Ok(None);
        }
        self.buffer.advance(SIZE_BYTES);
        let frame = self.buffer.split_to(size).freeze();
        if size > READ_STEP_MAX_BYTES {
            // The rest shares the large frame's memory and would hold it as long as the connection.
            self.buffer = BytesMut::from(&self.buffer[..]);
            self.largest = self.buffer.capacity();
        }
        Ok(Some(frame))
    }

    /// Bytes received that are not a whole frame yet. Zero at a clean end of a connection.
    pub fn pending_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The claimed size of the next frame, unchecked.
    fn claimed_size(&self) -> Option<i32> {
        let size = self.buffer.first_chunk::<SIZE_BYTES>()?;
        Some(i32::from_be_bytes(*size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splitter(bytes: &[u8], max_frame_bytes: usize) -> FrameSplitter {
        let mut splitter = FrameSplitter::new(max_frame_bytes);
        splitter.read_buffer().extend_from_slice(bytes);
        splitter
    }

    #[test]
    fn a_size_outside_the_limits_is_refused_before_the_frame_arrives() {
        for size_bytes in [-1, i32::MIN, 0, 7, 101, i32::MAX] {
            let mut splitter = splitter(&size_bytes.to_be_bytes(), 100);
            let want = WireError::FrameSize {
                size_bytes,
                max_bytes: 100,
            };
            assert_eq!(splitter.next_frame(), Err(want));
            assert_eq!(splitter.next_frame(), Err(want), "it stays refused");
        }
        for size_bytes in [8i32, 100] {
            let mut splitter = splitter(&size_bytes.to_be_bytes(), 100);
            assert_eq!(splitter.next_frame(), Ok(None));
        }
    }

    #[test]
    fn the_limit_rises_after_authentication() {
        let mut splitter = splitter(&200i32.to_be_bytes(), 100);
        assert!(splitter.next_frame().is_err());
        splitter.set_max_frame_bytes(200);
        assert_eq!(splitter.next_frame(), Ok(None));
    }

    #[test]
    fn a_bare_token_may_be_of_any_size() {
        let mut splitter = splitter(&[0, 0, 0, 0, 0, 0, 0, 1, 7, 0, 0, 0, 101], 100);
        assert!(splitter.next_frame().is_err(), "no request is so small");
        splitter.set_bare_tokens(true);
        assert_eq!(splitter.next_frame().unwrap().unwrap().len(), 0);
        assert_eq!(splitter.next_frame().unwrap().unwrap(), [7].as_slice());
        assert!(splitter.next_frame().is_err(), "too large all the same");
    }

    #[test]
    fn a_claimed_size_costs_nothing_until_the_bytes_arrive() {
        const CLAIM: usize = 100 * 1024 * 1024;
        let mut splitter = splitter(&(CLAIM as i32).to_be_bytes(), CLAIM);
        assert_eq!(splitter.next_frame(), Ok(None));
        assert!(splitter.read_buffer().capacity() <= 2 * READ_STEP_MIN_BYTES);

        // Room grows with what has arrived, never by more than one step past it.
        while splitter.pending_bytes() < 4 * READ_STEP_MAX_BYTES {
            let received = splitter.pending_bytes();
            let buffer = splitter.read_buffer();
            let room = buffer.capacity() - received;
            assert!(room >= READ_STEP_MIN_BYTES);
            assert!(
                buffer.capacity() <= 2 * received + 2 * READ_STEP_MAX_BYTES,
                "{} for {received}",
                buffer.capacity()
            );
            let filled = received + room.min(READ_STEP_MAX_BYTES);
            buffer.resize(filled, 0);
            assert_eq!(splitter.next_frame(), Ok(None));
        }
    }

    #[test]
    fn a_large_frame_takes_its_memory_with_it() {
        let size = 4 * READ_STEP_MAX_BYTES;
        let mut splitter = FrameSplitter::new(size);
        let buffer = splitter.read_buffer();
        buffer.extend_from_slice(&(size as i32).to_be_bytes());
        buffer.resize(4 + size, 1);
        buffer.extend_from_slice(&[0, 0]);
        let frame = splitter.next_frame().unwrap().unwrap();
        assert_eq!(frame.len(), size);
        drop(frame);
        assert_eq!(splitter.pending_bytes(), 2);
        assert!(splitter.read_buffer().capacity() <= 2 * READ_STEP_MIN_BYTES);
    }
}
