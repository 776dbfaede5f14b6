//! The message in a captured frame. To decode a reply, its request must be known.
#![expect(clippy::wildcard_enum_match_arm, reason = "a gloss need not tell everything")]

use std::collections::VecDeque;
use std::fmt;

use bytes::{Buf as _, Bytes, BytesMut};
use jute_codec::{
    ConnectRequest, ConnectResponse, ErrorCode, MultiResult, OpCode, Reader, Record as _,
    ReplyHeader, Request, RequestHeader, Response, SessionId, WatcherEvent, xid,
};

/// A frame, decoded as far as possible.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message {
    /// First frame of a client.
    Connect(ConnectRequest),
    /// First frame of a server.
    Connected(ConnectResponse),
    /// Any other frame of a client.
    Request(RequestHeader, Request),
    /// Reply to a request.
    Reply(ReplyHeader, Response),
    /// Reply to a request that failed.
    Failure(ReplyHeader),
    /// A watch event.
    Event(ReplyHeader, WatcherEvent),
    /// Bytes that the codec cannot decode.
    Unknown(Bytes),
}

/// The two directions of one connection.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    asked: bool,
    answered: bool,
    /// Pending requests.
    pending: VecDeque<(i32, OpCode)>,
}

impl Conversation {
    /// Decodes the next frame of the client.
    pub fn asked(&mut self, frame: &Bytes) -> Message {
        let payload = payload(frame);
        let mut reader = Reader::new(payload.clone());
        if !std::mem::replace(&mut self.asked, true) {
            return whole(
                ConnectRequest::decode(&mut reader).map(Message::Connect),
                &reader,
                frame,
            );
        }
        let Ok(header) = RequestHeader::decode(&mut reader) else {
            return Message::Unknown(payload);
        };
        self.pending.push_back((header.xid, header.op));
        let request = Request::decode(header.op, &mut reader);
        whole(request.map(|request| Message::Request(header, request)), &reader, frame)
    }

    /// Decodes the next frame of the server.
    pub fn answered(&mut self, frame: &Bytes) -> Message {
        let payload = payload(frame);
        let mut reader = Reader::new(payload.clone());
        if !std::mem::replace(&mut self.answered, true) {
            let response = ConnectResponse::decode(&mut reader);
            return whole(response.map(Message::Connected), &reader, frame);
        }
        let Ok(header) = ReplyHeader::decode(&mut reader) else {
            return Message::Unknown(payload);
        };
        if header.xid == xid::NOTIFICATION {
            let event = WatcherEvent::decode(&mut reader);
            return whole(event.map(|event| Message::Event(header, event)), &reader, frame);
        }
        let asked = self.pending.iter().position(|(xid, _)| *xid == header.xid);
        let Some((_, op)) = asked.and_then(|asked| self.pending.remove(asked)) else {
            return Message::Unknown(payload);
        };
        if !header.err.is_ok() {
            return whole(Ok::<_, ()>(Message::Failure(header)), &reader, frame);
        }
        let response = Response::decode(op, &mut reader);
        whole(response.map(|response| Message::Reply(header, response)), &reader, frame)
    }
}

fn payload(frame: &Bytes) -> Bytes {
    let mut payload = frame.clone();
    payload.advance(frame.len().min(4));
    payload
}

/// Returns `Unknown` if bytes follow the record, because a `Message` would lose them.
fn whole<E>(message: Result<Message, E>, reader: &Reader, frame: &Bytes) -> Message {
    match message {
        Ok(message) if reader.remaining() == 0 => message,
        _ => Message::Unknown(payload(frame)),
    }
}

impl Message {
    /// Returns the path of a request that has one.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Request(_, request) => path(request),
            _ => None,
        }
    }

    /// Encodes the message as a frame, including the length.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        let limit = i32::MAX as usize;
        let encoded = jute_codec::encode_frame(&mut out, limit, |out| match self {
            Self::Connect(request) => request.encode(out),
            Self::Connected(response) => response.encode(out),
            Self::Request(header, request) => {
                header.encode(out);
                request.encode(out);
            }
            Self::Reply(header, response) => {
                header.encode(out);
                response.encode(out);
            }
            Self::Failure(header) => header.encode(out),
            Self::Event(header, event) => {
                header.encode(out);
                event.encode(out);
            }
            Self::Unknown(payload) => out.extend_from_slice(payload),
        });
        encoded.expect("no frame of a capture is that long");
        out.freeze()
    }
}

/// A short form for human readers.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(request) if request.session_id == SessionId::NONE => {
                f.write_str("connect")
            }
            Self::Connect(request) => write!(f, "resume {}", request.session_id),
            Self::Connected(response) => write!(f, "session {}", response.session_id),
            Self::Request(header, request) => {
                write!(f, "{:?}", header.op)?;
                match path(request) {
                    Some(path) => write!(f, " {}", path.escape_debug()),
                    None => Ok(()),
                }
            }
            Self::Reply(_, response) => {
                f.write_str("ok")?;
                match response {
                    Response::Create(path) => write!(f, " {path}"),
                    Response::Create2(reply) => write!(f, " {}", reply.path),
                    Response::Multi(results) => write!(f, " {:?}", failure(results)),
                    _ => Ok(()),
                }
            }
            Self::Failure(header) => write!(f, "{:?}", header.err),
            Self::Event(_, event) => write!(f, "{:?} {}", event.kind, event.path),
            Self::Unknown(_) => f.write_str("?"),
        }
    }
}

/// Returns the path of a request; that of the first operation if it is a multi.
fn path(request: &Request) -> Option<&str> {
    let first = match request {
        Request::Multi(_) => request.paths().into_iter().next(),
        one => one.path(),
    };
    first.map(|path| &**path)
}

fn failure(results: &[MultiResult]) -> ErrorCode {
    let mut codes = results.iter().filter_map(|result| match result {
        MultiResult::Error(code) if !code.is_ok() => Some(*code),
        _ => None,
    });
    codes.next().unwrap_or(ErrorCode::OK)
}
