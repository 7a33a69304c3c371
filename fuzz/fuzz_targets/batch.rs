//! The records of one partition, as a Produce request carries them.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tidemark_fuzz::drive::{Reached, batch};

fuzz_target!(|bytes: &[u8]| {
    batch(&Bytes::copy_from_slice(bytes), 10, &mut Reached::default());
});
