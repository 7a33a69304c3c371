//! ListOffsets by timestamp within a batch (case A24).

mod support;

use bytes::Bytes;
use support::*;
use tidemark_record_batch::*;
use tidemark_types::LeaderEpoch;

const LIMITS: DecompressLimits = DecompressLimits {
    ratio: 64,
    floor_bytes: 1 << 20,
    max_bytes: 128 << 20,
};

fn at_times(base_offset: i64, times: &[i64]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(times[0]);
    for &time in times {
        builder.push_at(time, None, None, &[]);
    }
    let mut batch = builder.build();
    patch_position(&mut batch, base_offset, LeaderEpoch(0));
    batch
}

fn in_every_form(batch: &[u8]) -> Vec<Bytes> {
    let mut all = vec![bytes(batch)];
    all.extend(FORMS.map(|form| compressed(batch, form).into()));
    all
}

#[test]
fn the_first_record_at_or_after_the_time() {
    for batch in in_every_form(&at_times(0, &[2, 4, 6, 8])) {
        let ask = |target| offset_for_timestamp(&batch, target, &LIMITS).unwrap();
        assert_eq!(ask(1), Some((2, 0)));
        assert_eq!(ask(2), Some((2, 0)));
        assert_eq!(ask(3), Some((4, 1)));
        assert_eq!(ask(8), Some((8, 3)));
        assert_eq!(ask(9), None);
    }
    for batch in in_every_form(&at_times(70, &[10, 5, 20])) {
        let ask = |target| offset_for_timestamp(&batch, target, &LIMITS).unwrap();
        assert_eq!(ask(6), Some((10, 70)));
        assert_eq!(ask(11), Some((20, 72)));
    }
}

#[test]
fn the_first_record_with_the_highest_time() {
    for batch in in_every_form(&at_times(70, &[10, 20, 5, 20])) {
        assert_eq!(max_timestamp_offset(&batch, &LIMITS), Ok(Some((20, 71))));
    }
}

#[test]
fn under_log_append_time_all_records_have_one_time() {
    let mut batch = at_times(70, &[10, 20, 5]);
    patch_log_append_time(&mut batch, 15);
    assert!(crc_is_valid(&batch));
    let batch = bytes(&batch);
    assert_eq!(
        offset_for_timestamp(&batch, 15, &LIMITS),
        Ok(Some((15, 70)))
    );
    assert_eq!(offset_for_timestamp(&batch, 16, &LIMITS), Ok(None));
    assert_eq!(max_timestamp_offset(&batch, &LIMITS), Ok(Some((15, 70))));
}
