//! One connection: its input and output buffers, and the state of faults on it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use jute_codec::{ErrorCode, Frame, FrameDecoder, Record, SessionId, Zxid, encode_frame};

use crate::acl::Identities;
use crate::digest_md5::Exchange;
use crate::tree::Tree;

/// Bytes to write to a connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Transmit {
    /// The connection to write to.
    pub connection: u64,
    /// The bytes to write; may be empty if `is_last` is set.
    pub bytes: Bytes,
    /// Whether to close the connection after these bytes.
    pub is_last: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// The handshake has not arrived completely.
    Handshake,
    /// The connection belongs to this session.
    Session(SessionId),
}

/// What happens to the reply to the request being processed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    Deliver,
    /// Only this many bytes of it are sent; then the connection is closed.
    CutAt(usize),
    /// It is not sent, and the connection stays open.
    Withhold,
    /// This error is sent instead of the result.
    Fail(ErrorCode),
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) identities: Identities,
    pub(crate) sasl: Exchange,
    pub(crate) phase: Phase,
    /// The member of the ensemble to which the client is connected.
    pub(crate) member: usize,
    pub(crate) fate: Fate,
    /// When the server closes the connection if no handshake has arrived.
    pub(crate) handshake_deadline: Duration,
    input: BytesMut,
    /// Queued bytes in order, each part with the time before which it must not be sent.
    output: VecDeque<(Duration, BytesMut)>,
    stalled_until: Duration,
    /// Input is not processed before this time; zero if the connection is not paused.
    paused_until: Duration,
    /// The first request of the input has waited, as the server makes all requests wait.
    pub(crate) has_waited: bool,
    /// Set once the server of this connection has lost its leader.
    pub(crate) cut_off: Option<Isolation>,
    /// Number of bytes in `output`.
    unsent: usize,
    /// The peer does not read the bytes that were transmitted before.
    is_blocked: bool,
    is_closed: bool,
    is_frozen: bool,
    /// The peer has disconnected, but the server has not noticed yet.
    is_left: bool,
}

/// The state of a server that has lost its leader.
#[derive(Clone, Debug)]
pub(crate) struct Isolation {
    /// When the server notices the loss.
    pub(crate) until: Duration,
    /// The tree at the time of the loss.
    pub(crate) tree: Arc<Tree>,
    pub(crate) zxid: Zxid,
}

/// A length prefix that is out of range: the connection must be closed.
pub(crate) struct BadLength;

impl Connection {
    pub(crate) fn new(identities: Identities, handshake_deadline: Duration, member: usize) -> Self {
        Self {
            identities,
            sasl: Exchange::New,
            phase: Phase::Handshake,
            member,
            fate: Fate::Deliver,
            handshake_deadline,
            input: BytesMut::new(),
            output: VecDeque::new(),
            stalled_until: Duration::ZERO,
            paused_until: Duration::ZERO,
            has_waited: false,
            cut_off: None,
            unsent: 0,
            is_blocked: false,
            is_closed: false,
            is_frozen: false,
            is_left: false,
        }
    }

    pub(crate) fn session(&self) -> Option<SessionId> {
        match self.phase {
            Phase::Handshake => None,
            Phase::Session(session) => Some(session),
        }
    }

    /// Returns whether input is still processed.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_closed && !self.is_frozen
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        if self.is_open() {
            self.input.extend_from_slice(bytes);
        }
    }

    /// Puts a frame back in front of the input, so that it is processed again.
    pub(crate) fn put_back(&mut self, payload: &[u8]) {
        let rest = std::mem::take(&mut self.input);
        self.input.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(0).to_be_bytes());
        self.input.extend_from_slice(payload);
        self.input.extend_from_slice(&rest);
    }

    /// Returns the first four bytes of the input without taking them.
    pub(crate) fn peek_word(&self) -> Option<[u8; 4]> {
        self.input.first_chunk::<4>().copied()
    }

    /// Takes the next frame.
    pub(crate) fn next_frame(&mut self, limit: usize) -> Result<Option<Bytes>, BadLength> {
        if !self.is_open() {
            return Ok(None);
        }
        let Some(prefix) = self.peek_word() else { return Ok(None) };
        // Refuse a frame that is too long even before it has arrived.
        if !usize::try_from(i32::from_be_bytes(prefix))
            .is_ok_and(|length| (1..=limit).contains(&length))
        {
            return Err(BadLength);
        }
        match FrameDecoder::new(limit).next(&mut self.input) {
            Ok(Some(Frame::Complete(payload))) => Ok(Some(payload)),
            Ok(None) => Ok(None),
            Ok(Some(Frame::Oversized { .. })) | Err(_) => Err(BadLength),
        }
    }

    /// Records that the peer has disconnected. Returns whether input remains to be processed.
    pub(crate) fn leave(&mut self) -> bool {
        self.is_left = self.is_open() && !self.input.is_empty();
        self.is_blocked = false;
        self.output.clear();
        self.unsent = 0;
        self.is_left
    }

    /// Returns whether the peer has disconnected and all its input has been processed.
    pub(crate) fn is_over(&self) -> bool {
        self.is_left && self.paused_until().is_none()
    }

    /// Enqueues bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        if !self.is_open() || self.is_left {
            return;
        }
        self.unsent += bytes.len();
        match self.output.back_mut() {
            Some((due, queued)) if *due == self.stalled_until => queued.extend_from_slice(bytes),
            _ => self.output.push_back((self.stalled_until, BytesMut::from(bytes))),
        }
    }

    /// Returns whether too many bytes are queued.
    pub(crate) fn is_flooded(&self) -> bool {
        self.unsent > FLOOD_LIMIT
    }

    /// Delays all bytes enqueued from now on until `until`.
    pub(crate) fn stall(&mut self, until: Duration) {
        self.stalled_until = self.stalled_until.max(until);
    }

    /// Stops processing input and sending output until `until`.
    pub(crate) fn pause(&mut self, until: Duration) {
        self.paused_until = self.paused_until.max(until);
        self.stall(until);
    }

    /// Returns when processing input resumes, if the connection is paused.
    pub(crate) fn paused_until(&self) -> Option<Duration> {
        (!self.paused_until.is_zero()).then_some(self.paused_until)
    }

    /// Returns when the server of this connection notices that it has lost its leader. A paused
    /// server notices after the pause.
    pub(crate) fn notices_at(&self) -> Option<Duration> {
        let until = self.cut_off.as_ref().filter(|_| self.is_open())?.until;
        Some(until.max(self.paused_until))
    }

    /// Ends a pause that is over. Returns true once for each pause.
    pub(crate) fn wake(&mut self, now: Duration) -> bool {
        let is_over = self.paused_until().is_some_and(|until| until <= now);
        if is_over {
            self.paused_until = Duration::ZERO;
        }
        is_over
    }

    pub(crate) fn freeze(&mut self) {
        self.is_frozen = true;
        self.input.clear();
    }

    /// Closes the connection after the queued bytes. Returns false if it is already closed, or
    /// frozen.
    pub(crate) fn close(&mut self) -> bool {
        let is_closing = self.is_open();
        self.is_closed |= is_closing;
        self.input.clear();
        is_closing
    }

    /// Returns whether requests may be processed. They wait while the peer does not read its
    /// replies.
    pub(crate) fn can_process(&self) -> bool {
        !self.is_blocked && self.unsent < UNSENT_MAX
    }

    pub(crate) fn block(&mut self, is_blocked: bool) {
        self.is_blocked = is_blocked;
    }

    /// Returns how many bytes of input wait to be processed.
    pub(crate) fn unread(&self) -> usize {
        self.input.len()
    }

    /// Closes the connection after the bytes that may be sent now, even if it is frozen.
    pub(crate) fn abort(&mut self, now: Duration) {
        self.output.retain(|(due, _)| *due <= now);
        self.unsent = self.output.iter().map(|(_, queued)| queued.len()).sum();
        self.stalled_until = Duration::ZERO;
        self.paused_until = Duration::ZERO;
        self.is_frozen = false;
        self.is_closed = true;
        self.input.clear();
    }

    /// Returns when there is something to transmit.
    pub(crate) fn next_transmit(&self) -> Option<Duration> {
        // A closed connection flushes its output even if the peer does not read.
        if self.is_blocked && !self.is_closed {
            return None;
        }
        match self.output.front() {
            Some((due, _)) => Some(*due),
            None => self.is_closed.then_some(self.stalled_until),
        }
    }

    /// Returns when there is something else to do: the handshake is overdue, a pause ends, or the
    /// server of the connection notices that it has lost its leader.
    pub(crate) fn next_chore(&self) -> Option<Duration> {
        let handshake = self.awaits_handshake().then_some(self.handshake_deadline);
        handshake.into_iter().chain(self.paused_until()).chain(self.notices_at()).min()
    }

    pub(crate) fn awaits_handshake(&self) -> bool {
        self.is_open() && self.session().is_none()
    }

    /// Takes the bytes that may be sent now. The flag says whether they are the last.
    pub(crate) fn transmit(&mut self, now: Duration) -> Option<(Bytes, bool)> {
        if self.next_transmit()? > now {
            return None;
        }
        let mut bytes = BytesMut::new();
        while self.output.front().is_some_and(|(due, _)| *due <= now) {
            let (_, queued) = self.output.pop_front().expect("the loop condition found an element");
            self.unsent -= queued.len();
            if bytes.is_empty() {
                bytes = queued;
            } else {
                bytes.extend_from_slice(&queued);
            }
        }
        let is_last = self.is_closed && self.output.is_empty() && self.stalled_until <= now;
        Some((bytes.freeze(), is_last))
    }
}

/// Encodes a frame. Returns `None` if it would be too long for a frame.
pub(crate) fn frame(write: impl FnOnce(&mut BytesMut)) -> Option<Bytes> {
    let mut out = BytesMut::new();
    encode_frame(&mut out, usize::MAX, write).ok()?;
    Some(out.freeze())
}

/// Encodes a frame with two records.
pub(crate) fn frame_of(first: &impl Record, second: &impl Record) -> Option<Bytes> {
    frame(|out| {
        first.encode(out);
        second.encode(out);
    })
}

/// Truncates bytes to at most `length`.
pub(crate) fn head(mut bytes: Bytes, length: usize) -> Bytes {
    if length < bytes.remaining() {
        bytes.truncate(length);
    }
    bytes
}

/// With more unsent bytes than this, a connection processes no further requests.
pub(crate) const UNSENT_MAX: usize = 4 << 20;

/// With more unsent bytes than this, a connection is closed. Requests stop at [`UNSENT_MAX`], but
/// events of persistent watches are still enqueued.
const FLOOD_LIMIT: usize = 64 << 20;
