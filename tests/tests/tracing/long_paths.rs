//! No line of the log shows a long path in full: paths may have as many bytes as a request.

use std::future::IntoFuture as _;
use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{AtRiskPolicy, Client, Clock, ErrorCode, FairLock, Presence, WorkQueue};
use zk_tests::scene::{at_op, session, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::Recorder;

/// The longest path in bytes that a line may show.
const SHOWN_MAX: usize = 512;

#[test]
fn a_long_path_is_shortened_in_every_line() {
    let long = "x".repeat(10_000);
    let recorder = Recorder::default();
    tracing::subscriber::with_default(recorder.clone(), || {
        run(async {
            let world = World::new();
            // The credentials make the client warn of each znode that is open to everyone.
            let client = Client::builder(format!("in-process/{long}"))
                .clock(Clock::tokio())
                .auth("digest", "user:password")
                .transport(world.server.connector())
                .connect()
                .await
                .expect("the chroot can be created");
            locks(&world, &client, &format!("/locks/{long}")).await;
            others(&world, &client, &format!("/others/{long}")).await;
            client.close().await;
        });
    });
    let text = recorder.text();
    let events = ["attempt ", "waiting for a znode", "at risk", "refuses to remove", "held again"];
    for event in
        events.into_iter().chain(["zk_session", "everyone may change", "put ", "presence "])
    {
        assert!(text.contains(event), "nothing has logged {event:?}");
    }
    let run_of = |length: usize| "x".repeat(length);
    assert!(text.contains(&run_of(SHOWN_MAX / 5)) && !text.contains(&run_of(SHOWN_MAX + 1)));
}

async fn locks(world: &World, client: &Client, path: &str) {
    let lock = FairLock::new(client, path).expect("the path is valid");
    let guard = lock.acquire().await.expect("the lock is free");
    let behind = spawn(lock.acquire().timeout(Duration::from_secs(3)).into_future());
    sleep_ms(1_000).await;
    world.server.disconnect_all();
    behind.await.expect("no panic").expect_err("the lock is held");
    for code in [ErrorCode::NO_AUTH, ErrorCode::NO_AUTH] {
        world.server.inject(at_op(session(client), OpCode::DELETE, Action::Error(code)));
    }
    guard.release().await.expect_err("the server refuses it");
    sleep_ms(10_000).await;
    let strict = FairLock::builder(client, path)
        .and_then(|lock| lock.at_risk(AtRiskPolicy::TreatAsLost).build())
        .expect("the options are valid");
    let guard = strict.acquire().await.expect("the lock is free");
    world.server.disconnect_all();
    guard.lost().await;
    drop(guard);
    sleep_ms(10_000).await;
}

async fn others(world: &World, client: &Client, path: &str) {
    let queue = WorkQueue::new(client, &format!("{path}/queue")).expect("the path is valid");
    queue.put("a").await.expect("it is not full");
    world.server.inject(at_op(session(client), OpCode::DELETE, Action::Error(ErrorCode::NO_AUTH)));
    queue.put("b").await.expect("it is not full");
    sleep_ms(5_000).await;
    let presence = Presence::builder(client, &format!("{path}/p")).expect("the path is valid");
    let presence = presence.begin("").await.expect("nobody has the znode");
    presence.close().await.expect("it may be deleted");
}
