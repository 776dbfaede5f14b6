//! A server that opens a session, and then breaks the rules of SASL.

#![allow(dead_code, unreachable_pub, reason = "each suite uses a part")]
#![allow(clippy::indexing_slicing, reason = "a panic fails the test")]

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use jute_codec::{
    ConnectResponse, ErrorCode, Frame, FrameDecoder, OpCode, Reader, Record as _, ReplyHeader,
    RequestHeader, Response, SaslToken, SessionId, Zxid, encode_frame, xid,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use zk_tests::world::sleep_ms;

/// What a peer does after it has opened a session.
#[derive(Clone, Copy, Debug)]
pub enum Peer {
    /// It replies to each SASL message with this token.
    Replies(fn() -> Option<Bytes>),
    /// It replies with an error.
    Refuses(ErrorCode),
    /// It replies with a body that has fewer bytes than its token should have.
    RepliesShort,
    /// It sends a SASL reply together with that to the handshake.
    RepliesUnasked,
    /// It replies twice to each message.
    RepliesTwice,
    /// It sends replies to pings, and never one to a SASL message.
    SendsPings,
    IsSilent,
    Closes,
}

/// A challenge with these directives besides those that are needed.
pub fn challenge(more: &str) -> Option<Bytes> {
    Some(format!("nonce=\"n\",algorithm=md5-sess,qop=\"auth\",realm=\"r\"{more}").into())
}

fn reply(xid: i32, err: ErrorCode, token: Option<Bytes>) -> Bytes {
    let mut frame = BytesMut::new();
    let encoded = encode_frame(&mut frame, usize::MAX, |out| {
        ReplyHeader { xid, zxid: Zxid(0), err }.encode(out);
        if xid > 0 {
            Response::Sasl(SaslToken(token)).encode(out);
        }
    });
    encoded.expect("any length is allowed");
    frame.freeze()
}

impl Peer {
    /// Serves one connection. Counts requests other than SASL messages and the end of the session.
    pub async fn serve<S>(self, mut stream: S, requests: Arc<AtomicUsize>) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (mut input, mut frames) = (BytesMut::new(), FrameDecoder::new(1 << 22));
        next(&mut stream, &mut input, &mut frames).await?;
        let response = ConnectResponse {
            protocol_version: 0,
            timeout_ms: 10_000,
            session_id: SessionId(7),
            password: Bytes::from_static(&[7; 16]),
            read_only: Some(false),
        };
        let mut first = BytesMut::new();
        encode_frame(&mut first, usize::MAX, |out| response.encode(out)).expect("it is short");
        if matches!(self, Self::RepliesUnasked) {
            first.extend_from_slice(&reply(1, ErrorCode::OK, challenge("")));
        }
        stream.write_all(&first).await?;
        loop {
            let request = next(&mut stream, &mut input, &mut frames).await?;
            let header = RequestHeader::decode(&mut Reader::new(request)).expect("the client's");
            if header.op != OpCode::SASL {
                requests
                    .fetch_add(usize::from(header.op != OpCode::CLOSE_SESSION), Ordering::Relaxed);
                continue;
            }
            let xid = header.xid;
            match self {
                Self::Replies(token) => {
                    stream.write_all(&reply(xid, ErrorCode::OK, token())).await?;
                }
                Self::Refuses(code) => stream.write_all(&reply(xid, code, None)).await?,
                Self::RepliesShort => {
                    let whole = reply(xid, ErrorCode::OK, challenge(""));
                    let mut frame = BytesMut::new();
                    let cut = |out: &mut BytesMut| out.extend_from_slice(&whole[4..24]);
                    encode_frame(&mut frame, usize::MAX, cut).expect("it is short");
                    stream.write_all(&frame).await?;
                }
                Self::RepliesTwice => {
                    let one = reply(xid, ErrorCode::OK, challenge(""));
                    stream.write_all(&[&*one, &*one].concat()).await?;
                }
                Self::SendsPings => loop {
                    stream.write_all(&reply(xid::PING, ErrorCode::OK, None)).await?;
                    sleep_ms(100).await;
                },
                Self::RepliesUnasked | Self::IsSilent => pending().await,
                Self::Closes => return Ok(()),
            }
        }
    }
}

async fn next(
    stream: &mut (impl AsyncRead + Unpin),
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
