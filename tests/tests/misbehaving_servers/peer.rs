//! A scripted server at the other end of a pipe.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use bytes::{Bytes, BytesMut};
use jute_codec::{
    ConnectRequest, ConnectResponse, ErrorCode, Frame, FrameDecoder, OpCode, Reader, Record,
    ReplyHeader, RequestHeader, Response, SessionId, Zxid, encode_frame,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::watch;
use zk_tests::scene::spawn;
use zk_tests::world::sleep_ms;

/// What a server does with a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Behaviour {
    /// The server replies to handshakes, pings and watches. No znode exists.
    Serves,
    RefusesConnections,
    AcceptsAndCloses,
    AcceptsAndIsSilent,
    AnswersTheHandshakeAndCloses,
    AnswersTheHandshakeAndIsSilent,
    /// The server replies to handshakes and pings, but to no other request.
    AnswersPingsOnly,
    ThrottlesWatches,
    AnswersExpired,
    /// The server replies to nothing, not even to handshakes.
    BlackHole,
    ServesForAMoment,
}

impl Behaviour {
    /// All kinds of misbehaviour.
    pub(crate) const BAD: [Self; 10] = [
        Self::RefusesConnections,
        Self::AcceptsAndCloses,
        Self::AcceptsAndIsSilent,
        Self::AnswersTheHandshakeAndCloses,
        Self::AnswersTheHandshakeAndIsSilent,
        Self::AnswersPingsOnly,
        Self::ThrottlesWatches,
        Self::AnswersExpired,
        Self::BlackHole,
        Self::ServesForAMoment,
    ];
}

/// Servers with the same behaviour. A change of the behaviour ends all connections.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    behaviour: Arc<watch::Sender<Behaviour>>,
    sessions: Arc<AtomicI64>,
}

impl Peers {
    pub(crate) fn new(behaviour: Behaviour) -> Self {
        Self { behaviour: Arc::new(watch::channel(behaviour).0), sessions: Arc::default() }
    }

    pub(crate) fn behave(&self, behaviour: Behaviour) {
        self.behaviour.send_replace(behaviour);
    }

    /// Opens a connection to one of the servers.
    pub(crate) async fn connect(self) -> io::Result<DuplexStream> {
        let mut changes = self.behaviour.subscribe();
        let behaviour = *changes.borrow_and_update();
        match behaviour {
            Behaviour::RefusesConnections => Err(io::ErrorKind::ConnectionRefused.into()),
            Behaviour::BlackHole => pending().await,
            Behaviour::Serves
            | Behaviour::AcceptsAndCloses
            | Behaviour::AcceptsAndIsSilent
            | Behaviour::AnswersTheHandshakeAndCloses
            | Behaviour::AnswersTheHandshakeAndIsSilent
            | Behaviour::AnswersPingsOnly
            | Behaviour::ThrottlesWatches
            | Behaviour::AnswersExpired
            | Behaviour::ServesForAMoment => {
                let (ours, theirs) = tokio::io::duplex(1 << 16);
                spawn(async move {
                    tokio::select! {
                        _ = self.serve(behaviour, theirs) => {}
                        _ = changes.changed() => {}
                    }
                });
                Ok(ours)
            }
        }
    }

    async fn serve(&self, behaviour: Behaviour, mut stream: DuplexStream) -> io::Result<()> {
        if behaviour == Behaviour::AcceptsAndCloses {
            return Ok(());
        }
        let mut input = BytesMut::new();
        let mut frames = FrameDecoder::new(1 << 20);
        let request = next(&mut stream, &mut input, &mut frames).await?;
        if behaviour == Behaviour::AcceptsAndIsSilent {
            return pending().await;
        }
        let request = ConnectRequest::decode(&mut Reader::new(request)).expect("the client's");
        let is_over = behaviour == Behaviour::AnswersExpired;
        let session_id = match request.session_id {
            _ if is_over => SessionId::NONE,
            SessionId::NONE => SessionId(self.sessions.fetch_add(1, Relaxed) + 1),
            session => session,
        };
        let response = ConnectResponse {
            protocol_version: 0,
            timeout_ms: if is_over { 0 } else { request.timeout_ms },
            session_id,
            password: Bytes::from_static(&[7; 16]),
            read_only: Some(false),
        };
        send(&mut stream, |out| response.encode(out)).await?;
        match behaviour {
            Behaviour::AnswersTheHandshakeAndIsSilent => pending().await,
            Behaviour::AnswersTheHandshakeAndCloses | Behaviour::AnswersExpired => Ok(()),
            Behaviour::ServesForAMoment => {
                tokio::select! {
                    result = replies(behaviour, &mut stream, &mut input, &mut frames) => result,
                    () = sleep_ms(100) => Ok(()),
                }
            }
            Behaviour::Serves
            | Behaviour::AnswersPingsOnly
            | Behaviour::ThrottlesWatches
            | Behaviour::RefusesConnections
            | Behaviour::AcceptsAndCloses
            | Behaviour::AcceptsAndIsSilent
            | Behaviour::BlackHole => {
                replies(behaviour, &mut stream, &mut input, &mut frames).await
            }
        }
    }
}

async fn replies(
    behaviour: Behaviour,
    stream: &mut DuplexStream,
    input: &mut BytesMut,
    frames: &mut FrameDecoder,
) -> io::Result<()> {
    loop {
        let request = next(stream, input, frames).await?;
        let header = RequestHeader::decode(&mut Reader::new(request)).expect("the client's");
        let err = match header.op {
            OpCode::EXISTS => ErrorCode::NO_NODE,
            OpCode::SET_WATCHES if behaviour == Behaviour::ThrottlesWatches => {
                ErrorCode::THROTTLED_OP
            }
            _ => ErrorCode::OK,
        };
        if behaviour == Behaviour::AnswersPingsOnly && header.op != OpCode::PING {
            continue;
        }
        send(stream, |out| {
            ReplyHeader { xid: header.xid, zxid: Zxid(1), err }.encode(out);
            Response::Empty.encode(out);
        })
        .await?;
    }
}

async fn next(
    stream: &mut DuplexStream,
    input: &mut BytesMut,
    frames: &mut FrameDecoder,
) -> io::Result<Bytes> {
    loop {
        if let Some(Frame::Complete(payload)) = frames.next(input).map_err(io::Error::other)? {
            return Ok(payload);
        }
        if stream.read_buf(input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

async fn send(stream: &mut DuplexStream, write: impl FnOnce(&mut BytesMut)) -> io::Result<()> {
    let mut frame = BytesMut::new();
    encode_frame(&mut frame, usize::MAX, write).expect("it is short");
    stream.write_all(&frame).await
}
