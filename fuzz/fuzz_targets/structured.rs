//! Values of every record, which the input chooses.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| jute_codec_fuzz::structured(data));
