//! Open flights: how they are submitted, completed, cancelled and timed out.
//!
//! A flight is open from its submission until it completes or is cancelled. While it is open, each
//! of its operations is either waiting, parked for a shared list, in flight, or settled with a
//! result.

use jute_codec::{OpCode, Response};

use super::{Phase, SessionMachine};
use crate::error::{OpError, Outcome};
use crate::machine::event::Event;
use crate::machine::flight::{Flight, OpenFlight, Operation, OwnerId, Reply, Token};
use crate::machine::shared_list::Subscriber;
use crate::target::Target;
use crate::time::Time;

impl SessionMachine {
    /// Submits a flight under its own token. It is sent at once if the session is connected, and
    /// otherwise waits for the next connection. `owner` receives the events of its watches.
    pub fn submit(&mut self, now: Time, token: Token, owner: OwnerId, flight: Flight) {
        self.advance(now);
        let places = flight.operations.len();
        let is_full = self.outstanding + places > self.config.outstanding_limit;
        let waiting = self.outstanding;
        let queue_full = is_full.then(|| OpError::QueueFull { waiting, target: Target::UNKNOWN });
        self.accept(token, owner, flight, places, queue_full);
    }

    /// Like [`submit`](Self::submit), but the flight does not count against `outstanding_limit` and
    /// is not refused because of it. It is for flights whose number the submitter limits: a flight
    /// of several operations might never fit into a small limit, and a lock must not wait for the
    /// requests of other callers.
    pub fn submit_uncounted(&mut self, now: Time, token: Token, owner: OwnerId, flight: Flight) {
        self.advance(now);
        self.accept(token, owner, flight, 0, None);
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
    ) {
        let count = flight.operations.len();
        assert!(count > 0, "a flight has operations");
        if let Some(error) = self.refusal(&flight).or(queue_full) {
            let reply = Reply::unsent(&flight, &error);
            self.events.push_back(Event::Reply { token, reply });
            return;
        }
        let place = self.next_place;
        self.next_place += 1;
        let open = OpenFlight {
            place,
            owner,
            connection: 0,
            session: None,
            results: vec![None; count],
            refused: None,
            missing: count,
            places,
            deadline: flight.deadline,
            parked: vec![],
        };
        let other = self.open.insert(token, open);
        assert!(other.is_none(), "a token identifies one flight only");
        self.outstanding += places;
        if let Some(at) = flight.deadline {
            self.deadlines.insert((at, token));
        }
        // Flights must be sent in the order of submission, so send the waiting ones first.
        self.send_waiting();
        if self.waiting.is_empty() && self.may_send_flight(token, &flight) {
            self.send_flight(token, flight);
        } else {
            self.waiting.insert(place, (token, flight));
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
            let (outcome, target) = (Outcome::NotApplied, Target::UNKNOWN);
            return Some(OpError::TimedOut { outcome, target });
        }
        None
    }

    /// Discards a flight. Operations that were not sent never will be, and no reply is reported.
    pub fn cancel(&mut self, now: Time, token: Token) {
        self.advance(now);
        if let Some(open) = self.take_open(token) {
            self.waiting.remove(&open.place);
        }
    }

    /// Withdraws a flight. If none of it was sent, it completes with [`OpError::Recalled`] and will
    /// never be sent. Otherwise it completes as usual.
    pub fn recall(&mut self, now: Time, token: Token) {
        self.advance(now);
        if let Some(unsent) = self.withdraw(token) {
            self.complete_flight(token, &unsent, &OpError::Recalled { target: Target::UNKNOWN });
        }
    }

    /// Sets the deadline of an open flight, replacing any earlier one.
    pub fn set_deadline(&mut self, now: Time, token: Token, at: Time) {
        self.advance(now);
        let Some(open) = self.open.get_mut(&token) else { return };
        if let Some(old) = open.deadline.replace(at) {
            self.deadlines.remove(&(old, token));
        }
        self.deadlines.insert((at, token));
    }

    /// Removes and returns an open flight.
    fn take_open(&mut self, token: Token) -> Option<OpenFlight> {
        let open = self.open.remove(&token)?;
        self.outstanding -= open.places;
        if let Some(at) = open.deadline {
            self.deadlines.remove(&(at, token));
        }
        for path in &open.parked {
            self.lists.remove(path, token);
        }
        Some(open)
    }

    /// Completes an open flight. Operations without a result fail with `error`, which names them
    /// unless it names an operation already. `unsent` are the operations if none of them was sent or
    /// parked, and empty otherwise.
    pub(super) fn complete_flight(&mut self, token: Token, unsent: &[Operation], error: &OpError) {
        let Some(open) = self.open.get(&token) else { return };
        let is_named = error.target().is_some_and(|target| target.operation.is_some());
        let failure = |index| {
            if is_named {
                return error.clone();
            }
            let known = unsent.get(index).map(Operation::target);
            error.clone().about(known.unwrap_or_else(|| self.target(token, index)))
        };
        let missing = open.results.iter().enumerate().filter(|(_, result)| result.is_none());
        // Collected before the flight is taken, because that removes its parked lists.
        let failures: Vec<_> = missing.map(|(index, _)| failure(index)).collect();
        let Some(open) = self.take_open(token) else { return };
        let mut failures = failures.into_iter();
        let results = open.results.into_iter().map(|result| {
            result.unwrap_or_else(|| {
                Err(failures.next().expect("there is one for each missing result"))
            })
        });
        let reply = Reply {
            session: open.session,
            connection: open.connection,
            results: results.collect(),
            refused: open.refused,
        };
        self.events.push_back(Event::Reply { token, reply });
    }

    /// Returns what an error of an operation is about that is in flight or parked.
    fn target(&self, token: Token, index: usize) -> Target {
        let list = || self.lists.path_of(Subscriber { token, index });
        let of_list = || list().map(|path| Target::new(OpCode::GET_CHILDREN, path.clone()));
        self.link.inflight().target(token, index).or_else(of_list).unwrap_or_default()
    }

    /// Records the result of one operation, and completes its flight with the last result. Does
    /// nothing if the flight is no longer open.
    pub(super) fn settle(&mut self, token: Token, index: usize, result: Result<Response, OpError>) {
        // The flight may have timed out, or its future may have been dropped.
        let Some(open) = self.open.get_mut(&token) else { return };
        let slot = open.results.get_mut(index).expect("the index is one of this flight");
        debug_assert!(slot.is_none(), "an operation has one result");
        *slot = Some(result);
        open.missing -= 1;
        if open.missing == 0 {
            debug_assert!(open.results.iter().all(Option::is_some));
            self.complete_flight(token, &[], &OpError::connection_loss(Outcome::Unknown));
        }
    }

    /// Records the operation that made a server refuse a multi, for the message of the error.
    pub(super) fn note_refused(&mut self, token: Token, refused: Option<Box<Target>>) {
        if let Some(refused) = refused
            && let Some(open) = self.open.get_mut(&token)
        {
            open.refused.get_or_insert(refused);
        }
    }

    /// Completes a flight whose deadline has passed.
    pub(super) fn time_out(&mut self, token: Token) {
        // A request in flight cannot be withdrawn: the server may execute it at any time.
        let (unsent, outcome) = match self.withdraw(token) {
            Some(unsent) => (unsent, Outcome::NotApplied),
            None => (vec![], Outcome::Unknown),
        };
        let error = OpError::TimedOut { outcome, target: Target::UNKNOWN };
        self.complete_flight(token, &unsent, &error);
    }

    /// Removes a flight from the queue of waiting flights, and returns its operations. Returns
    /// `None` if some of it was sent, or if it is no longer open.
    fn withdraw(&mut self, token: Token) -> Option<Vec<Operation>> {
        let open = self.open.get(&token).filter(|open| !open.is_sent())?;
        // If the flight consists of parked shared lists only, it is no longer in the queue.
        let waiting = self.waiting.remove(&open.place);
        Some(waiting.map(|(_, flight)| flight.operations).unwrap_or_default())
    }

    /// Completes every waiting flight with `error`.
    pub(super) fn refuse_waiting(&mut self, error: &OpError) {
        for (token, flight) in std::mem::take(&mut self.waiting).into_values() {
            self.complete_flight(token, &flight.operations, error);
        }
    }

    /// Completes every parked operation with `error`.
    pub(super) fn refuse_parked(&mut self, error: &OpError) {
        for (Subscriber { token, index }, path) in self.lists.take_parked() {
            let target = Target::new(OpCode::GET_CHILDREN, path);
            self.settle(token, index, Err(error.clone().about(target)));
        }
    }
}
