//! Messages from a server: a header, then a watch event or a reply.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| jute_codec_fuzz::reply(data));
