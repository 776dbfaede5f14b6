//! Messages from a client: a header, then a request.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| jute_codec_fuzz::request(data));
