//! A double barrier with a participant inside, one that leaves, one that enters, and one that begins
//! to enter during the outage.

use std::future::IntoFuture as _;

use zk_recipes::{Client, DoubleBarrier, Inside, RecipeError};

use crate::outage::{Outage, Plan, Worst, for_each_outage, now};

const PATH: &str = "/barriers/x";

/// Requests of four clients: each enters or leaves, restores its watches, and looks at the barrier
/// for each of the others that enters or leaves. A renewed session enters again.
const REQUESTS_MAX: u64 = 35;

fn barrier(client: &Client) -> DoubleBarrier {
    DoubleBarrier::new(client, PATH, 2).expect("the options are legal")
}

/// Enters, and begins again if the session has ended when a round may have counted it: no round has,
/// because all participants of a round are told.
async fn enter(barrier: DoubleBarrier) -> Result<Inside, RecipeError> {
    loop {
        match barrier.enter().await {
            Err(RecipeError::SessionExpired) => {}
            entered => return entered,
        }
    }
}

async fn survive(plan: Plan) -> Worst {
    let mut outage = Outage::prepare(plan, 4).await;
    let (first, second) =
        tokio::join!(enter(barrier(&outage.clients[0])), enter(barrier(&outage.clients[1])));
    let (first, second) = (first.expect("it enters"), second.expect("it enters"));
    let second_leaves = outage.call("a leave", 1, second.leave().into_future());
    let third_enters = outage.call("an enter", 2, enter(barrier(&outage.clients[2])));
    outage.settle().await;
    assert!(second_leaves.is_pending() && third_enters.is_pending(), "the first is inside");
    outage.begin();
    outage.middle().await;
    let first_leaves = outage.call("a leave", 0, first.leave().into_future());
    let fourth_enters = outage.call("an enter", 3, enter(barrier(&outage.clients[3])));
    outage.end().await;
    let cause = outage.all_ready();
    for leave in [first_leaves, second_leaves] {
        let (left, _) = outage.done(leave, cause).await;
        assert_eq!(left, Ok(()), "{plan:?}\n{}", outage.world.trace());
    }
    let mut inside = Vec::new();
    for enter in [third_enters, fourth_enters] {
        let (entered, _) = outage.done(enter, cause).await;
        let entered = entered.unwrap_or_else(|error| panic!("{plan:?}: {error}"));
        assert_eq!(entered.participants(), 2, "{plan:?}");
        inside.push(entered);
    }
    let leaving: Vec<_> = inside
        .into_iter()
        .map(|inside| outage.call("a second leave", 2, inside.leave().into_future()))
        .collect();
    let cause = now();
    for leave in leaving {
        let (left, _) = outage.done(leave, cause).await;
        assert_eq!(left, Ok(()), "{plan:?}\n{}", outage.world.trace());
    }
    let world = outage.world.clone();
    let worst = outage.finish().await;
    assert_eq!(world.server.children(PATH).unwrap_or_default(), [] as [&str; 0], "{plan:?}");
    worst
}

#[test]
fn a_double_barrier_goes_on_after_an_outage_of_any_length() {
    for_each_outage("a double barrier", REQUESTS_MAX, survive);
}
