//! The test server must reply like a real ZooKeeper.
//!
//! `tests/captures` contains conversations between clients and a ZooKeeper 3.8.0. Their requests
//! are sent to a fresh test server in the same order, without sockets and in virtual time. Every
//! reply and every event is compared with the recorded one, as a value and byte for byte, in the
//! order of its connection. `docs/internals/testing.md` describes how to record a capture.
//!
//! Values that servers may choose are not compared: ids and passwords of sessions, wall-clock times
//! (although a transaction has the same time everywhere), and the order of children, of ephemerals,
//! and of the events at the end of a session.

#![expect(
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "helpers fail by a panic, as the tests they serve do; tests say what they have covered"
)]

mod differences;
mod names;
mod operations;
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
    // A capture that is missing or truncated must not count as replayed.
    assert!(captures.len() >= CAPTURES_MIN, "only {} captures", captures.len());
    assert!(total.is_at_least(&COUNTS_MIN), "only {total}");
}

/// This tests the replay itself, which must detect every change of the server's messages.
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

/// Returns variants of the capture with one change of the server's messages each, with every kind
/// of change.
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
            // The length is skipped. In the rest of the frame, every fourth byte is the lowest byte
            // of a number.
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

/// Returns the connection of an entry that is a frame of the server.
fn source(entry: &Entry) -> Option<u64> {
    match entry {
        Entry::Frame { connection, from: Side::Server, .. } => Some(*connection),
        _ => None,
    }
}

/// Returns whether the positions of the bytes that may differ are known: headers and events have
/// none, and after a header, only the times and the owner of a stat may differ.
fn is_fixed(bytes: &Bytes) -> bool {
    bytes.len() == HEADER || bytes.len() == HEADER + STAT || bytes.get(4..8) == Some(&[0xff; 4])
}

/// Returns whether the byte belongs to the two times of a stat, or to its owner, whose id differs
/// from the recorded one.
fn is_free(bytes: &Bytes, byte: usize) -> bool {
    bytes.len() == HEADER + STAT
        && ((HEADER + 16..HEADER + 32).contains(&byte)
            || (HEADER + 44..HEADER + 52).contains(&byte))
}

/// Number of bytes of the length, xid, zxid and error code of a reply.
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
    // The variable at run time takes precedence: with a shared target folder, another checkout may
    // have built the binary.
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
