//! A connection without a client: the test decides what is sent and when.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use jute_codec::{
    ConnectRequest, ConnectResponse, EventType, Frame, FrameDecoder, Reader, Record, ReplyHeader,
    Request, RequestHeader, SessionId, WatcherEvent, Zxid, encode_frame, xid,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::wait::soon;

/// A connection without a client.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "a socket and what was read from it")]
pub struct Connection {
    /// The socket.
    pub stream: TcpStream,
    buffer: BytesMut,
    frames: FrameDecoder,
}

impl Connection {
    /// Connects without sending anything.
    ///
    /// # Panics
    ///
    /// If no server listens at the address.
    pub async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("a server listens");
        Self { stream, buffer: BytesMut::new(), frames: FrameDecoder::new(FRAME_MAX) }
    }

    /// Sends bytes. If the connection has ended, the bytes are discarded, and the next
    /// [`receive`](Self::receive) returns `None`.
    pub async fn send(&mut self, frame: &[u8]) {
        // An error means that the connection has ended, which `receive` reports.
        let _ = self.stream.write_all(frame).await;
    }

    /// Receives the next payload, or returns `None` at the end of the connection. This method is
    /// cancel safe.
    ///
    /// # Panics
    ///
    /// If no frame arrives in time, or the bytes are not a valid frame.
    pub async fn receive(&mut self) -> Option<Bytes> {
        soon("a frame", async {
            loop {
                match self.frames.next(&mut self.buffer).expect("a frame") {
                    Some(Frame::Complete(payload)) => return Some(payload),
                    Some(Frame::Oversized { length, .. }) => panic!("a frame of {length} bytes"),
                    None => {}
                }
                // A reset also counts as the end of the connection.
                if !matches!(self.stream.read_buf(&mut self.buffer).await, Ok(1..)) {
                    return None;
                }
            }
        })
        .await
    }

    /// Requests a session, or resumes one. Returns `None` if the connection ends instead.
    ///
    /// # Panics
    ///
    /// As for [`receive`](Self::receive).
    pub async fn connect(&mut self, request: &ConnectRequest) -> Option<ConnectResponse> {
        self.send(&frame(|out| request.encode(out))).await;
        let payload = self.receive().await?;
        Some(ConnectResponse::decode(&mut Reader::new(payload)).expect("a connect response"))
    }

    /// Receives the next reply, and returns it with the events that arrived before it.
    ///
    /// # Panics
    ///
    /// If the connection ends, and as for [`receive`](Self::receive).
    pub async fn reply(&mut self) -> (Vec<(EventType, String)>, ReplyHeader, Reader) {
        let mut events = Vec::new();
        loop {
            let mut reader = Reader::new(self.receive().await.expect("a reply"));
            let header = ReplyHeader::decode(&mut reader).expect("a header");
            if header.xid != xid::NOTIFICATION {
                return (events, header, reader);
            }
            let event = WatcherEvent::decode(&mut reader).expect("an event");
            events.push((event.kind, event.path.to_string()));
        }
    }
}

/// Encodes a frame whose payload is written by `write`.
///
/// # Panics
///
/// If the frame is longer than servers accept.
pub fn frame(write: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut out = BytesMut::new();
    encode_frame(&mut out, FRAME_MAX, write).expect("it is short");
    out
}

/// Encodes the frame of a request.
///
/// # Panics
///
/// As for [`frame`].
pub fn request(xid: i32, request: &Request) -> BytesMut {
    frame(|out| {
        RequestHeader { xid, op: request.op() }.encode(out);
        request.encode(out);
    })
}

/// Returns the connect request of a client without a session.
pub fn new_session(timeout_ms: i32) -> ConnectRequest {
    ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: Zxid(0),
        timeout_ms,
        session_id: SessionId::NONE,
        password: Bytes::from_static(&[0; 16]),
        read_only: Some(false),
    }
}

const FRAME_MAX: usize = 1 << 22;
