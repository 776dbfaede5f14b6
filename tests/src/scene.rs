//! Steps that suites in virtual time share: wait, hold, release, cut, inspect requests, and drop
//! futures at every moment.

use std::future::{Future, IntoFuture as _, poll_fn};
use std::task::Poll;
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode, SessionId};
use tokio::task::JoinHandle;
use zk_recipes::kind::Kind;
use zk_recipes::{Acquire, Client, Guard, LockError, Phase, Released};
use zk_testserver::{Action, At, Fault, RequestRecord};

use crate::case::{Case, LOCK};
use crate::world::{World, cuts_at_request, sleep_ms};

/// Seed of the client under test.
pub const FIRST: u64 = 1;
/// Seed of another client.
pub const SECOND: u64 = 2;
/// Seed of a third client.
pub const THIRD: u64 = 3;

/// More scheduler turns than the longest acquire of these suites takes.
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

/// Returns whether an acquire continues after this code: the outcome is unknown, or the error is
/// temporary.
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

/// An acquire that runs as a task.
pub type Waiter<K> = JoinHandle<Result<Guard<K>, LockError>>;

/// Runs a future as a task.
#[expect(clippy::disallowed_methods, reason = "a contender waits while the test acts")]
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}

/// Creates a client that acquires a free lock, and returns the client and its guard.
///
/// # Panics
///
/// If the lock is not granted.
pub async fn holder<C: Case>(world: &World, seed: u64) -> (Client, Guard<C::Kind>) {
    let client = world.client(seed).await;
    let guard = hold(&C::of(&client)).await;
    (client, guard)
}

/// Acquires a lock that is free.
///
/// # Panics
///
/// If the lock is not granted.
pub async fn hold<C: Case>(lock: &C) -> Guard<C::Kind> {
    lock.acquire().await.expect("the lock is free")
}

/// Starts to wait for a lock, and returns when the contender waits.
///
/// # Panics
///
/// If the lock is granted.
pub async fn start_waiting<K: Kind>(world: &World, acquire: Acquire<K>) -> Waiter<K> {
    let (acquire, phases) = acquire.phases();
    let waiter = spawn(acquire.into_future());
    let is_waiting = |_: &_| matches!(phases.current(), Phase::Queued { .. });
    world.until("the contender waits", is_waiting).await;
    // The waiter needs this time to set its watches.
    sleep_ms(10).await;
    assert!(!waiter.is_finished(), "granted beside a holder\n{}", world.trace());
    waiter
}

/// Returns the guard of a waiter that has just been granted the lock.
///
/// # Panics
///
/// If the lock has not been granted.
pub async fn granted_now<K: Kind>(world: &World, waiter: Waiter<K>) -> Guard<K> {
    settle().await;
    assert!(waiter.is_finished(), "not granted at once\n{}", world.trace());
    granted(waiter).await
}

/// Waits until the lock is granted, and returns the guard of the waiter.
///
/// # Panics
///
/// If the acquire fails.
pub async fn granted<K: Kind>(waiter: Waiter<K>) -> Guard<K> {
    waiter.await.expect("an acquire does not panic").expect("the lock is granted")
}

/// Releases a lock that is still held.
///
/// # Panics
///
/// If the lock is lost or cannot be released.
pub async fn release<K: Kind>(guard: Guard<K>) {
    assert_eq!(guard.release().await, Ok(Released::Released));
}

/// Runs all tasks that are ready, without letting time pass.
pub async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Returns the session of a client.
///
/// # Panics
///
/// If the client is not connected.
pub fn session(client: &Client) -> SessionId {
    client.session_id().expect("connected")
}

/// Returns a fault at a request of a session.
pub fn at_request(session: SessionId, nth: usize, action: Action) -> Fault {
    Fault::new(At::request(nth).of_session(session), action)
}

/// Returns a fault at the next request of a session with this opcode.
pub fn at_op(session: SessionId, op: OpCode, action: Action) -> Fault {
    Fault::new(At::op(op).of_session(session), action)
}

/// Returns the requests of a session that concern the lock under test.
pub fn requests_of(world: &World, session: SessionId) -> Vec<RequestRecord> {
    let is_ours = |request: &RequestRecord| {
        request.session == session
            && request.path.as_ref().is_some_and(|path| path.starts_with("/locks/"))
    };
    world.server.requests().into_iter().filter(is_ours).collect()
}

/// Returns the opcodes of requests.
pub fn ops(requests: &[RequestRecord]) -> Vec<OpCode> {
    requests.iter().map(|request| request.op).collect()
}

/// Returns the opcodes of a client's requests since the last call, except pings, in the order in which
/// the client sent them.
///
/// # Panics
///
/// If the client is not connected.
pub fn sent_since(world: &World, client: &Client) -> Vec<OpCode> {
    let own = session(client);
    let mut requests = world.server.requests();
    requests.retain(|request| request.session == own && request.op != OpCode::PING);
    world.server.clear_requests();
    ops(&requests)
}

/// Returns the requests since the last call, like [`sent_since`], including those of the janitor, who
/// may still be at work when a call returns.
pub async fn all_sent_since(world: &World, client: &Client) -> Vec<OpCode> {
    sleep_ms(20).await;
    sent_since(world, client)
}

/// Creates the directory of the lock, so that an acquire does not have to.
pub fn create_directory<C: Case>(world: &World) {
    world.server.admin_create("/locks", b"", None);
    if C::directory() == LOCK {
        world.server.admin_create(LOCK, b"", None);
    }
}

/// Deletes the directory and everything in it.
///
/// # Panics
///
/// If the directory does not exist.
pub fn delete_directory(world: &World) {
    for name in world.contenders() {
        assert!(world.server.admin_delete(&format!("{LOCK}/{name}")));
    }
    assert!(world.server.admin_delete(LOCK));
}

/// Ends all connections, and refuses new ones for this time.
pub fn partition(world: &World, ms: u64) {
    world.server.refuse_for(Duration::from_millis(ms));
    world.server.disconnect_all();
}

/// Deletes a znode by hand, and creates it again with the same data for this session, as an
/// administrator does who restores what was deleted.
///
/// # Panics
///
/// If there is no such znode.
pub fn replace_by_copy(world: &World, path: &str, owner: SessionId) {
    let data = world.server.data(path).expect("there is a znode to replace");
    assert!(world.server.admin_delete(path));
    world.server.admin_create(path, &data, Some(owner));
}

/// Returns the path of the one contender of a session.
///
/// # Panics
///
/// If the session has none, or several.
pub fn place_of(world: &World, session: SessionId) -> String {
    let mut own = world.server.ephemerals();
    own.retain(|(_, owner)| *owner == session);
    assert_eq!(own.len(), 1, "one place\n{}", world.trace());
    own.remove(0).0
}

/// A fault around a cancellation.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// No fault.
    None,
    /// All connections end right before the cancellation.
    DisconnectBefore,
    /// All connections end right after the cancellation.
    DisconnectAfter,
    /// A fault of the server.
    Cut(Fault),
}

impl Trouble {
    /// Returns every fault that a session can have at its first requests.
    pub fn all(session: SessionId, requests: usize) -> Vec<Self> {
        let cuts = (0..requests).flat_map(|nth| cuts_at_request(Some(session), nth)).map(Self::Cut);
        let others = [Self::None, Self::DisconnectBefore, Self::DisconnectAfter];
        others.into_iter().chain(cuts).collect()
    }

    /// Begins the fault. Call this before the operation begins.
    pub fn begin(&self, world: &World) {
        if let Self::Cut(fault) = self {
            world.server.inject(fault.clone());
        }
    }

    /// Disconnects, if the fault requires it. Call this right before the future is dropped.
    pub fn cancelling(&self, world: &World) {
        if let Self::DisconnectBefore = self {
            world.server.disconnect_all();
        }
    }

    /// Disconnects, if the fault requires it. Call this right after the future was dropped.
    pub fn cancelled(&self, world: &World) {
        if let Self::DisconnectAfter = self {
            world.server.disconnect_all();
        }
    }
}

/// Polls a future whenever it is woken, and drops it after `polls` polls. Returns the output if the
/// future has completed by then.
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

/// Returns the total length of the pauses of a lock that retries `count` times in a row, in
/// milliseconds. The id of an attempt stretches each pause by up to a quarter.
pub fn pauses_ms(count: usize) -> std::ops::RangeInclusive<u128> {
    let lengths = [200, 400, 800, 1_600, 3_200].into_iter().chain(std::iter::repeat(5_000));
    let sum: u128 = lengths.take(count).sum();
    sum..=sum * 5 / 4
}
