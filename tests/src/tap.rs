//! Records the frames of a client's connections, for diagrams that show replies and handshakes,
//! which the journal of the server does not contain.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use jute_codec::{Frame, FrameDecoder};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::time::Instant;
use zk_testserver::TestServer;

use crate::capture::{Conversation, Message, Side};

/// Longest frame of these conversations.
const FRAME_MAX: usize = 1 << 20;

/// What has happened on a connection.
#[derive(Clone, Debug)]
pub enum Heard {
    /// The client has opened a connection.
    Begin,
    /// A whole frame.
    Frame(Side, Message),
    /// The server has ended the connection.
    End,
}

/// Records all connections of a client.
#[derive(Clone, Debug)]
pub struct Tap {
    start: Instant,
    heard: Arc<Mutex<Vec<(Duration, Heard)>>>,
}

impl Tap {
    /// Creates a tap, from whose creation the times count.
    #[expect(clippy::new_without_default, reason = "the time of the creation matters")]
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    pub fn new() -> Self {
        Self { start: Instant::now(), heard: Arc::default() }
    }

    /// Connects to the server through the tap.
    ///
    /// # Errors
    ///
    /// As for [`TestServer::connect`].
    pub fn connect(&self, server: &TestServer) -> io::Result<Tapped> {
        let decoder = || (BytesMut::new(), FrameDecoder::new(FRAME_MAX));
        let stream = server.connect()?;
        self.push(Heard::Begin);
        Ok(Tapped {
            stream,
            tap: self.clone(),
            conversation: Conversation::default(),
            asked: decoder(),
            answered: decoder(),
            has_ended: false,
        })
    }

    /// Returns what was heard since the creation of the tap, or since the last call.
    pub fn take(&self) -> Vec<(Duration, Heard)> {
        std::mem::take(&mut self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    fn push(&self, heard: Heard) {
        let at = Instant::now() - self.start;
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).push((at, heard));
    }
}

/// A connection whose frames are recorded; see [`Tap::connect`].
#[derive(Debug)]
pub struct Tapped {
    stream: DuplexStream,
    tap: Tap,
    conversation: Conversation,
    asked: (BytesMut, FrameDecoder),
    answered: (BytesMut, FrameDecoder),
    has_ended: bool,
}

impl Tapped {
    fn hear(&mut self, side: Side, bytes: &[u8]) {
        let (buffer, frames) = match side {
            Side::Client => &mut self.asked,
            Side::Server => &mut self.answered,
        };
        buffer.extend_from_slice(bytes);
        while let Some(frame) = frames.next(buffer).expect("both sides send frames") {
            let Frame::Complete(payload) = frame else { panic!("the frames are short") };
            let frame = whole(&payload);
            let message = match side {
                Side::Client => self.conversation.asked(&frame),
                Side::Server => self.conversation.answered(&frame),
            };
            self.tap.push(Heard::Frame(side, message));
        }
    }
}

/// Puts the length in front again, which a [`Conversation`] expects.
fn whole(payload: &Bytes) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u32(u32::try_from(payload.len()).expect("the frames are short"));
    frame.extend_from_slice(payload);
    frame.freeze()
}

impl AsyncRead for Tapped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let new = buffer.filled().get(before..).unwrap_or_default();
        let is_end = new.is_empty() && buffer.remaining() > 0;
        if read.is_ready() && is_end && !std::mem::replace(&mut self.has_ended, true) {
            self.tap.push(Heard::End);
        }
        self.hear(Side::Server, new);
        read
    }
}

impl AsyncWrite for Tapped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(length)) = written {
            self.hear(Side::Client, bytes.get(..length).unwrap_or(bytes));
        }
        written
    }

    crate::flush_and_shut_down_through!(stream);
}
