//! Waiting for a lock, and holding one without a command.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use zk_testserver::ServerConfig;

use crate::world::{World, code, scratch, see, session, start};

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_not_obtained_in_time_has_a_status_that_can_be_set() {
    let world = World::start().await;
    let mut holder = start(world.zklock("hold").args(["--no-stdin", "/lock"]));
    holder.line().await;
    for arguments in [&["--try"][..], &["-n"], &["--timeout", "50ms"], &["-w", "0.05"]] {
        let mut command = world.zklock("run");
        assert_eq!(code(command.args(arguments).args(["/lock", "true"])).await, 124);
        let mut command = world.zklock("run");
        let own = command.args(arguments).args(["-E", "75", "/lock", "true"]);
        assert_eq!(code(own).await, 75);
    }
    let mut command = world.zklock("run");
    assert_eq!(code(command.args(["/lock", "true"]).env("ZKLOCK_TRY", "1")).await, 124);
    let seen = see(world.zklock("run").args(["-q", "-w", "50ms", "/lock", "true"])).await;
    assert!(seen.stderr.contains("it is held by"), "{}", seen.stderr);
    world.until_entries("/lock", 1).await;
    holder.signal(Signal::TERM);
    assert_eq!(holder.code().await, 0);
    assert_eq!(code(world.zklock("run").args(["--try", "/lock", "true"])).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_shows_who_is_first_and_ends_by_a_signal() {
    let world = World::start().await;
    let events = scratch("events");
    let hold = ["--no-stdin", "--identity", "the first", "/lock"];
    let mut holder = start(world.zklock("hold").args(hold));
    holder.line().await;

    // The shell opens the descriptor, as users do.
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", "exec \"$0\" run --events 3 /lock true 3>\"$EVENTS\""]);
    command.arg(env!("CARGO_BIN_EXE_zklock")).env("EVENTS", &events);
    command.env("ZK_CONNECT", &world.address).kill_on_drop(true);
    let mut waiter = start(command.stderr(Stdio::piped()));
    let mut stderr = waiter.child.stderr.take().unwrap();
    world.until_entries("/lock", 2).await;
    crate::world::until(|| std::fs::read_to_string(&events).is_ok_and(|it| !it.is_empty())).await;
    waiter.signal(Signal::TERM);
    assert_eq!(waiter.code().await, 128 + 15);
    world.until_entries("/lock", 1).await;

    let mut said = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut stderr, &mut said).await.unwrap();
    let first = "zklock: /lock: waiting, 1 ahead; \"the first\" has been first for ";
    assert!(said.starts_with(first), "{said}");
    assert!(said.ends_with("zklock: signal 15 ended the wait for the lock\n"), "{said}");
    let event: Value = serde_json::from_str(&std::fs::read_to_string(&events).unwrap()).unwrap();
    assert_eq!(event["event"], "waiting");
    assert_eq!(event["path"], "/lock");
    assert_eq!((&event["ahead"], &event["first"]["identity"]), (&1.into(), &"the first".into()));
    std::fs::remove_file(events).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn events_tell_the_whole_story_beside_the_output() {
    let world = World::start().await;
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", "exec \"$0\" run --events 3 /lock sh -c 'echo output; exit 4' 3>&2"]);
    command.arg(env!("CARGO_BIN_EXE_zklock")).env("ZK_CONNECT", &world.address);
    let seen = see(&mut command).await;
    assert_eq!((seen.status.code(), &*seen.stdout), (Some(4), "output\n"));
    let events: Vec<Value> =
        seen.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = events.iter().map(|it| it["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["held", "started", "ended", "gone", "released"]);
    assert_eq!(events[2]["status"], 4);
    assert!(events[3]["left_ms"].as_i64().unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_can_be_required() {
    let world = World::start().await;
    let mut command = world.zklock("run");
    assert_eq!(code(command.args(["--require-lease", "/lock", "true"])).await, 0);
    // Such a short timeout needs a server with a short tick.
    let brief = World::with(ServerConfig::default().tick(Duration::from_millis(200))).await;
    let mut command = brief.zklock("run");
    command.args(["--session-timeout", "2s", "--require-lease", "/lock", "true"]);
    let seen = see(&mut command).await;
    assert_eq!(seen.status.code(), Some(125));
    let sentence = "zklock: --require-lease: a session timeout of 2s is too short for a lease\n";
    assert_eq!(seen.stderr, sentence);
    assert_eq!(brief.entries("/lock"), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_prints_the_token_and_releases_when_its_input_closes() {
    let world = World::start().await;
    let mut holder = start(world.zklock("hold").arg("/lock").stdin(Stdio::piped()));
    let token = holder.line().await;
    let entry = format!("/lock/{}", world.entries("/lock")[0]);
    assert_eq!(token, world.server.stat(&entry).unwrap().czxid.0.to_string());
    drop(holder.child.stdin.take());
    assert_eq!(holder.code().await, 0);
    assert_eq!(world.entries("/lock"), [""; 0]);
    // A shared lock has no token.
    let shared = see(world.zklock("hold").args(["--kind", "read", "/rw"])).await;
    assert_eq!((shared.status.code(), &*shared.stdout), (Some(0), "held\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_ends_with_a_status_of_its_own_if_the_lock_is_lost() {
    let world = World::start().await;
    let mut holder = start(world.zklock("hold").args(["--no-stdin", "/lock"]));
    holder.line().await;
    let owner = world.server.ephemerals()[0].1;
    assert_eq!(session(&owner.to_string()), owner);
    world.server.expire(owner);
    assert_eq!(holder.code().await, 123);
}
