//! What needs no fuzzer: the properties on the seeds, on the corpus and on long inputs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use jute_codec::OpCode;

use crate::reference::{Body, Layout};
use crate::seeds::{all, property};
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
