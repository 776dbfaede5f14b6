//! Lists of operations, and lists of results.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| jute_codec_fuzz::multi(data));
