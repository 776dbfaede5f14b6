//! Waiting: no wake-up is missed, and none comes too early.

use std::future::IntoFuture as _;
use std::time::Duration;

use tokio::task::JoinHandle;
use zk_recipes::{Acl, Barrier, Client, ErrorCode, FailedAction, RecipeError};
use zk_tests::scene::{FIRST, SECOND, partition, poll_times, session, spawn};
use zk_tests::world::{Enumeration, World, run, sleep_ms};
use zk_testserver::{Action, At, Fault, ServerConfig, ServerVersion};

use crate::{OUTAGE, PATH, barrier, check_clean, close, first_session, is_closed, open};

type Waiting = JoinHandle<Result<(), RecipeError>>;

fn wait(client: &Client) -> Waiting {
    spawn(barrier(client).wait().into_future())
}

async fn released(world: &World, waiting: Waiting) {
    let released = waiting.await.expect("a wait does not panic");
    assert_eq!(released, Ok(()), "\n{}", world.trace());
}

#[test]
fn an_open_barrier_keeps_nobody_and_a_closed_one_everybody_until_it_is_opened() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        barrier(&client).wait().await.expect("without a directory it is open");
        barrier(&client).close().await.expect("it can be closed");
        let waiting: Vec<_> = [&client, &other, &client].map(wait).into_iter().collect();
        sleep_ms(60_000).await;
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "\n{}", world.trace());
        barrier(&other).open().await.expect("it can be opened");
        for waiting in waiting {
            released(&world, waiting).await;
        }
        check_clean(&world, &[&client, &other]).await;
    });
}

/// Servers report the deletion of a znode only to those who may read it, but up to 3.8.3, they test
/// its existence for everyone. A wait that relied on that would never end.
#[test]
fn who_may_not_read_the_barrier_is_refused_and_does_not_wait_for_ever() {
    for version in [ServerVersion::V3_8, ServerVersion::V3_9] {
        run(async {
            let world = World::with(ServerConfig::default().version(version));
            let owner = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
            let client = world.client(FIRST).await;
            world.server.admin_create("/barriers", b"", None);
            let closed = Barrier::builder(&owner, PATH)
                .and_then(|barrier| barrier.acl(Acl::creator_all()).build())
                .expect("the options are legal");
            closed.close().await.expect("it can be closed");
            let refused = RecipeError::Refused {
                code: ErrorCode::NO_AUTH,
                action: FailedAction::Read,
                path: PATH.to_owned(),
            };
            let waited = barrier(&client).wait().timeout(Duration::from_secs(60)).await;
            assert_eq!(waited, Err(refused), "{version:?}");
            closed.open().await.expect("it can be opened");
            assert_eq!(barrier(&client).wait().await, Ok(()), "{version:?}");
            check_clean(&world, &[&client, &owner]).await;
        });
    }
}

/// Servers from 3.8.4 and 3.9.2 tell those who may no longer read the barrier nothing.
#[test]
fn a_waiter_whose_permission_is_taken_away_is_refused_or_finds_the_barrier_open() {
    for is_opened in [false, true] {
        run(async {
            let world = World::with(ServerConfig::default().version(ServerVersion::V3_9));
            let owner = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
            let client = world.client(FIRST).await;
            barrier(&owner).close().await.expect("it can be closed");
            let waiting = wait(&client);
            sleep_ms(1_000).await;
            owner.set_acl(PATH, Acl::creator_all(), None).await.expect("everyone may");
            if is_opened {
                barrier(&owner).open().await.expect("it can be opened");
            }
            sleep_ms(20_000).await;
            assert!(!waiting.is_finished(), "somebody has told it\n{}", world.trace());
            sleep_ms(20_000).await;
            assert!(waiting.is_finished(), "it waits for ever\n{}", world.trace());
            let refused = RecipeError::Refused {
                code: ErrorCode::NO_AUTH,
                action: FailedAction::Check,
                path: PATH.to_owned(),
            };
            let expected = if is_opened { Ok(()) } else { Err(refused) };
            assert_eq!(waiting.await.expect("no panic"), expected);
        });
    }
}

/// The barrier is closed again before any waiter can look.
#[test]
fn a_barrier_that_is_open_for_a_moment_releases_those_who_waited_under_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("open for a moment", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            close(&world);
            world.inject(faults);
            let waiting = wait(&client);
            // By then the waiter has looked, whatever it has lost.
            sleep_ms(1_500).await;
            assert!(!waiting.is_finished(), "too early\n{}", world.trace());
            open(&world);
            close(&world);
            released(&world, waiting).await;
            let late = wait(&client);
            sleep_ms(1_500).await;
            assert!(!late.is_finished(), "it is closed again\n{}", world.trace());
            open(&world);
            released(&world, late).await;
            check_clean(&world, &[&client]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(20, 60), "{enumeration:?}");
}

#[test]
fn a_moment_without_a_connection_and_an_end_of_the_session_are_noticed() {
    run(async {
        for outage_ms in [1_000, 30_000] {
            for closes_again in [false, true] {
                let world = World::new();
                let client = world.client(FIRST).await;
                close(&world);
                let before = session(&client);
                let waiting = wait(&client);
                sleep_ms(100).await;
                partition(&world, outage_ms);
                open(&world);
                if closes_again {
                    close(&world);
                }
                sleep_ms(500).await;
                assert!(!waiting.is_finished(), "it has no connection");
                released(&world, waiting).await;
                assert_eq!(session(&client) == before, outage_ms == 1_000);
            }
        }
        // Without a change, a new session releases nobody.
        let world = World::new();
        let client = world.client(FIRST).await;
        close(&world);
        let waiting = wait(&client);
        sleep_ms(100).await;
        partition(&world, u64::try_from(OUTAGE.as_millis()).expect("it is short"));
        sleep_ms(45_000).await;
        assert!(!waiting.is_finished(), "it is closed\n{}", world.trace());
        open(&world);
        released(&world, waiting).await;
    });
}

#[test]
fn a_timeout_ends_a_wait_with_and_without_a_connection() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        close(&world);
        for is_connected in [true, false] {
            if !is_connected {
                partition(&world, 5_000);
            }
            let before = client.now();
            let waited = barrier(&client).wait().timeout(Duration::from_secs(3)).await;
            assert!(matches!(waited, Err(RecipeError::TimedOut(_))));
            assert_eq!(client.now().saturating_since(before), Duration::from_secs(3));
        }
        sleep_ms(10_000).await;
        client.close().await;
        let waited = barrier(&client).wait().await;
        assert_eq!(waited, Err(RecipeError::Closed));
    });
}

#[test]
fn a_dropped_wait_leaves_nothing_and_disturbs_no_other() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        close(&world);
        let other = wait(&client);
        for polls in 0..6 {
            let waiting = poll_times(barrier(&client).wait().into_future(), polls, || {});
            let _ = tokio::time::timeout(Duration::from_millis(50), waiting).await;
        }
        sleep_ms(1_000).await;
        assert!(!other.is_finished());
        open(&world);
        released(&world, other).await;
        sleep_ms(1_000).await;
        // Servers keep at most one watch of a session for each znode.
        assert!(world.server.watch_count() <= 1);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn an_overloaded_server_gets_few_requests() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        close(&world);
        for _ in 0..1_000 {
            let throttled = Action::Error(ErrorCode::THROTTLED_OP);
            world.server.inject(Fault::new(At::request(0), throttled));
        }
        let before = world.traffic().requests;
        let waited = barrier(&client).wait().timeout(Duration::from_secs(60)).await;
        assert!(matches!(waited, Err(RecipeError::TimedOut(_))));
        let requests = world.traffic().requests - before;
        assert!(requests <= 20, "{requests} requests in a minute");
        world.server.clear_faults();
        open(&world);
        assert!(!is_closed(&world));
        barrier(&client).wait().await.expect("it is open");
    });
}
