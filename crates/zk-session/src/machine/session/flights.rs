//! How flights are submitted, completed, cancelled and timed out.

use jute_codec::{OpCode, Response};

use super::{Phase, SessionMachine};
use crate::error::{OpError, Outcome, Target};
use crate::machine::event::Event;
use crate::machine::flight::{Flight, Operation, OwnerId, Reply, Token};
use crate::machine::quota::Limits;
use crate::machine::shared_list::Subscriber;
use crate::time::Time;

impl SessionMachine {
    /// Submits a flight under its own token. It is sent at once if the session is connected, and
    /// otherwise waits for the next connection. `owner` receives the events of its watches.
    pub(crate) fn submit(&mut self, now: Time, token: Token, owner: OwnerId, flight: Flight) {
        self.advance(now);
        let places = flight.operations.len();
        let is_full = self.flights.outstanding() + places > self.config.outstanding_limit;
        let waiting = self.flights.outstanding();
        let queue_full = is_full.then(|| OpError::QueueFull { waiting, target: Target::UNKNOWN });
        self.accept(token, owner, flight, places, queue_full, None);
    }

    /// Like [`submit`](Self::submit), for a flight of a limited handle: the number of the handle, and
    /// its limits. The handle may have half of the places of `outstanding_limit`.
    pub(crate) fn submit_limited(
        &mut self,
        now: Time,
        token: Token,
        owner: OwnerId,
        flight: Flight,
        quota: (OwnerId, Limits),
    ) {
        self.advance(now);
        let places = flight.operations.len();
        let limit = self.config.outstanding_limit;
        let (all, waiting) = (self.flights.outstanding(), self.flights.held_len(quota.0));
        let is_full = all + places > limit || waiting >= limit.div_ceil(2);
        let waiting = if waiting >= limit.div_ceil(2) { waiting } else { all };
        let queue_full = is_full.then(|| OpError::QueueFull { waiting, target: Target::UNKNOWN });
        self.accept(token, owner, flight, places, queue_full, Some(quota));
    }

    /// Like [`submit`](Self::submit), but the flight does not count against `outstanding_limit` and
    /// is not refused because of it. It is for flights whose number the submitter limits: a flight
    /// of several operations might never fit into a small limit, and a lock must not wait for the
    /// requests of other callers.
    pub(crate) fn submit_uncounted(
        &mut self,
        now: Time,
        token: Token,
        owner: OwnerId,
        flight: Flight,
    ) {
        self.advance(now);
        self.accept(token, owner, flight, 0, None, None);
    }

    /// Opens a flight that uses up `places` of `outstanding_limit`, or refuses it. `queue_full` is
    /// the error if the limit is exceeded.
    fn accept(
        &mut self,
        token: Token,
        owner: OwnerId,
        flight: Flight,
        places: usize,
        queue_full: Option<OpError>,
        quota: Option<(OwnerId, Limits)>,
    ) {
        if let Some(error) = self.refusal(&flight).or(queue_full) {
            let reply = Reply::unsent(&flight, &error);
            self.events.push_back(Event::Reply { token, reply });
            return;
        }
        self.flights.open(token, owner, &flight, places);
        if let Some((id, limits)) = quota {
            self.flights.hold(token, id, limits, flight);
            self.send_waiting();
            return;
        }
        // Flights must be sent in the order of submission, so send the waiting ones first.
        self.send_waiting();
        if !self.flights.are_waiting() && self.may_send_flight(token, &flight) {
            self.send_flight(token, flight);
        } else {
            self.flights.wait(token, flight);
            // A read-only server is sent this flight, even if others wait for the session.
            if self.link.is_read_only() {
                self.send_waiting();
            }
        }
    }

    /// Returns the error of a flight that cannot be sent on any future connection.
    fn refusal(&self, flight: &Flight) -> Option<OpError> {
        if let Phase::Stopped(state) = self.link.phase {
            return Some(state.refusal());
        }
        if self.is_closing {
            return Some(OpError::closed(Outcome::NotApplied));
        }
        // The machine never returns to an earlier session, so the flight could never be sent.
        if flight.session.is_some() && flight.session != self.session_id() {
            return Some(OpError::session_expired(Outcome::NotApplied));
        }
        if flight.deadline.is_some_and(|at| at <= self.now) {
            return Some(OpError::timed_out(Outcome::NotApplied));
        }
        None
    }

    /// Discards a flight. Operations that were not sent never will be, and no reply is reported.
    pub(crate) fn cancel(&mut self, now: Time, token: Token) {
        self.advance(now);
        self.flights.cancel(token);
        self.send_admitted();
    }

    /// Withdraws a flight. If none of it was sent, it completes with [`OpError::Recalled`] and will
    /// never be sent. Otherwise it completes as usual.
    pub(crate) fn recall(&mut self, now: Time, token: Token) {
        self.advance(now);
        if let Some(unsent) = self.flights.withdraw(token) {
            self.complete_flight(token, &unsent, &OpError::Recalled { target: Target::UNKNOWN });
            self.send_admitted();
        }
    }

    /// Sends what a flight that will not be sent has left its place to.
    fn send_admitted(&mut self) {
        if self.flights.is_limited() {
            self.send_waiting();
        }
    }

    /// Sets the deadline of an open flight, or of a change of the credentials, replacing any earlier
    /// one.
    pub(crate) fn set_deadline(&mut self, now: Time, token: Token, at: Time) {
        self.advance(now);
        self.flights.set_deadline(token, at);
        self.set_auth_deadline(token, at);
    }

    /// Completes an open flight. Operations without a result fail with `error`, which names them
    /// unless it names an operation already. `unsent` are the operations if none of them was sent or
    /// parked, and empty otherwise.
    pub(super) fn complete_flight(&mut self, token: Token, unsent: &[Operation], error: &OpError) {
        let in_flight = |index| self.link.inflight().target(token, index);
        if let Some(reply) = self.flights.fail(token, unsent, error, in_flight) {
            self.events.push_back(Event::Reply { token, reply });
        }
    }

    /// Records the result of one operation, and completes its flight with the last result. Does
    /// nothing if the flight is no longer open.
    pub(super) fn settle(&mut self, token: Token, index: usize, result: Result<Response, OpError>) {
        if let Some(reply) = self.flights.settle(token, index, result) {
            self.events.push_back(Event::Reply { token, reply });
        }
    }

    /// Completes a flight whose deadline has passed.
    pub(super) fn time_out(&mut self, token: Token) {
        // A request in flight cannot be withdrawn: the server may execute it at any time.
        let (unsent, outcome) = match self.flights.withdraw(token) {
            Some(unsent) => (unsent, Outcome::NotApplied),
            None => (vec![], Outcome::Unknown),
        };
        let error = OpError::timed_out(outcome);
        self.complete_flight(token, &unsent, &error);
    }

    /// Completes every waiting flight with `error`.
    pub(super) fn refuse_waiting(&mut self, error: &OpError) {
        for (token, flight) in self.flights.take_all_waiting() {
            self.complete_flight(token, &flight.operations, error);
        }
    }

    /// Completes every parked operation with `error`.
    pub(super) fn refuse_parked(&mut self, error: &OpError) {
        for (Subscriber { token, index }, path) in self.flights.take_parked() {
            let target = Target::new(OpCode::GET_CHILDREN, path);
            self.settle(token, index, Err(error.clone().about(target)));
        }
    }
}
