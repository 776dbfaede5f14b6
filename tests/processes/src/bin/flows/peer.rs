//! A connection that can send arbitrary bytes.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jute_codec::{
    Acl, AuthPacket, CheckRequest, ConnectRequest, ConnectResponse, CreateMode, CreateRequest,
    DeleteRequest, MultiOp, OpCode, ReadRequest, Reader, Record as _, ReplyHeader, Request,
    RequestHeader, SessionId, SetAclRequest, SetDataRequest, WatcherType, WatchesRequest, Zxid,
    encode_frame, xid,
};

/// A time longer than the recorder waits for a reply that never arrives.
const ANSWER_MAX: Duration = Duration::from_millis(1500);
/// Time until the recorder and the server have noticed the end of a connection.
const NOTICED: Duration = Duration::from_millis(200);

/// Directory of the flows.
pub(crate) struct Stage {
    pub(crate) server: String,
    pub(crate) control: String,
}

impl Stage {
    /// Connects without a handshake.
    pub(crate) fn open(&self) -> Peer {
        let stream = TcpStream::connect(&self.server).expect("the server accepts");
        stream.set_read_timeout(Some(ANSWER_MAX)).expect("a timeout can be set");
        Peer {
            stream,
            xid: 0,
            session: SessionId::NONE,
            password: Bytes::from_static(&[0; 16]),
            zxid: Zxid(0),
        }
    }

    /// Starts a session.
    pub(crate) fn connect(&self) -> Peer {
        let mut peer = self.open();
        let request = peer.handshake();
        peer.shake_hands(&request);
        peer
    }

    /// Ends the connection, and resumes its session on a new one.
    pub(crate) fn reconnect(&self, older: Peer) -> Peer {
        let mut peer = self.open();
        (peer.session, peer.password) = (older.session, older.password.clone());
        (peer.zxid, peer.xid) = (older.zxid, older.xid);
        older.drop_connection();
        let request = peer.handshake();
        peer.shake_hands(&request);
        peer
    }
}

pub(crate) struct Peer {
    stream: TcpStream,
    xid: i32,
    pub(crate) session: SessionId,
    pub(crate) password: Bytes,
    /// Highest zxid in replies.
    pub(crate) zxid: Zxid,
}

impl Peer {
    pub(crate) fn handshake(&self) -> ConnectRequest {
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: self.zxid,
            timeout_ms: 8000,
            session_id: self.session,
            password: self.password.clone(),
            read_only: Some(false),
        }
    }

    pub(crate) fn shake_hands(&mut self, request: &ConnectRequest) -> Option<ConnectResponse> {
        self.write(|out| request.encode(out));
        let response = ConnectResponse::decode(&mut Reader::new(self.frame()?)).ok()?;
        (self.session, self.password) = (response.session_id, response.password.clone());
        Some(response)
    }

    /// Sends a request, and waits for its reply or a timeout.
    pub(crate) fn ask(&mut self, request: &Request) {
        let mut body = BytesMut::new();
        request.encode(&mut body);
        self.ask_raw(request.op(), &body);
    }

    pub(crate) fn ask_all(&mut self, requests: impl IntoIterator<Item = Request>) {
        requests.into_iter().for_each(|request| self.ask(&request));
    }

    /// Sends a request with any body, and waits for its reply or a timeout.
    pub(crate) fn ask_raw(&mut self, op: OpCode, body: &[u8]) {
        let asked = match op {
            OpCode::PING => xid::PING,
            OpCode::AUTH => xid::AUTH,
            OpCode::SET_WATCHES | OpCode::SET_WATCHES2 => xid::SET_WATCHES,
            _ => {
                self.xid += 1;
                self.xid
            }
        };
        self.write(|out| {
            RequestHeader { xid: asked, op }.encode(out);
            out.extend_from_slice(body);
        });
        while let Some(payload) = self.frame() {
            let Ok(header) = ReplyHeader::decode(&mut Reader::new(payload)) else { return };
            self.zxid = self.zxid.max(header.zxid);
            if header.xid == asked {
                return;
            }
        }
    }

    /// Ends the connection, but not the session.
    pub(crate) fn drop_connection(self) {
        drop(self.stream);
        sleep(NOTICED);
    }

    pub(crate) fn close(mut self) {
        self.ask(&Request::CloseSession);
        self.drop_connection();
    }

    fn write(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let mut out = BytesMut::new();
        encode_frame(&mut out, 1 << 16, write).expect("requests are short");
        // If the connection has ended, the capture shows it.
        let _ = self.stream.write_all(&out);
    }

    fn frame(&mut self) -> Option<Bytes> {
        let mut prefix = [0; 4];
        self.stream.read_exact(&mut prefix).ok()?;
        let mut payload = vec![0; u32::from_be_bytes(prefix) as usize];
        self.stream.read_exact(&mut payload).ok()?;
        Some(payload.into())
    }
}

pub(crate) fn create_as(path: &str, mode: CreateMode) -> CreateRequest {
    let data = Some(Bytes::from_static(b"data"));
    CreateRequest { path: path.into(), data, acl: Acl::open(), mode, with_stat: true }
}

pub(crate) fn create(path: &str) -> Request {
    Request::Create(create_as(path, CreateMode::Persistent))
}

pub(crate) fn create_mode(path: &str, mode: CreateMode) -> Request {
    Request::Create(create_as(path, mode))
}

pub(crate) fn create_acl(path: &str, acl: Vec<Acl>) -> Request {
    Request::Create(CreateRequest { acl, ..create_as(path, CreateMode::Persistent) })
}

pub(crate) fn delete(path: &str, version: i32) -> Request {
    Request::Delete(DeleteRequest { path: path.into(), version: zk_recipes::Version(version) })
}

pub(crate) fn set_data(path: &str, data: &'static str, version: i32) -> Request {
    let data = Some(Bytes::from_static(data.as_bytes()));
    Request::SetData(SetDataRequest {
        path: path.into(),
        data,
        version: zk_recipes::Version(version),
    })
}

pub(crate) fn set_acl(path: &str, acl: Vec<Acl>, version: i32) -> Request {
    Request::SetAcl(SetAclRequest { path: path.into(), acl, version: zk_recipes::Version(version) })
}

fn read(path: &str, watch: bool) -> ReadRequest {
    ReadRequest { path: path.into(), watch }
}

pub(crate) fn get_data(path: &str, watch: bool) -> Request {
    Request::GetData(read(path, watch))
}

pub(crate) fn get_children(path: &str, watch: bool) -> Request {
    Request::GetChildren(read(path, watch))
}

pub(crate) fn get_children2(path: &str, watch: bool) -> Request {
    Request::GetChildren2(read(path, watch))
}

pub(crate) fn exists(path: &str, watch: bool) -> Request {
    Request::Exists(read(path, watch))
}

pub(crate) fn check_watches(path: &str, kind: WatcherType) -> Request {
    Request::CheckWatches(WatchesRequest { path: path.into(), kind })
}

pub(crate) fn remove_watches(path: &str, kind: WatcherType) -> Request {
    Request::RemoveWatches(WatchesRequest { path: path.into(), kind })
}

pub(crate) fn auth(scheme: &str, credentials: &str) -> Request {
    let auth = Some(Bytes::copy_from_slice(credentials.as_bytes()));
    Request::Auth(AuthPacket { scheme: scheme.into(), auth })
}

pub(crate) fn check(path: &str, version: i32) -> MultiOp {
    MultiOp::Check(CheckRequest { path: path.into(), version: zk_recipes::Version(version) })
}

/// Converts a request to an operation of a multi.
#[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is ever in a multi")]
pub(crate) fn op(request: Request) -> MultiOp {
    match request {
        Request::Create(create) => MultiOp::Create(create),
        Request::Delete(delete) => MultiOp::Delete(delete),
        Request::SetData(set_data) => MultiOp::SetData(set_data),
        other => unreachable!("{other:?} is never in a multi"),
    }
}
