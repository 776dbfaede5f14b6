//! The replay of one capture to a fresh server.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jute_codec::{Frame, FrameDecoder};
use zk_tests::capture::{Conversation, Entry, Message, Side};
use zk_testserver::{Order, Server, ServerConfig};

use super::names::{Names, sort};

/// The tick in the configuration that `.ci/zookeeper` writes.
const TICK: Duration = Duration::from_millis(500);

/// A difference at a line of a capture.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) line: usize,
    pub(crate) what: String,
}

/// Numbers of compared messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) connections: usize,
    pub(crate) requests: usize,
    pub(crate) replies: usize,
    pub(crate) events: usize,
    pub(crate) ends: usize,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.requests += other.requests;
        self.replies += other.replies;
        self.events += other.events;
        self.ends += other.ends;
    }

    pub(crate) fn is_at_least(&self, other: &Self) -> bool {
        self.connections >= other.connections
            && self.requests >= other.requests
            && self.replies >= other.replies
            && self.events >= other.events
            && self.ends >= other.ends
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connections, requests, replies, events, ends } = self;
        write!(f, "{connections} connections, {requests} requests, {replies} replies, ")?;
        write!(f, "{events} events, {ends} ends of connections")
    }
}

/// Replays a whole capture.
pub(crate) fn play(entries: &[(usize, Entry)]) -> (Counts, Vec<Difference>) {
    // The captures contain few recorded identities, which happen to be sorted.
    let config = ServerConfig::default().tick(TICK).extended_types(true).order(Order::Sorted);
    let mut player = Player {
        server: Server::new(config),
        now: Duration::ZERO,
        links: BTreeMap::new(),
        names: Names::default(),
        ephemerals: 0,
        timed: false,
        counts: Counts::default(),
        differences: Vec::new(),
        line: 0,
    };
    for (line, entry) in entries {
        player.line = *line;
        player.step(entry);
    }
    player.expect_silence();
    (player.counts, player.differences)
}

struct Player {
    server: Server,
    now: Duration,
    /// Connections by their numbers in the capture.
    links: BTreeMap<u64, Link>,
    names: Names,
    /// Number of ephemerals at the beginning of this step. If a step deletes several of them, the
    /// order of their deletion is not checked.
    ephemerals: usize,
    /// True if time passes in this step.
    timed: bool,
    counts: Counts,
    differences: Vec<Difference>,
    line: usize,
}

/// One connection, in the capture and on the test server.
struct Link {
    /// The number of the connection on the test server.
    id: u64,
    recorded: Conversation,
    ours: Conversation,
    decoder: FrameDecoder,
    buffer: BytesMut,
    /// Frames of the test server that were not compared yet.
    said: VecDeque<Bytes>,
    /// True if the test server has ended the connection.
    ended: bool,
}

impl Player {
    fn step(&mut self, entry: &Entry) {
        if !matches!(
            entry,
            Entry::Frame { from: Side::Server, .. } | Entry::Close { by: Side::Server, .. }
        ) {
            self.expect_silence();
            // Every step has a different time, so that the comparison detects a wrong time.
            self.now += Duration::from_millis(1);
            self.ephemerals = self.server.ephemerals().len();
            self.timed = false;
        }
        match entry {
            Entry::Open { connection } => self.open(*connection),
            Entry::Frame { connection, from: Side::Client, bytes } => self.ask(*connection, bytes),
            Entry::Frame { connection, from: Side::Server, bytes } => {
                self.compare(*connection, bytes);
            }
            Entry::Close { connection, by: Side::Client } => self.hang_up(*connection),
            Entry::Close { connection, by: Side::Server } => self.expect_end(*connection),
            Entry::Time { seconds } => self.wait(Duration::from_secs(*seconds)),
        }
    }

    fn open(&mut self, connection: u64) {
        self.counts.connections += 1;
        let Some(id) = self.server.handle_connect(IpAddr::from([127, 0, 0, 1]), self.now) else {
            return self.differ("the connection is refused");
        };
        let link = Link {
            id,
            recorded: Conversation::default(),
            ours: Conversation::default(),
            decoder: FrameDecoder::new(1 << 24),
            buffer: BytesMut::new(),
            said: VecDeque::new(),
            ended: false,
        };
        self.links.insert(connection, link);
    }

    fn ask(&mut self, connection: u64, bytes: &Bytes) {
        self.counts.requests += 1;
        let Some(link) = self.links.get_mut(&connection) else {
            return self.differ("there is no such connection any more");
        };
        let recorded = link.recorded.asked(bytes);
        if recorded.encode() != bytes {
            self.differ(&format!("the codec writes {recorded:?} in other bytes"));
        }
        let asked = match recorded {
            Message::Connect(_) => self.names.request(recorded).encode(),
            _ => bytes.clone(),
        };
        let Some(link) = self.links.get_mut(&connection) else { return };
        link.ours.asked(&asked);
        let id = link.id;
        self.server.handle_bytes(id, &asked, self.now);
        self.drain();
    }

    fn hang_up(&mut self, connection: u64) {
        self.counts.ends += 1;
        let Some(link) = self.links.remove(&connection) else {
            return self.differ("the server has ended the connection before");
        };
        self.server.handle_disconnect(link.id, self.now);
        self.drain();
    }

    fn wait(&mut self, until: Duration) {
        self.timed = true;
        self.now = self.now.max(until);
        self.server.handle_timeout(self.now);
        self.drain();
    }

    fn expect_end(&mut self, connection: u64) {
        self.counts.ends += 1;
        self.catch_up(connection);
        match self.links.remove(&connection) {
            None => self.differ("there is no such connection any more"),
            Some(link) if !link.said.is_empty() => {
                self.differ(&format!("the server says {} frames more", link.said.len()));
            }
            Some(link) if !link.ended => {
                self.differ("the server does not end the connection");
                self.server.handle_disconnect(link.id, self.now);
                self.drain();
            }
            Some(_) => {}
        }
    }

    /// Advances the clock if a session is about to expire. Sessions expire at a tick, and the ticks
    /// of the two servers may differ.
    fn catch_up(&mut self, connection: u64) {
        let is_late = self.timed
            && self.links.get(&connection).is_some_and(|link| link.said.is_empty() && !link.ended);
        if let Some(due) =
            self.server.poll_timeout().filter(|due| is_late && *due <= self.now + 2 * TICK)
        {
            self.now = self.now.max(due);
            self.server.handle_timeout(self.now);
            self.drain();
        }
    }

    fn compare(&mut self, connection: u64, bytes: &Bytes) {
        self.catch_up(connection);
        let Some(link) = self.links.get_mut(&connection) else {
            return self.differ("there is no such connection any more");
        };
        let recorded = link.recorded.answered(bytes);
        match recorded {
            Message::Event(..) => self.counts.events += 1,
            _ => self.counts.replies += 1,
        }
        if recorded.encode() != bytes {
            return self.differ(&format!("the codec writes {recorded:?} in other bytes"));
        }
        let Some(mut frame) = link.said.pop_front() else {
            return self.differ(&format!("expected {recorded:?}, got nothing"));
        };
        // If the order of the events is free, any of the first events may be the recorded one.
        let unordered = self.ephemerals > self.server.ephemerals().len() + 1;
        if unordered && matches!(recorded, Message::Event(..)) {
            let wanted =
                link.said.iter().take_while(|said| is_event(said)).position(|said| said == bytes);
            if let Some(at) = wanted.filter(|_| frame != bytes && is_event(&frame))
                && let Some(other) = link.said.get_mut(at)
            {
                std::mem::swap(&mut frame, other);
            }
        }
        let mut got = link.ours.answered(&frame);
        if got.encode() != frame {
            return self.differ(&format!("the codec writes {got:?} in other bytes"));
        }
        let mut expected = match self.names.reply(recorded, &got) {
            Ok(expected) => expected,
            Err(problem) => return self.differ(&problem),
        };
        sort(&mut expected);
        sort(&mut got);
        if expected != got {
            self.differ(&format!("expected {expected:?},\n    got {got:?}"));
        } else if expected.encode() != got.encode() || bytes.len() != frame.len() {
            self.differ(&format!("expected {bytes:?},\n    got {frame:?}"));
        }
    }

    /// Checks that all frames of the test server were compared before the client continues.
    fn expect_silence(&mut self) {
        let mut surplus = Vec::new();
        for (connection, link) in &mut self.links {
            while let Some(frame) = link.said.pop_front() {
                let message = link.ours.answered(&frame);
                surplus.push(format!("before this line, {connection} gets {message:?}"));
            }
            if link.ended {
                surplus.push(format!("before this line, the server ends {connection}"));
            }
            if !link.buffer.is_empty() {
                surplus.push(format!("before this line, {connection} gets a part of a frame"));
            }
        }
        self.links.retain(|_, link| !link.ended);
        surplus.iter().for_each(|what| self.differ(what));
    }

    /// Collects the frames of the test server.
    fn drain(&mut self) {
        while let Some(transmit) = self.server.poll_transmit(self.now) {
            let Some(link) = self.links.values_mut().find(|link| link.id == transmit.connection)
            else {
                continue;
            };
            link.buffer.extend_from_slice(&transmit.bytes);
            link.ended |= transmit.is_last;
            let mut rest = link.buffer.clone();
            while let Ok(Some(Frame::Complete(payload))) = link.decoder.next(&mut link.buffer) {
                link.said.push_back(rest.split_to(payload.len() + 4).freeze());
            }
        }
    }

    fn differ(&mut self, what: &str) {
        self.differences.push(Difference { line: self.line, what: what.to_owned() });
    }
}

/// Events have the xid -1.
fn is_event(frame: &Bytes) -> bool {
    frame.get(4..8) == Some(&[0xff; 4][..])
}
