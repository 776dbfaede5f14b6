//! The async side of the recipes: it feeds the machines, and hands what they may leave behind to
//! the session's janitor.

pub(crate) mod acquire;
pub(crate) mod body;
pub(crate) mod hold;
pub(crate) mod keeper;
pub(crate) mod release;

pub(crate) mod watchdog;

use std::task::{Context, Poll};
use std::time::Duration;

use zk_session::machine::{Flight, Operation, Reply, Token};
use zk_session::{Change, Client, Lane, LaneEvent, OpError, SessionId, SessionState, Time};

use crate::machine::{Input, View, flight};

/// A lane, and the flight that is under way. Its timer is the lane's, so a feed can be handed from
/// the caller's runtime to that of the client.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) lane: Lane,
    pub(crate) pending: Option<Token>,
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
        Self { lane, pending: None }
    }

    pub(crate) fn view(&self) -> View {
        let status = self.lane.status();
        let now = self.lane.now();
        let is_connected = status.state == SessionState::Connected;
        let connection = is_connected.then_some(status.connection);
        let alive = status.is_alive(now).then_some(status.connection);
        View { now, connection, alive, lapses: status.lapses }
    }

    /// Submits the machine's flight.
    pub(crate) fn submit(&mut self, flight: Flight) -> Result<(), OpError> {
        self.pending = Some(self.lane.submit(flight)?);
        Ok(())
    }

    /// Waits for what comes next, at most until a time. What has arrived comes before the time.
    pub(crate) async fn next(&mut self, until: Option<Time>) -> Fed {
        std::future::poll_fn(|cx| self.poll_next(cx, until)).await
    }

    /// See [`next`](Self::next). A timer is reported when its time has come by the client's clock,
    /// and never before, whatever else has woken the task.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>, until: Option<Time>) -> Poll<Fed> {
        while let Poll::Ready(event) = self.lane.poll_next(cx) {
            if let Some(fed) = self.translate(event) {
                return Poll::Ready(fed);
            }
        }
        match until {
            // Without a look at the queue, a task that has used up its share of tokio's budget would
            // take the time for the first to arrive.
            Some(until) if until <= self.lane.now() => {
                Poll::Ready(self.arrived().unwrap_or(Fed::Input(Input::Timer)))
            }
            Some(until) => {
                self.lane.wake_at(until);
                Poll::Pending
            }
            None => Poll::Pending,
        }
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
            LaneEvent::Alarm | LaneEvent::Change(_) | _ => return None,
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
        if let Err(error) = feed.submit(flight) {
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

/// Waits before asking an overloaded server again; less if the client stops.
pub(crate) async fn pause(client: &Client, pause: Duration) {
    let mut feed = Feed::new(client.lane());
    let until = feed.lane.now() + pause;
    while !matches!(
        feed.next(Some(until)).await,
        Fed::Input(Input::Timer) | Fed::AuthFailed | Fed::Closed
    ) {}
}

/// Whether the client has stopped, so that asking again is in vain.
pub(crate) fn has_stopped(client: &Client) -> bool {
    matches!(
        client.state(),
        SessionState::AuthFailed | SessionState::Closed | SessionState::Expired
    )
}
