//! One connection: bytes that came in and bytes to go out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use jute_codec::{Frame, FrameDecoder, Record, encode_frame};

use crate::acl::Identities;
use crate::tree::Tree;

/// Bytes to write to a connection.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "all there is to say about it")]
pub struct Transmit {
    /// Where to.
    pub connection: u64,
    /// What to write; may be empty if it is the last.
    pub bytes: Bytes,
    /// Whether the connection ends behind these bytes.
    pub is_last: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// Nothing, or not enough, has arrived yet.
    Handshake,
    /// Belongs to this session.
    Session(i64),
}

/// What becomes of the reply to the request being processed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    Deliver,
    /// The connection ends after so many bytes of it.
    CutAt(usize),
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) identities: Identities,
    pub(crate) phase: Phase,
    pub(crate) fate: Fate,
    /// When it is given up unless the handshake has come.
    pub(crate) handshake_deadline: Duration,
    input: BytesMut,
    /// With the time before which they must not leave, in order.
    output: VecDeque<(Duration, BytesMut)>,
    stalled_until: Duration,
    /// Nothing that arrives before is looked at.
    paused_until: Duration,
    /// Its server has lost the leader.
    pub(crate) cut_off: Option<Isolation>,
    /// Bytes in `output`.
    unsent: usize,
    /// Nobody takes what was written before.
    is_blocked: bool,
    is_closed: bool,
    is_frozen: bool,
    /// The peer has gone, and the server has not noticed yet.
    is_left: bool,
}

/// What a server knows that has lost its leader.
#[derive(Clone, Debug)]
pub(crate) struct Isolation {
    /// When it notices.
    pub(crate) until: Duration,
    /// State at the cut.
    pub(crate) tree: Arc<Tree>,
    pub(crate) zxid: i64,
}

/// Why no frame can be taken from a connection any more.
pub(crate) struct BadLength;

impl Connection {
    pub(crate) fn new(identities: Identities, handshake_deadline: Duration) -> Self {
        Self {
            identities,
            phase: Phase::Handshake,
            fate: Fate::Deliver,
            handshake_deadline,
            input: BytesMut::new(),
            output: VecDeque::new(),
            stalled_until: Duration::ZERO,
            paused_until: Duration::ZERO,
            cut_off: None,
            unsent: 0,
            is_blocked: false,
            is_closed: false,
            is_frozen: false,
            is_left: false,
        }
    }

    pub(crate) fn session(&self) -> Option<i64> {
        match self.phase {
            Phase::Handshake => None,
            Phase::Session(session) => Some(session),
        }
    }

    /// False if nothing that arrives is looked at any more.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_closed && !self.is_frozen
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        if self.is_open() {
            self.input.extend_from_slice(bytes);
        }
    }

    /// A frame is to be taken again.
    pub(crate) fn put_back(&mut self, payload: &[u8]) {
        let rest = std::mem::take(&mut self.input);
        self.input.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(0).to_be_bytes());
        self.input.extend_from_slice(payload);
        self.input.extend_from_slice(&rest);
    }

    /// First four bytes that were not taken yet.
    pub(crate) fn peek_word(&self) -> Option<[u8; 4]> {
        self.input.first_chunk::<4>().copied()
    }

    /// Takes the next frame.
    pub(crate) fn next_frame(&mut self, limit: usize) -> Result<Option<Bytes>, BadLength> {
        if !self.is_open() {
            return Ok(None);
        }
        let Some(prefix) = self.peek_word() else { return Ok(None) };
        // Longer ones are refused before they arrive.
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

    /// The peer has gone. False if nothing that it has sent is left to be processed.
    pub(crate) fn leave(&mut self) -> bool {
        self.is_left = self.is_open() && !self.input.is_empty();
        self.is_blocked = false;
        self.output.clear();
        self.unsent = 0;
        self.is_left
    }

    /// The peer has gone, and what it had sent was processed.
    pub(crate) fn is_over(&self) -> bool {
        self.is_left && self.paused_until().is_none()
    }

    /// Queues bytes.
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

    /// More waits to leave than a server can keep.
    pub(crate) fn is_flooded(&self) -> bool {
        self.unsent > UNSENT_LIMIT
    }

    /// Nothing queued from now on leaves before `until`.
    pub(crate) fn stall(&mut self, until: Duration) {
        self.stalled_until = self.stalled_until.max(until);
    }

    /// Nothing is read or written before `until`.
    pub(crate) fn pause(&mut self, until: Duration) {
        self.paused_until = self.paused_until.max(until);
        self.stall(until);
    }

    /// When to look at what has arrived, if the connection stands still.
    pub(crate) fn paused_until(&self) -> Option<Duration> {
        (!self.paused_until.is_zero()).then_some(self.paused_until)
    }

    /// When its server notices that it has lost the leader, if it stands and runs.
    pub(crate) fn notices_at(&self) -> Option<Duration> {
        let until = self.cut_off.as_ref().filter(|_| self.is_open())?.until;
        Some(until.max(self.paused_until))
    }

    /// True once for each pause, as soon as it is over.
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

    /// Ends the connection behind what is queued; false if it has ended or is frozen.
    pub(crate) fn close(&mut self) -> bool {
        let is_closing = self.is_open();
        self.is_closed |= is_closing;
        self.input.clear();
        is_closing
    }

    /// False as long as too many replies have not left: then requests wait.
    pub(crate) fn may_process(&self) -> bool {
        !self.is_blocked && self.unsent < UNSENT_MAX
    }

    pub(crate) fn block(&mut self, is_blocked: bool) {
        self.is_blocked = is_blocked;
    }

    /// Bytes that were not looked at yet.
    pub(crate) fn unread(&self) -> usize {
        self.input.len()
    }

    /// Ends the connection behind what may leave now, even if it is frozen.
    pub(crate) fn abort(&mut self, now: Duration) {
        self.output.retain(|(due, _)| *due <= now);
        self.unsent = self.output.iter().map(|(_, queued)| queued.len()).sum();
        self.stalled_until = Duration::ZERO;
        self.paused_until = Duration::ZERO;
        self.is_frozen = false;
        self.is_closed = true;
        self.input.clear();
    }

    /// When there is something to transmit; `None` if there is nothing.
    pub(crate) fn next_transmit(&self) -> Option<Duration> {
        // One that has ended leaves with all it has.
        if self.is_blocked && !self.is_closed {
            return None;
        }
        match self.output.front() {
            Some((due, _)) => Some(*due),
            None => self.is_closed.then_some(self.stalled_until),
        }
    }

    /// When there is something else to do: the handshake is late, a pause is over, or the server of
    /// the connection notices that it has lost its leader.
    pub(crate) fn next_chore(&self) -> Option<Duration> {
        let handshake = self.awaits_handshake().then_some(self.handshake_deadline);
        handshake.into_iter().chain(self.paused_until()).chain(self.notices_at()).min()
    }

    pub(crate) fn awaits_handshake(&self) -> bool {
        self.is_open() && self.session().is_none()
    }

    /// Takes what may leave now, and whether it is the last.
    pub(crate) fn transmit(&mut self, now: Duration) -> Option<(Bytes, bool)> {
        if self.next_transmit()? > now {
            return None;
        }
        let mut bytes = BytesMut::new();
        while self.output.front().is_some_and(|(due, _)| *due <= now) {
            let (_, queued) = self.output.pop_front().expect("there is a first one");
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

/// A frame; `None` if it would be longer than a frame can be.
pub(crate) fn frame(write: impl FnOnce(&mut BytesMut)) -> Option<Bytes> {
    let mut out = BytesMut::new();
    encode_frame(&mut out, usize::MAX, write).ok()?;
    Some(out.freeze())
}

/// A frame with two records.
pub(crate) fn frame_of(first: &impl Record, second: &impl Record) -> Option<Bytes> {
    frame(|out| {
        first.encode(out);
        second.encode(out);
    })
}

/// At most the first `length` bytes.
pub(crate) fn head(mut bytes: Bytes, length: usize) -> Bytes {
    if length < bytes.remaining() {
        bytes.truncate(length);
    }
    bytes
}

/// How many bytes of replies and events of one connection wait to be taken before requests wait,
/// too.
pub(crate) const UNSENT_MAX: usize = 4 << 20;

/// How many bytes may wait in all. Requests have to wait long before; events of persistent watches
/// do not.
const UNSENT_LIMIT: usize = 64 << 20;
