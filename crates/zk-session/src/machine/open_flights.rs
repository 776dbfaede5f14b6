//! The open flights: those that wait for a connection, and those that wait for replies.
//!
//! A flight is open from its submission until it completes or is cancelled. While it is open, each
//! of its operations is either waiting, parked for a shared list, in flight, or settled with a
//! result. A flight waits as a whole or not at all.
//!
//! A flight that is removed leaves nothing behind: it gives its places back, and its deadline and
//! its parked operations are removed too.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;
use jute_codec::{OpCode, Response};

use super::flight::{Flight, Operation, OwnerId, Reply, Token};
use super::quota::{Limits, Quotas};
use super::shared_list::{SharedLists, Subscriber};
use super::token_map::TokenMap;
use crate::error::{OpError, Target};
use crate::time::Time;
use crate::types::SessionId;

/// The open flights by their tokens.
#[derive(Debug, Default)]
pub(super) struct OpenFlights {
    open: TokenMap<OpenFlight>,
    /// Flights that wait for a connection, in the order of submission. All of them are open.
    waiting: BTreeMap<u64, (Token, Flight)>,
    /// The place of the next flight in the order of submission.
    next_place: u64,
    /// Deadlines of open flights.
    deadlines: BTreeSet<(Time, Token)>,
    lists: SharedLists,
    /// The flights of limited handles, if there are any.
    quotas: Option<Box<Quotas>>,
    /// Number of operations that count against the limit of the client.
    outstanding: usize,
}

/// A flight that is not complete.
#[derive(Debug)]
struct OpenFlight {
    /// Its place in the queue of waiting flights.
    place: u64,
    /// Receives the events of its watches.
    owner: OwnerId,
    /// Connection on which its first operation was sent; 0 before that.
    connection: u64,
    session: Option<SessionId>,
    /// The results by the index of the operation. Empty until the first one arrives.
    results: Vec<Option<Result<Response, OpError>>>,
    /// Number of operations.
    count: usize,
    /// The operation that made a server refuse a multi of the flight.
    refused: Option<Box<Target>>,
    /// Number of operations without a result.
    missing: usize,
    /// Number of its operations that count against the limit.
    counted: usize,
    deadline: Option<Time>,
    /// Paths of its shared lists that were not requested yet.
    parked: Vec<ByteString>,
}

impl OpenFlights {
    /// Returns the number of operations that count against the limit of the client.
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Opens a flight of which this many operations count against the limit.
    pub(super) fn open(&mut self, token: Token, owner: OwnerId, flight: &Flight, counted: usize) {
        let count = flight.operations.len();
        assert!(count > 0, "a flight has operations");
        let open = OpenFlight {
            place: self.next_place,
            owner,
            connection: 0,
            session: None,
            results: vec![],
            count,
            refused: None,
            missing: count,
            counted,
            deadline: None,
            parked: vec![],
        };
        self.next_place += 1;
        let other = self.open.insert(token, open);
        assert!(other.is_none(), "a token identifies one flight only");
        self.outstanding += counted;
        if let Some(at) = flight.deadline {
            self.set_deadline(token, at);
        }
    }

    /// Lets an open flight wait for a connection.
    pub(super) fn wait(&mut self, token: Token, flight: Flight) {
        let place = self.open.get(token).expect("a flight that waits is open").place;
        self.waiting.insert(place, (token, flight));
    }

    /// Returns true if flights wait for a connection.
    pub(super) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns true if there may be something to send: a flight that waits for a connection or because
    /// of its limits, or a list that is due.
    pub(super) fn may_be_waiting(&self) -> bool {
        self.are_waiting() || self.is_limited() || self.is_list_due()
    }

    /// Returns the number of flights that wait for a connection.
    pub(super) fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the flights that wait for a connection with their places, in the order of submission.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (u64, Token, &Flight)> {
        self.waiting.iter().map(|(place, (token, flight))| (*place, *token, flight))
    }

    /// Takes the flight at a place of [`waiting`](Self::waiting). It remains open.
    pub(super) fn take_waiting(&mut self, place: u64) -> Option<(Token, Flight)> {
        self.waiting.remove(&place)
    }

    /// Takes all flights that wait for a connection, or because of their limits. They remain open.
    pub(super) fn take_all_waiting(&mut self) -> impl Iterator<Item = (Token, Flight)> + use<> {
        let mut all = std::mem::take(&mut self.waiting);
        if let Some(quotas) = &mut self.quotas {
            all.append(&mut quotas.take_all());
        }
        all.into_values()
    }

    /// Holds an open flight of a limited handle until its limits admit it.
    pub(super) fn hold(&mut self, token: Token, id: OwnerId, limits: Limits, flight: Flight) {
        let place = self.open.get(token).expect("a flight that is held is open").place;
        self.quotas.get_or_insert_default().hold(id, limits, place, token, flight);
    }

    /// Returns the number of flights of a limited handle that are held.
    pub(super) fn held_len(&self, id: OwnerId) -> usize {
        self.quotas.as_ref().map_or(0, |quotas| quotas.held_len(id))
    }

    /// Lets the flights that their limits admit now wait for a connection.
    pub(super) fn admit_held(&mut self, now: Time) {
        while let Some((place, token, flight)) =
            self.quotas.as_mut().and_then(|quotas| quotas.admit(now))
        {
            self.waiting.insert(place, (token, flight));
        }
    }

    /// Returns when the next flight is admitted, unless another one has to complete before.
    pub(super) fn next_admission(&self) -> Option<Time> {
        self.quotas.as_ref()?.due()
    }

    /// Returns true if there are, or were, flights of limited handles.
    pub(super) fn is_limited(&self) -> bool {
        self.quotas.is_some()
    }

    /// Gives back the place of a flight whose request is no longer in flight.
    pub(super) fn release(&mut self, token: Token) {
        if let Some(quotas) = &mut self.quotas {
            quotas.release(token);
        }
    }

    /// Takes the flight at a place that waits for a connection, or because of its limits.
    fn take_unsent(&mut self, place: u64) -> Option<(Token, Flight)> {
        let held = |quotas: &mut Box<Quotas>| quotas.take(place);
        self.waiting.remove(&place).or_else(|| self.quotas.as_mut().and_then(held))
    }

    /// Takes a flight out of the queue of waiting flights, and returns its operations. It remains
    /// open. Returns `None` if some of it was sent, or if it is no longer open.
    pub(super) fn withdraw(&mut self, token: Token) -> Option<Vec<Operation>> {
        let open = self.open.get(token).filter(|open| open.connection == 0)?;
        // If the flight consists of parked shared lists only, it is no longer in the queue.
        let place = open.place;
        let waiting = self.take_unsent(place);
        Some(waiting.map(|(_, flight)| flight.operations).unwrap_or_default())
    }

    /// Discards a flight. Operations that were not sent never will be.
    pub(super) fn cancel(&mut self, token: Token) {
        if let Some(open) = self.remove(token) {
            self.take_unsent(open.place);
        }
    }

    /// Removes and returns an open flight.
    fn remove(&mut self, token: Token) -> Option<OpenFlight> {
        let open = self.open.remove(token)?;
        self.outstanding -= open.counted;
        if open.connection == 0 {
            self.release(token);
        }
        if let Some(at) = open.deadline {
            self.deadlines.remove(&(at, token));
        }
        for path in &open.parked {
            self.lists.remove(path, token);
        }
        Some(open)
    }

    /// Returns true if the flight is open.
    pub(super) fn contains(&self, token: Token) -> bool {
        self.open.get(token).is_some()
    }

    /// Returns true if the flight is open and counts against the limit: it was submitted by a caller,
    /// and not by a lane.
    pub(super) fn is_counted(&self, token: Token) -> bool {
        self.open.get(token).is_some_and(|open| open.counted > 0)
    }

    /// Returns the owner of the watches of an open flight.
    pub(super) fn owner(&self, token: Token) -> Option<OwnerId> {
        self.open.get(token).map(|open| open.owner)
    }

    /// Records on which connection an open flight was sent.
    pub(super) fn mark_sent(&mut self, token: Token, session: Option<SessionId>, connection: u64) {
        if let Some(open) = self.open.get_mut(token) {
            open.session = session;
            open.connection = connection;
        }
    }

    /// Sets the deadline of an open flight, replacing any earlier one.
    pub(super) fn set_deadline(&mut self, token: Token, at: Time) {
        let Some(open) = self.open.get_mut(token) else { return };
        if let Some(old) = open.deadline.replace(at) {
            self.deadlines.remove(&(old, token));
        }
        self.deadlines.insert((at, token));
    }

    /// Returns the earliest deadline.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Returns the flight with the earliest deadline that has passed, and removes that deadline.
    pub(super) fn take_late(&mut self, now: Time) -> Option<Token> {
        let (_, token) = self.deadlines.first().copied().filter(|(at, _)| *at <= now)?;
        self.deadlines.pop_first();
        Some(token)
    }

    /// Returns true if a list of the path is in flight or due, so that an operation must be parked.
    pub(super) fn is_list_busy(&self, path: &str) -> bool {
        self.lists.is_busy(path)
    }

    /// Records that a shared list was requested, as the first for its path.
    pub(super) fn request_list(&mut self, path: ByteString, subscriber: Subscriber) {
        self.lists.request(path, subscriber);
    }

    /// Lets an operation of an open flight wait for the list after the one in flight.
    pub(super) fn park(&mut self, path: ByteString, subscriber: Subscriber) {
        if let Some(open) = self.open.get_mut(subscriber.token) {
            open.parked.push(path.clone());
        }
        self.lists.park(path, subscriber);
    }

    /// Returns true if [`next_list`](Self::next_list) may return a list.
    pub(super) fn is_list_due(&self) -> bool {
        self.lists.is_due()
    }

    /// Returns the next list to request and the operations that it will complete.
    pub(super) fn next_list(&mut self) -> Option<(ByteString, BTreeSet<Subscriber>)> {
        let (path, subscribers) = self.lists.next()?;
        for Subscriber { token, .. } in &subscribers {
            if let Some(open) = self.open.get_mut(*token) {
                open.parked.retain(|other| *other != path);
            }
        }
        Some((path, subscribers))
    }

    /// Takes the operations that a list in flight completes.
    pub(super) fn complete_list(&mut self, path: &ByteString) -> BTreeSet<Subscriber> {
        self.lists.complete(path)
    }

    /// Takes all operations whose list was not requested, with the paths of the lists.
    pub(super) fn take_parked(&mut self) -> BTreeMap<Subscriber, ByteString> {
        self.lists.take_parked()
    }

    /// Records the result of one operation. If it was the last one, removes the flight, and returns
    /// its reply. Does nothing if the flight is no longer open.
    pub(super) fn settle(
        &mut self,
        token: Token,
        index: usize,
        result: Result<Response, OpError>,
    ) -> Option<Reply> {
        // The flight may have timed out, or its future may have been dropped.
        let open = self.open.get_mut(token)?;
        assert!(index < open.count, "the index is one of this flight");
        if open.count == 1 {
            // Most flights have one operation, whose result needs no place to wait.
            return Some(self.remove(token)?.reply(vec![result]));
        }
        open.results.resize(open.count, None);
        let slot = open.results.get_mut(index)?;
        debug_assert!(slot.is_none(), "an operation has one result");
        *slot = Some(result);
        open.missing -= 1;
        debug_assert_eq!(open.missing == 0, open.results.iter().all(Option::is_some));
        if open.missing > 0 {
            return None;
        }
        let mut open = self.remove(token)?;
        let results = std::mem::take(&mut open.results).into_iter();
        Some(open.reply(results.map(|result| result.expect("none is missing")).collect()))
    }

    /// Records the operation that made a server refuse a multi, for the message of the error.
    pub(super) fn note_refused(&mut self, token: Token, refused: Box<Target>) {
        if let Some(open) = self.open.get_mut(token) {
            open.refused.get_or_insert(refused);
        }
    }

    /// Removes a flight, and returns its reply. Operations without a result fail with `error`, which
    /// names them unless it names an operation already. `unsent` are the operations if none of them
    /// was sent or parked, and empty otherwise; `in_flight` says what an error of an operation in
    /// flight is about.
    pub(super) fn fail(
        &mut self,
        token: Token,
        unsent: &[Operation],
        error: &OpError,
        in_flight: impl Fn(usize) -> Option<Target>,
    ) -> Option<Reply> {
        let open = self.open.get(token)?;
        let is_named = error.target().is_some_and(|target| target.operation.is_some());
        let failure = |index| {
            if is_named {
                return error.clone();
            }
            let known = unsent.get(index).map(Operation::target).or_else(|| in_flight(index));
            let of_list = || self.target_of_list(Subscriber { token, index });
            error.clone().about(known.or_else(of_list).unwrap_or_default())
        };
        let result = |index| {
            let known = open.results.get(index).cloned().flatten();
            known.unwrap_or_else(|| Err(failure(index)))
        };
        // Collected before the flight is removed, because that removes its parked lists.
        let results = (0..open.count).map(result).collect();
        Some(self.remove(token)?.reply(results))
    }

    /// Returns the operation and the path for errors of an operation that waits for a shared list.
    fn target_of_list(&self, subscriber: Subscriber) -> Option<Target> {
        let path = self.lists.path_of(subscriber)?;
        Some(Target::new(OpCode::GET_CHILDREN, path.clone()))
    }

    /// Returns true if no operation is parked or was sent.
    #[cfg(test)]
    pub(super) fn are_all_waiting(&self) -> bool {
        self.open.values().all(|open| open.connection == 0 && open.parked.is_empty())
    }

    /// Returns the number of limited handles that are known.
    #[cfg(test)]
    pub(super) fn limited_len(&self) -> usize {
        self.quotas.as_ref().map_or(0, |quotas| quotas.len())
    }

    /// Returns true if no flight is open, and none has left anything behind.
    #[cfg(test)]
    pub(super) fn is_empty(&mut self) -> bool {
        let has_none = self.open.is_empty() && self.waiting.is_empty();
        has_none
            && self.outstanding == 0
            && self.deadlines.is_empty()
            && self.quotas.as_ref().is_none_or(|quotas| quotas.is_empty())
            && self.lists.take_parked().is_empty()
    }
}

impl OpenFlight {
    /// Returns the reply with these results.
    fn reply(self, results: Vec<Result<Response, OpError>>) -> Reply {
        let Self { session, connection, refused, .. } = self;
        Reply { session, connection, results, refused }
    }
}
