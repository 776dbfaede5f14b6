//! Servers that fail while the program asks them.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use zk_testserver::{Action, At, Fault, OpCode, Reception, ServerConfig};

use crate::queues::shared_queues;
use crate::world::{World, see, start};

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_lost_during_a_read_costs_time_and_nothing_else() {
    let world = shared_queues().await;
    for (verb, path) in [("status", "/locks/billing"), ("ls", "/locks")] {
        for op in [OpCode::GET_CHILDREN2, OpCode::GET_DATA] {
            let fault = Fault::new(At::op(op), Action::CutBefore);
            world.server.inject(fault.refuse_for(Duration::from_millis(300)));
            let seen = see(world.zklock(verb).args(["--json", path])).await;
            assert_eq!((seen.status.code(), &*seen.stderr), (Some(0), ""), "{verb} {op:?}");
            let json: Value = serde_json::from_str(&seen.stdout).unwrap();
            let expected = if verb == "ls" { 3 } else { 1 };
            assert_eq!(json["locks"].as_array().unwrap().len(), expected);
            assert_eq!(world.server.pending_faults(), [], "the connection was cut");
        }
    }
    // The session may be gone too.
    world.server.inject(Fault::new(At::op(OpCode::GET_DATA), Action::Expire));
    let seen = see(world.zklock("ls").args(["--json", "/locks"])).await;
    assert_eq!((seen.status.code(), &*seen.stderr), (Some(0), ""));
    // Only the first read may be repeated without harm: a delete is not.
    world.server.inject(Fault::new(At::op(OpCode::GET_CHILDREN2), Action::CutBefore));
    let entry = &world.entries("/locks/billing")[2];
    let evicted = see(world.zklock("evict").args(["--yes", "/locks/billing", entry])).await;
    assert_eq!(evicted.status.code(), Some(0), "{evicted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_gone_for_good_are_a_failure_after_the_session_timeout() {
    let world = shared_queues().await;
    let mut status = world.zklock("status");
    status.arg("/locks/billing").env("ZKLOCK_SESSION_TIMEOUT", "4s");
    world.server.inject(
        Fault::new(At::op(OpCode::GET_CHILDREN2), Action::CutBefore)
            .refuse_for(Duration::from_secs(3_600)),
    );
    let seen = see(&mut status).await;
    assert_eq!((seen.status.code(), &*seen.stdout), (Some(125), ""));
    assert_eq!(seen.stderr, "zklock: no server has answered within 4s\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_only_reads_is_not_used() {
    // It answers reads, but from a state that may be old.
    let world = World::with(ServerConfig::default().local_sessions(true)).await;
    world.server.admin_create("/locks", b"", None);
    let mut top = start(world.zklock("top").arg("/locks").stderr(Stdio::piped()));
    assert!(top.line().await.contains("0 locks"));
    world.server.partition();
    let mut line = top.line().await;
    while !line.starts_with("no connection for") {
        line = top.line_or_empty().await.unwrap_or_default();
    }
    for verb in ["status", "ls", "hold"] {
        let mut command = world.zklock(verb);
        let seen = see(command.arg("/locks").env("ZKLOCK_SESSION_TIMEOUT", "1s")).await;
        assert_eq!((seen.status.code(), &*seen.stdout), (Some(125), ""), "{verb}");
        assert!(seen.stderr.contains("cannot connect"), "{verb}: {seen:?}");
    }
    world.server.heal();
    while !line.starts_with("connected again") {
        line = top.line_or_empty().await.unwrap_or_default();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_reply_is_told_from_a_free_lock() {
    let world = shared_queues().await;
    world.server.set_reception(Reception::Silent);
    let mut status = world.zklock("status");
    let seen = see(status.arg("/locks/billing").env("ZKLOCK_SESSION_TIMEOUT", "1s")).await;
    assert_eq!((seen.status.code(), &*seen.stdout), (Some(125), ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_overloaded_for_a_moment_is_asked_again() {
    let world = shared_queues().await;
    let overload = Duration::from_secs(1);
    let mut watching = start(world.zklock("ls").args(["--watch", "--json", "/locks"]));
    watching.line().await;
    for verb in ["ls", "status"] {
        world.server.throttle_for(overload);
        let seen = see(world.zklock(verb).args(["--json", "/locks/billing"])).await;
        assert_eq!((seen.status.code(), &*seen.stderr), (Some(0), ""), "{verb}");
    }
    world.server.throttle_for(overload);
    world.server.admin_delete("/locks/nightly");
    let locks: Value = serde_json::from_str(&watching.line().await).unwrap();
    assert_eq!(locks["locks"].as_array().unwrap().len(), 2);
    // Another session sets its watches again, in spite of the overload.
    world.server.throttle_for(overload);
    for session in world.server.sessions() {
        world.server.expire(session);
    }
    let mut line = watching.line().await;
    while !line.contains("with a new session") {
        line = watching.line().await;
    }
    let locks: Value = serde_json::from_str(&watching.line().await).unwrap();
    assert_eq!(locks["locks"].as_array().unwrap().len(), 2);
    let is_refused = |it: &zk_testserver::RequestRecord| {
        matches!(it.outcome, zk_testserver::Outcome::Refused(_))
    };
    let refused = world.server.requests().into_iter().filter(is_refused).count();
    assert!((4..=40).contains(&refused), "{refused} requests in four seconds of overload");
}
