//! A hundred thousand one-shot watches and a thousand persistent ones, restored after a reconnect
//! during which the connection is lost again.
//!
//! Prints the time, the bytes and the memory that a watch costs.

#![expect(clippy::disallowed_methods, reason = "real time is printed, and decides nothing")]
#![expect(clippy::indexing_slicing, reason = "watches are known by their numbers")]

use std::time::Instant;

use jute_codec::OpCode;
use zk_recipes::Client;
use zk_session::{
    EventType, GapCause, SessionState, WatchItem, WatchMode, WatchOptions, WatchStream, Watcher,
};
use zk_tests::meter::Pace;
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault, ServerConfig};

const ONE_SHOT: usize = 100_000;
const PERSISTENT: usize = 1_000;
/// Each of these watches misses a change.
const MISSED_EVERY: usize = 1_000;

#[test]
fn a_hundred_thousand_watches_survive_two_disconnects() {
    // The second connection is lost before the first batch, between two batches, after the last
    // one, and not at all.
    let cuts = [
        None,
        Some((0, Action::CutBefore)),
        Some((12, Action::CutAfter)),
        Some((LAST_BATCH, Action::CutAfter)),
    ];
    for cut in cuts {
        run(survive(cut));
    }
}

/// The last batch of one-shot watches, counted from 0; the one behind it has the persistent ones too.
const LAST_BATCH: usize = 22;

fn path(number: usize) -> String {
    format!("/watched/{number:06}-of-a-service")
}

async fn survive(cut: Option<(usize, Action)>) {
    // The records of the server would take more memory than the watches.
    let config = ServerConfig::default().log_capacity(1_000);
    let world = World::with(config).pace(Pace::CALM.beside(ONE_SHOT + PERSISTENT + 1000));
    let server = &world.server;
    server.admin_create("/watched", b"", None);
    // A third of the watches is on data, on lists of children, and on znodes that do not exist.
    for number in (0..ONE_SHOT).filter(|number| number % 3 > 0) {
        server.admin_create(&path(number), b"", None);
    }
    let client = world.client(1).await;
    let (start, memory) = (Instant::now(), resident_bytes());
    let mut watchers = set_one_shot(&client).await;
    let mut streams = set_persistent(&client).await;
    let set_in = start.elapsed();
    let memory = resident_bytes().zip(memory).map(|(after, before)| after.saturating_sub(before));
    assert_eq!(server.watch_count(), ONE_SHOT + PERSISTENT);

    if let Some((nth, action)) = cut.clone() {
        world.inject(vec![Fault::new(At::op(OpCode::SET_WATCHES).after(nth), action)]);
    }
    let (before, sent) = (client.status(), world.traffic().sent);
    server.disconnect_all();
    for number in (0..ONE_SHOT).step_by(MISSED_EVERY) {
        match number % 3 {
            0 => server.admin_create(&path(number), b"", None),
            1 => server.admin_set_data(&path(number), b"missed"),
            _ => server.admin_create(&format!("{}/child", path(number)), b"", None),
        }
    }
    let start = Instant::now();
    let connections = before.connection + 1 + u64::from(cut.is_some());
    while client.status().connection < connections || client.state() != SessionState::Connected {
        sleep_ms(1).await;
    }
    client.sync("/").await.expect("connected");
    let restored_in = start.elapsed();
    let sent = world.traffic().sent - sent;
    assert_eq!(client.session_id(), before.session);
    assert_eq!(server.pending_faults(), []);

    let missed = ONE_SHOT.div_ceil(MISSED_EVERY);
    assert_eq!(server.watch_count(), ONE_SHOT + PERSISTENT - missed);
    for (number, watcher) in watchers.iter_mut().enumerate() {
        let fired = tokio::time::timeout(std::time::Duration::ZERO, watcher.changed()).await;
        assert_eq!(fired.is_ok(), number % MISSED_EVERY == 0, "{number}");
    }
    for (number, stream) in streams.iter_mut().enumerate() {
        let gap = WatchItem::Gap(GapCause::Reconnected);
        assert_eq!(stream.try_next(), Ok(Some(gap)), "gaps in a row are one");
        assert_eq!(stream.try_next(), Ok(None), "{number}");
    }
    // All that are left are in place.
    for number in [1, 2, 3, 50_001, 99_998, 99_999] {
        match number % 3 {
            0 => server.admin_create(&path(number), b"", None),
            1 => server.admin_set_data(&path(number), b"new"),
            _ => server.admin_create(&format!("{}/child", path(number)), b"", None),
        }
        watchers[number].changed().await.expect("the session lives on");
    }
    for number in [0, 499, 999] {
        server.admin_create(&format!("/streams-{number:04}"), b"", None);
        let Ok(WatchItem::Event(event)) = streams[number].next().await else { panic!("no event") };
        assert_eq!(event.kind, EventType::NODE_CREATED);
    }
    let watches = ONE_SHOT + PERSISTENT;
    eprintln!(
        "{watches} watches, second loss {cut:?}: set in {set_in:?}, restored in {restored_in:?} \
         with {sent} bytes ({} per watch)",
        sent / watches as u64,
    );
    // Later runs use memory that the first one has freed.
    if let (None, Some(bytes)) = (&cut, memory) {
        eprintln!("memory of client and server: {} bytes per watch", bytes / watches);
    }
    // A path and its length, in each of at most two attempts.
    let attempts = 1 + u64::from(cut.is_some());
    assert!(sent / watches as u64 <= attempts * (path(0).len() as u64 + 8), "{sent} bytes");
}

async fn set_one_shot(client: &Client) -> Vec<Watcher> {
    let mut watchers = Vec::new();
    // The client allows fewer requests to wait than there are watches.
    for chunk in (0..ONE_SHOT).collect::<Vec<_>>().chunks(30_000) {
        let (mut missing, mut data, mut lists) = (vec![], vec![], vec![]);
        for number in chunk {
            match number % 3 {
                0 => missing.push(client.exists_and_watch(&path(*number))),
                1 => data.push(client.get_data_and_watch(&path(*number))),
                _ => lists.push(client.get_children_and_watch(&path(*number))),
            }
        }
        let mut ops = (missing.into_iter(), data.into_iter(), lists.into_iter());
        for number in chunk {
            watchers.push(match number % 3 {
                0 => ops.0.next().expect("one for each").await.expect("nothing goes wrong").1,
                1 => ops.1.next().expect("one for each").await.expect("nothing goes wrong").1,
                _ => ops.2.next().expect("one for each").await.expect("nothing goes wrong").1,
            });
        }
    }
    watchers
}

async fn set_persistent(client: &Client) -> Vec<WatchStream> {
    let mut ops = Vec::new();
    for number in 0..PERSISTENT {
        let mode = if number % 2 == 0 { WatchMode::Persistent } else { WatchMode::Recursive };
        let options = WatchOptions::new(mode).capacity(16);
        ops.push(client.watch(&format!("/streams-{number:04}"), options));
    }
    let mut streams = Vec::new();
    for op in ops {
        streams.push(op.await.expect("nothing goes wrong"));
    }
    streams
}

fn resident_bytes() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(statm.split(' ').nth(1)?.parse::<usize>().ok()? * 4096)
}
