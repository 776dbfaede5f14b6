//! What the suites in virtual time do again and again: tasks, faults, and a look at what was sent.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use jute_codec::OpCode;
use tokio::task::JoinHandle;
use zk_recipes::Client;
use zk_testserver::{Action, At, Fault, Filter, RequestRecord};

use crate::world::{World, cuts_at_request};

/// Runs a future by itself.
#[expect(clippy::disallowed_methods, reason = "somebody has to wait while others act")]
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}

/// Lets everybody run who can, without letting time pass.
pub async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// The session of a connected client.
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

/// Requests of a session about znodes below `/locks`.
pub fn requests_of(world: &World, session: i64) -> Vec<RequestRecord> {
    let is_ours = |request: &RequestRecord| {
        request.session == session
            && request.path.as_ref().is_some_and(|path| path.starts_with("/locks/"))
    };
    world.server.requests().into_iter().filter(is_ours).collect()
}

/// Their opcodes.
pub fn ops(requests: &[RequestRecord]) -> Vec<OpCode> {
    requests.iter().map(|request| request.op).collect()
}

/// Ends all connections and accepts no other for a while.
pub fn partition(world: &World, ms: u64) {
    world.server.refuse_for(Duration::from_millis(ms));
    world.server.disconnect_all();
}

/// What goes wrong besides a cancellation.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_enums, reason = "written out by the suites")]
pub enum Trouble {
    /// Nothing.
    None,
    /// All connections end right before the cancellation.
    DisconnectBefore,
    /// All connections end right after the cancellation.
    DisconnectAfter,
    /// A fault somewhere before it.
    Cut(Fault),
}

impl Trouble {
    /// Every trouble that a session can have in its first requests.
    pub fn all(session: i64, requests: usize) -> Vec<Self> {
        let cuts = (0..requests).flat_map(|nth| cuts_at_request(Some(session), nth)).map(Self::Cut);
        let others = [Self::None, Self::DisconnectBefore, Self::DisconnectAfter];
        others.into_iter().chain(cuts).collect()
    }

    /// What happens before the future is begun.
    pub fn begin(&self, world: &World) {
        if let Self::Cut(fault) = self {
            world.server.inject(fault.clone());
        }
    }

    /// What happens right before it is dropped.
    pub fn before_the_drop(&self, world: &World) {
        if matches!(self, Self::DisconnectBefore) {
            world.server.disconnect_all();
        }
    }

    /// What happens right after it was dropped.
    pub fn after_the_drop(&self, world: &World) {
        if matches!(self, Self::DisconnectAfter) {
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
