//! Encoding: flights, the lists that they share, and the machine's own requests.

use std::collections::BTreeSet;

use bytestring::ByteString;
use jute_codec::{EncodeError, OpCode, ReadRequest, Request};

use super::SessionMachine;
use crate::error::OpError;
use crate::machine::flight::{Flight, Operation, Token};
use crate::machine::inflight::{Pending, Purpose, RequestedWatch};
use crate::machine::keeper;
use crate::machine::shared_list::Subscriber;
use crate::machine::subject::Subject;
use crate::machine::support::Postponed;
use crate::machine::timer::Timer;
use crate::time::Time;

impl SessionMachine {
    /// Records that the transport has accepted bytes since `now`, which must not be later than the
    /// moment at which it got them: the lease counts from this time.
    pub(crate) fn handle_transmitted(&mut self, now: Time, bytes: usize) {
        self.advance(now);
        if self.link.transmitted(now, bytes) {
            self.rearm_read();
        }
        self.send_waiting();
    }

    /// Records that the transport has no room for more bytes.
    pub(crate) fn handle_blocked(&mut self) {
        self.link.blocked();
    }

    /// Sends waiting flights and due lists until the connection accepts no more.
    pub(super) fn send_waiting(&mut self) {
        // This is called after each reply and before each flight, and usually nothing waits.
        if !self.flights.may_be_waiting() && self.link.surplus.is_empty() {
            return;
        }
        while self.may_send() {
            self.flights.admit_held(self.now);
            // Send lists first: the flights that wait for them were submitted before those in the
            // queue.
            if self.flights.is_list_due() {
                if !self.has_room_for(&mut std::iter::once(OpCode::GET_CHILDREN)) {
                    return;
                }
                if let Some((path, subscribers)) = self.flights.next_list() {
                    self.send_list(path, subscribers);
                    continue;
                }
            }
            if let Some(place) = self.next_waiting()
                && let Some((token, flight)) = self.flights.take_waiting(place)
            {
                self.send_flight(token, flight);
            } else if let Some(path) = self.link.surplus.pop_first() {
                self.remove_surplus_watch(&path);
            } else {
                return;
            }
        }
    }

    /// Returns true if the connection accepts another request.
    pub(super) fn may_send(&self) -> bool {
        self.link.may_send() && !self.is_closing
    }

    /// Returns true if the flight must wait until certain requests in flight are complete.
    fn must_wait(&self, flight: &Flight) -> bool {
        self.must_wait_to_be_alone(flight)
            || self.must_wait_to_remove(flight)
            || self.must_wait_for_replies(flight)
    }

    /// Returns true if the link has enough replies on the way to delay those of this flight.
    fn must_wait_for_replies(&self, flight: &Flight) -> bool {
        let mut reads = flight.operations.iter().map(|it| it.request.op());
        !self.has_room_for(&mut reads)
    }

    /// Returns true if the link has room for the replies to these operations.
    fn has_room_for(&self, ops: &mut dyn Iterator<Item = OpCode>) -> bool {
        let inflight = self.link.inflight();
        let bytes = inflight.long_reply_bytes(ops);
        bytes == 0
            || inflight.expected_bytes() + bytes <= self.downlink.limit()
            || !inflight.expects_long_replies()
    }

    /// Returns the place of the next flight that may be sent.
    fn next_waiting(&self) -> Option<u64> {
        // Recipes rely on their session, which a read-only server does not know.
        let may_be_sent = |token| !self.link.is_read_only() || self.flights.is_counted(token);
        // The timer of a flight may be late.
        let is_late = |flight: &Flight| flight.deadline.is_some_and(|at| at <= self.now);
        let mut waiting = self.flights.waiting();
        let (place, _, flight) =
            waiting.find(|(_, token, flight)| may_be_sent(*token) && !is_late(flight))?;
        (!self.must_wait(flight)).then_some(place)
    }

    /// Returns true if the flight may be sent now, provided that no other one is waiting.
    pub(super) fn may_send_flight(&self, token: Token, flight: &Flight) -> bool {
        self.may_send()
            && !self.must_wait(flight)
            && (!self.link.is_read_only() || self.flights.is_counted(token))
    }

    /// Returns true if the flight has an operation that must be sent alone, and other requests are
    /// in flight.
    fn must_wait_to_be_alone(&self, flight: &Flight) -> bool {
        let is_newer = |it: &Operation| self.link.probes.must_be_alone(it.request.op());
        self.link.inflight().len() > 0 && flight.operations.iter().any(is_newer)
    }

    /// Sends one request for a list on behalf of all parked operations.
    fn send_list(&mut self, path: ByteString, subscribers: BTreeSet<Subscriber>) {
        for Subscriber { token, .. } in subscribers {
            self.mark_sent(token);
        }
        let request = Request::GetChildren(ReadRequest { path: path.clone(), watch: false });
        self.send_internal(&request, Purpose::SharedList(path));
    }

    fn mark_sent(&mut self, token: Token) {
        self.flights.mark_sent(token, self.session_id(), self.connection);
    }

    /// Encodes the operations of a flight, except for those that must wait for a shared list.
    pub(super) fn send_flight(&mut self, token: Token, flight: Flight) {
        let owner = self.flights.owner(token).expect("a flight that is sent is open");
        let is_unknown = |it: &Operation| {
            self.support.is_unknown(it.request.op(), self.now)
                || self.is_keeper && keeper::may_lack(&it.request)
        };
        if let Some(unknown) = flight.operations.iter().find(|it| is_unknown(it)) {
            let target = unknown.target();
            self.complete_flight(token, &[], &OpError::Unsupported { target });
            return;
        }
        let checkpoint = self.link.checkpoint();
        let mut requested = vec![];
        let mut parked = vec![];
        let count = flight.operations.len();
        let mut added = vec![];
        let mut removed = vec![];
        for (index, mut operation) in flight.operations.into_iter().enumerate() {
            let shared = operation.shared_path().cloned();
            if let Some(path) = &shared {
                // A list in flight was requested before this flight was sent, so it may be too old.
                if self.flights.is_list_busy(path)
                    || requested.iter().any(|(other, _)| other == path)
                {
                    parked.push((path.clone(), Subscriber { token, index }));
                    continue;
                }
                requested.push((path.clone(), Subscriber { token, index }));
            }
            let xid = self.take_xid();
            let op = operation.request.op();
            let watch = self.prepare_watch(&mut operation, owner);
            if let Some(RequestedWatch::Persistent { sent, .. }) = watch
                && let Request::AddWatch(add) = &operation.request
            {
                added.push((add.path.clone(), sent));
            }
            if let Some(RequestedWatch::Removal(kind)) = watch
                && let Request::RemoveWatches(watches) = &operation.request
            {
                removed.push((watches.path.clone(), kind));
            }
            let end = match self.link.encode(self.config.request_limit, xid, &operation.request) {
                Ok(end) => end,
                Err(error) => {
                    let EncodeError::TooLong { length, limit } = error else {
                        unreachable!("an encoded request can only be too long: {error}")
                    };
                    // A flight is sent as a whole or not at all, so discard the part that was
                    // encoded.
                    self.link.revert(checkpoint);
                    let target = operation.target();
                    for (path, _) in added {
                        self.watches.persistent.end(&path, None);
                    }
                    let error = OpError::RequestTooLarge { length, limit, target };
                    self.complete_flight(token, &[], &error);
                    return;
                }
            };
            let purpose = match shared {
                Some(path) => Purpose::SharedList(path),
                None => Purpose::Operation { token, index, subject: Subject::of(operation), watch },
            };
            self.link.push(Pending { xid, op, purpose, sent: self.now, end });
            self.link.probes.sent(xid, op);
        }
        if self.link.probes.is_probing() {
            // A renewal waits for the reply.
            self.arm_renewal();
        }
        // Mark the flight as sent only now: until here it could still fail as a whole.
        if parked.len() < count {
            self.mark_sent(token);
        }
        for (path, sent) in added {
            self.renew_child_watches(&path, sent);
        }
        for (path, kind) in removed {
            self.renew_remaining_watches(&path, kind);
        }
        for (path, subscriber) in requested {
            self.flights.request_list(path, subscriber);
        }
        for (path, subscriber) in parked {
            self.flights.park(path, subscriber);
        }
    }

    /// Sends what has waited for the reply to a request that was in flight alone.
    pub(super) fn send_postponed(&mut self, Postponed { requests, has_ping }: Postponed) {
        if self.is_closing {
            // The close is the last request of its connection.
            return;
        }
        for request in requests {
            self.renew_watches(request);
        }
        if has_ping {
            self.ping();
        }
        self.send_auth_changes();
        self.arm_renewal();
    }

    /// Sends one of the machine's own requests, and matches its reply with the queue.
    pub(super) fn send_internal(&mut self, request: &Request, purpose: Purpose) {
        let xid = self.take_xid();
        self.link.send(self.now, xid, request, Some(purpose));
    }

    pub(super) fn send_close(&mut self) {
        self.send_internal(&Request::CloseSession, Purpose::Close);
        // A ping that reached the server after it has closed the connection would make its host reset
        // the connection, which discards a reply that has not been read yet.
        self.timers.stop(Timer::Ping);
    }

    /// Returns the next xid. It counts from 1 to `i32::MAX` and starts again at 1, because all
    /// other values are reserved.
    pub(super) fn take_xid(&mut self) -> i32 {
        let xid = self.next_xid;
        debug_assert!(xid > 0, "the others are reserved");
        self.next_xid = xid.checked_add(1).unwrap_or(1);
        self.seen.requested(self.now);
        xid
    }
}
