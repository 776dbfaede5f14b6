//! A session machine, connected to a server that the test controls.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jute_codec::{
    ConnectRequest, ConnectResponse, ErrorCode, EventType, Frame, FrameDecoder, KeeperState,
    MultiResult, ReadRequest, Reader, Record, ReplyHeader, Request, RequestHeader, Response,
    SessionId, SetDataRequest, Version, WatcherEvent, Zxid, encode_frame, xid,
};

use crate::error::{OpError, Target};
use crate::host::Host;
use crate::machine::downlink::Downlink;
use crate::machine::inflight::write_of_nothing;
use crate::machine::{
    Change, Event, Flight, Operation, OwnerId, Reply, SessionConfig, SessionMachine, Token,
    WatchNumber,
};
use crate::time::Time;

/// Owner of all watches.
pub(super) const OWNER: OwnerId = OwnerId(1);
/// Session timeout that the server grants.
pub(super) const TIMEOUT: Duration = Duration::from_secs(9);
/// Session that the server grants.
pub(super) const SESSION: SessionId = SessionId(0x100);

pub(super) fn config() -> SessionConfig {
    SessionConfig {
        hosts: vec![Host { name: "zk".into(), port: 2181 }],
        seed: 1,
        session_timeout: TIMEOUT,
        connect_timeout: Duration::from_secs(3),
        give_up: TIMEOUT * 2,
        sasl: false,
        auth: vec![],
        request_limit: 4096,
        response_limit: 4096,
        outstanding_limit: 100,
        renew: true,
        read_only: false,
        resume: None,
        chroot: vec![],
        lease: None,
    }
}

/// The machine and its server. Each method drains the machine, as its contract requires.
pub(super) struct Pair {
    pub(super) session: SessionMachine,
    pub(super) now: Time,
    /// Events that the test has not taken.
    pub(super) events: Vec<Event>,
    /// Bytes that the transport has not accepted.
    pub(super) unsent: BytesMut,
    /// Bytes that the server has received and not read.
    pub(super) received: BytesMut,
    pub(super) server_zxid: Zxid,
    /// Whether the transport accepts bytes at once if they are sent in response to received bytes.
    pub(super) takes_all: bool,
    /// Whether each connection counts as fast, so that the client requests many replies at once.
    pub(super) is_known_as_fast: bool,
    /// The beginning of a frame that the machine has not taken.
    pub(super) input: BytesMut,
    /// Whether the server has taken a request of this connection.
    has_taken_request: bool,
    next_token: u64,
}

impl Pair {
    pub(super) fn new(config: SessionConfig) -> Self {
        let now = Time::default();
        Self {
            session: SessionMachine::new(config, now),
            now,
            events: vec![],
            unsent: BytesMut::new(),
            received: BytesMut::new(),
            server_zxid: Zxid(0),
            takes_all: true,
            is_known_as_fast: true,
            input: BytesMut::new(),
            has_taken_request: false,
            next_token: 1,
        }
    }

    /// Creates a pair whose first session is connected.
    pub(super) fn connected() -> Self {
        let mut pair = Self::new(config());
        pair.connect(SESSION);
        pair
    }

    pub(super) fn drain(&mut self) {
        self.session.poll_transmit(&mut self.unsent);
        while let Some(event) = self.session.poll_event() {
            if matches!(event, Event::Disconnect(_)) {
                self.unsent.clear();
                self.received.clear();
                self.input.clear();
            }
            self.events.push(event);
        }
    }

    /// Lets the transport accept this many bytes.
    pub(super) fn transmit(&mut self, bytes: usize) {
        let taken = self.unsent.split_to(bytes);
        self.received.extend_from_slice(&taken);
        self.session.handle_transmitted(self.now, bytes);
        self.drain();
    }

    /// Lets the transport accept everything.
    pub(super) fn flush(&mut self) {
        while !self.unsent.is_empty() {
            self.transmit(self.unsent.len());
        }
    }

    /// Lets time pass, and fires the timers that are due.
    pub(super) fn sleep(&mut self, duration: Duration) {
        let end = self.now + duration;
        for _ in 0..10_000 {
            match self.session.poll_timeout() {
                Some(at) if at <= end => {
                    self.now = self.now.max(at);
                    self.session.handle_timeout(self.now);
                    self.drain();
                }
                _ => {
                    self.now = end;
                    return;
                }
            }
        }
        panic!("the timers do not advance");
    }

    /// Waits until the machine requests a connection, and opens the transport.
    pub(super) fn open(&mut self) {
        for _ in 0..100 {
            self.drain();
            if self.take(|event| matches!(event, Event::Connect(_))).is_some() {
                self.has_taken_request = false;
                self.session.handle_connected(self.now);
                if self.is_known_as_fast {
                    self.session.downlink = Downlink::fast();
                }
                self.drain();
                self.flush();
                return;
            }
            let at = self.session.poll_timeout().expect("the machine requests a connection");
            self.sleep(at.saturating_since(self.now));
        }
        panic!("no connection was requested");
    }

    /// Connects with a session chosen by the server. Returns the ConnectRequest.
    pub(super) fn connect(&mut self, session: SessionId) -> ConnectRequest {
        self.open();
        let request = self.handshake();
        self.answer_handshake(session, TIMEOUT);
        request
    }

    pub(super) fn handshake(&mut self) -> ConnectRequest {
        let payload = self.next_frame().expect("a handshake was sent");
        ConnectRequest::decode(&mut Reader::new(payload)).unwrap()
    }

    pub(super) fn answer_handshake(&mut self, session: SessionId, timeout: Duration) {
        self.answer_handshake_as(session, timeout, false);
    }

    /// Replies to the handshake as a server does that has lost contact with the majority.
    pub(super) fn answer_read_only(&mut self, session: SessionId, timeout: Duration) {
        self.answer_handshake_as(session, timeout, true);
    }

    /// Replies to the handshake as a ClickHouse Keeper does, which resumes no session.
    pub(super) fn answer_as_keeper(&mut self, protocol_version: i32, session: SessionId) {
        let response = ConnectResponse {
            protocol_version,
            timeout_ms: i32::try_from(TIMEOUT.as_millis()).unwrap(),
            session_id: session,
            password: Bytes::from_static(&[0; 16]),
            read_only: None,
        };
        self.send(|out| response.encode(out));
    }

    fn answer_handshake_as(&mut self, session: SessionId, timeout: Duration, is_read_only: bool) {
        let response = ConnectResponse {
            protocol_version: 0,
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap(),
            session_id: session,
            password: Bytes::from(format!("password of {session}")),
            read_only: Some(is_read_only),
        };
        self.send(|out| response.encode(out));
    }

    /// Replies to the handshake that the session has expired.
    pub(super) fn answer_expired(&mut self) {
        self.answer_handshake(SessionId::NONE, Duration::ZERO);
    }

    fn next_frame(&mut self) -> Option<Bytes> {
        match FrameDecoder::new(usize::MAX).next(&mut self.received).unwrap() {
            Some(Frame::Complete(payload)) => Some(payload),
            _ => None,
        }
    }

    /// Takes the next request that the server has received, except for a write of nothing as the
    /// first request of a connection, with which the machine makes a server catch up, and which is
    /// answered at once.
    pub(super) fn request(&mut self) -> Option<(i32, Request)> {
        let is_first = !self.has_taken_request;
        let (xid, request) = self.any_request()?;
        if !is_first || request != write_of_nothing() {
            return Some((xid, request));
        }
        self.reply_at(xid, self.server_zxid, Ok(Response::Multi(vec![MultiResult::Check])));
        self.request()
    }

    /// Takes the next request that the server has received, of whatever kind.
    pub(super) fn any_request(&mut self) -> Option<(i32, Request)> {
        let mut reader = Reader::new(self.next_frame()?);
        let header = RequestHeader::decode(&mut reader).unwrap();
        self.has_taken_request = true;
        Some((header.xid, Request::decode(header.op, &mut reader).unwrap()))
    }

    /// Takes all requests that the server has received.
    pub(super) fn requests(&mut self) -> Vec<(i32, Request)> {
        std::iter::from_fn(|| self.request()).collect()
    }

    /// Receives whole frames from the server.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.receive_part(bytes);
        assert!(self.input.is_empty(), "the server must send whole frames here");
    }

    /// Receives bytes from the server, which may end within a frame.
    pub(super) fn receive_part(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.session.handle_bytes(self.now, &mut self.input);
        self.drain();
        if self.takes_all {
            self.flush();
        }
    }

    fn send(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let mut frame = BytesMut::new();
        encode_frame(&mut frame, usize::MAX, write).unwrap();
        self.receive(&frame);
    }

    /// Replies to a request with a new zxid.
    pub(super) fn reply(&mut self, xid: i32, response: Result<Response, ErrorCode>) {
        self.server_zxid.0 += 1;
        self.reply_at(xid, self.server_zxid, response);
    }

    pub(super) fn reply_at(&mut self, xid: i32, zxid: Zxid, response: Result<Response, ErrorCode>) {
        let err = response.as_ref().err().copied().unwrap_or(ErrorCode::OK);
        self.send(|out| {
            ReplyHeader { xid, zxid, err }.encode(out);
            if let Ok(response) = &response {
                response.encode(out);
            }
        });
    }

    pub(super) fn pong(&mut self) {
        self.reply_at(xid::PING, Zxid(0), Ok(Response::Empty));
    }

    pub(super) fn event(&mut self, zxid: Zxid, kind: EventType, path: &str) {
        self.send(|out| {
            ReplyHeader { xid: xid::NOTIFICATION, zxid, err: ErrorCode::OK }.encode(out);
            let state = KeeperState::SYNC_CONNECTED;
            WatcherEvent { kind, state, path: path.into() }.encode(out);
        });
    }

    /// Ends the connection.
    pub(super) fn cut(&mut self) {
        self.unsent.clear();
        self.received.clear();
        self.input.clear();
        self.session.handle_disconnected(self.now);
        self.drain();
    }

    pub(super) fn submit(&mut self, operations: Vec<Operation>) -> Token {
        self.submit_flight(Flight { operations, session: None, deadline: None })
    }

    pub(super) fn submit_flight(&mut self, flight: Flight) -> Token {
        let token = Token(self.next_token);
        self.next_token += 1;
        self.session.submit(self.now, token, OWNER, flight);
        self.drain();
        token
    }

    /// Takes the first event that matches.
    pub(super) fn take(&mut self, fits: impl Fn(&Event) -> bool) -> Option<Event> {
        let at = self.events.iter().position(fits)?;
        Some(self.events.remove(at))
    }

    /// Takes the reply to a flight. Its errors name their operation and its path, and are returned
    /// without them.
    #[track_caller]
    pub(super) fn answer(&mut self, token: Token) -> Reply {
        let mut reply = self.named_answer(token);
        for error in reply.results.iter_mut().filter_map(|result| result.as_mut().err()) {
            if let Some(target) = error.target() {
                assert!(target.operation.is_some() && target.path.starts_with('/'), "{error:?}");
                *error = error.clone().about(Target::UNKNOWN);
            }
        }
        reply
    }

    /// Takes the reply to a flight.
    #[track_caller]
    pub(super) fn named_answer(&mut self, token: Token) -> Reply {
        match self.take(|event| matches!(event, Event::Reply { token: t, .. } if *t == token)) {
            Some(Event::Reply { reply, .. }) => reply,
            _ => panic!("no reply among {:?}", self.events),
        }
    }

    /// Takes the reply to a flight of one operation, and returns its error.
    #[track_caller]
    pub(super) fn error(&mut self, token: Token) -> OpError {
        self.answer(token).results.remove(0).expect_err("the operation failed")
    }

    pub(super) fn changes(&mut self) -> Vec<Change> {
        let changes = self.events.iter().filter_map(|event| match event {
            Event::Change(change) => Some(*change),
            _ => None,
        });
        let changes = changes.collect();
        self.events.retain(|event| !matches!(event, Event::Change(_)));
        changes
    }
}

pub(super) fn host(name: &str) -> Host {
    Host { name: name.into(), port: 2181 }
}

/// Opens the transport, and returns the server.
pub(super) fn opened(pair: &mut Pair) -> Host {
    while !pair.events.iter().any(|event| matches!(event, Event::Connect(_))) {
        let at = pair.session.poll_timeout().expect("the machine requests a connection");
        pair.sleep(at.saturating_since(pair.now));
    }
    let connect = pair.events.iter().find_map(|event| match event {
        Event::Connect(host) => Some(host.clone()),
        _ => None,
    });
    pair.open();
    connect.expect("a connection was requested")
}

/// Returns a write of so many bytes.
pub(super) fn write(bytes: usize) -> Operation {
    let data = Some(vec![b'x'; bytes].into());
    let set = SetDataRequest { path: "/a".into(), data, version: Version::ANY };
    Operation::new(Request::SetData(set))
}

/// Encodes a reply to getData of this length.
pub(super) fn long_reply(xid: i32, length: usize) -> BytesMut {
    let data = Some(Bytes::from(vec![0; length]));
    let reply = jute_codec::DataReply { data, stat: jute_codec::Stat::default() };
    let mut frame = BytesMut::new();
    encode_frame(&mut frame, usize::MAX, |out| {
        ReplyHeader { xid, zxid: Zxid(1), err: ErrorCode::OK }.encode(out);
        Response::GetData(reply).encode(out);
    })
    .unwrap();
    frame
}

pub(super) fn get(path: &str) -> Operation {
    let read = ReadRequest { path: path.into(), watch: false };
    Operation::new(Request::GetData(read))
}

pub(super) fn watch(number: u64, request: fn(ReadRequest) -> Request, path: &str) -> Operation {
    let read = ReadRequest { path: path.into(), watch: true };
    Operation::watched(request(read), WatchNumber::new(number).unwrap())
}

pub(super) fn sync(path: &str) -> Operation {
    Operation::new(Request::Sync(path.into()))
}

pub(super) fn data() -> Response {
    Response::GetData(jute_codec::DataReply { data: None, stat: jute_codec::Stat::default() })
}
