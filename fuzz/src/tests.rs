//! What needs no fuzzer: the properties on the seeds, on the corpus and on long inputs, and the
//! reference on the golden frames.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use jute_codec::OpCode;
use serde_json::Value as Json;

use crate::reference::{Body, Layout, Value, decode};
use crate::seeds::{all, golden, property, wire};
use crate::{LAYOUTS, OPS};

#[test]
fn every_seed_has_the_properties_of_its_target() {
    for (name, seed) in all() {
        property(name.split_once('/').expect("target/name").0)(&seed);
    }
}

#[test]
fn the_corpus_is_small_and_has_the_properties_of_its_targets() {
    let inputs = files("corpus");
    let mut bytes = 0;
    for (name, path) in &inputs {
        let input = fs::read(path).expect("it is listed");
        bytes += input.len();
        property(name.split_once('/').expect("target/name").0)(&input);
    }
    let targets = inputs.iter().filter_map(|(name, _)| name.split_once('/'));
    let targets: BTreeSet<&str> = targets.map(|(target, _)| target).collect();
    assert_eq!(targets.len(), 6, "all but one target have inputs: {targets:?}");
    let count = inputs.len() + all().len();
    assert!(count < 600, "{count} files; run fuzz/keep");
    assert!(bytes < 1_000_000, "{bytes} bytes; run fuzz/keep");
}

#[test]
fn checked_in_seeds_are_those_of_this_crate() {
    let seeds = all();
    let files = files("seeds");
    for (name, path) in &files {
        assert!(seeds.contains_key(name), "{name} is not a seed any more: {}", path.display());
    }
    for (name, seed) in &seeds {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name);
        let file = fs::read(path).expect("run the example write_seeds");
        assert_eq!(file, *seed, "{name}: run the example write_seeds");
    }
}

#[test]
fn every_request_and_reply_has_a_seed() {
    let seeds = all();
    for layout in LAYOUTS.iter().copied() {
        let is_reply = |seed: &[u8]| seed.first().and_then(|op| OPS.get(usize::from(*op))).copied();
        if matches!(layout, Layout::Response(_)) && layout.body() == Some(Body::Nothing) {
            continue;
        }
        let has_seed = seeds.iter().any(|(name, seed)| match layout {
            Layout::Record(_) => true,
            Layout::Request(op) => {
                name.starts_with("request/") && seed.get(5..9) == Some(&op.0.to_be_bytes()[..])
            }
            Layout::Response(op) => {
                name.starts_with("reply/example-") && is_reply(seed) == Some(op)
            }
        });
        assert!(has_seed, "{layout:?}");
    }
}

/// The frames and what they mean come from live servers, so the reference is not only the opinion
/// of the one who wrote it.
#[test]
fn the_reference_reads_the_golden_frames() {
    let mut bodies = 0;
    for entry in golden() {
        let (name, decoded, wire) = (&entry["name"], &entry["decoded"], wire(&entry));
        let read = |layout, at| match decode(layout, wire.get(at..).expect("it is that long")) {
            Ok((value, _)) => value,
            Err(fault) => panic!("{name}: {fault:?}"),
        };
        let mut at = 4;
        for (record, length) in [
            ("ConnectRequest", 0),
            ("ConnectResponse", 0),
            ("RequestHeader", 8),
            ("ReplyHeader", 16),
        ] {
            if let Some(expected) = decoded.get(record) {
                assert_same(&read(Layout::Record(record), at), expected, name);
                at += length;
            }
        }
        if let Some(event) = decoded.get("WatcherEvent") {
            assert_same(&read(Layout::Record("WatcherEvent"), at), event, name);
        }
        let Some(body) = decoded.get("body").filter(|body| !body.is_null()) else { continue };
        let op = decoded["op"].as_str().expect("a body has an opcode").to_uppercase();
        let op = OPS
            .into_iter()
            .find(|known| known.name().is_some_and(|known| known.replace('_', "") == op));
        let op = op.expect("every golden frame has a selectable opcode");
        let is_request = decoded.get("RequestHeader").is_some();
        let layout = if is_request { Layout::Request(op) } else { Layout::Response(op) };
        assert_same(&read(layout, at), body, name);
        bodies += 1;
    }
    assert!(bodies > 50, "{bodies} bodies");
}

fn assert_same(value: &Value, expected: &Json, name: &Json) {
    match (value, expected) {
        (Value::Bool(value), Json::Bool(expected)) => assert_eq!(value, expected, "{name}"),
        (Value::Int(value), expected) => assert_eq!(*expected, *value, "{name}"),
        (Value::Long(value), expected) => assert_eq!(*expected, *value, "{name}"),
        (Value::Text(text), expected) => assert_eq!(text.as_deref(), expected.as_str(), "{name}"),
        (Value::Buffer(bytes), expected) => {
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let hex: Option<String> = bytes.as_deref().map(hex);
            assert_eq!(hex.as_deref(), expected.as_str(), "{name}");
        }
        (Value::Vector(elements), Json::Array(expected)) => {
            assert_eq!(elements.len(), expected.len(), "{name}");
            elements.iter().zip(expected).for_each(|(value, json)| assert_same(value, json, name));
        }
        (Value::List(elements), Json::Array(expected)) => {
            // The golden frames of replies also have the header that ends the list.
            let is_element = |json: &&Json| json["header"]["done"] != true;
            let expected: Vec<&Json> = expected.iter().filter(is_element).collect();
            assert_eq!(elements.len(), expected.len(), "{name}");
            for ((_, element), expected) in elements.iter().zip(expected) {
                let body = expected.get("args").or(expected.get("result"));
                assert_same(element, body.expect("it has a body"), name);
            }
        }
        (Value::Record(fields), Json::Object(expected)) => {
            // A field that older peers omit is null in the golden frames.
            let fields_expected = expected.values().filter(|json| !json.is_null());
            assert!(fields.len() >= fields_expected.count(), "{name}: {value:?} {expected:?}");
            for (field, value) in fields {
                let json = expected.get(*field);
                assert_same(value, json.unwrap_or_else(|| panic!("{name}: {field}")), name);
            }
        }
        (value, expected) => panic!("{name}: {value:?} is not {expected}"),
    }
}

/// A frame may be that long by default. The elements that cost the most are the shortest ones.
#[test]
fn inputs_as_long_as_a_frame_have_the_properties() {
    const LIMIT: usize = 4 << 20;
    let header = [&[0, 0, 0, 1], &[0; 12][..]].concat();
    let index = OPS.iter().position(|op| *op == OpCode::GET_CHILDREN).expect("it is an opcode");
    let names = u32::try_from(LIMIT / 4 - 1).expect("it is small").to_be_bytes();
    let selectors = [u8::try_from(index).expect("a byte selects it"), 255];
    let mut reply = [&selectors[..], &header, &names].concat();
    reply.resize(LIMIT, 0);
    crate::reply(&reply);

    // A limit that the frame meets exactly, and one that is too low by a byte.
    for limit in [LIMIT as u32, LIMIT as u32 - 1] {
        let [_, limit @ ..] = limit.to_be_bytes();
        let mut stream = [&limit[..], &[0x7f, 0xff], &(LIMIT as u32).to_be_bytes()].concat();
        stream.resize(stream.len() + LIMIT, 0);
        crate::frame(&stream);
    }
}

/// Returns the files of a folder of this crate, by `target/name`.
fn files(folder: &str) -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = |folder: &Path| {
        let entries = fs::read_dir(folder).expect("the folder exists");
        entries.map(|entry| entry.expect("it can be read").path()).collect::<Vec<_>>()
    };
    let mut files = Vec::new();
    for target in entries(&root) {
        for file in entries(&target) {
            let name = file.strip_prefix(&root).expect("it is below the root");
            files.push((name.to_str().expect("names are ASCII").to_owned(), file.clone()));
        }
    }
    files
}
