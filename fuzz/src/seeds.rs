//! The seeds, which are the golden frames of jute-codec in the format of each target.

use std::collections::BTreeMap;

use jute_codec::OpCode;
use serde_json::Value;

use crate::OPS;

/// Returns the seeds, keyed by `target/name`.
pub fn all() -> BTreeMap<String, Vec<u8>> {
    let entries: Vec<Value> = serde_json::from_str(GOLDEN).expect("the golden frames are JSON");
    let mut seeds = BTreeMap::new();
    for (number, entries) in entries.chunks(8).enumerate() {
        // All frames of the first streams fit the limit. Later streams have lower limits.
        let limit = u8::MAX - 19 * number as u8;
        let stream = entries.iter().flat_map(wire);
        let seed = [limit, 1 << (number % 8)].into_iter().chain(stream).collect();
        seeds.insert(format!("frame/stream-{number:02}"), seed);
    }
    for entry in &entries {
        let decoded = |field: &str| entry.get("decoded").and_then(|decoded| decoded.get(field));
        if decoded("text").is_some() {
            continue;
        }
        let name = text(entry, "name").replace('@', "-");
        let wire = wire(entry);
        let payload = wire.get(4..).expect("a frame has a length");
        if decoded("ConnectRequest").is_some() || decoded("ConnectResponse").is_some() {
            seeds.insert(format!("connect/{name}"), [&[PLACE], payload].concat());
        } else if decoded("RequestHeader").is_some() {
            seeds.insert(format!("request/{name}"), [&[PLACE], payload].concat());
        } else {
            let op = decoded("record").and_then(|_| op_of(entry)).unwrap_or_default();
            seeds.insert(format!("reply/{name}"), [&[op, PLACE], payload].concat());
        }
        if let Some(list) = list_of(entry) {
            let header = if list < 2 { crate::HEADER_REQUEST } else { crate::HEADER_REPLY };
            let elements = payload.get(header..).expect("a frame has a header");
            seeds.insert(format!("multi/{name}"), [&[list, PLACE], elements].concat());
        }
    }
    seeds
}

/// Returns the selector of the list in an entry, for the target `multi`.
fn list_of(entry: &Value) -> Option<u8> {
    let decoded = entry.get("decoded")?;
    decoded.get("body").filter(|body| body.is_array())?;
    let reply = if decoded.get("ReplyHeader").is_some() { 2 } else { 0 };
    match decoded.get("op")?.as_str()? {
        "multi" => Some(reply),
        "multiRead" => Some(reply + 1),
        _ => None,
    }
}

/// Returns the index of the entry's opcode in [`OPS`].
fn op_of(entry: &Value) -> Option<u8> {
    let name = entry.get("decoded")?.get("op")?.as_str()?.to_uppercase();
    let is_named = |op: &OpCode| op.name().is_some_and(|known| known.replace('_', "") == name);
    u8::try_from(OPS.iter().position(is_named)?).ok()
}

fn wire(entry: &Value) -> Vec<u8> {
    let hex = text(entry, "hex");
    let byte = |at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    (0..hex.len()).step_by(2).map(|at| byte(at).expect("two hex digits")).collect()
}

fn text<'a>(entry: &'a Value, field: &str) -> &'a str {
    entry.get(field).and_then(Value::as_str).expect("every entry has this field")
}

/// Selects the prefix of the record that the target decodes: half of the record.
const PLACE: u8 = 128;

const GOLDEN: &str = include_str!("../../crates/jute-codec/tests/golden_frames.json");

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_seed_has_the_properties_of_its_target() {
        for (name, seed) in all() {
            match name.split_once('/').expect("target/name").0 {
                "connect" => crate::connect(&seed),
                "frame" => crate::frame(&seed),
                "multi" => crate::multi(&seed),
                "reply" => crate::reply(&seed),
                "request" => crate::request(&seed),
                other => panic!("no target {other}"),
            }
        }
    }

    #[test]
    fn checked_in_seeds_match_the_golden_frames() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
        for (name, seed) in all() {
            let file = std::fs::read(root.join(&name)).expect("run the example write_seeds");
            assert_eq!(file, seed, "{name}: run the example write_seeds");
        }
    }

    #[test]
    fn every_golden_reply_has_a_selectable_opcode() {
        let entries: Vec<Value> = serde_json::from_str(GOLDEN).unwrap();
        for entry in entries {
            if entry["decoded"].get("op").is_some() {
                assert!(op_of(&entry).is_some(), "{}", entry["name"]);
            }
        }
    }
}
