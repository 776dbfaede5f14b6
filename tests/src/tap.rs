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

/// The question that a client may ask instead of a handshake: does the server accept writes?
const QUESTION: &[u8] = b"isro";

/// The client and the server of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The index of the client.
    pub client: usize,
    /// The index of the server.
    pub server: usize,
}

/// What has happened on a connection.
#[derive(Clone, Debug)]
pub enum Heard {
    /// The server has refused a connection.
    Refused,
    /// The client has begun a session or wants to resume one on a new connection.
    Begin,
    /// A whole frame.
    Frame(Side, Message),
    /// A question without a handshake, or the answer to it.
    Word(Side, String),
    /// The server has ended the connection.
    End,
    /// The client has ended the connection.
    Leave,
    /// The program or its client has done something without a frame.
    Note(String),
}

/// Something that a tap has heard.
#[derive(Clone, Debug)]
pub struct Record {
    /// The time since the creation of the tap.
    pub at: Duration,
    /// The client and the server. The server of a note does not matter.
    pub ends: Ends,
    /// What has happened.
    pub heard: Heard,
}

/// Records all connections of clients.
#[derive(Clone, Debug)]
pub struct Tap {
    start: Instant,
    heard: Arc<Mutex<Vec<Record>>>,
}

impl Tap {
    /// Creates a tap, from whose creation the times count.
    #[expect(clippy::new_without_default, reason = "the time of the creation matters")]
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    pub fn new() -> Self {
        Self { start: Instant::now(), heard: Arc::default() }
    }

    /// Connects a client to a server through the tap.
    ///
    /// # Errors
    ///
    /// As for [`TestServer::connect`].
    pub fn connect(&self, ends: Ends, server: &TestServer) -> io::Result<Tapped> {
        let decoder = || (BytesMut::new(), FrameDecoder::new(FRAME_MAX));
        let stream = server.connect().inspect_err(|_| self.push(ends, Heard::Refused))?;
        Ok(Tapped {
            stream,
            tap: self.clone(),
            ends,
            purpose: None,
            conversation: Conversation::default(),
            asked: decoder(),
            answered: decoder(),
            has_ended: false,
        })
    }

    /// Returns what was heard since the creation of the tap, or since the last call.
    pub fn take(&self) -> Vec<Record> {
        std::mem::take(&mut self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records what a client has done, or what its program has.
    pub fn note(&self, client: usize, text: impl Into<String>) {
        self.push(Ends { client, server: 0 }, Heard::Note(text.into()));
    }

    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    fn push(&self, ends: Ends, heard: Heard) {
        let at = Instant::now() - self.start;
        let record = Record { at, ends, heard };
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }
}

/// What a connection is for. Its first bytes tell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Purpose {
    /// A session.
    Session,
    /// A question, after whose answer the server ends the connection.
    Question,
}

/// A connection whose frames are recorded; see [`Tap::connect`].
#[derive(Debug)]
pub struct Tapped {
    stream: DuplexStream,
    tap: Tap,
    ends: Ends,
    purpose: Option<Purpose>,
    conversation: Conversation,
    asked: (BytesMut, FrameDecoder),
    answered: (BytesMut, FrameDecoder),
    has_ended: bool,
}

impl Tapped {
    fn hear(&mut self, side: Side, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.purpose.is_none() {
            let is_question = side == Side::Client && bytes == QUESTION;
            if !is_question {
                self.tap.push(self.ends, Heard::Begin);
            }
            self.purpose = Some(if is_question { Purpose::Question } else { Purpose::Session });
        }
        if self.purpose == Some(Purpose::Question) {
            let word = String::from_utf8_lossy(bytes).into_owned();
            self.tap.push(self.ends, Heard::Word(side, word));
            return;
        }
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
            self.tap.push(self.ends, Heard::Frame(side, message));
        }
    }

    /// Records the end of the connection once, unless the end belongs to an answer.
    fn end(&mut self, heard: Heard) {
        let has_ended = std::mem::replace(&mut self.has_ended, true);
        if !has_ended && self.purpose == Some(Purpose::Session) {
            self.tap.push(self.ends, heard);
        }
    }
}

impl Drop for Tapped {
    fn drop(&mut self) {
        self.end(Heard::Leave);
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
        if read.is_ready() && is_end {
            self.end(Heard::End);
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
