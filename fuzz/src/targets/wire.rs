//! What clients send.

use bytes::Bytes;
use tidemark_record_batch::{
    BatchBuilder, BatchError, BatchHeader, Codec, ControlType, DecompressLimits, control_batch,
    recompress_batch, records, rewrite_batch,
};
use tidemark_types::{CoordinatorEpoch, LeaderEpoch, ProducerEpoch, ProducerId};
use tidemark_wire::{ApiKey, ApiTable};

use crate::bodies::{Choices, Fill, body, every_version, header};
use crate::drive::{self, Reached};
use crate::sealed;

const LIMITS: DecompressLimits = DecompressLimits {
    ratio: 100,
    floor_bytes: 64 << 10,
    max_bytes: 1 << 20,
};

pub fn frames(bytes: &[u8]) {
    drive::connection(bytes);
}

fn framed(frame: &[u8]) -> Vec<u8> {
    let mut out = u32::try_from(frame.len())
        .expect("small")
        .to_be_bytes()
        .to_vec();
    out.extend_from_slice(frame);
    out
}

/// A Produce request with these records.
fn produce_frame(version: i16, batch: &[u8]) -> Vec<u8> {
    let mut frame = header(ApiKey::Produce, version, 1, None);
    frame.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0x3a, 0x98]);
    frame.extend_from_slice(&[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0]);
    frame.extend_from_slice(&u32::try_from(batch.len()).expect("small").to_be_bytes());
    frame.extend_from_slice(batch);
    framed(&frame)
}

pub fn frame_seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![produce_frame(7, &two_records())];
    for (api, served) in ApiTable::served_apis() {
        for version in [served.versions.min, served.versions.max] {
            let mut frame = header(api.key, version, 1, Some("fuzz"));
            frame.extend(body(api.key, version, Fill::Full, &mut Choices(1)).bytes);
            seeds.push(framed(&frame));
        }
    }
    seeds
}

/// Two bytes say which API and version; the rest is the body.
pub fn api(bytes: &[u8]) {
    let Some((&[which, version], rest)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let apis: Vec<_> = ApiTable::all().collect();
    let api = apis[usize::from(which) % apis.len()];
    let versions = api.decodes.max - api.decodes.min + 1;
    let version = api.decodes.min + i16::from(version) % versions;
    let mut frame = header(api.key, version, 1, Some("fuzz"));
    frame.extend_from_slice(rest);
    drive::frame(Bytes::from(frame), &mut Reached::default());
}

pub fn api_seeds() -> Vec<Vec<u8>> {
    let apis: Vec<_> = ApiTable::all().collect();
    every_version()
        .map(|(key, version)| {
            let at = apis.iter().position(|api| api.key == key).expect("known");
            let api = apis[at];
            let which = u8::try_from(at).expect("fewer than 256 APIs");
            let version_byte = u8::try_from(version - api.decodes.min).expect("few versions");
            let mut seed = vec![which, version_byte];
            seed.extend(body(key, version, Fill::Full, &mut Choices(1)).bytes);
            seed
        })
        .collect()
}

pub fn batch(bytes: &[u8]) {
    drive::batch(&Bytes::copy_from_slice(bytes), 10, &mut Reached::default());
}

/// A batch whose length and CRC are right.
pub fn sealed_batch(bytes: &[u8]) {
    let batch = Bytes::from(sealed::batch(bytes.to_vec()));
    drive::batch(&batch, 12, &mut Reached::default());
    let ours = records(&batch, &LIMITS).and_then(|all| all.collect::<Result<Vec<_>, _>>());
    // Its bound is that of a tool that is run by itself: 256 MiB.
    if matches!(ours, Err(BatchError::DecompressedTooLarge)) {
        return;
    }
    let theirs = tidemark_histcheck::parse_batch(&batch);
    let theirs = theirs.and_then(|_| tidemark_histcheck::records(&batch));
    let Ok(ours) = ours else {
        return;
    };
    if let Ok(theirs) = theirs {
        assert_eq!(ours.len(), theirs.len(), "two readers of one batch");
    }
    let header = BatchHeader::parse(&batch).expect("its records were read");
    if let Ok(Some(again)) = rewrite_batch(&header, &ours, None) {
        let again = records(&again, &LIMITS).and_then(|all| all.collect::<Result<Vec<_>, _>>());
        if let Ok(again) = again {
            assert_eq!(again.len(), ours.len(), "what was written anew");
        }
    }
}

fn two_records() -> Vec<u8> {
    BatchBuilder::new(0)
        .producer(ProducerId(7), ProducerEpoch(0), 0)
        .push(Some(b"key"), Some(b"value"))
        .push(None, Some(b"value of the second record, which is longer"))
        .build()
}

pub fn batch_seeds() -> Vec<Vec<u8>> {
    let marker = control_batch(
        5,
        LeaderEpoch(1),
        ProducerId(7),
        ProducerEpoch(0),
        ControlType::Commit,
        CoordinatorEpoch(3),
        1,
    );
    let mut seeds = vec![two_records(), marker.to_vec()];
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        seeds.push(compressed(codec));
    }
    let mut transactional = BatchBuilder::new(1_000);
    transactional
        .producer(ProducerId(9), ProducerEpoch(2), 5)
        .transactional();
    transactional.push(None, None);
    seeds.push(transactional.build());
    seeds
}

fn compressed(codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new(0);
    for n in 0..6u8 {
        builder.push(Some(&[n]), Some(b"value of a record, value of a record"));
    }
    let batch = Bytes::from(builder.build());
    let batch = recompress_batch(&batch, codec, None, &LIMITS).expect("a good batch");
    batch.to_vec()
}

/// A byte for the count, then the records as they were compressed.
fn run_codec(codec: u8, bytes: &[u8]) {
    let Some((&count, body)) = bytes.split_first() else {
        return;
    };
    let mut batch = BatchBuilder::new(0).push(None, Some(b"v")).build();
    batch.truncate(61);
    batch[22] = codec;
    batch[23..27].copy_from_slice(&(u32::from(count) - u32::from(count > 0)).to_be_bytes());
    batch[57..61].copy_from_slice(&u32::from(count).to_be_bytes());
    batch.extend_from_slice(body);
    sealed_batch(&batch);
}

fn codec_seeds(codec: Codec) -> Vec<Vec<u8>> {
    let batch = compressed(codec);
    let mut seed = vec![batch[60]];
    seed.extend_from_slice(&batch[61..]);
    vec![seed]
}

pub fn gzip(bytes: &[u8]) {
    run_codec(1, bytes);
}

pub fn gzip_seeds() -> Vec<Vec<u8>> {
    codec_seeds(Codec::Gzip)
}

pub fn snappy(bytes: &[u8]) {
    run_codec(2, bytes);
}

pub fn snappy_seeds() -> Vec<Vec<u8>> {
    let mut seeds = codec_seeds(Codec::Snappy);
    // Java's framing, with a block of its own length.
    let mut framed = vec![
        1, 0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1,
    ];
    framed.extend_from_slice(&[0, 0, 0, 5, 3, 8, b'a', b'b', b'c']);
    seeds.push(framed);
    seeds
}

pub fn lz4(bytes: &[u8]) {
    run_codec(3, bytes);
}

pub fn lz4_seeds() -> Vec<Vec<u8>> {
    codec_seeds(Codec::Lz4)
}

pub fn zstd(bytes: &[u8]) {
    run_codec(4, bytes);
}

pub fn zstd_seeds() -> Vec<Vec<u8>> {
    codec_seeds(Codec::Zstd)
}
