//! Damaged and hostile bytes: refused, without a panic and without memory for what they claim.

mod support;

use proptest::prelude::*;
use support::*;
use tidemark_record_batch::*;
use tidemark_types::LeaderEpoch;

fn rules() -> ProduceRules {
    ProduceRules {
        wall_ms: 1_000,
        ..ProduceRules::default()
    }
}

/// Everything a reader of the log may do with bytes it was given.
fn touch_all(input: &[u8]) {
    let limits = DecompressLimits::default();
    let _ = validate_produce(input, &rules());
    let _ = crc_is_valid(input);
    let _ = parse_control(input);
    for _ in batches(input) {}
    if let Ok(header) = BatchHeader::parse(input) {
        let _ = (
            header.last_offset(),
            header.next_offset(),
            header.last_sequence(),
        );
    }
    let batch = bytes(input);
    if let Ok(records) = records(&batch, &limits) {
        for _ in records {}
    }
    let _ = offset_for_timestamp(&batch, 0, &limits);
    let _ = max_timestamp_offset(&batch, &limits);
}

#[test]
fn any_single_bit_flipped_under_the_crc_is_refused() {
    for batch in [plain(3), compressed(&plain(30), Form::Lz4)] {
        assert!(validate_produce(&batch, &rules()).is_ok());
        for at in at::CRC..batch.len() {
            for bit in 0..8 {
                let mut damaged = batch.clone();
                damaged[at] ^= 1 << bit;
                assert!(!crc_is_valid(&damaged), "byte {at} bit {bit}");
                assert!(validate_produce(&damaged, &rules()).is_err());
                touch_all(&damaged);
            }
        }
    }
}

#[test]
fn truncation_at_any_byte_is_refused() {
    let mut whole = vec![plain(3), idempotent(4)];
    whole.extend(FORMS.map(|form| compressed(&plain(20), form)));
    for batch in whole {
        for length in 0..batch.len() {
            let cut = &batch[..length];
            assert!(validate_produce(cut, &rules()).is_err());
            touch_all(cut);
            if length >= HEADER_BYTES {
                // Cut, but with length and CRC made right: the records say so.
                let cut = with_body(cut.to_vec(), &cut[HEADER_BYTES..]);
                assert!(validate_produce(&cut, &rules()).is_err(), "{length}");
                touch_all(&cut);
            }
        }
    }
}

#[test]
fn counts_are_not_believed() {
    // An allocation by any of these would end the process.
    for count in [i32::MAX, i32::MAX - 1, i32::MIN, -1] {
        for batch in [
            with_body(plain(1), &[]),
            plain(1),
            compressed(&plain(1), Form::Zstd),
        ] {
            let batch = with_field(
                with_field(batch, at::RECORD_COUNT, count.to_be_bytes()),
                at::LAST_OFFSET_DELTA,
                count.wrapping_sub(1).to_be_bytes(),
            );
            assert!(crc_is_valid(&batch));
            assert!(validate_produce(&batch, &rules()).is_err());
            touch_all(&batch);
        }
    }
}

#[test]
fn a_stretch_of_log_may_end_in_a_cut_batch() {
    let mut log = Vec::new();
    let mut offset = 0;
    let mut starts = Vec::new();
    for records in [3, 1, 2] {
        let mut batch = plain(records);
        patch_position(&mut batch, offset, LeaderEpoch(4));
        assert!(crc_is_valid(&batch), "position lies outside the CRC");
        offset += records as i64;
        starts.push(log.len());
        log.extend_from_slice(&batch);
    }
    let whole: Vec<_> = batches(&log).collect::<Result<_, _>>().unwrap();
    let offsets: Vec<(i64, i64)> = whole
        .iter()
        .map(|(header, _)| (header.base_offset, header.next_offset()))
        .collect();
    assert_eq!(offsets, [(0, 3), (3, 4), (4, 6)]);
    assert_eq!(whole[1].1, starts[1]..starts[2]);
    assert!(
        whole
            .iter()
            .all(|(header, _)| header.leader_epoch == LeaderEpoch(4))
    );
    for length in 0..log.len() {
        let complete = starts[1..].iter().filter(|&&end| end <= length).count();
        let read: Result<Vec<_>, _> = batches(&log[..length]).collect();
        assert_eq!(read.unwrap().len(), complete, "{length}");
    }
    // A broken batch in the middle is told, once.
    log[starts[1] + at::MAGIC] = 9;
    let read: Vec<_> = batches(&log).collect();
    assert_eq!(read.len(), 2);
    assert_eq!(read[1], Err(BatchError::Magic(9)));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(input in prop::collection::vec(any::<u8>(), 0..300)) {
        touch_all(&input);
    }

    /// A batch with any header, its CRC right.
    #[test]
    fn arbitrary_headers_never_panic(
        header in prop::collection::vec(any::<u8>(), 40..=40),
        codec in 0i16..8,
    ) {
        let mut batch = plain(2);
        batch[at::ATTRIBUTES..HEADER_BYTES].copy_from_slice(&header);
        batch[at::ATTRIBUTES + 1] = codec as u8 | header[1] & !7;
        seal(&mut batch);
        touch_all(&batch);
    }

    #[test]
    fn crc_agrees_with_another_implementation(
        body in prop::collection::vec(any::<u8>(), 0..2000),
    ) {
        let batch = with_body(plain(1), &body);
        prop_assert!(crc_is_valid(&batch));
        let mut ours = batch.clone();
        patch_max_timestamp(&mut ours, 1_000);
        prop_assert_eq!(ours, batch);
    }
}
