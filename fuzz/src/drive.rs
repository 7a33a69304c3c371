//! A client's bytes, through everything that reads them before the broker decides anything.
//!
//! Nothing may panic, and nothing may take memory that the bytes do not account for. What was
//! reached is returned, so that a test can tell that its cases get past the first check.

use bytes::Bytes;
use tidemark_record_batch::{
    DecompressLimits, ProduceRules, batches, parse_control, records, validate_produce,
};
use tidemark_wire::{
    ApiKey, FrameSplitter, RequestHeader, Stage, decode_body, decode_produce_request,
    decode_request,
};

/// How far the bytes came.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Reached {
    /// Whole frames.
    pub frames: usize,
    /// Frames whose body was decoded, of any version that can be decoded, served or not.
    pub bodies: usize,
    /// Frames of requests that are served.
    pub requests: usize,
    /// Batches with a readable header.
    pub batches: usize,
    /// Batches that a topic with default settings would take.
    pub valid_batches: usize,
    /// Records.
    pub records: usize,
}

/// The bytes of a connection: frames, requests, and the batches of Produce requests.
pub fn connection(bytes: &[u8]) -> Reached {
    let mut reached = Reached::default();
    let mut splitter = FrameSplitter::new(1 << 20);
    splitter.read_buffer().extend_from_slice(bytes);
    while let Ok(Some(bytes)) = splitter.next_frame() {
        reached.frames += 1;
        frame(bytes, &mut reached);
    }
    reached
}

/// One frame, without its size.
pub fn frame(frame: Bytes, reached: &mut Reached) {
    let _ = decode_request(frame.clone(), Stage::PreAuth);
    reached.requests += usize::from(decode_request(frame.clone(), Stage::Open).is_ok());

    let Ok((header, header_bytes)) = RequestHeader::parse(&frame) else {
        return;
    };
    let body = frame.slice(header_bytes..);
    let decoded = decode_body(&header, body.clone());
    reached.bodies += usize::from(decoded.is_ok());
    if header.api_key != ApiKey::Produce {
        return;
    }
    let Ok(produce) = decode_produce_request(header.api_version, &body) else {
        assert!(decoded.is_err(), "the two Produce decoders disagree");
        return;
    };
    assert!(decoded.is_ok(), "the two Produce decoders disagree");
    for topic in produce.topics {
        for partition in topic.partitions {
            if let Some(records) = partition.records {
                batch(&records, header.api_version, reached);
            }
        }
    }
}

/// The records of one partition in a Produce request.
pub fn batch(bytes: &Bytes, produce_version: i16, reached: &mut Reached) {
    let limits = DecompressLimits {
        max_bytes: 4 << 20,
        ..DecompressLimits::default()
    };
    let rules = ProduceRules {
        produce_version,
        limits,
        ..ProduceRules::default()
    };
    reached.valid_batches += usize::from(validate_produce(bytes, &rules).is_ok());

    for (_, range) in batches(bytes).flatten() {
        reached.batches += 1;
        let batch = bytes.slice(range);
        let _ = parse_control(&batch);
        if let Ok(records) = records(&batch, &limits) {
            reached.records += records.flatten().count();
        }
    }
}
