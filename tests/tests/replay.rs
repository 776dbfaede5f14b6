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

#![expect(clippy::wildcard_enum_match_arm, reason = "what is of another kind is compared as it is")]

#[path = "replay/names.rs"]
mod names;
#[path = "replay/player.rs"]
mod player;

use std::fs;
use std::path::Path;

use zk_tests::capture::{self, Entry};

use self::player::{Counts, play};

#[test]
fn what_was_recorded_is_answered() {
    let captures = captures();
    let mut problems = Vec::new();
    let mut total = Counts::default();
    for (name, entries) in &captures {
        let (counts, differences) = play(entries);
        total.connections += counts.connections;
        total.requests += counts.requests;
        total.replies += counts.replies;
        total.events += counts.events;
        total.ends += counts.ends;
        for difference in differences {
            problems.push(format!("{name}:{}: {}", difference.line, difference.what));
        }
    }
    println!("{} captures, {total:?}", captures.len());
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

fn captures() -> Vec<(String, Vec<(usize, Entry)>)> {
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
            captures.push((name, entries));
        }
    }
    captures.sort_by(|(a, _), (b, _)| a.cmp(b));
    captures
}
