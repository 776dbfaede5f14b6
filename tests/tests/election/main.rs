//! The election in virtual time: leadership that passes, what candidates see, and work that only
//! the leader does. Each fault is injected exactly where it is meant to happen, and the safety
//! timer is off. The suites that run with every lock test the queue of the candidates.

mod cuts;
mod observing;
mod passing;
mod pauses;
mod running;

use std::future::IntoFuture as _;

use zk_recipes::{Client, Election, Leadership, kind};
use zk_tests::scene::{self, start_waiting};
use zk_tests::world::World;

/// A campaign that runs as a task.
type Candidate = scene::Waiter<kind::Lead>;

/// Connects a client that leads.
async fn leader(world: &World, seed: u64) -> (Client, Leadership) {
    scene::holder::<Election>(world, seed).await
}

/// Starts to campaign behind others, and returns when the candidate waits.
async fn campaign(world: &World, election: &Election) -> Candidate {
    start_waiting(world, election.campaign()).await
}

/// Starts to campaign, without waiting for anything.
fn campaigning(election: &Election) -> Candidate {
    scene::spawn(election.campaign().into_future())
}
