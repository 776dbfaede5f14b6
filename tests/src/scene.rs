//! What the suites of all locks in virtual time do: wait, hold, release, cut, look at requests, and
//! drop futures at every moment.

use std::future::{Future, IntoFuture as _, poll_fn};
use std::task::Poll;
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};
use tokio::task::JoinHandle;
use zk_recipes::kind::Kind;
use zk_recipes::{Acquire, Client, Guard, LockError, Released};
use zk_testserver::{Action, At, Fault, Filter, RequestRecord};

use crate::world::{DIRECTORY, World, cuts_at_request, sleep_ms};

/// Seed of the client that is looked at.
pub const FIRST: u64 = 1;
/// Seed of another client.
pub const SECOND: u64 = 2;
/// Seed of a third client.
pub const THIRD: u64 = 3;

/// Scheduler turns that the longest acquire of these suites takes, and more.
pub const TURNS: usize = 80;

/// Errors with which a server may refuse a request.
pub const CODES: [ErrorCode; 11] = [
    ErrorCode::NO_AUTH,
    ErrorCode::QUOTA_EXCEEDED,
    ErrorCode::THROTTLED_OP,
    ErrorCode::NOT_READ_ONLY,
    ErrorCode::SYSTEM_ERROR,
    ErrorCode::MARSHALLING_ERROR,
    ErrorCode::BAD_ARGUMENTS,
    ErrorCode::SESSION_MOVED,
    ErrorCode::REQUEST_TIMEOUT,
    ErrorCode::UNIMPLEMENTED,
    ErrorCode(-999),
];

/// Codes after which nothing is known, or that pass: an acquire goes on.
pub fn is_survived(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::THROTTLED_OP
            | ErrorCode::NOT_READ_ONLY
            | ErrorCode::SYSTEM_ERROR
            | ErrorCode::MARSHALLING_ERROR
            | ErrorCode::SESSION_MOVED
            | ErrorCode::REQUEST_TIMEOUT
            | ErrorCode(-999)
    )
}

/// An acquire that runs by itself.
pub type Waiter<K> = JoinHandle<Result<Guard<K>, LockError>>;

/// Runs a future by itself.
#[expect(clippy::disallowed_methods, reason = "somebody has to wait while others act")]
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}

/// Starts to wait for a lock, and returns when the place in the queue is taken.
///
/// # Panics
///
/// If the lock is granted.
pub async fn wait_in_queue<K: Kind>(world: &World, acquire: Acquire<K>) -> Waiter<K> {
    let before = world.contenders().len();
    let waiter = spawn(acquire.into_future());
    world.until("the contender stands in the queue", |_| world.contenders().len() > before).await;
    // Its watches are set.
    sleep_ms(10).await;
    assert!(!waiter.is_finished(), "granted beside a holder\n{}", world.trace());
    waiter
}

/// What a waiter has obtained, which has to be now.
///
/// # Panics
///
/// If it is not.
pub async fn granted_now<K>(world: &World, waiter: Waiter<K>) -> Guard<K> {
    settle().await;
    assert!(waiter.is_finished(), "not granted at once\n{}", world.trace());
    granted(waiter).await
}

/// What a waiter obtains in the end.
///
/// # Panics
///
/// If it is refused.
pub async fn granted<K>(waiter: Waiter<K>) -> Guard<K> {
    waiter.await.expect("an acquire does not panic").expect("it is granted")
}

/// Releases a lock that is still there.
///
/// # Panics
///
/// If it is not.
pub async fn release<K: Kind>(guard: Guard<K>) {
    assert_eq!(guard.release().await, Ok(Released::Released));
}

/// Lets everybody run who can, without letting time pass.
pub async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// The session of a client.
///
/// # Panics
///
/// If it is not connected.
pub fn session(client: &Client) -> i64 {
    client.session_id().expect("connected").0
}

/// A fault at a request of a session.
pub fn at_request(session: i64, nth: usize, action: Action) -> Fault {
    let filter = Filter { session: Some(session), ..Filter::default() };
    Fault::new(At::Request { nth, filter }, action)
}

/// A fault at the next request of a session with this opcode.
pub fn at_op(session: i64, op: OpCode, action: Action) -> Fault {
    let filter = Filter { session: Some(session), op: Some(op), ..Filter::default() };
    Fault::new(At::Request { nth: 0, filter }, action)
}

/// Requests of a session that concern the lock under test, whatever its kind.
pub fn requests_of(world: &World, session: i64) -> Vec<RequestRecord> {
    let is_ours = |request: &RequestRecord| {
        request.session == session
            && request.path.as_ref().is_some_and(|path| path.starts_with("/locks/"))
    };
    world.server.requests().into_iter().filter(is_ours).collect()
}

/// The opcodes of requests.
pub fn ops(requests: &[RequestRecord]) -> Vec<OpCode> {
    requests.iter().map(|request| request.op).collect()
}

/// Makes the directory, so that an acquire needs no round for it.
pub fn make_directory(world: &World) {
    world.server.admin_create("/locks", b"", None);
    world.server.admin_create(DIRECTORY, b"", None);
}

/// Deletes the directory with all that is in it.
///
/// # Panics
///
/// If the server refuses it.
pub fn delete_directory(world: &World) {
    for name in world.contenders() {
        assert!(world.server.admin_delete(&format!("{DIRECTORY}/{name}")));
    }
    assert!(world.server.admin_delete(DIRECTORY));
}

/// Ends all connections and accepts no other for a while.
pub fn partition(world: &World, ms: u64) {
    world.server.refuse_for(Duration::from_millis(ms));
    world.server.disconnect_all();
}

/// Path of the one contender of a session.
///
/// # Panics
///
/// If it has none, or several.
pub fn place_of(world: &World, session: i64) -> String {
    let mut own = world.server.ephemerals();
    own.retain(|(_, owner)| *owner == session);
    assert_eq!(own.len(), 1, "one place\n{}", world.trace());
    own.remove(0).0
}

/// What goes wrong besides a cancellation.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// Nothing.
    None,
    /// All connections end right before the cancellation.
    DisconnectBefore,
    /// All connections end right after the cancellation.
    DisconnectAfter,
    /// A fault of the server.
    Cut(Fault),
}

impl Trouble {
    /// Every trouble that a session can have in its first requests.
    pub fn all(session: i64, requests: usize) -> Vec<Self> {
        let cuts = (0..requests).flat_map(|nth| cuts_at_request(Some(session), nth)).map(Self::Cut);
        let others = [Self::None, Self::DisconnectBefore, Self::DisconnectAfter];
        others.into_iter().chain(cuts).collect()
    }

    /// The scenario begins.
    pub fn begin(&self, world: &World) {
        if let Self::Cut(fault) = self {
            world.server.inject(fault.clone());
        }
    }

    /// The future is about to be dropped.
    pub fn cancelling(&self, world: &World) {
        if let Self::DisconnectBefore = self {
            world.server.disconnect_all();
        }
    }

    /// The future was dropped.
    pub fn cancelled(&self, world: &World) {
        if let Self::DisconnectAfter = self {
            world.server.disconnect_all();
        }
    }
}

/// Polls a future as often as it is woken, and drops it after `polls`. What it returned, if it did.
pub async fn poll_times<T>(
    future: impl Future<Output = T>,
    polls: usize,
    before_the_drop: impl FnOnce(),
) -> Option<T> {
    let mut future = Box::pin(future);
    let mut polled = 0;
    let output = poll_fn(|cx| {
        if polled == polls {
            return Poll::Ready(None);
        }
        polled += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polled == polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    before_the_drop();
    output
}

/// How long the pauses of a lock are that asks again so many times in a row, in milliseconds: each
/// is as long as its id says, between once and one and a quarter times its length.
pub fn pauses_ms(count: usize) -> std::ops::RangeInclusive<u128> {
    let lengths = [200, 400, 800, 1_600, 3_200].into_iter().chain(std::iter::repeat(5_000));
    let sum: u128 = lengths.take(count).sum();
    sum..=sum * 5 / 4
}
