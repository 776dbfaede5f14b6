//! Challenges of DIGEST-MD5, as zk-session reads them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| jute_codec_fuzz::challenge(data));
