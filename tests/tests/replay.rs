//! What a real ZooKeeper has answered, our server must answer too.
//!
//! `tests/captures` has what passed between clients and a ZooKeeper 3.8.0. The requests are sent
//! to a fresh server in the same order, without sockets and in virtual time, and every answer and
//! event is compared with the recorded one: as a value and byte for byte, in the order of its
//! connection. How to record a capture is told in `docs/testing.md`.
//!
//! Not compared, because servers are free in it: which number a session has and which password,
//! wall-clock times (but a transaction has one time wherever it shows), and the order of
//! children, of ephemerals, and of the events of a session's end.

#![expect(
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "helpers fail by a panic, as the tests they serve do; tests say what they have covered"
)]

#[path = "replay/differences.rs"]
mod differences;
#[path = "replay/names.rs"]
mod names;
#[path = "replay/player.rs"]
mod player;

use std::fs;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use zk_tests::capture::{self, Entry, Side};

use self::differences::KNOWN;
use self::player::{Counts, Difference, play};

#[test]
fn what_was_recorded_is_answered() {
    let captures = captures();
    let mut problems = Vec::new();
    let mut known = KNOWN.to_vec();
    let mut total = Counts::default();
    for Capture { name, entries } in &captures {
        let (counts, differences) = play(entries);
        assert!(counts.requests > 0 && counts.replies > 0, "{name} is empty");
        total.add(&counts);
        for Difference { line, what } in differences {
            let expected = |known: &differences::Known| (known.capture, known.line) == (name, line);
            match KNOWN.iter().any(expected) {
                true => known.retain(|known| !expected(known)),
                false => problems.push(format!("{name}:{line}: {what}")),
            }
        }
    }
    for gone in known {
        problems
            .push(format!("{}:{}: no difference, though: {}", gone.capture, gone.line, gone.why));
    }
    println!("{} captures: {total}", captures.len());
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
    // A capture that is lost, or cut short, must not pass for one that is answered.
    assert!(captures.len() >= CAPTURES_MIN, "only {} captures", captures.len());
    assert!(total.is_at_least(&COUNTS_MIN), "only {total}");
}

/// The replay itself is part of the evidence: whatever else a server had said must be found.
#[test]
fn a_server_that_says_something_else_is_found_out() {
    let captures = captures();
    let mut tried = 0;
    for name in ["own-watches", "own-multi-failures", "own-sessions", "own-stats"] {
        let capture = captures.iter().find(|capture| capture.name == name);
        let entries = &capture.unwrap_or_else(|| panic!("{name} is missing")).entries;
        assert!(play(entries).1.is_empty(), "{name} differs as it is");
        for (what, changed) in changes(entries) {
            tried += 1;
            assert!(!play(&changed).1.is_empty(), "{name}: not found: {what}");
        }
    }
    println!("{tried} changes of what was recorded are found");
    assert!(tried >= CHANGES_MIN, "only {tried} changes");
}

type Entries = Vec<(usize, Entry)>;

/// The capture with one thing changed of what the server has said, in all ways that matter.
fn changes(entries: &[(usize, Entry)]) -> Vec<(String, Entries)> {
    let mut changes = Vec::new();
    for (at, (line, entry)) in entries.iter().enumerate() {
        let is_servers = matches!(
            entry,
            Entry::Frame { from: Side::Server, .. } | Entry::Close { by: Side::Server, .. }
        );
        if !is_servers {
            continue;
        }
        let mut without = entries.to_vec();
        without.remove(at);
        changes.push((format!("line {line} is not there"), without));
        let mut twice = entries.to_vec();
        twice.insert(at, entries[at].clone());
        changes.push((format!("line {line} is there twice"), twice));
        if let Some((_, next)) = entries.get(at + 1)
            && source(next).is_some_and(|next| source(entry) == Some(next))
            && next != entry
        {
            let mut swapped = entries.to_vec();
            swapped.swap(at, at + 1);
            changes.push((format!("line {line} comes after the next"), swapped));
        }
        if let Entry::Frame { connection, from, bytes } = entry
            && is_fixed(bytes)
        {
            // Behind the length; of the rest every fourth byte is the lowest of a number.
            for byte in (7..bytes.len()).step_by(4).filter(|byte| !is_free(bytes, *byte)) {
                let mut other = BytesMut::from(&bytes[..]);
                other[byte] ^= 1;
                let mut changed = entries.to_vec();
                let bytes = other.freeze();
                changed[at].1 = Entry::Frame { connection: *connection, from: *from, bytes };
                changes.push((format!("byte {byte} of line {line} is another"), changed));
            }
        }
    }
    changes
}

/// Which connection a frame of the server is on.
fn source(entry: &Entry) -> Option<u64> {
    match entry {
        Entry::Frame { connection, from: Side::Server, .. } => Some(*connection),
        _ => None,
    }
}

/// Headers and events: all bytes are fixed. Stats at the end of a reply have times in them.
fn is_fixed(bytes: &Bytes) -> bool {
    bytes.len() == HEADER || bytes.len() == HEADER + STAT || bytes.get(4..8) == Some(&[0xff; 4])
}

/// The two times of a stat, and its owner, which has a name of its own here.
fn is_free(bytes: &Bytes, byte: usize) -> bool {
    bytes.len() == HEADER + STAT
        && ((HEADER + 16..HEADER + 32).contains(&byte)
            || (HEADER + 44..HEADER + 52).contains(&byte))
}

/// Length, xid, zxid and error.
const HEADER: usize = 20;
const STAT: usize = 68;

const CAPTURES_MIN: usize = 49;
const COUNTS_MIN: Counts =
    Counts { connections: 150, requests: 1950, replies: 1950, events: 170, ends: 150 };
const CHANGES_MIN: usize = 1000;

struct Capture {
    name: String,
    entries: Entries,
}

fn captures() -> Vec<Capture> {
    // At run time first: with a shared target folder, the binary may stem from another checkout.
    let package = std::env::var("CARGO_MANIFEST_DIR");
    let package = package.as_deref().unwrap_or(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(package).join("captures");
    let mut captures = Vec::new();
    for file in fs::read_dir(&folder).expect("the captures are there") {
        let path = file.expect("a folder can be read").path();
        if path.extension().is_some_and(|extension| extension == "capture") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).expect("a capture is text");
            let entries = capture::read(&text).unwrap_or_else(|why| panic!("{name}: {why}"));
            captures.push(Capture { name, entries });
        }
    }
    captures.sort_by(|a, b| a.name.cmp(&b.name));
    captures
}
