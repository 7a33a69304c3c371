//! Bounded, streaming decompression of a batch's records, and their compression.

use std::io::{self, Read, Write};

use bytes::Bytes;

use crate::{BatchError, Codec};

/// How much a compressed body may grow to: the larger of `ratio` times its size and `floor_bytes`,
/// never more than `max_bytes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecompressLimits {
    /// Times the compressed size.
    pub ratio: usize,
    /// Allowed whatever the compressed size: small batches of repetitive records compress well.
    pub floor_bytes: usize,
    /// Never more than this.
    pub max_bytes: usize,
}

impl Default for DecompressLimits {
    fn default() -> DecompressLimits {
        DecompressLimits {
            ratio: 64,
            floor_bytes: 16 << 20,
            max_bytes: 128 << 20,
        }
    }
}

impl DecompressLimits {
    /// The bound for a body of `compressed_bytes`.
    pub fn bound_bytes(&self, compressed_bytes: usize) -> usize {
        compressed_bytes
            .saturating_mul(self.ratio)
            .max(self.floor_bytes)
            .min(self.max_bytes)
    }
}

/// A reader over the decompressed `body`, which fails with `DecompressedTooLarge` past the bound.
///
/// What the codecs themselves take up front is bounded by their formats: an LZ4 frame's block
/// buffers are at most 8 MiB; a zstd frame's window at most 128 MiB of address space, of which only
/// the part that data is written to becomes memory (a smaller window limit would refuse what Java
/// clients send at levels 20 to 22).
pub(crate) fn reader<'a>(
    codec: Codec,
    body: &'a [u8],
    limits: &DecompressLimits,
) -> Result<Bounded<'a>, BatchError> {
    let left = limits.bound_bytes(body.len());
    let inner: Box<dyn Read + 'a> = match codec {
        Codec::None => Box::new(body),
        Codec::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(body)),
        Codec::Snappy => Box::new(SnappyReader::new(body, left)),
        Codec::Lz4 => {
            // The decoder would take the legacy format too, which no Kafka client writes, and frames
            // whose blocks lean on each other, which Java consumers refuse to read.
            let independent = body
                .get(4)
                .is_some_and(|flags| flags & LZ4_INDEPENDENT_BLOCKS != 0);
            if !body.starts_with(&LZ4_FRAME_MAGIC) || !independent {
                return Err(BatchError::Decompress);
            }
            Box::new(Lz4Reader::new(body))
        }
        Codec::Zstd => {
            Box::new(zstd::Decoder::with_buffer(body).map_err(|_| BatchError::Decompress)?)
        }
    };
    Ok(Bounded { inner, left })
}

/// All of the decompressed `body`. Memory grows with what is really decompressed, up to the bound.
pub(crate) fn decompress(
    codec: Codec,
    body: &Bytes,
    limits: &DecompressLimits,
) -> Result<Bytes, BatchError> {
    if codec == Codec::None {
        return Ok(body.clone());
    }
    let mut out = Vec::new();
    reader(codec, body, limits)?.read_to_end(&mut out)?;
    Ok(out.into())
}

/// `body` as its codec stores it, in a form that every Kafka client reads: independent LZ4 blocks,
/// one raw snappy block.
///
/// Errors: `Decompress` when the codec cannot take it (more than 4 GiB for snappy).
pub(crate) fn compress(codec: Codec, body: &[u8]) -> Result<Vec<u8>, BatchError> {
    compress_at(codec, None, body)
}

/// As [`compress`], at a level of gzip (1 to 9) or zstd; the other codecs have none here.
pub(crate) fn compress_at(
    codec: Codec,
    level: Option<i32>,
    body: &[u8],
) -> Result<Vec<u8>, BatchError> {
    let out = match codec {
        Codec::None => body.to_vec(),
        Codec::Gzip => {
            let level = level.and_then(|level| u32::try_from(level).ok());
            let level = level.map_or_else(flate2::Compression::default, |level| {
                flate2::Compression::new(level.min(9))
            });
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(body)?;
            encoder.finish()?
        }
        Codec::Snappy => snap::raw::Encoder::new()
            .compress_vec(body)
            .map_err(|_| BatchError::Decompress)?,
        Codec::Lz4 => {
            let info = lz4_flex::frame::FrameInfo::new()
                .block_mode(lz4_flex::frame::BlockMode::Independent);
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(body)?;
            encoder.finish().map_err(|_| BatchError::Decompress)?
        }
        Codec::Zstd => {
            let level = level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL);
            zstd::encode_all(body, level)?
        }
    };
    Ok(out)
}

/// In the flag byte of an LZ4 frame.
const LZ4_INDEPENDENT_BLOCKS: u8 = 0x20;
const LZ4_FRAME_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

/// Reads at most `left` bytes of `inner`; one more is an error, not an end.
pub(crate) struct Bounded<'a> {
    inner: Box<dyn Read + 'a>,
    left: usize,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        match self.left.checked_sub(n) {
            Some(left) => {
                self.left = left;
                Ok(n)
            }
            None => Err(BatchError::DecompressedTooLarge.into()),
        }
    }
}

/// The LZ4 decoder takes the end of its input for the end of the frame. A frame without its end
/// mark would be stored and then refused by Java consumers.
struct Lz4Reader<'a>(lz4_flex::frame::FrameDecoder<Lz4Input<'a>>);

/// The decoder asks for an end mark, as for all that must be there, by `read_exact`; between frames
/// it asks by `read`.
struct Lz4Input<'a> {
    bytes: &'a [u8],
    ended_early: bool,
}

impl<'a> Lz4Reader<'a> {
    fn new(body: &'a [u8]) -> Lz4Reader<'a> {
        Lz4Reader(lz4_flex::frame::FrameDecoder::new(Lz4Input {
            bytes: body,
            ended_early: false,
        }))
    }
}

impl Read for Lz4Reader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.0.read(buf)?;
        if n == 0 && self.0.get_ref().ended_early {
            return Err(BatchError::Decompress.into());
        }
        Ok(n)
    }
}

impl Read for Lz4Input<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(buf)
    }

    fn read_exact(&mut self, buf: &mut [u8]) -> io::Result<()> {
        self.ended_early |= self.bytes.len() < buf.len();
        self.bytes.read_exact(buf)
    }
}

/// Both forms of snappy that Kafka's clients write: one raw block (librdkafka, franz-go) or the
/// xerial stream of length-prefixed raw blocks (Java, sarama).
struct SnappyReader<'a> {
    input: &'a [u8],
    xerial: bool,
    block: Vec<u8>,
    at: usize,
    /// Of all blocks together; checked against a block's claim before memory is taken for it.
    left: usize,
}

/// Magic, then a version and the lowest compatible version, four bytes each.
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const XERIAL_HEADER_BYTES: usize = 16;

/// The densest element of the format is a three-byte copy of 64 bytes.
const SNAPPY_MAX_RATIO: usize = 64 / 3 + 1;

impl<'a> SnappyReader<'a> {
    fn new(body: &'a [u8], left: usize) -> SnappyReader<'a> {
        let xerial = body.len() >= XERIAL_HEADER_BYTES && body.starts_with(&XERIAL_MAGIC);
        SnappyReader {
            input: if xerial {
                &body[XERIAL_HEADER_BYTES..]
            } else {
                body
            },
            xerial,
            block: Vec::new(),
            at: 0,
            left,
        }
    }

    fn next_block(&mut self) -> Result<(), BatchError> {
        let block = if self.xerial {
            let (length, rest) = self
                .input
                .split_first_chunk::<4>()
                .ok_or(BatchError::Decompress)?;
            let length =
                usize::try_from(i32::from_be_bytes(*length)).map_err(|_| BatchError::Decompress)?;
            let (block, rest) = rest
                .split_at_checked(length)
                .ok_or(BatchError::Decompress)?;
            self.input = rest;
            block
        } else {
            std::mem::take(&mut self.input)
        };
        let claimed = snap::raw::decompress_len(block).map_err(|_| BatchError::Decompress)?;
        // A claim that the block's bytes cannot make good takes no memory.
        if claimed > block.len().saturating_mul(SNAPPY_MAX_RATIO) {
            return Err(BatchError::Decompress);
        }
        self.left = self
            .left
            .checked_sub(claimed)
            .ok_or(BatchError::DecompressedTooLarge)?;
        self.block.resize(claimed, 0);
        self.at = 0;
        snap::raw::Decoder::new()
            .decompress(block, &mut self.block)
            .map_err(|_| BatchError::Decompress)?;
        Ok(())
    }
}

impl Read for SnappyReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.at == self.block.len() {
            if self.input.is_empty() {
                return Ok(0);
            }
            self.next_block()?;
        }
        let n = buf.len().min(self.block.len() - self.at);
        buf[..n].copy_from_slice(&self.block[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}
