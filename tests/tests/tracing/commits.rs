//! A client whose servers commit too slowly for a lease says so.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::FairLock;
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault};

use super::Recorder;

/// Returns how often a client is warned while each of its writes takes this long, and it waits for
/// half a minute with or without a lock.
fn warnings(commit: Duration, has_lock: bool) -> usize {
    let recorder = Recorder::default();
    tracing::subscriber::with_default(recorder.clone(), || {
        run(async {
            let world = World::new().leased().session_timeout(Duration::from_secs(6));
            let client = world.client(1).await;
            let late = |nth| Fault::new(At::op(OpCode::MULTI).after(nth), Action::Delay(commit));
            world.inject((1..=200).map(late).collect());
            // The lease that begins with the session must not count any more: the guard would be
            // lost when it ends, and nothing would need a lease then.
            sleep_ms(20_000).await;
            let lock = FairLock::new(&client, "/locks/x").expect("the path is valid");
            let guard = lock.acquire().await.expect("it is free");
            if !has_lock {
                guard.release().await.expect("it is held");
            }
            sleep_ms(30_000).await;
        });
    });
    let text = recorder.text();
    let lines: Vec<_> =
        text.lines().filter(|line| line.contains("commits take too long")).collect();
    for line in &lines {
        assert!(line.contains("timeout=6s") && line.contains("needed="), "{line}");
    }
    lines.len()
}

#[test]
fn a_holder_is_warned_once_that_commits_are_too_slow_for_a_lease() {
    assert_eq!(warnings(Duration::from_millis(800), true), 1);
    assert_eq!(warnings(Duration::from_millis(800), false), 0);
    assert_eq!(warnings(Duration::from_millis(50), true), 0);
}
