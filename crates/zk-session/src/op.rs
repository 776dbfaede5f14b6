//! The future of an operation.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use jute_codec::Response;
use tokio::sync::oneshot;

use crate::chroot::response_to_client;
use crate::driver::shared::{Command, Shared, Sink, WatchSender};
use crate::error::{OpError, Outcome};
use crate::machine::{Flight, Operation, Reply, Token};
use crate::types::SessionId;

/// An operation under way.
///
/// The request was queued when the method was called, not when this is first polled: requests
/// reach the server in the order of calls. Dropping this future gives up the answer; a request
/// that was not sent by then is not sent, any other may take effect.
#[derive(Debug)]
#[must_use = "the outcome is lost"]
pub struct Op<T, E = OpError> {
    state: State<T, E>,
}

type Convert<T, E> = Box<dyn FnOnce(Result<Response, OpError>) -> Result<T, E> + Send>;

enum State<T, E> {
    Done,
    Ready(Result<T, E>),
    Waiting {
        shared: Arc<Shared>,
        token: Token,
        reply: oneshot::Receiver<Reply>,
        convert: Convert<T, E>,
    },
}

impl<T, E> std::fmt::Debug for State<T, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Done => "Done",
            Self::Ready(_) => "Ready",
            Self::Waiting { .. } => "Waiting",
        })
    }
}

/// Neither the result nor the conversion is ever pinned.
impl<T, E> Unpin for Op<T, E> {}

impl<T, E: From<OpError>> Op<T, E> {
    pub(crate) fn failed(error: impl Into<E>) -> Self {
        Self { state: State::Ready(Err(error.into())) }
    }

    /// Queues an operation; `watcher` gets the event of its watch.
    pub(crate) fn submit(
        shared: &Arc<Shared>,
        operation: Operation,
        watcher: Option<(u64, WatchSender)>,
        convert: impl FnOnce(Result<Response, OpError>) -> Result<T, E> + Send + 'static,
    ) -> Self {
        let owner = watcher.as_ref().map_or(0, |(owner, _)| *owner);
        let mut flight = Flight { operations: vec![operation], session: None, deadline: None };
        shared.to_server(&mut flight);
        Self::queue(shared, flight, owner, watcher, Box::new(convert))
    }

    /// Queues an operation that is sent in one session only, if one is given.
    pub(crate) fn submit_in(
        shared: &Arc<Shared>,
        session: Option<SessionId>,
        operation: Operation,
        convert: impl FnOnce(Result<Response, OpError>) -> Result<T, E> + Send + 'static,
    ) -> Self {
        let mut flight = Flight { operations: vec![operation], session, deadline: None };
        shared.to_server(&mut flight);
        Self::queue(shared, flight, 0, None, Box::new(convert))
    }

    /// Takes the request back: if it was not sent yet, it will not be, and fails with
    /// [`OpError::Recalled`]. If it was sent, its answer comes as ever.
    pub fn recall(&self) {
        if let State::Waiting { shared, token, .. } = &self.state {
            let _ = shared.commands.send(Command::Recall(*token));
        }
    }

    fn queue(
        shared: &Arc<Shared>,
        flight: Flight,
        owner: u64,
        watcher: Option<(u64, WatchSender)>,
        convert: Convert<T, E>,
    ) -> Self {
        let (sender, reply) = oneshot::channel();
        match shared.submit(flight, owner, Sink::Once(sender), watcher) {
            Err(error) => Self::failed(error),
            Ok(token) => {
                let shared = Arc::clone(shared);
                Self { state: State::Waiting { shared, token, reply, convert } }
            }
        }
    }
}

impl Op<()> {
    /// Queues an operation whose paths are the server's.
    pub(crate) fn submit_to_server(shared: &Arc<Shared>, operation: Operation) -> Self {
        let flight = Flight { operations: vec![operation], session: None, deadline: None };
        Self::queue(shared, flight, 0, None, Box::new(|result| result.map(drop)))
    }
}

impl<T, E: From<OpError>> Future for Op<T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Waiting { reply, .. } = &mut self.state {
            let Poll::Ready(answer) = Pin::new(reply).poll(cx) else { return Poll::Pending };
            let State::Waiting { shared, convert, .. } =
                std::mem::replace(&mut self.state, State::Done)
            else {
                unreachable!("matched above")
            };
            let mut result = match answer {
                Ok(mut reply) => reply.results.pop().expect("one operation has one result"),
                // The task is gone, with its runtime, and has not said whether it was sent.
                Err(_) => Err(OpError::Closed(Outcome::Unknown)),
            };
            if let Ok(response) = &mut result {
                response_to_client(&shared.chroot, response);
            }
            return Poll::Ready(convert(result));
        }
        match std::mem::replace(&mut self.state, State::Done) {
            State::Ready(result) => Poll::Ready(result),
            State::Done | State::Waiting { .. } => panic!("polled after completion"),
        }
    }
}

impl<T, E> Drop for Op<T, E> {
    fn drop(&mut self) {
        if let State::Waiting { shared, token, .. } = &self.state {
            let _ = shared.commands.send(Command::Cancel(*token));
        }
    }
}
