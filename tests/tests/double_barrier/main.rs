//! Double barriers in virtual time: participants enter together and leave together, no matter what
//! is lost and who dies.

mod costs;
mod cuts;
mod deaths;
mod ghosts;
mod permissions;
mod rounds;

use std::future::IntoFuture as _;
use std::time::Duration;

use tokio::task::JoinHandle;
use zk_recipes::{Client, DoubleBarrier, Inside, RecipeError, SessionId};
use zk_tests::scene::{FIRST, spawn};
use zk_tests::world::{World, session_of_first, sleep_ms};

/// The directory of the barrier under test. It is missing at first.
const PATH: &str = "/barriers/x";
/// Time in which each step ends, in virtual time.
const PATIENCE: Duration = Duration::from_secs(60);

type Entering = JoinHandle<Result<Inside, RecipeError>>;
type Leaving = JoinHandle<Result<(), RecipeError>>;

fn barrier(client: &Client, participants: u32) -> DoubleBarrier {
    DoubleBarrier::new(client, PATH, participants).expect("the options are legal")
}

fn enter(client: &Client, participants: u32) -> Entering {
    spawn(barrier(client, participants).enter().timeout(PATIENCE).into_future())
}

fn leave(inside: Inside) -> Leaving {
    spawn(inside.leave().timeout(PATIENCE).into_future())
}

async fn entered(world: &World, entering: Entering) -> Inside {
    let entered = entering.await.expect("it does not panic");
    entered.unwrap_or_else(|error| panic!("{error}\n{}", world.trace()))
}

async fn left(world: &World, leaving: Leaving) {
    let left = leaving.await.expect("it does not panic");
    assert_eq!(left, Ok(()), "\n{}", world.trace());
}

/// The number of participants that have a znode.
fn present(world: &World) -> usize {
    world.server.children(PATH).unwrap_or_default().len()
}

/// Waits until this many participants have a znode, and all of them wait.
async fn until_present(world: &World, count: usize) {
    world.until("the participants are there", |_| present(world) == count).await;
    sleep_ms(10).await;
}

/// Waits for the end of all cleanup, and checks that no participant is left.
async fn check_clean(world: &World, clients: &[&Client]) {
    world.check_clean(clients).await;
    assert_eq!(world.server.ephemerals(), [], "\n{}", world.trace());
    assert_eq!(present(world), 0, "\n{}", world.trace());
}

/// The session of the first client, which is the same in every world.
fn first_session() -> SessionId {
    session_of_first(FIRST)
}
