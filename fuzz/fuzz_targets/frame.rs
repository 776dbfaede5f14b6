//! Byte streams, split into frames.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| jute_codec_fuzz::frame(data));
