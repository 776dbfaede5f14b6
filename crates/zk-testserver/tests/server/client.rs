//! A client that sends raw frames and returns what it receives.
#![allow(clippy::wildcard_enum_match_arm, reason = "anything unexpected fails the test")]

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jute_codec::{
    Acl, ConnectRequest, ConnectResponse, CreateMode, CreateRequest, DeleteRequest, ErrorCode,
    EventType, Frame, FrameDecoder, MultiOp, MultiResult, OpCode, ReadRequest, Reader, Record,
    ReplyHeader, Request, RequestHeader, Response, SessionId, SetDataRequest, Version,
    WatcherEvent, Zxid, encode_frame, xid,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use zk_testserver::{ServerConfig, TestServer};

/// A message from the server, or the end of the connection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Got {
    Reply(ReplyHeader, Option<Response>),
    Event(Zxid, EventType, String),
    Eof,
}

/// One connection.
pub(crate) struct Client {
    stream: DuplexStream,
    input: BytesMut,
    next_xid: i32,
    pub(crate) session: SessionId,
    pub(crate) password: Bytes,
    /// The highest zxid seen in replies.
    pub(crate) zxid: Zxid,
}

pub(crate) fn handshake(session: SessionId, password: &[u8], zxid: Zxid) -> ConnectRequest {
    ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: zxid,
        timeout_ms: 10_000,
        session_id: session,
        password: Bytes::copy_from_slice(password),
        read_only: Some(false),
    }
}

impl Client {
    /// Connects without a handshake.
    pub(crate) fn raw(server: &TestServer) -> Self {
        Self {
            stream: server.connect().expect("the server accepts connections"),
            input: BytesMut::new(),
            next_xid: 1,
            session: SessionId::NONE,
            password: Bytes::new(),
            zxid: Zxid(0),
        }
    }

    /// Starts a session.
    pub(crate) async fn new(server: &TestServer) -> Self {
        let mut client = Self::raw(server);
        let response = client
            .connect(handshake(SessionId::NONE, &[0; 16], Zxid(0)))
            .await
            .expect("the server starts a session");
        assert_ne!(response.session_id, SessionId::NONE);
        client
    }

    /// Resumes the session of another connection.
    pub(crate) async fn resume(server: &TestServer, older: &Self) -> Self {
        let mut client = Self::raw(server);
        client.next_xid = older.next_xid;
        let request = handshake(older.session, &older.password, older.zxid);
        let response = client.connect(request).await.expect("a reply");
        assert_eq!(response.session_id, older.session);
        client.zxid = older.zxid;
        client
    }

    /// Closes the connection but remembers the session.
    pub(crate) fn hang_up(&mut self) {
        self.stream = tokio::io::duplex(1).0;
    }

    /// Sends the handshake. Returns `None` if the server closes the connection instead of replying.
    pub(crate) async fn connect(&mut self, request: ConnectRequest) -> Option<ConnectResponse> {
        let mut out = BytesMut::new();
        encode_frame(&mut out, 1 << 20, |out| request.encode(out)).expect("well-formed");
        self.write(&out).await;
        let payload = self.frame().await?;
        let response = ConnectResponse::decode(&mut Reader::new(payload)).expect("well-formed");
        self.session = response.session_id;
        self.password = response.password.clone();
        Some(response)
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the pipe is open");
    }

    /// Returns the next frame, or `None` at the end of the connection.
    pub(crate) async fn frame(&mut self) -> Option<Bytes> {
        loop {
            match FrameDecoder::new(1 << 24).next(&mut self.input).expect("well-formed") {
                Some(Frame::Complete(payload)) => return Some(payload),
                Some(Frame::Oversized { length, .. }) => panic!("frame of {length} bytes"),
                None => {}
            }
            if self.read().await == 0 {
                return None;
            }
        }
    }

    /// Reads with a long timeout in virtual time.
    async fn read(&mut self) -> usize {
        let read = self.stream.read_buf(&mut self.input);
        let read = tokio::time::timeout(Duration::from_secs(3600), read).await;
        read.expect("the server sends bytes or closes the connection")
            .expect("a pipe does not fail")
    }

    /// Returns all bytes up to the end of the connection.
    pub(crate) async fn rest(&mut self) -> Bytes {
        while self.read().await != 0 {}
        self.input.split().freeze()
    }

    /// Sends a request without waiting. Returns its xid.
    pub(crate) async fn send(&mut self, request: &Request) -> i32 {
        let xid = self.next_xid;
        self.next_xid += 1;
        self.send_as(xid, request).await;
        xid
    }

    pub(crate) async fn send_as(&mut self, xid: i32, request: &Request) {
        let bytes = encode(xid, request);
        self.write(&bytes).await;
    }

    pub(crate) async fn send_raw(&mut self, xid: i32, op: i32, body: &[u8]) {
        let mut out = BytesMut::new();
        encode_frame(&mut out, 1 << 21, |out| {
            RequestHeader { xid, op: OpCode(op) }.encode(out);
            out.extend_from_slice(body);
        })
        .expect("well-formed");
        self.write(&out).await;
    }

    /// Returns the next message. Decodes replies as replies to `op`.
    pub(crate) async fn next(&mut self, op: OpCode) -> Got {
        let Some(payload) = self.frame().await else { return Got::Eof };
        let mut reader = Reader::new(payload);
        let header = ReplyHeader::decode(&mut reader).expect("well-formed");
        if header.xid == xid::NOTIFICATION && op != OpCode(-99) && reader.remaining() > 0 {
            let event = WatcherEvent::decode(&mut reader).expect("well-formed");
            return Got::Event(header.zxid, event.kind, event.path.to_string());
        }
        if header.zxid > Zxid(0) {
            self.zxid = header.zxid;
        }
        let response =
            header.err.is_ok().then(|| Response::decode(op, &mut reader).expect("well-formed"));
        assert_eq!(reader.remaining(), 0, "nothing follows the record");
        Got::Reply(header, response)
    }

    /// Returns the next watch event.
    pub(crate) async fn event(&mut self) -> (EventType, String) {
        match self.next(OpCode::PING).await {
            Got::Event(_, kind, path) => (kind, path),
            other => panic!("expected an event, got {other:?}"),
        }
    }

    /// Sends a request and returns its reply, which must be the next message.
    pub(crate) async fn call(&mut self, request: &Request) -> Result<Response, ErrorCode> {
        self.call_full(request).await.1
    }

    /// Does the same as `call`, and also returns the header.
    pub(crate) async fn call_full(
        &mut self,
        request: &Request,
    ) -> (ReplyHeader, Result<Response, ErrorCode>) {
        let xid = self.send(request).await;
        match self.next(request.op()).await {
            Got::Reply(header, response) => {
                let expected = if request.op() == OpCode::PING { xid::PING } else { xid };
                assert_eq!(header.xid, expected);
                (header, response.ok_or(header.err))
            }
            other => panic!("expected a reply to {request:?}, got {other:?}"),
        }
    }

    /// Sends a request and returns the error code of the reply, which may be `OK`.
    pub(crate) async fn code(&mut self, request: &Request) -> ErrorCode {
        self.call(request).await.err().unwrap_or(ErrorCode::OK)
    }

    pub(crate) async fn create(
        &mut self,
        path: &str,
        mode: CreateMode,
    ) -> Result<String, ErrorCode> {
        match self.call(&create(path, mode)).await? {
            Response::Create(path) => Ok(path.to_string()),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn ok(&mut self, request: &Request) -> Response {
        match self.call(request).await {
            Ok(response) => response,
            Err(error) => panic!("{request:?}: {error}"),
        }
    }

    /// Asserts that the connection ends without another message.
    pub(crate) async fn assert_eof(&mut self) {
        assert_eq!(self.next(OpCode::PING).await, Got::Eof);
    }

    /// Sends a multi and returns its results.
    pub(crate) async fn multi(&mut self, ops: Vec<MultiOp>) -> Vec<MultiResult> {
        match self.ok(&Request::Multi(ops)).await {
            Response::Multi(results) => results,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn encode(xid: i32, request: &Request) -> BytesMut {
    let mut out = BytesMut::new();
    encode_frame(&mut out, 1 << 21, |out| {
        RequestHeader { xid, op: request.op() }.encode(out);
        request.encode(out);
    })
    .expect("well-formed");
    out
}

pub(crate) fn create_request(path: &str, mode: CreateMode) -> CreateRequest {
    CreateRequest {
        path: path.into(),
        data: Some(Bytes::new()),
        acl: Acl::open(),
        mode,
        with_stat: false,
    }
}

pub(crate) fn create(path: &str, mode: CreateMode) -> Request {
    Request::Create(create_request(path, mode))
}

pub(crate) fn create_with_acl(path: &str, acl: Vec<Acl>) -> Request {
    Request::Create(CreateRequest { acl, ..create_request(path, CreateMode::Persistent) })
}

pub(crate) fn delete(path: &str, version: i32) -> Request {
    Request::Delete(DeleteRequest { path: path.into(), version: Version(version) })
}

pub(crate) fn set_data(path: &str, version: i32) -> Request {
    let data = Some(Bytes::from_static(b"new"));
    Request::SetData(SetDataRequest { path: path.into(), data, version: Version(version) })
}

pub(crate) fn get_data(path: &str, watch: bool) -> Request {
    Request::GetData(ReadRequest { path: path.into(), watch })
}

pub(crate) fn get_children(path: &str, watch: bool) -> Request {
    Request::GetChildren(ReadRequest { path: path.into(), watch })
}

pub(crate) fn exists(path: &str, watch: bool) -> Request {
    Request::Exists(ReadRequest { path: path.into(), watch })
}

pub(crate) fn sync(path: &str) -> Request {
    Request::Sync(path.into())
}

pub(crate) fn start() -> TestServer {
    TestServer::start(ServerConfig::default())
}

/// Sleeps in virtual time.
#[expect(clippy::disallowed_methods, reason = "tests run in paused time")]
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}
