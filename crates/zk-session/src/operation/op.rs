//! The future of an operation.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use jute_codec::{OpCode, Response};
use tokio::sync::oneshot;

use crate::chroot::translate::Root;
use crate::driver::command::{Command, ReplySink, WatchSender};
use crate::driver::shared::Shared;
use crate::error::{OpError, Outcome, Target};
use crate::machine::{Flight, Operation, OwnerId, Reply, Token};
use crate::operation::terms::Terms;
use crate::time::NO_LIMIT;
use crate::watchdog::Overdue;

/// A pending operation.
///
/// The request is enqueued when the client's method is called, not when this future is first
/// polled. Requests reach the server in the order of these calls.
///
/// Dropping the future discards the reply. A request that was not sent by then is never sent; any
/// other may take effect.
#[must_use = "the outcome is lost"]
pub struct Op<T, E = OpError> {
    state: State<T, E>,
}

type Convert<T, E> = Box<dyn FnOnce(Answer) -> Result<T, E> + Send>;

/// The result of an operation.
pub(crate) struct Answer {
    pub(crate) result: Result<Response, OpError>,
    /// The operation that made a server refuse the multi.
    pub(crate) refused: Option<Box<Target>>,
}

enum State<T, E> {
    Done,
    Ready(Result<T, E>),
    Waiting {
        shared: Arc<Shared>,
        token: Token,
        reply: oneshot::Receiver<Reply>,
        convert: Convert<T, E>,
        /// What an error of this side is about: the operation and the path. The path is a copy, and
        /// not a clone of the one in the request: the first clone of a `ByteString` allocates too,
        /// and both owners would then have to count with atomic operations.
        op: OpCode,
        path: Box<str>,
        /// `None` without a timeout.
        overdue: Option<Box<Overdue>>,
    },
}

/// Neither the result nor the conversion is ever pinned.
impl<T, E> Unpin for Op<T, E> {}

impl<T, E: From<OpError>> Op<T, E> {
    /// Creates an operation that fails at once.
    pub(crate) fn failed(error: impl Into<E>) -> Self {
        Self { state: State::Ready(Err(error.into())) }
    }

    /// Submits an operation. If a watcher is given, it receives the event of the watch.
    pub(crate) fn submit(
        shared: &Arc<Shared>,
        terms: Option<&Terms>,
        root: Root,
        operation: Operation,
        watcher: Option<(OwnerId, WatchSender)>,
        convert: impl FnOnce(Answer) -> Result<T, E> + Send + 'static,
    ) -> Self {
        let op = operation.request.op();
        let path = Target::path_of(&operation.request).map(|path| match root {
            Root::Client => Box::from(&**path),
            Root::Server => Box::from(&*shared.chroot.to_client(path)),
        });
        let path = path.unwrap_or_default();
        let session = terms.and_then(|terms| terms.session);
        let quota = terms.and_then(|terms| terms.quota);
        let flight = Flight { operations: vec![operation], session, deadline: None };
        let (owner, watcher) = watcher.unzip();
        let owner = owner.unwrap_or(OwnerId::NONE);
        let (sender, reply) = oneshot::channel();
        let sink = ReplySink::Once(sender);
        let submitted = match shared.submit(flight, root, owner, sink, watcher, quota) {
            Err(error) => Self::failed(error),
            Ok(token) => {
                let (shared, convert) = (Arc::clone(shared), Box::new(convert));
                let overdue = None;
                Self { state: State::Waiting { shared, token, reply, convert, op, path, overdue } }
            }
        };
        match terms.and_then(|terms| terms.timeout) {
            Some(timeout) => submitted.timeout(timeout),
            None => submitted,
        }
    }
}

impl<T, E> Op<T, E> {
    /// Makes the operation fail with [`OpError::TimedOut`] unless its reply arrives within this
    /// time, counted from this call. The session and the connection are not affected.
    ///
    /// A request that was not sent by then is never sent: the outcome is
    /// [`NotApplied`](Outcome::NotApplied). Otherwise the server may execute it at any time: the
    /// outcome is [`Unknown`](Outcome::Unknown), and a reply that arrives later is ignored. Other
    /// operations keep their order.
    ///
    /// The deadline follows the client's clock and is checked by the session's task. If the client's
    /// runtime does not run, the operation ends one second later with
    /// [`OpError::RuntimeStopped`], and is not sent when the runtime goes on. An earlier timeout of
    /// the same operation is replaced. See [`Client::with_timeout`](crate::Client::with_timeout) for all operations of a
    /// handle.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        if let State::Waiting { shared, token, overdue, .. } = &mut self.state {
            let at = shared.clock.now() + timeout.min(NO_LIMIT);
            *overdue = Some(Box::new(Overdue::after(at, &shared.clock)));
            shared.send(Command::SetDeadline(*token, at));
        }
        self
    }

    /// Withdraws the request; see [`recipe::Session::recall`](crate::recipe::Session::recall).
    pub(crate) fn recall(&self) {
        if let State::Waiting { shared, token, .. } = &self.state {
            shared.send(Command::Recall(*token));
        }
    }
}

impl<T, E: From<OpError>> Future for Op<T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Waiting { reply, shared, op, path, overdue, .. } = &mut self.state {
            let Poll::Ready(received) = Pin::new(reply).poll(cx) else {
                let Some(overdue) = overdue else { return Poll::Pending };
                ready!(overdue.poll(cx, shared.clock.now()));
                let target = Target::new(*op, mem::take(path));
                let error = OpError::RuntimeStopped { target };
                // The drop withdraws the request.
                *self = Self::failed(error);
                return self.poll(cx);
            };
            let State::Waiting { shared, convert, .. } = mem::replace(&mut self.state, State::Done)
            else {
                unreachable!("matched above")
            };
            let (result, refused) = match received {
                Ok(mut reply) => {
                    shared.receive(&mut reply);
                    let mut result = reply.results.pop().expect("one operation has one result");
                    if let Err(error) = &mut result {
                        shared.explain(error);
                    }
                    (result, reply.refused)
                }
                // The task was dropped with its runtime, so whether the request was sent is
                // unknown.
                Err(_) => (Err(OpError::closed(Outcome::Unknown)), None),
            };
            return Poll::Ready(convert(Answer { result, refused }));
        }
        match mem::replace(&mut self.state, State::Done) {
            State::Ready(result) => Poll::Ready(result),
            State::Done | State::Waiting { .. } => panic!("polled after completion"),
        }
    }
}

impl<T, E> fmt::Debug for Op<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Op")
            .field(&match &self.state {
                State::Done => "Done",
                State::Ready(_) => "Ready",
                State::Waiting { .. } => "Waiting",
            })
            .finish()
    }
}

impl<T, E> Drop for Op<T, E> {
    fn drop(&mut self) {
        if let State::Waiting { shared, token, .. } = &self.state {
            shared.send(Command::Cancel(*token));
        }
    }
}
