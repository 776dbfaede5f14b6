//! What a timeout of a semaphore says: the nearest contender, who it is, and whether the client waits
//! for itself; and that this costs no request.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{Client, LastSeen, LockError, PermitGuard, Predecessor, Semaphore};
use zk_tests::case::LOCK;
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, release, sent_since, session, spawn};
use zk_tests::world::{World, run, sleep_ms};

use crate::hold;

const TIMEOUT: Duration = Duration::from_secs(5);

fn named(client: &Client, permits: u32, identity: &'static str) -> Semaphore {
    Semaphore::builder(client, LOCK)
        .and_then(|builder| builder.permits(permits).identity(identity).watch_check(None).build())
        .expect("the options are legal")
}

/// Waits until the timeout, and returns its message.
async fn seen(semaphore: &Semaphore) -> LastSeen {
    match semaphore.acquire().timeout(TIMEOUT).await {
        Err(LockError::TimedOut(timed_out)) => timed_out.seen,
        other => panic!("{other:?}"),
    }
}

fn queued(seen: LastSeen) -> Predecessor {
    let LastSeen::Queued(predecessor) = seen else { panic!("{seen:?}") };
    predecessor
}

/// Takes as many permits.
async fn take(semaphore: &Semaphore, count: usize) -> Vec<PermitGuard> {
    let mut guards = Vec::new();
    for _ in 0..count {
        guards.push(hold(semaphore).await);
    }
    guards
}

#[test]
fn a_timeout_names_the_nearest_contender_and_costs_no_request() {
    for permits in [1, 2, 3, 16] {
        run(async {
            let world = World::new().pace(Pace::of(200));
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let guards = take(&named(&other, permits, "web-1"), permits as usize).await;
            world.server.clear_requests();
            let found = queued(seen(&named(&client, permits, "web-2")).await);
            let nearest = guards.last().map(|guard| guard.path().to_owned()).expect("one or more");
            assert_eq!(format!("{LOCK}/{}", found.name), nearest, "{permits} permits");
            assert_eq!((found.ahead, found.identity.as_str()), (permits as usize, "web-1"));
            assert_eq!(found.session, Some(session(&other)));
            // The reads that set the watches, as for any waiter.
            let sent = sent_since(&world, &client);
            let reads = sent.iter().filter(|op| **op == OpCode::GET_DATA).count();
            assert_eq!(reads, 1 + permits as usize + 2, "{permits} permits: {sent:?}");
            for guard in guards {
                release(guard).await;
            }
            world.check_clean(&[&client, &other]).await;
        });
    }
}

/// After the nearest has left, the one before it is named, although it is not read again.
#[test]
fn the_contender_that_is_nearest_at_the_end_is_named() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let first = hold(&named(&other, 2, "web-1")).await;
        let second = hold(&named(&other, 2, "web-2")).await;
        let waiting = spawn(IntoFuture::into_future(
            named(&other, 2, "web-3").acquire().timeout(Duration::from_secs(2)),
        ));
        sleep_ms(500).await;
        let found = queued(seen(&named(&client, 2, "web-4")).await);
        assert!(waiting.await.expect("it does not panic").is_err(), "no permit was free");
        assert_eq!((found.ahead, found.identity.as_str()), (2, "web-2"));
        release(first).await;
        release(second).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_client_that_waits_only_for_itself_is_told_so() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let own = take(&named(&client, 2, "web-1"), 1).await;
        let foreign = take(&named(&other, 2, "web-2"), 1).await;
        // The other client may give its permit back.
        let found = queued(seen(&named(&client, 2, "web-1")).await);
        assert_eq!(found.session, Some(session(&other)));
        for guard in foreign {
            release(guard).await;
        }
        let second = take(&named(&client, 2, "web-1"), 1).await;
        let found = seen(&named(&client, 2, "web-1")).await;
        assert!(
            matches!(&found, LastSeen::OwnSession(nearest) if nearest.session == Some(session(&client))),
            "{found:?}"
        );
        for guard in own.into_iter().chain(second) {
            release(guard).await;
        }
        world.check_clean(&[&client, &other]).await;
    });
}

/// With many permits, or if predecessors may not be read, only the name is known.
#[test]
fn a_waiter_that_watches_the_list_names_the_nearest_znode() {
    run(async {
        let world = World::new().pace(Pace::of(200));
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let guards = take(&named(&other, 17, "web-1"), 17).await;
        let found = queued(seen(&named(&client, 17, "web-2")).await);
        let nearest = guards.last().map(|guard| guard.path().to_owned()).expect("one or more");
        assert_eq!(format!("{LOCK}/{}", found.name), nearest);
        assert_eq!((found.ahead, found.identity.as_str(), found.session), (17, "", None));
        for guard in guards {
            release(guard).await;
        }
        world.check_clean(&[&client, &other]).await;
    });
}
