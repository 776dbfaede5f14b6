//! The link: everything that belongs to one connection.
//!
//! When a connection ends, the machine replaces its [`Link`] as a whole, so nothing of one
//! connection can reach the next one by mistake. A new field needs no line in any reset. What
//! survives a connection, such as the session, its watches and its lease, is in other fields of the
//! machine.
//!
//! The link of the next connection exists from the moment the last one has ended. Until a transport
//! is open, it has no bytes and no requests.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::BytesMut;
use jute_codec::{
    ConnectRequest, ConnectResponse, EncodeError, Frame, FrameDecoder, FrameError, Record, Request,
    RequestHeader, encode_frame, xid,
};

use super::renewal_pace::RenewalPace;
use crate::error::Outcome;
use crate::machine::cause::DisconnectCause;
use crate::machine::downlink::EXPECTED_MAX;
use crate::machine::heartbeat::Heartbeat;
use crate::machine::inflight::{INFLIGHT_MAX, Inflight, Pending, Purpose};
use crate::machine::status::SessionState;
use crate::machine::support::Probes;
use crate::time::Time;

/// How long a connection must last to be proven. This time is shorter than the time that it takes
/// to notice a lost connection, and much longer than a handshake and restoring watches take.
const PROVEN_AFTER: Duration = Duration::from_secs(5);

/// Limit on the bytes that the transport has not accepted yet; above it, requests wait. On a slow
/// link, pings and renewals wait behind these bytes.
const BACKLOG_MAX: u64 = 64 * 1024;

/// The state of the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::machine) enum Phase {
    /// There is no connection. A timer determines when to try the next server.
    Idle,
    /// A transport is being opened.
    Connecting,
    /// The ConnectRequest was sent at this time.
    Handshaking(Time),
    /// The client authenticates with SASL, and has sent this many messages.
    Sasl(u32),
    /// The connection is used to close an earlier session, which had been given up.
    ClosingStale,
    /// This many auth packets have no reply yet.
    Authenticating(usize),
    /// Requests can be sent.
    Established,
    /// The machine has stopped permanently.
    Stopped(SessionState),
}

/// What the handshake of a connection presents to the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Opening {
    /// The session that was given up, or the current one. If there is neither, it requests a new
    /// session.
    Regular,
    /// No session, although the client has one: the same server did not resume it, as read-only
    /// servers do not. It hung up, or did not know the session.
    Anonymous,
    /// No session, because the same server says that the session has expired. It is asked for a new
    /// session, to authenticate there. Only then is the session over.
    ExpiryUnproven,
}

/// The state of a connection to a read-only server.
#[derive(Clone, Debug)]
pub(super) struct ReadOnly {
    /// Timeout of the session that the server granted.
    pub(super) timeout: Duration,
    /// Pause before the next search for a server that accepts writes.
    pub(super) pause: Duration,
}

/// A connection, from the pause before it is opened until its end.
pub(in crate::machine) struct Link {
    pub(in crate::machine) phase: Phase,
    opening: Opening,
    /// Encoded bytes that the driver has not taken.
    out: BytesMut,
    frames: FrameDecoder,
    inflight: Inflight,
    heartbeat: Heartbeat,
    pub(super) probes: Probes,
    /// The server is read-only.
    pub(super) read_only: Option<ReadOnly>,
    /// The reply to the handshake, and when its request was sent. It counts once the server has
    /// authenticated.
    pub(super) unproven: Option<(ConnectResponse, Time)>,
    /// The session was opened on this connection.
    pub(super) is_new_session: bool,
    /// Flights wait for the reply that shows whether the chroot exists.
    pub(super) is_seeking_chroot: bool,
    pub(super) pace: RenewalPace,
    /// Number of batches of watches that were sent and have no reply yet.
    batches_missing: usize,
    /// Paths of persistent watches that no stream wants, and that the connection was too busy to
    /// remove; at most one for each watch that the server holds.
    pub(super) surplus: BTreeSet<Box<str>>,
    /// When all watches were in place.
    ready_at: Option<Time>,
    /// When the connection starts to count as proven.
    proven_from: Option<Time>,
    /// The server has refused an operation as unknown, and the client had not known that it would.
    pub(super) has_taught: bool,
    /// Why the client leaves the connection once no reply is pending.
    leaving: Option<DisconnectCause>,
}

impl Link {
    /// Creates the link of the first connection.
    pub(super) fn first(now: Time, response_limit: usize) -> Self {
        Self::new(now, response_limit, Opening::Regular, Inflight::default())
    }

    /// Replaces this link by the one of the next connection, and returns it.
    pub(super) fn end(&mut self, now: Time, response_limit: usize, opening: Opening) -> Self {
        let next = Self::new(now, response_limit, opening, self.inflight.next_connection());
        std::mem::replace(self, next)
    }

    fn new(now: Time, response_limit: usize, opening: Opening, inflight: Inflight) -> Self {
        Self {
            phase: Phase::Idle,
            opening,
            out: BytesMut::new(),
            frames: FrameDecoder::new(response_limit),
            inflight,
            heartbeat: Heartbeat::new(now),
            probes: Probes::default(),
            read_only: None,
            unproven: None,
            is_new_session: false,
            is_seeking_chroot: false,
            pace: RenewalPace::default(),
            batches_missing: 0,
            surplus: BTreeSet::new(),
            ready_at: None,
            proven_from: None,
            has_taught: false,
            leaving: None,
        }
    }

    /// Lets the handshake present the session, to a server that was not asked before.
    pub(super) fn open_regularly(&mut self) {
        self.opening = Opening::Regular;
    }

    /// Returns what the handshake presents.
    pub(super) fn opening(&self) -> Opening {
        self.opening
    }

    /// Returns true if the server is read-only.
    pub(super) fn is_read_only(&self) -> bool {
        self.read_only.is_some()
    }

    /// Returns the requests in flight.
    pub(in crate::machine) fn inflight(&self) -> &Inflight {
        &self.inflight
    }

    /// Takes the requests in flight at the end of the connection, oldest first, with what is known
    /// about the effect of each.
    pub(super) fn into_lost(self) -> impl Iterator<Item = (Pending, Outcome)> {
        self.inflight.fail()
    }

    /// Starts the handshake on a transport that has been opened.
    pub(super) fn greet(&mut self, now: Time, request: &ConnectRequest) {
        assert_eq!(self.phase, Phase::Connecting, "the machine requested no connection");
        self.phase = Phase::Handshaking(now);
        self.heartbeat = Heartbeat::new(now);
        let before = self.out.len();
        encode_frame(&mut self.out, usize::MAX, |out| request.encode(out))
            .expect("a handshake is shorter than any limit");
        self.inflight.produce(self.out.len() - before);
    }

    /// Returns true if the connection accepts another request of a flight.
    pub(super) fn may_send(&self) -> bool {
        self.phase == Phase::Established
            && !self.probes.is_probing()
            && self.leaving.is_none()
            && !self.is_seeking_chroot
            && self.inflight.len() < INFLIGHT_MAX
            && self.inflight.backlog() < BACKLOG_MAX
            && self.inflight.expected_bytes() < EXPECTED_MAX
    }

    /// Encodes a request, which must not be longer than `limit`. Returns the number of bytes of the
    /// connection up to and including its last one.
    pub(super) fn encode(
        &mut self,
        limit: usize,
        xid: i32,
        request: &Request,
    ) -> Result<u64, EncodeError> {
        let before = self.out.len();
        encode_frame(&mut self.out, limit, |out| {
            RequestHeader { xid, op: request.op() }.encode(out);
            request.encode(out);
        })?;
        Ok(self.inflight.produce(self.out.len() - before))
    }

    /// Appends an encoded request to those in flight.
    pub(super) fn push(&mut self, pending: Pending) {
        self.inflight.push(pending);
    }

    /// Sends one of the machine's own requests. Pings and auth packets have no `Purpose`: their
    /// replies are recognized by reserved xids and not matched with the queue.
    pub(super) fn send(&mut self, now: Time, xid: i32, request: &Request, of: Option<Purpose>) {
        debug_assert!(
            !self.probes.is_probing() || matches!(request, Request::Ping | Request::CloseSession),
            "it waits for the reply to the request that is in flight alone"
        );
        let end = self.encode(usize::MAX, xid, request).expect("only a limit of i32::MAX applies");
        if let Some(purpose) = of {
            self.inflight.push(Pending { xid, op: request.op(), purpose, sent: now, end });
        }
    }

    /// Sends a ping.
    pub(super) fn ping(&mut self, now: Time) {
        self.send(now, xid::PING, &Request::Ping, None);
        self.heartbeat.ping_encoded(now, self.inflight.len(), self.inflight.produced());
    }

    /// Returns a checkpoint for [`revert`](Self::revert).
    pub(super) fn checkpoint(&self) -> Checkpoint {
        debug_assert!(!self.probes.is_probing(), "no flight is sent beside such a request");
        Checkpoint { out: self.out.len(), inflight: self.inflight.checkpoint() }
    }

    /// Discards the requests encoded since the checkpoint. The driver must not have taken any of
    /// their bytes.
    pub(super) fn revert(&mut self, checkpoint: Checkpoint) {
        self.out.truncate(checkpoint.out);
        self.inflight.revert(checkpoint.inflight);
        self.probes.revert();
    }

    /// Appends the bytes to send, if any.
    pub(super) fn take_bytes(&mut self, into: &mut BytesMut) {
        if into.is_empty() {
            // Two buffers alternate: one is filled while the other is written.
            into.clear();
            std::mem::swap(into, &mut self.out);
        } else {
            into.extend_from_slice(&self.out);
            self.out.clear();
        }
    }

    /// Records that the transport has accepted bytes. Returns true if this moves
    /// [`overdue_since`](Self::overdue_since).
    pub(super) fn transmitted(&mut self, now: Time, bytes: usize) -> bool {
        self.inflight.transmit(now, bytes);
        self.heartbeat.transmitted(now, bytes)
    }

    /// Records that the transport has no room for more bytes.
    pub(super) fn blocked(&mut self) {
        self.heartbeat.blocked();
    }

    /// Sets the maximum length of a frame. The machine calls this between two frames.
    pub(super) fn limit_frames(&mut self, limit: usize) {
        self.frames = FrameDecoder::new(limit);
    }

    /// Takes the next frame from received bytes.
    pub(super) fn next_frame(&mut self, bytes: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        self.frames.next(bytes)
    }

    /// Returns the number of bytes that the next frame misses.
    pub(super) fn missing(&self, bytes: &BytesMut) -> usize {
        self.frames.missing(bytes)
    }

    /// Returns the number of bytes to skip before the next frame.
    pub(super) fn skipping(&self) -> usize {
        self.frames.skipping()
    }

    /// Records that bytes have arrived.
    pub(super) fn received(&mut self, now: Time) {
        self.heartbeat.received(now);
    }

    /// Records that a frame was taken from the received bytes.
    pub(super) fn frame_finished(&mut self, now: Time) {
        self.heartbeat.frame_finished(now);
    }

    /// Records that the received bytes end with a part of a frame. It counts as progress if it
    /// belongs to the next reply.
    pub(super) fn part_received(&mut self, now: Time, bytes: &BytesMut) {
        let skipped = self.frames.skipping();
        let xid = bytes.get(4..).and_then(|payload| payload.first_chunk()).copied();
        if skipped > 0 {
            // The original length does not matter here, so the number of bytes left to skip
            // replaces it.
            self.heartbeat.part_received(now, true, skipped, skipped);
        } else if xid.is_some() && xid.map(i32::from_be_bytes) == self.inflight.next_xid() {
            let missing = self.frames.missing(bytes);
            self.heartbeat.part_received(now, false, missing + bytes.len(), missing);
        } else {
            self.heartbeat.frame_finished(now);
        }
    }

    /// Takes the request that a reply with this xid and length completes. Returns `None` if the
    /// reply does not belong to the oldest request.
    pub(super) fn complete(&mut self, now: Time, xid: i32, length: usize) -> Option<Pending> {
        let pending = self.inflight.complete(xid, length)?;
        self.heartbeat.request_completed(now);
        Some(pending)
    }

    /// Takes the request with this xid after a reply out of turn. Returns `None` if no request that
    /// was sent has this xid.
    pub(super) fn take(&mut self, xid: i32) -> Option<Pending> {
        self.inflight.take(xid)
    }

    /// Records the reply to the oldest ping. Returns the time at which that ping was sent.
    pub(super) fn ping_completed(&mut self) -> Option<Time> {
        self.heartbeat.ping_completed()
    }

    /// Returns when the last bytes arrived, or the last progress in sending.
    pub(super) fn last_moved(&self) -> Time {
        self.heartbeat.last_moved()
    }

    /// Returns the time since which the peer has owed bytes.
    pub(super) fn overdue_since(&self) -> Time {
        self.heartbeat.overdue_since()
    }

    /// Records that this many batches of watches were sent. Returns true if all watches are in
    /// place, because there were none.
    pub(super) fn restoring(&mut self, now: Time, batches: usize) -> bool {
        self.batches_missing = batches;
        self.is_restored(now)
    }

    /// Records that the server has restored a batch of watches. Returns true if all are in place.
    pub(super) fn batch_restored(&mut self, now: Time) -> bool {
        self.batches_missing -= 1;
        self.is_restored(now)
    }

    fn is_restored(&mut self, now: Time) -> bool {
        let is_restored = self.batches_missing == 0;
        if is_restored {
            self.ready_at = Some(now);
        }
        is_restored
    }

    /// Records that a request sent at `sent` was acknowledged. Returns true if all watches were in
    /// place by then. The connection is proven a while after that.
    pub(super) fn acknowledged(&mut self, sent: Time) -> bool {
        let Some(ready) = self.ready_at.filter(|ready| *ready <= sent) else { return false };
        self.proven_from.get_or_insert(ready + PROVEN_AFTER);
        true
    }

    /// Returns true if the connection is proven: its watches are in place, a request sent after that
    /// was acknowledged, and it has lasted for a while. A faulty server that clients should avoid
    /// may fulfil any weaker condition.
    pub(super) fn is_proven(&self, now: Time) -> bool {
        self.proven_from.is_some_and(|from| from <= now)
    }

    /// Records that the client leaves the connection for this reason once no reply is pending.
    /// Until then no request is sent.
    pub(super) fn leave(&mut self, cause: DisconnectCause) {
        self.leaving = Some(cause);
    }

    /// Takes the reason to leave the connection, if there is one and no reply is pending.
    pub(super) fn take_departure(&mut self) -> Option<DisconnectCause> {
        if self.inflight.len() > 0 {
            return None;
        }
        self.leaving.take()
    }
}

/// The length of the encoded bytes and of the queue in flight at some point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checkpoint {
    out: usize,
    inflight: (usize, u64),
}
