//! A connection's bytes: frames, requests, batches.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    tidemark_fuzz::drive::connection(bytes);
});
