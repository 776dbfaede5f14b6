//! Counts what a client sends and receives, and limits it.
//!
//! A client that spins never lets virtual time pass, so no other task could observe it. So the
//! stream itself counts, and panics in the task of a client that sends more than its [`Pace`]
//! allows.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use jute_codec::{OpCode, xid};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Number of requests that a client may send, without pings and handshakes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "tests write it as a literal")]
pub struct Pace {
    /// Within each second since its first connection.
    pub per_second: usize,
    /// Within each minute since its first connection.
    pub per_minute: usize,
}

impl Pace {
    /// Pace of a client with a few operations at a time. It is enough for every cut and every pair
    /// of cuts of the enumeration, and for a cut every 100 ms.
    pub const CALM: Self = Self { per_second: 60, per_minute: 200 };

    /// Returns the pace of a client with this many acquires and releases at a time.
    pub const fn of(waits: usize) -> Self {
        let Self { per_second, per_minute } = Self::CALM;
        Self { per_second: per_second * waits, per_minute: per_minute * waits }
    }

    /// Returns the pace of a client that also sends this many other requests at once.
    #[must_use]
    pub const fn beside(self, requests: usize) -> Self {
        Self { per_second: self.per_second + requests, per_minute: self.per_minute + requests }
    }
}

/// Counts up to a moment, or between two moments.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "a view of the counts")]
pub struct Counted {
    /// Requests that were sent, without pings and handshakes.
    pub requests: u64,
    /// Bytes that the client has sent.
    pub sent: u64,
    /// Bytes that the client has received.
    pub received: u64,
    /// Received bytes that belong to lists of children.
    pub listed: u64,
}

impl Counted {
    /// Returns the number of bytes in both directions.
    pub fn bytes(self) -> u64 {
        self.sent + self.received
    }

    /// Returns the counts since an earlier moment.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            sent: self.sent - before.sent,
            received: self.received - before.received,
            listed: self.listed - before.listed,
        }
    }
}

/// Counts the traffic of one client, and adds it to a total that clients share.
#[derive(Clone, Debug)]
pub struct Meter {
    pace: Option<Pace>,
    own: Arc<Mutex<Own>>,
    total: Total,
}

/// Total of the counts of several clients.
#[derive(Clone, Debug, Default)]
pub struct Total(Arc<Mutex<Counted>>);

#[derive(Debug)]
struct Own {
    start: Option<Instant>,
    counted: Counted,
    /// The second and the minute to which the counts belong.
    second: u64,
    in_second: usize,
    in_minute: usize,
    /// The requests of the minute, to explain a failure.
    ops: BTreeMap<i32, usize>,
}

impl Total {
    /// Returns the counts so far.
    pub fn counted(&self) -> Counted {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, change: impl FnOnce(&mut Counted)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Meter {
    /// Creates a meter that panics in the task of a client that exceeds this pace.
    pub fn new(pace: impl Into<Option<Pace>>, total: Total) -> Self {
        let own = Own {
            start: None,
            counted: Counted::default(),
            second: 0,
            in_second: 0,
            in_minute: 0,
            ops: BTreeMap::new(),
        };
        Self { pace: pace.into(), own: Arc::new(Mutex::new(own)), total }
    }

    /// Returns the counts of this client so far.
    pub fn counted(&self) -> Counted {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).counted
    }

    /// Wraps a stream, to count its traffic.
    pub fn stream<S>(&self, stream: S) -> Metered<S> {
        Metered {
            stream,
            meter: self.clone(),
            requests: Frames::default(),
            replies: Frames::default(),
            unanswered: VecDeque::new(),
        }
    }

    fn add(&self, change: impl Fn(&mut Counted)) {
        change(&mut self.own.lock().unwrap_or_else(PoisonError::into_inner).counted);
        self.total.add(change);
    }

    /// Counts requests that were sent together. Fails if they exceed the pace.
    fn sent(&self, bytes: usize, requests: &[i32]) -> Result<(), String> {
        self.add(|counted| {
            counted.sent += bytes as u64;
            counted.requests += requests.len() as u64;
        });
        let Some(pace) = self.pace else { return Ok(()) };
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.count(requests);
        if own.in_second <= pace.per_second && own.in_minute <= pace.per_minute {
            return Ok(());
        }
        let (second, minute) = (own.in_second, own.in_minute);
        let ops: Vec<_> = own.ops.iter().map(|(op, count)| (OpCode(*op), *count)).collect();
        Err(format!(
            "a client spins: {second} requests within a second, {minute} within a minute, allowed \
             are {pace:?}; in this minute: {ops:?}"
        ))
    }
}

impl Own {
    fn count(&mut self, requests: &[i32]) {
        #[expect(clippy::disallowed_methods, reason = "the pace is one of the client's time")]
        let now = Instant::now();
        let second = (now - *self.start.get_or_insert(now)).as_secs();
        if second != self.second {
            self.in_second = 0;
        }
        if second / 60 != self.second / 60 {
            self.in_minute = 0;
            self.ops.clear();
        }
        self.second = second;
        self.in_second += requests.len();
        self.in_minute += requests.len();
        for op in requests {
            *self.ops.entry(*op).or_default() += 1;
        }
    }
}

/// A stream with counted bytes and requests; see [`Meter::stream`].
#[derive(Debug)]
pub struct Metered<S> {
    stream: S,
    meter: Meter,
    requests: Frames<REQUEST_HEAD>,
    replies: Frames<REPLY_HEAD>,
    /// Opcodes of the pending requests except pings, in the order in which replies arrive.
    unanswered: VecDeque<i32>,
}

/// Length, xid and opcode of a request.
const REQUEST_HEAD: usize = 12;
/// Length and xid of a reply.
const REPLY_HEAD: usize = 8;

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let new = buffer.filled().get(before..).unwrap_or_default();
        if new.is_empty() {
            return read;
        }
        let mut listed = 0;
        for (length, xid) in self.replies.take(new) {
            if matches!(xid, xid::NOTIFICATION | xid::PING | xid::AUTH) {
                continue;
            }
            let op = self.unanswered.pop_front().map(OpCode);
            if matches!(op, Some(OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2)) {
                listed += length;
            }
        }
        self.meter.add(|counted| {
            counted.received += new.len() as u64;
            counted.listed += listed as u64;
        });
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(length)) = written {
            let requests = self.requests.take(bytes.get(..length).unwrap_or(bytes));
            let ops: Vec<_> = requests
                .into_iter()
                .map(|(_, op)| op)
                .filter(|op| !matches!(OpCode(*op), OpCode::PING | OpCode::AUTH))
                .collect();
            self.unanswered.extend(&ops);
            let sent = self.meter.sent(length, &ops);
            sent.unwrap_or_else(|excess| panic!("{excess}"));
        }
        written
    }

    crate::flush_and_shut_down_through!(stream);
}

/// Finds the frames in the bytes of one direction of a connection. Each frame begins with its
/// length. The first frame is the handshake, which does not count.
#[derive(Debug, Default)]
struct Frames<const HEAD: usize> {
    /// First bytes of the current frame.
    head: Vec<u8>,
    /// Number of bytes of the frame that follow the head and have not arrived yet.
    left: usize,
    has_greeted: bool,
}

impl<const HEAD: usize> Frames<HEAD> {
    const LENGTH: usize = 4;

    /// Returns the frames whose head ends in these bytes: their length, and the last number of the
    /// head. No frame is shorter than its head.
    fn take(&mut self, mut bytes: &[u8]) -> Vec<(usize, i32)> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len());
                self.left -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            let taken = (HEAD - self.head.len()).min(bytes.len());
            let (head, rest) = bytes.split_at(taken);
            self.head.extend(head);
            bytes = rest;
            if self.head.len() < HEAD {
                continue;
            }
            let length =
                Self::LENGTH + usize::try_from(self.number(0)).expect("a length is not negative");
            let last = self.number(HEAD - Self::LENGTH);
            self.left = length.saturating_sub(HEAD);
            self.head.clear();
            if std::mem::replace(&mut self.has_greeted, true) {
                frames.push((length, last));
            }
        }
        frames
    }

    fn number(&self, at: usize) -> i32 {
        let bytes = self.head.get(at..at + Self::LENGTH).and_then(|bytes| bytes.try_into().ok());
        i32::from_be_bytes(bytes.expect("the head is complete"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Frames, Meter, Pace, REQUEST_HEAD, Total};

    fn frame(op: i32, body: usize) -> Vec<u8> {
        let length = i32::try_from(8 + body).unwrap();
        let mut frame = [length.to_be_bytes(), 7_i32.to_be_bytes(), op.to_be_bytes()].concat();
        frame.extend(vec![0; body]);
        frame
    }

    #[test]
    fn requests_are_found_however_the_bytes_are_cut() {
        // A handshake, a list, a ping and a close, which has no body.
        let bytes = [frame(0, 36), frame(8, 20), frame(11, 0), frame(-11, 0)].concat();
        for length in 1..=bytes.len() {
            let mut frames = Frames::<REQUEST_HEAD>::default();
            let found: Vec<_> = bytes.chunks(length).flat_map(|chunk| frames.take(chunk)).collect();
            assert_eq!(found, [(32, 8), (12, 11), (12, -11)], "in pieces of {length}");
        }
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    async fn a_pace_is_one_of_each_second_and_of_each_minute() {
        let meter = Meter::new(Pace { per_second: 3, per_minute: 7 }, Total::default());
        for _ in 0..2 {
            meter.sent(30, &[8, 8, 8]).unwrap();
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        meter.sent(10, &[8]).unwrap();
        let told = meter.sent(10, &[8]).unwrap_err();
        assert!(told.contains("spins: 2 requests within a second, 8 within a minute"), "{told}");
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        meter.sent(30, &[8, 8, 8]).unwrap();
        assert_eq!((meter.counted().requests, meter.counted().sent), (11, 110));
        // The fourth request within a second is too much, although the minute allows it.
        let told = meter.sent(10, &[8]).unwrap_err();
        assert!(told.contains("spins: 4 requests within a second, 4 within a minute"), "{told}");
    }
}
