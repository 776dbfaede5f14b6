//! Events of a lane, as machines understand them.

use std::task::{Context, Poll};

use zk_session::recipe::{Change, Flight, Lane, LaneEvent, Token};
use zk_session::{OpError, SessionId, SessionState, Time};

use crate::machine::{Input, SessionView};

/// A lane and its pending flight. The feed uses the timer of the lane, so it can move from the
/// caller's runtime to the client's.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) lane: Lane,
    pub(crate) pending: Option<Token>,
}

/// What a feed delivers.
#[derive(Debug)]
pub(crate) enum FeedEvent {
    /// The credentials were refused.
    AuthFailed,
    /// The client is closing, or has stopped.
    Closed,
    /// The session is connected.
    Connected(SessionId),
    /// An input for the machine.
    Input(Input),
    /// The guard deadline has passed.
    Lapsed,
}

/// Returns what the lane knows of its session.
pub(crate) fn view(lane: &Lane) -> SessionView {
    let (status, now) = (lane.status(), lane.now());
    let is_connected = status.state == SessionState::Connected;
    SessionView {
        now,
        connection: is_connected.then_some(status.connection),
        alive: status.is_alive(now).then_some(status.connection),
        is_running_out: status.is_running_out(now),
        lapses: status.lapses,
        has_expired: status.state == SessionState::Expired,
        has_left_session: status.has_left_session(),
        seed: lane.seed(),
    }
}

impl Feed {
    pub(crate) fn new(lane: Lane) -> Self {
        Self { lane, pending: None }
    }

    pub(crate) fn view(&self) -> SessionView {
        view(&self.lane)
    }

    /// Submits the machine's flight.
    pub(crate) fn submit(&mut self, flight: Flight) -> Result<(), OpError> {
        self.pending = Some(self.lane.submit(flight)?);
        Ok(())
    }

    /// Waits for the next event, at most until a time. Events that have arrived precede the timer.
    pub(crate) async fn next(&mut self, until: Option<Time>) -> FeedEvent {
        std::future::poll_fn(|cx| self.poll_next(cx, until)).await
    }

    /// See [`next`](Self::next). A timer is reported when the client's clock has reached its time,
    /// and never earlier, whatever else has woken the task.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        until: Option<Time>,
    ) -> Poll<FeedEvent> {
        while let Poll::Ready(event) = self.lane.poll_next(cx) {
            if let Some(event) = self.translate(event) {
                return Poll::Ready(event);
            }
        }
        match until {
            // A task that has used up its share of tokio's budget sees `Pending` above although
            // events have arrived. Without this second check, the timer would seem to precede those
            // events.
            Some(until) if until <= self.lane.now() => {
                Poll::Ready(self.arrived().unwrap_or(FeedEvent::Input(Input::Timer)))
            }
            Some(until) => {
                self.lane.wake_at(until);
                Poll::Pending
            }
            None => Poll::Pending,
        }
    }

    /// Takes the next event that has already arrived, if there is one.
    pub(crate) fn arrived(&mut self) -> Option<FeedEvent> {
        while let Some(event) = self.lane.try_next() {
            if let Some(event) = self.translate(event) {
                return Some(event);
            }
        }
        None
    }

    fn translate(&mut self, event: LaneEvent) -> Option<FeedEvent> {
        Some(match event {
            LaneEvent::Reply { token, reply } => {
                // A reply with another token belongs to a flight of an earlier machine.
                if self.pending != Some(token) {
                    return None;
                }
                self.pending = None;
                FeedEvent::Input(Input::Reply(reply))
            }
            LaneEvent::Watch { number, kind } => {
                FeedEvent::Input(Input::Watch { watch: number, kind })
            }
            LaneEvent::Change(Change::Connected { session, .. }) => FeedEvent::Connected(session),
            LaneEvent::Change(Change::Suspended { .. }) => FeedEvent::Input(Input::Suspended),
            LaneEvent::Change(Change::Ended { session, .. }) => {
                FeedEvent::Input(Input::Ended(session))
            }
            LaneEvent::Change(Change::Lapsed { .. }) => FeedEvent::Lapsed,
            LaneEvent::Change(Change::AuthFailed) => FeedEvent::AuthFailed,
            LaneEvent::Change(Change::Closing) | LaneEvent::Stopped => FeedEvent::Closed,
            LaneEvent::Alarm | LaneEvent::Change(_) | _ => return None,
        })
    }
}
