//! The timeout of every call: the call ends in time, whatever the servers do, and leaves nothing that
//! is not removed.

use std::collections::BTreeSet;
use std::time::Duration;

use zk_recipes::WorkQueue;
use zk_session::recipe::Session;
use zk_tests::meter::Pace;
use zk_tests::recipes::timeouts::{TIMEOUT, calls};
use zk_tests::scene::{FIRST, SECOND};
use zk_tests::work_queue::{QUEUE, check_clean, drain, now};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault, Filter};

/// What the errors of recipes and of operations say after a timeout.
const TIMED_OUT: [&str; 3] = [
    "timed out after",
    "the deadline of the operation has passed",
    "no server accepted the new credentials in time",
];
/// What an error says of a call that has seen nothing before its timeout.
const NOTHING: &str = "what the call waits for did not happen";
/// How many requests of a call are hit, one in each run.
const REQUESTS: usize = 6;

fn world() -> World {
    World::new().pace(Pace::of(60))
}

/// A server stops at a request of the call: it does not process the request, or it does and does not
/// reply. The call ends at its timeout, and says so. Afterwards, everything is removed: what the call
/// has created, and what its caller holds.
#[test]
fn every_call_ends_at_its_timeout_and_leaves_nothing() {
    let count = run(async { calls(&world().client(FIRST).await).await.len() });
    let mut late = BTreeSet::new();
    for (index, nth, action) in (0..count).flat_map(|index| {
        let faults = [Action::Freeze, Action::Delay(Duration::from_secs(60))];
        let hits = |fault: Action| (0..REQUESTS).map(move |nth| (index, nth, fault.clone()));
        faults.into_iter().flat_map(hits).collect::<Vec<_>>()
    }) {
        run(async {
            let world = world();
            let client = world.client(FIRST).await;
            let mut calls = calls(&client).await;
            sleep_ms(1_000).await;
            let at = At::Request { nth, filter: Filter::default() };
            world.server.inject(Fault::new(at, action));
            let (name, begin) = calls.swap_remove(index);
            let begun = now();
            let ended = begin().await;
            let is_hit = world.server.pending_faults().is_empty();
            match ended {
                Ok(()) => {}
                Err(error) => {
                    assert!(is_hit, "{name}: {error}\n{}", world.trace());
                    assert!(
                        TIMED_OUT.iter().any(|text| error.contains(text)),
                        "{name}: {error}\n{}",
                        world.trace()
                    );
                    assert!(!error.contains("RuntimeStopped"), "{name}: {error}");
                    let waited = now() - begun;
                    assert!(waited <= TIMEOUT + Duration::from_millis(1), "{name}: {waited:?}");
                    late.insert(name);
                }
            }
            // The others give up what the caller holds.
            drop(calls);
            world.server.clear_faults();
            world.server.disconnect_all();
            sleep_ms(30_000).await;
            let left = world.server.ephemerals();
            assert!(left.is_empty(), "{name}: {left:?}\n{}", world.trace());
            let other = world.client(SECOND).await;
            let items = drain(&WorkQueue::new(&other, QUEUE).expect("legal")).await;
            let distinct: BTreeSet<_> = items.iter().collect();
            assert_eq!(distinct.len(), items.len(), "{name}: {items:?}\n{}", world.trace());
            check_clean(&world, &[&client, &other]).await;
        });
    }
    assert_eq!(late.len(), count, "only these timed out: {late:?}");
}

/// Others use all slots of the janitor, so nobody could remove what a call creates.
#[test]
fn a_call_that_waits_for_a_slot_of_the_janitor_ends_at_its_timeout() {
    let needs_slot = [
        "acquire several",
        "try several",
        "acquire a level",
        "try a level",
        "put",
        "put a batch",
        "take",
        "take a batch",
        "try to take",
        "close",
        "open",
        "enter",
        "set",
        "update",
        "add",
        "join",
    ];
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        let calls = calls(&client).await;
        let session = Session::of(&client);
        let path = "/p/others".into();
        let mut slots = Vec::new();
        while let Ok(slot) = tokio::time::timeout(TIMEOUT, session.reserve_slot(&path)).await {
            slots.push(slot);
        }
        // The others keep their slots until the end.
        let (chosen, _others): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|(name, _)| needs_slot.contains(name));
        for (name, begin) in chosen {
            let begun = now();
            let ended = begin().await;
            assert_eq!(now() - begun, TIMEOUT, "{name}: {ended:?}");
            let error = ended.expect_err(name);
            assert!(
                error.contains("timed out after") && error.contains(NOTHING),
                "{name}: {error}"
            );
        }
    });
}
