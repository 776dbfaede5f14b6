//! The seeds, in the format of each target: the golden frames of jute-codec, and an example of every
//! record, which the reference writes. The examples are spelled as Java does, and no two fields of an
//! example are equal.

use std::collections::{BTreeMap, BTreeSet};

use jute_codec::OpCode;
use serde_json::Value as Json;

use crate::reference::{
    Body, Counter, Layout, List, Spelling, Value, encode, generate, generate_element,
};
use crate::{LAYOUTS, OPS};

/// The seeds by `target/name`.
pub type Seeds = BTreeMap<String, Vec<u8>>;

/// Returns the seeds. Of the frames that several servers have sent with the same name, it returns
/// the first one, and none of those in [`REDUNDANT`].
pub fn all() -> Seeds {
    let mut seeds = Seeds::new();
    let mut entries = golden();
    let mut seen = BTreeSet::new();
    entries.retain(|entry| seen.insert(base_name(entry).to_owned()));
    for entry in &entries {
        if !REDUNDANT.contains(&base_name(entry)) {
            seeds.extend(golden_seed(entry));
        }
    }
    for (number, entries) in entries.chunks(16).enumerate() {
        let stream: Vec<u8> = entries.iter().flat_map(wire).collect();
        // All frames of the first streams fit the limit.
        let limit = [4 << 20, 1 << 20, 70_000, 100, 40, 20, 0].get(number).copied().unwrap_or(0);
        seeds.insert(
            format!("frame/stream-{number}"),
            stream_seed(limit, 1 << (2 * number), &stream),
        );
    }
    seeds.insert("frame/long".to_owned(), stream_seed(4 << 20, 999, &long_frames()));
    examples(&mut seeds);
    for (name, challenge) in CHALLENGES {
        seeds.insert(format!("challenge/{name}"), challenge.as_bytes().to_vec());
    }
    seeds
}

/// Returns the properties that a seed of this target must have.
pub fn property(target: &str) -> fn(&[u8]) {
    match target {
        "challenge" => crate::challenge,
        "connect" => crate::connect,
        "frame" => crate::frame,
        "multi" => crate::multi,
        "reply" => crate::reply,
        "request" => crate::request,
        "structured" => crate::structured,
        other => panic!("no target {other}"),
    }
}

/// Returns the frame in the format of its target, unless it is not a message.
fn golden_seed(entry: &Json) -> Option<(String, Vec<u8>)> {
    let decoded = |field: &str| entry.get("decoded").and_then(|decoded| decoded.get(field));
    let name = base_name(entry);
    let wire = wire(entry);
    let payload = wire.get(4..)?;
    if decoded("text").is_some() {
        return None;
    }
    Some(if decoded("ConnectRequest").is_some() || decoded("ConnectResponse").is_some() {
        (format!("connect/{name}"), [&[PLACE], payload].concat())
    } else if decoded("RequestHeader").is_some() {
        (format!("request/{name}"), [&[PLACE], payload].concat())
    } else {
        let op = decoded("record").and_then(|_| op_of(entry)).unwrap_or_default();
        (format!("reply/{name}"), [&[op, PLACE], payload].concat())
    })
}

fn examples(seeds: &mut Seeds) {
    let mut counter = Counter(0);
    let example = |layout, counter: &mut Counter| {
        let value = generate(layout, counter).expect("only layouts with a body");
        encode(layout, &value, Spelling::Java)
    };
    for name in ["ConnectRequest", "ConnectResponse"] {
        let record = example(Layout::Record(name), &mut counter);
        seeds.insert(format!("connect/example-{name}"), [&[PLACE], &record[..]].concat());
    }
    let header = [&(-1_i32).to_be_bytes()[..], &[0; 12]].concat();
    let event = example(Layout::Record("WatcherEvent"), &mut counter);
    seeds.insert("reply/example-event".to_owned(), [&[0, PLACE], &header[..], &event].concat());
    for (index, op) in (0..).zip(OPS.iter().copied()) {
        let name = op.name().unwrap_or("unknown").to_lowercase().replace('_', "-");
        if Layout::Request(op).body().is_some() {
            let record = example(Layout::Request(op), &mut counter);
            let seed = [&[PLACE][..], &[0, 0, 0, 1], &op.0.to_be_bytes(), &record].concat();
            seeds.insert(format!("request/example-{name}"), seed);
        }
        if Layout::Response(op).body().is_some_and(|body| body != Body::Nothing) {
            let record = example(Layout::Response(op), &mut counter);
            let seed = [&[index, PLACE][..], &[0, 0, 0, 1], &[0; 12], &record].concat();
            seeds.insert(format!("reply/example-{name}"), seed);
        }
    }
    for (selector, name, layout) in LISTS {
        let Some(Body::List(list)) = layout.body() else { panic!("{layout:?} is a list") };
        let elements = list_of_all(list, &mut counter);
        let record = encode(layout, &elements, Spelling::Java);
        let seed = [&[selector, PLACE], &record[..]].concat();
        seeds.insert(format!("multi/example-{name}"), seed);
    }
    for index in 0..u8::try_from(LAYOUTS.len()).expect("a byte selects a layout") {
        let choices = (0..120_u8).map(|at| at.wrapping_mul(37).wrapping_add(index));
        let seed = [index, PLACE].into_iter().chain(choices).collect();
        seeds.insert(format!("structured/layout-{index:02}"), seed);
    }
}

/// Returns a list with one element of each kind.
fn list_of_all(list: List, counter: &mut Counter) -> Value {
    let elements = list.ops().iter().map(|op| (*op, generate_element(list, *op, counter)));
    Value::List(elements.collect())
}

/// Frames of 5,000, 300 and 0 bytes, and the beginning of one of a million bytes.
fn long_frames() -> Vec<u8> {
    let mut stream = Vec::new();
    for (length, arrived) in [(5000, 5000), (300, 300), (0, 0), (1_000_000_u32, 20)] {
        stream.extend(length.to_be_bytes());
        stream.resize(stream.len() + arrived, b'x');
    }
    stream
}

fn stream_seed(limit: u32, chunk: u16, stream: &[u8]) -> Vec<u8> {
    let [_, limit @ ..] = limit.to_be_bytes();
    [&limit[..], &(chunk - 1).to_be_bytes(), stream].concat()
}

/// Returns the index of the entry's opcode in [`OPS`].
fn op_of(entry: &Json) -> Option<u8> {
    let name = entry.get("decoded")?.get("op")?.as_str()?.to_uppercase();
    let is_named = |op: &OpCode| op.name().is_some_and(|known| known.replace('_', "") == name);
    u8::try_from(OPS.iter().position(is_named)?).ok()
}

/// Returns the frames that live servers sent and accepted.
fn golden() -> Vec<Json> {
    serde_json::from_str(GOLDEN).expect("the golden frames are JSON")
}

fn wire(entry: &Json) -> Vec<u8> {
    let hex = text(entry, "hex");
    let byte = |at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    (0..hex.len()).step_by(2).map(|at| byte(at).expect("two hex digits")).collect()
}

/// Returns the name without the version of the server.
fn base_name(entry: &Json) -> &str {
    let name = text(entry, "name");
    name.split_once('@').map_or(name, |(base, _)| base)
}

fn text<'a>(entry: &'a Json, field: &str) -> &'a str {
    entry.get(field).and_then(Json::as_str).expect("every entry has this field")
}

/// Selects the prefix of the record that the target decodes: half of the record.
const PLACE: u8 = 128;

/// The lists of the target `multi`, after the bytes that select them.
const LISTS: [(u8, &str, Layout); 4] = [
    (0, "ops", Layout::Request(OpCode::MULTI)),
    (1, "reads", Layout::Request(OpCode::MULTI_READ)),
    (2, "results", Layout::Response(OpCode::MULTI)),
    (3, "read-results", Layout::Response(OpCode::MULTI_READ)),
];

/// Golden frames that reach nothing that other seeds do not reach, as a merge of libFuzzer shows.
const REDUNDANT: [&str; 13] = [
    "connect_request_resume_unknown_session",
    "connect_response_read_only",
    "delete_request",
    "event_node_children_changed",
    "event_node_created",
    "getallchildrennumber_reply",
    "ping_request",
    "removewatches_any_reply",
    "sasl_digest_md5_round1_reply",
    "sasl_digest_md5_round2_request",
    "setacl_reply",
    "setwatches2_reply",
    "setwatches_reply",
];

/// Challenges and proofs, with every kind of value.
const CHALLENGES: [(&str, &str); 4] = [
    (
        "challenge",
        "realm=\"zk-sasl-md5\",nonce=\"OA6MG9tEQGm2hh\",charset=utf-8,algorithm=md5-sess",
    ),
    ("proof", "rspauth=ea40f60335c427b5527b84dbabcdfffd"),
    ("layers", " , qop=\"auth-int, auth\", Nonce = x ,nonce=\"y\",cipher=\"\""),
    ("quotes", "realm=\"a\\\"b\\\\c,=\",nonce=\"\u{e9}\u{1d11e}\" x=\"open"),
];

const GOLDEN: &str = include_str!("../../crates/jute-codec/tests/golden_frames.json");
