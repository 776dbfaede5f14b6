//! The fair lock in virtual time: waiting, refusals, holding, cancellation, costs, and several
//! clients. Each fault is injected exactly where it is to happen, and the safety timer is off.

#[path = "fair_lock/cancelling.rs"]
mod cancelling;
#[path = "fair_lock/clients.rs"]
mod clients;
#[path = "fair_lock/costs.rs"]
mod costs;
#[path = "fair_lock/holding.rs"]
mod holding;
#[path = "fair_lock/lifetime.rs"]
mod lifetime;
#[path = "fair_lock/losing.rs"]
mod losing;
#[path = "fair_lock/queue.rs"]
mod queue;
#[path = "fair_lock/refusals.rs"]
mod refusals;
#[path = "fair_lock/running.rs"]
mod running;
#[path = "fair_lock/transaction.rs"]
mod transaction;
#[path = "fair_lock/waiting.rs"]
mod waiting;

use std::future::Future;
use std::time::Duration;

use jute_codec::OpCode;
use tokio::task::JoinHandle;
use zk_recipes::{Client, FairLock, Guard, LockError, Released};
use zk_tests::world::{DIRECTORY, World, sleep_ms};
use zk_testserver::{Action, At, Fault, Filter, RequestRecord};

/// Seed of the client that is looked at.
const FIRST: u64 = 1;
const SECOND: u64 = 2;
const THIRD: u64 = 3;

/// An acquire that runs by itself.
type Waiter = JoinHandle<Result<Guard, LockError>>;

/// Runs a future by itself.
#[expect(clippy::disallowed_methods, reason = "somebody has to wait while others act")]
fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}

/// Starts to wait for the lock, and returns when the place in the queue is taken.
async fn queue_up(world: &World, lock: &FairLock) -> Waiter {
    let before = world.contenders().len();
    let waiter = spawn(lock.acquire().into_future());
    world.until("the contender stands in the queue", |_| world.contenders().len() > before).await;
    // Its watches are set.
    sleep_ms(10).await;
    assert!(!waiter.is_finished(), "granted beside a holder\n{}", world.trace());
    waiter
}

/// What a waiter has obtained, which has to be now.
async fn granted_now(world: &World, waiter: Waiter) -> Guard {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(waiter.is_finished(), "not granted at once\n{}", world.trace());
    waiter.await.expect("an acquire does not panic").expect("it is granted")
}

/// What a waiter obtains in the end.
async fn granted(waiter: Waiter) -> Guard {
    waiter.await.expect("an acquire does not panic").expect("it is granted")
}

/// A client that holds the lock.
async fn holder(world: &World, seed: u64) -> (Client, Guard) {
    let client = world.client(seed).await;
    let guard = World::lock(&client).acquire().await.expect("nobody else wants it");
    (client, guard)
}

/// Releases a lock that is still there.
async fn release(guard: Guard) {
    assert_eq!(guard.release().await, Ok(Released::Released));
}

fn session(client: &Client) -> i64 {
    client.session_id().expect("connected").0
}

/// A fault at a request of a session.
fn at_request(session: i64, nth: usize, action: Action) -> Fault {
    let filter = Filter { session: Some(session), ..Filter::default() };
    Fault::new(At::Request { nth, filter }, action)
}

/// A fault at the next request of a session with this opcode.
fn at_op(session: i64, op: OpCode, action: Action) -> Fault {
    let filter = Filter { session: Some(session), op: Some(op), ..Filter::default() };
    Fault::new(At::Request { nth: 0, filter }, action)
}

/// Requests of a session that concern the lock.
fn requests_of(world: &World, session: i64) -> Vec<RequestRecord> {
    let is_ours = |request: &RequestRecord| {
        request.session == session
            && request.path.as_ref().is_some_and(|path| path.starts_with(DIRECTORY))
    };
    world.server.requests().into_iter().filter(is_ours).collect()
}

fn ops(requests: &[RequestRecord]) -> Vec<OpCode> {
    requests.iter().map(|request| request.op).collect()
}

/// Makes the directory, so that an acquire needs no round for it.
fn make_directory(world: &World) {
    world.server.admin_create("/locks", b"", None);
    world.server.admin_create(DIRECTORY, b"", None);
}

/// Deletes the directory with all that is in it.
fn delete_directory(world: &World) {
    for name in world.contenders() {
        assert!(world.server.admin_delete(&format!("{DIRECTORY}/{name}")));
    }
    assert!(world.server.admin_delete(DIRECTORY));
}

/// Ends all connections and accepts no other for a while.
fn partition(world: &World, ms: u64) {
    world.server.refuse_for(Duration::from_millis(ms));
    world.server.disconnect_all();
}
