//! The pauses between campaigns: leaderships that end at once never lead to a hot loop.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::time::Duration;

use zk_recipes::{Client, Election, LockError, Time};
use zk_tests::case::Case as _;
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, release, session, spawn};
use zk_tests::world::{World, run, run_within, sleep_ms};

use crate::leader;

/// Runs bodies whose znode is deleted after these times, and returns when the bodies began and when
/// they were stopped. The last one completes. A guard watches its znode 100 ms after the grant, so
/// after that time, the loss is noticed at once.
async fn lose(world: &World, client: &Client, lengths: &[u64]) -> Vec<(Time, Time)> {
    let spans = RefCell::new(Vec::new());
    let election = Election::of(client);
    let led = election.run_while_leader(async |leadership| {
        let nth = spans.borrow().len();
        let begun = client.now();
        if let Some(length) = lengths.get(nth) {
            sleep_ms(*length).await;
            spans.borrow_mut().push((begun, client.now()));
            assert!(world.server.admin_delete(leadership.path()));
            pending::<()>().await;
        }
        spans.borrow_mut().push((begun, client.now()));
    });
    led.await.expect("nothing is refused");
    spans.into_inner()
}

/// The time from the end of each leadership to the begin of the next one, in milliseconds.
fn gaps(spans: &[(Time, Time)]) -> Vec<u128> {
    let pairs = spans.iter().zip(spans.iter().skip(1));
    pairs.map(|((_, end), (begin, _))| begin.saturating_since(*end).as_millis()).collect()
}

#[test]
fn leaderships_that_end_at_once_are_followed_by_growing_pauses() {
    run(async {
        let world = World::reaped_each_minute();
        let client = world.client(FIRST).await;
        let gaps = gaps(&lose(&world, &client, &[150; 9]).await);
        let shortest = [200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000, 5_000];
        assert_eq!(gaps.len(), shortest.len());
        for (gap, shortest) in gaps.iter().zip(shortest) {
            assert!((shortest..=shortest * 5 / 4 + 1).contains(gap), "{gaps:?}");
        }
        let is_even = gaps.iter().zip(shortest).all(|(gap, shortest)| *gap == shortest);
        assert!(!is_even, "there is no jitter: {gaps:?}");
        // Each campaign costs a few requests.
        let requests = world.server.requests().len();
        assert!(requests <= 10 * 6, "{requests}\n{}", world.trace());
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_leadership_that_lasted_makes_the_next_pause_the_shortest_again() {
    run_within(Duration::from_secs(300), async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let gaps = gaps(&lose(&world, &client, &[150, 150, 150, 9_900, 10_000, 150]).await);
        let shortest = [200, 400, 800, 1_600, 200, 400];
        assert_eq!(gaps.len(), shortest.len());
        for (gap, shortest) in gaps.iter().zip(shortest) {
            assert!((shortest..=shortest * 5 / 4 + 1).contains(gap), "{gaps:?}");
        }
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn candidates_that_lost_their_leaderships_together_do_not_return_together() {
    let gap_of = |seed| {
        run(async {
            let world = World::new();
            let client = world.client(seed).await;
            gaps(&lose(&world, &client, &[150, 150, 150]).await)
        })
    };
    assert_ne!(gap_of(FIRST), gap_of(SECOND));
}

/// An administrator deletes the znodes of a candidate that waits, so that its campaign fails.
#[test]
fn a_candidate_whose_znodes_are_deleted_at_once_rests_and_leads_when_that_ends() {
    run(async {
        // Each of the deletions costs the candidate about seven requests.
        let world = World::new().pace(Pace::of(2));
        let (other, leadership) = leader(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let election = Election::of(&client);
        let (is_over, deleted) = (Cell::new(false), Cell::new(0));
        let leading = async {
            let led = election.run_while_leader(async |_| ()).await;
            is_over.set(true);
            led
        };
        let deleting = async {
            while client.now() < Time::default() + Duration::from_secs(20) {
                for (path, owner) in world.znodes() {
                    if owner == session(&client) {
                        assert!(world.server.admin_delete(&path));
                        deleted.set(deleted.get() + 1);
                    }
                }
                sleep_ms(1).await;
            }
            assert!(!is_over.get(), "it neither leads nor fails");
            release(leadership).await;
        };
        let (led, ()) = tokio::join!(leading, deleting);
        assert_eq!(led, Ok(()));
        let deleted = deleted.get();
        // A campaign gives up after six attempts.
        assert!((12..=50).contains(&deleted), "{deleted}\n{}", world.trace());
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_pause_ends_when_the_client_is_closed() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let election = Election::of(&client);
        let mut bodies = 0;
        let led = election.run_while_leader(async |leadership| {
            bodies += 1;
            if bodies == 6 {
                let client = client.clone();
                spawn(async move {
                    sleep_ms(100).await;
                    client.close().await
                });
            }
            assert!(world.server.admin_delete(leadership.path()));
            pending::<()>().await;
        });
        let begun = client.now();
        assert_eq!(led.await, Err(LockError::Closed));
        assert_eq!(bodies, 6);
        let pauses = client.now().saturating_since(begun);
        assert!(pauses < Duration::from_secs(9), "{pauses:?}");
    });
}
