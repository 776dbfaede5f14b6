//! What leaves: flights, lists that they share, the close.

use std::collections::BTreeSet;

use bytestring::ByteString;
use jute_codec::{ReadRequest, Record, Request, RequestHeader, encode_frame};

use super::inflight::{Pending, Purpose};
use super::reply_size::EXPECTED_MAX;
use super::shared_list::Subscriber;
use super::{
    BACKLOG_MAX, Event, Flight, INFLIGHT_MAX, Open, Phase, Reply, Session, Token,
    refusal_when_stopped,
};
use crate::error::{OpError, Outcome};
use crate::time::Time;

impl Session {
    /// Submits a flight under a name of its own. It is sent at once if the session is connected,
    /// and waits for the next connection otherwise.
    pub fn submit(&mut self, now: Time, token: Token, flight: Flight) {
        self.advance(now);
        let places = flight.operations.len();
        let is_full = self.outstanding + places > self.config.outstanding_limit;
        let full = is_full.then_some(OpError::QueueFull(self.outstanding));
        self.accept(token, flight, places, full);
    }

    /// As [`submit`](Self::submit), but the flight takes no place of `outstanding_limit`, and needs
    /// none: for flights that are bounded by whoever submits them. A flight of several operations
    /// may never fit into a small limit, and a lock must not wait for places that others take.
    pub fn submit_uncounted(&mut self, now: Time, token: Token, flight: Flight) {
        self.advance(now);
        self.accept(token, flight, 0, None);
    }

    /// `full`: the refusal, if there is no place for it.
    fn accept(&mut self, token: Token, flight: Flight, places: usize, full: Option<OpError>) {
        let count = flight.operations.len();
        assert!(count > 0, "a flight has operations");
        if let Some(error) = self.refusal(&flight).or(full) {
            let reply = Reply::unsent(count, &error);
            self.events.push_back(Event::Reply { token, reply });
            return;
        }
        let place = self.next_place;
        self.next_place += 1;
        let open = Open {
            place,
            connection: 0,
            session: None,
            results: vec![None; count],
            missing: count,
            places,
            deadline: flight.deadline,
            parked: vec![],
        };
        let other = self.open.insert(token, open);
        assert!(other.is_none(), "a token names one flight only");
        self.outstanding += places;
        if let Some(at) = flight.deadline {
            self.deadlines.insert((at, token));
        }
        self.pump();
        // Usually nothing waits, and nothing has to.
        if self.waiting.is_empty() && self.may_send() {
            self.send_flight(token, flight);
        } else {
            self.waiting.insert(place, (token, flight));
        }
    }

    /// The transport took bytes.
    pub fn handle_transmitted(&mut self, now: Time, bytes: usize) {
        self.advance(now);
        self.inflight.transmit(bytes);
        self.pump();
    }

    /// Why a flight cannot even wait.
    fn refusal(&self, flight: &Flight) -> Option<OpError> {
        if let Phase::Stopped(state) = self.phase {
            return Some(refusal_when_stopped(state));
        }
        if self.closing {
            return Some(OpError::Closed(Outcome::NotApplied));
        }
        if flight.session.is_some() && flight.session != self.session_id() {
            return Some(OpError::SessionExpired(Outcome::NotApplied));
        }
        None
    }

    /// Sends what waits, as far as the connection takes it.
    pub(super) fn pump(&mut self) {
        while self.may_send() {
            if let Some((path, subscribers)) = self.lists.next() {
                self.send_list(path, subscribers);
            } else if let Some((_, (token, flight))) = self.waiting.pop_first() {
                self.send_flight(token, flight);
            } else {
                return;
            }
        }
    }

    /// The connection takes another request.
    fn may_send(&self) -> bool {
        self.phase == Phase::Established
            && !self.closing
            && self.inflight.len() < INFLIGHT_MAX
            && self.inflight.backlog() < BACKLOG_MAX
            && self.inflight.expected() < EXPECTED_MAX
    }

    /// Sends a list for the flights that were parked.
    fn send_list(&mut self, path: ByteString, subscribers: BTreeSet<Subscriber>) {
        for Subscriber { token, .. } in subscribers {
            if let Some(open) = self.open.get_mut(&token) {
                open.parked.retain(|other| *other != path);
            }
            self.mark_sent(token);
        }
        let xid = self.take_xid();
        let request = Request::GetChildren(ReadRequest { path: path.clone(), watch: false });
        self.send_internal(xid, &request, Some(Purpose::SharedList(path)));
    }

    fn mark_sent(&mut self, token: Token) {
        let (session, connection) = (self.session_id(), self.connection);
        if let Some(open) = self.open.get_mut(&token) {
            open.session = session;
            open.connection = connection;
        }
    }

    fn send_flight(&mut self, token: Token, flight: Flight) {
        let (start, before) = (self.out.len(), self.inflight.mark());
        let (mut asked, mut parked) = (vec![], vec![]);
        let count = flight.operations.len();
        for (index, operation) in flight.operations.into_iter().enumerate() {
            let shared = operation.shared_path().cloned();
            if let Some(path) = &shared {
                if self.lists.is_busy(path) || asked.iter().any(|(other, _)| other == path) {
                    parked.push((path.clone(), Subscriber { token, index }));
                    continue;
                }
                asked.push((path.clone(), Subscriber { token, index }));
            }
            let xid = self.take_xid();
            let op = operation.request.op();
            let begin = self.out.len();
            let framed = encode_frame(&mut self.out, self.config.request_limit, |out| {
                RequestHeader { xid, op }.encode(out);
                operation.request.encode(out);
            });
            if let Err(jute_codec::EncodeError::TooLong { length, limit }) = framed {
                // All or nothing: take back what this flight has written.
                self.out.truncate(start);
                self.inflight.revert(before);
                self.answer(token, &OpError::RequestTooLarge { length, limit });
                return;
            }
            let watch = operation.watch.zip(watched_path(&operation.request));
            let purpose = match shared {
                Some(path) => Purpose::SharedList(path),
                None => Purpose::Operation { token, index, watch },
            };
            let end = self.inflight.produce(self.out.len() - begin);
            self.inflight.push(Pending { xid, op, purpose, sent: self.now, end });
        }
        if parked.len() < count {
            self.mark_sent(token);
        }
        for (path, subscriber) in asked {
            self.lists.ask(path, subscriber);
        }
        if !parked.is_empty()
            && let Some(open) = self.open.get_mut(&token)
        {
            open.parked = parked.iter().map(|(path, _)| path.clone()).collect();
        }
        for (path, subscriber) in parked {
            self.lists.park(path, subscriber);
        }
    }

    /// Sends a request of the machine's own; without a purpose, its reply is not queued for.
    pub(super) fn send_internal(&mut self, xid: i32, request: &Request, purpose: Option<Purpose>) {
        let before = self.out.len();
        let op = request.op();
        encode_frame(&mut self.out, usize::MAX, |out| {
            RequestHeader { xid, op }.encode(out);
            request.encode(out);
        })
        .expect("only a limit of i32::MAX applies");
        let end = self.inflight.produce(self.out.len() - before);
        if let Some(purpose) = purpose {
            self.inflight.push(Pending { xid, op, purpose, sent: self.now, end });
        }
    }

    pub(super) fn send_close(&mut self) {
        let xid = self.take_xid();
        self.send_internal(xid, &Request::CloseSession, Some(Purpose::Close));
    }

    /// Next xid: 1 to `i32::MAX`, then 1 again; the others are reserved.
    pub(super) fn take_xid(&mut self) -> i32 {
        let xid = self.next_xid;
        self.next_xid = xid.checked_add(1).unwrap_or(1);
        xid
    }
}

/// Path of a request that asks for a watch.
fn watched_path(request: &Request) -> Option<ByteString> {
    if let Request::Exists(read)
    | Request::GetData(read)
    | Request::GetChildren(read)
    | Request::GetChildren2(read) = request
        && read.watch
    {
        return Some(read.path.clone());
    }
    None
}
