//! `--watch`: what changes is printed again, and so is what happens to the connection.

use std::process::Stdio;

use serde_json::Value;
use zk_recipes::SessionId;
use zk_testserver::Reception;

use crate::queues::shared_queues;
use crate::world::{Started, World, start, until};

const OWNER: SessionId = SessionId(0x0100_0000_00ab_0077);

/// Returns the next line of JSON.
async fn next(program: &mut Started) -> Value {
    serde_json::from_str(&program.line().await).unwrap()
}

/// What is said of the connection next. The same list may be shown before, if it was read twice.
async fn next_link(program: &mut Started) -> String {
    loop {
        if let Some(link) = next(program).await.get("connection").and_then(Value::as_str) {
            return link.to_owned();
        }
    }
}

fn lengths(frame: &Value) -> Vec<(String, u64)> {
    let locks = frame["locks"].as_array().unwrap_or_else(|| panic!("{frame}"));
    let length = |it: &Value| (it["path"].as_str().unwrap().into(), it["length"].as_u64().unwrap());
    locks.iter().map(length).collect()
}

fn entry(number: u32) -> String {
    format!("/locks/new/{number:032x}-lock-{number:010}")
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_prints_the_list_again_after_each_change_of_a_lock() {
    let world = shared_queues().await;
    let mut ls = start(world.zklock("ls").args(["--watch", "--json", "/locks"]));
    assert_eq!(lengths(&next(&mut ls).await).len(), 3);
    world.server.clear_requests();
    // These are not locks, and print nothing.
    world.server.admin_create("/locks/notes", b"", None);
    world.server.admin_set_data("/locks/notes", b"not a lock");
    world.server.admin_create("/locks/new", b"", None);
    world.server.admin_create(&entry(1), b"first", Some(OWNER));
    let frame = next(&mut ls).await;
    assert_eq!(lengths(&frame)[1], ("/locks/new".into(), 1), "{frame}");
    assert_eq!(frame["locks"][1]["holder"]["identity"], "first");
    // Only what has changed is read again, at most two times here.
    let requests = world.server.requests().len();
    assert!(requests <= 12, "{requests} requests");
    world.server.admin_create(&entry(2), b"second", Some(OWNER));
    assert_eq!(lengths(&next(&mut ls).await)[1], ("/locks/new".into(), 2));
    world.server.admin_delete(&entry(1));
    let frame = next(&mut ls).await;
    assert_eq!(frame["locks"][1]["holder"]["identity"], "second");
    world.server.admin_delete("/locks/nightly");
    assert_eq!(lengths(&next(&mut ls).await).len(), 3, "the exclusive lock is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_prints_a_queue_again_after_a_change_of_it_and_of_no_other() {
    let world = shared_queues().await;
    let paths = ["/locks/uploads", "/locks/new"];
    let mut status = start(world.zklock("status").args(["--watch", "--json"]).args(paths));
    let frame = next(&mut status).await;
    let of = |frame: &Value, lock: usize| frame["locks"][lock]["entries"].as_array().unwrap().len();
    assert_eq!((of(&frame, 0), of(&frame, 1)), (3, 0));
    world.server.admin_delete("/locks/nightly");
    world.server.admin_create("/locks/new", b"", None);
    world.server.admin_create(&entry(1), b"first", Some(OWNER));
    // The directory alone may have been read first.
    let mut frame = next(&mut status).await;
    if of(&frame, 1) == 0 {
        frame = next(&mut status).await;
    }
    assert_eq!((of(&frame, 0), of(&frame, 1)), (3, 1));
    world.server.admin_delete(&format!("/locks/uploads/{:032x}-permit-0000000001", 1));
    let frame = next(&mut status).await;
    assert_eq!((of(&frame, 0), of(&frame, 1)), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconnect_is_said_and_what_was_missed_is_shown() {
    let world = shared_queues().await;
    let mut ls =
        start(world.zklock("ls").args(["--watch", "--json", "/locks"]).stderr(Stdio::piped()));
    assert_eq!(lengths(&next(&mut ls).await).len(), 3);
    world.server.set_reception(Reception::Refused);
    world.server.disconnect_all();
    assert_eq!(next_link(&mut ls).await, "lost");
    // No watch reports this.
    world.server.admin_delete("/locks/nightly");
    world.server.set_reception(Reception::Open);
    assert_eq!(next_link(&mut ls).await, "restored");
    assert_eq!(lengths(&next(&mut ls).await).len(), 2);
    // Another session has none of the watches of the first one.
    let session = world.server.sessions()[0];
    world.server.expire(session);
    // On a busy machine, the client is connected again before it is seen without a connection.
    let mut link = next_link(&mut ls).await;
    if link == "lost" {
        link = next_link(&mut ls).await;
    }
    assert_eq!(link, "restored with a new session");
    assert_eq!(lengths(&next(&mut ls).await).len(), 2);
    world.server.admin_delete("/locks/uploads/00000000000000000000000000000001-permit-0000000001");
    until_length(&mut ls, 2).await;
    ls.signal(rustix::process::Signal::INT);
    assert_eq!(ls.code().await, 130);
    let said = ls.errors().await;
    // On a busy machine, a line may say so some seconds later.
    let says = |before: &str, after: &str| {
        said.lines().filter_map(|line| line.split_once(before)).any(|(_, rest)| {
            let rest = rest.trim_start_matches(|it: char| it.is_ascii_digit());
            rest.starts_with(after)
        })
    };
    assert!(says("no connection for ", "s; what you see is from before"), "{said}");
    assert!(says("zklock: connected again ", "s ago, after "), "{said}");
    assert!(says("zklock: connected again with a new session ", "s ago, after "), "{said}");
    until(|| world.server.sessions().is_empty()).await;
}

/// Reads frames until the last lock has this many entries.
async fn until_length(program: &mut Started, length: u64) {
    while lengths(&next(program).await).last().unwrap().1 != length {}
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_followed_is_no_empty_list() {
    let config = zk_testserver::ServerConfig::default();
    let world = World::with(config.version(zk_testserver::ServerVersion::V3_5)).await;
    let seen = crate::world::see(world.zklock("ls").args(["--watch", "/"])).await;
    assert_eq!((seen.status.code(), &*seen.stdout), (Some(125), ""));
    assert!(seen.stderr.contains("3.6"), "{}", seen.stderr);
}
