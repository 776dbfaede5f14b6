//! A closed barrier that three clients wait for. It is opened during the outage or afterwards.

use std::future::IntoFuture as _;

use zk_recipes::{Barrier, Client, RecipeError};
use zk_tests::world::sleep_ms;

use crate::outage::{Outage, Plan, Worst, for_each_outage, now};

const PATH: &str = "/barriers/x";
/// Clients that wait.
const WAITERS: usize = 3;
/// The client that closes and opens the barrier.
const OWNER: usize = 3;

/// Requests of four clients: three restore a watch each, and look at the barrier once more; one opens
/// the barrier, repeats its request, and deletes the marker.
const REQUESTS_MAX: u64 = 10;

fn barrier(client: &Client) -> Barrier {
    Barrier::new(client, PATH).expect("the path is valid")
}

/// The client that opens the barrier, and the moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Opening {
    /// A client that the outage concerns too begins to open it during the outage.
    During,
    /// A client whose servers are still available opens it, and another one closes it at once.
    ForAMoment,
    /// A client opens it after the outage.
    Afterwards,
}

async fn survive(plan: Plan, opening: Opening) -> Worst {
    let mut outage = Outage::prepare(plan, 4).await;
    let owned = barrier(&outage.clients[OWNER]);
    owned.close().await.expect("it can be closed");
    let waits: Vec<_> = (0..WAITERS)
        .map(|client| {
            let wait = barrier(&outage.clients[client]).wait().into_future();
            outage.call("a wait", client, wait)
        })
        .collect();
    outage.settle().await;
    outage.begin();
    outage.middle().await;
    let mut cause = now();
    let mut open = None;
    match opening {
        Opening::During => {
            let owned = owned.clone();
            open = Some(outage.call("an open", OWNER, async move { owned.open().await }));
        }
        Opening::ForAMoment => {
            assert!(outage.world.server.admin_delete(PATH), "it is closed");
            outage.world.server.admin_create(PATH, b"", None);
        }
        Opening::Afterwards => {}
    }
    outage.end().await;
    if opening == Opening::Afterwards {
        sleep_ms(5_000).await;
        assert!(waits.iter().all(|wait| wait.is_pending()), "{plan:?}: the barrier is closed");
        cause = now();
        let owned = owned.clone();
        open = Some(outage.call("an open", OWNER, async move { owned.open().await }));
    }
    if let Some(open) = open {
        let (opened, at) = outage.done(open, cause).await;
        cause = at;
        match opened {
            Ok(()) => {}
            // The session has ended before its client could know whether the barrier was opened.
            // The barrier is closed, so it was not, because no other client closes it.
            Err(RecipeError::SessionExpired)
                if outage.has_expired(OWNER) && opening == Opening::During =>
            {
                assert!(waits.iter().all(|wait| wait.is_pending()), "{plan:?}: closed");
                owned.open().await.expect("it can be opened");
                cause = now();
            }
            Err(error) => panic!("{plan:?}: {error}\n{}", outage.world.trace()),
        }
    }
    for wait in waits {
        let (waited, _) = outage.done(wait, cause).await;
        assert_eq!(waited, Ok(()), "{plan:?}\n{}", outage.world.trace());
    }
    let is_closed = outage.world.server.stat(PATH).is_some();
    assert_eq!(is_closed, opening == Opening::ForAMoment, "{plan:?}\n{}", outage.world.trace());
    if is_closed {
        owned.open().await.expect("it can be opened");
    }
    let world = outage.world.clone();
    let worst = outage.finish().await;
    let left = world.server.children("/barriers").unwrap_or_default();
    assert!(left.is_empty(), "{plan:?}: left: {left:?}");
    worst
}

#[test]
fn waiters_pass_a_barrier_that_is_opened_during_an_outage_of_any_length() {
    for_each_outage("a barrier, opened meanwhile", REQUESTS_MAX, |plan| {
        survive(plan, Opening::During)
    });
}

#[test]
fn waiters_pass_a_barrier_that_was_open_for_a_moment_in_an_outage_of_any_length() {
    for_each_outage("a barrier, open for a moment", REQUESTS_MAX, |plan| {
        survive(plan, Opening::ForAMoment)
    });
}

#[test]
fn waiters_pass_a_barrier_that_is_opened_after_an_outage_of_any_length() {
    for_each_outage("a barrier, opened afterwards", REQUESTS_MAX, |plan| {
        survive(plan, Opening::Afterwards)
    });
}
