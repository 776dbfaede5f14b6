//! The async side of the recipes: it feeds the machines, and hands what they may leave behind to
//! the session's janitor.

#![expect(clippy::disallowed_methods, reason = "this is the runner: it owns timers")]

pub(crate) mod acquire;
pub(crate) mod body;
pub(crate) mod hold;
pub(crate) mod keeper;
pub(crate) mod release;

use std::future::Future as _;
use std::pin::Pin;
use std::task::Poll;

use tokio::time::Sleep;
use zk_session::machine::{Flight, Operation, Reply, Token};
use zk_session::{Change, Client, Lane, LaneEvent, OpError, SessionId, Time};

use crate::machine::{Input, View, flight};

/// A lane, a timer, and the flight that is under way.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) lane: Lane,
    pub(crate) pending: Option<Token>,
    /// Made when it is first needed.
    timer: Option<Pin<Box<Sleep>>>,
}

/// What a feed brings.
#[derive(Debug)]
pub(crate) enum Fed {
    /// The credentials were refused.
    AuthFailed,
    /// The client is being closed, or has stopped.
    Closed,
    /// The session is connected.
    Connected(SessionId),
    /// Something for the machine.
    Input(Input),
    /// The guard deadline has passed.
    Lapsed,
}

impl Feed {
    pub(crate) fn new(lane: Lane) -> Self {
        Self { lane, pending: None, timer: None }
    }

    pub(crate) fn view(&self) -> View {
        let status = self.lane.status();
        let now = self.lane.now();
        let alive = status.is_alive(now).then_some(status.connection);
        View { now, alive, lapses: status.lapses }
    }

    /// Submits the machine's flight.
    pub(crate) fn submit(&mut self, flight: Flight) -> Result<(), OpError> {
        self.pending = Some(self.lane.submit(flight)?);
        Ok(())
    }

    /// Submits a flight as soon as the client has room for it.
    pub(crate) async fn submit_patiently(&mut self, flight: Flight) -> Result<(), OpError> {
        loop {
            match self.submit(flight.clone()) {
                Err(OpError::QueueFull(_)) => pause().await,
                result => return result,
            }
        }
    }

    /// Waits for what comes next, at most until a time. What has arrived comes before the time.
    pub(crate) async fn next(&mut self, until: Option<Time>) -> Fed {
        if let Some(until) = until {
            let at = tokio::time::Instant::now() + until.saturating_since(self.lane.now());
            match &mut self.timer {
                Some(timer) => timer.as_mut().reset(at),
                None => self.timer = Some(Box::pin(tokio::time::sleep_until(at))),
            }
        }
        std::future::poll_fn(|cx| {
            while let Poll::Ready(event) = self.lane.poll_next(cx) {
                if let Some(fed) = self.translate(event) {
                    return Poll::Ready(fed);
                }
            }
            if until.is_some()
                && let Some(timer) = &mut self.timer
                && timer.as_mut().poll(cx).is_ready()
            {
                return Poll::Ready(Fed::Input(Input::Timer));
            }
            Poll::Pending
        })
        .await
    }

    /// Takes what has arrived, if anything has.
    pub(crate) fn arrived(&mut self) -> Option<Fed> {
        while let Some(event) = self.lane.try_next() {
            if let Some(fed) = self.translate(event) {
                return Some(fed);
            }
        }
        None
    }

    fn translate(&mut self, event: LaneEvent) -> Option<Fed> {
        Some(match event {
            LaneEvent::Reply { token, reply } => {
                // The answer to a flight that a machine before this one has asked for.
                if self.pending != Some(token) {
                    return None;
                }
                self.pending = None;
                Fed::Input(Input::Reply(reply))
            }
            LaneEvent::Watch { local, event } => {
                Fed::Input(Input::Watch { local, kind: event.kind })
            }
            LaneEvent::Change(Change::Connected { session, .. }) => Fed::Connected(session),
            LaneEvent::Change(Change::Suspended { .. }) => Fed::Input(Input::Suspended),
            LaneEvent::Change(Change::Ended { session, .. }) => Fed::Input(Input::Ended(session)),
            LaneEvent::Change(Change::Lapsed { .. }) => Fed::Lapsed,
            LaneEvent::Change(Change::AuthFailed) => Fed::AuthFailed,
            LaneEvent::Change(Change::Closing) | LaneEvent::Stopped => Fed::Closed,
            LaneEvent::Change(_) | _ => return None,
        })
    }
}

/// Sends one flight, in this session or in any, until it has an answer, replaying lost
/// connections: for operations that may be issued any number of times.
pub(crate) async fn replay(
    client: &Client,
    session: Option<SessionId>,
    operations: Vec<Operation>,
) -> Reply {
    let mut feed = Feed::new(client.lane());
    loop {
        let refused = |error| {
            let results = vec![Err(error); operations.len()];
            Reply { session, connection: 0, results }
        };
        let flight = flight(session, operations.clone());
        if let Err(error) = feed.submit_patiently(flight).await {
            return refused(error);
        }
        let reply = loop {
            match feed.next(None).await {
                Fed::Input(Input::Reply(reply)) => break reply,
                Fed::AuthFailed => return refused(OpError::AuthFailed),
                Fed::Closed => return refused(OpError::Closed(zk_session::Outcome::Unknown)),
                Fed::Connected(_) | Fed::Input(_) | Fed::Lapsed => {}
            }
        };
        let is_lost =
            |result: &Result<_, OpError>| result.as_ref().is_err_and(OpError::is_connection_loss);
        if !reply.results.iter().any(is_lost) {
            return reply;
        }
    }
}

/// Waits before asking an overloaded server again.
pub(crate) async fn pause() {
    tokio::time::sleep(crate::machine::PAUSE).await;
}
