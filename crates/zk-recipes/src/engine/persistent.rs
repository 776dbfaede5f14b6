//! A persistent watch in whichever session the client has.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytestring::ByteString;
use jute_codec::ErrorCode;
use zk_session::{Client, Op, OpError, SessionId, WatchEnded, WatchItem, WatchMode, WatchStream};

use crate::engine::drive::rest;
use crate::machine::{News, Pauses};

/// A persistent watch of a znode. It is set when it is polled, and again when its session ends.
pub(crate) struct PersistentWatch {
    client: Client,
    path: ByteString,
    mode: WatchMode,
    pauses: Pauses,
    feed: Feed,
}

enum Feed {
    /// The watch has to be set.
    Unset,
    /// The watch is being set.
    Setting(Op<WatchStream>),
    Watching(WatchStream),
    /// There is no persistent watch in this session.
    Unsupported(Option<SessionId>),
    /// A server could not set the watch.
    Paused(Pin<Box<dyn Future<Output = Pauses> + Send>>),
    /// The client has stopped.
    Ended,
}

impl PersistentWatch {
    pub(crate) fn new(client: &Client, path: &ByteString, mode: WatchMode) -> Self {
        let (client, path) = (client.clone(), path.clone());
        Self { client, path, mode, pauses: Pauses::default(), feed: Feed::Unset }
    }

    /// Waits for the next item of the watch, or makes progress with setting it. Poll it before a
    /// lane, so that the events that precede a reply are known before the reply.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<News> {
        match &mut self.feed {
            Feed::Watching(_) => self.poll_item(cx),
            Feed::Ended
            | Feed::Paused(_)
            | Feed::Setting(_)
            | Feed::Unset
            | Feed::Unsupported(_) => self.poll_set(cx),
        }
    }

    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<News> {
        let Feed::Watching(stream) = &mut self.feed else { return Poll::Pending };
        // Unlike `next`, `try_next` is not subject to tokio's cooperative budget.
        let item = match stream.try_next().transpose() {
            Some(item) => item,
            None => ready!(pin!(stream.next()).poll(cx)),
        };
        Poll::Ready(match item {
            Ok(WatchItem::Event(event)) => News::Event(event.kind, event.path),
            Ok(_) => News::Missed,
            Err(WatchEnded::Unsupported) => self.is_unsupported(),
            Err(WatchEnded::Closed) => {
                self.feed = Feed::Ended;
                News::Lost
            }
            // The session has ended, or another part of the program has removed the watches of the
            // path.
            Err(_) => {
                self.feed = Feed::Unset;
                News::Lost
            }
        })
    }

    /// Makes progress with setting the watch.
    fn poll_set(&mut self, cx: &mut Context<'_>) -> Poll<News> {
        loop {
            match &mut self.feed {
                Feed::Unset => {
                    self.feed = Feed::Setting(self.client.watch(&self.path, self.mode));
                }
                Feed::Setting(op) => {
                    let result = ready!(Pin::new(op).poll(cx));
                    if let Some(news) = self.was_set(result) {
                        return Poll::Ready(news);
                    }
                    // Other sources of events come first: they say when the client has stopped.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Feed::Paused(pause) => {
                    self.pauses = ready!(pause.as_mut().poll(cx));
                    self.feed = Feed::Unset;
                }
                // The server of the next session may be a newer one.
                Feed::Unsupported(session) if *session != self.client.session_id() => {
                    self.feed = Feed::Unset;
                }
                Feed::Ended | Feed::Unsupported(_) | Feed::Watching(_) => return Poll::Pending,
            }
        }
    }

    /// Returns what has become of the watch, if that is decided.
    fn was_set(&mut self, result: Result<WatchStream, OpError>) -> Option<News> {
        self.feed = match result {
            Ok(stream) => {
                self.pauses.reset();
                self.feed = Feed::Watching(stream);
                return Some(News::Set);
            }
            Err(
                OpError::ConnectionLoss { .. }
                | OpError::RuntimeStopped { .. }
                | OpError::SessionExpired { .. }
                | OpError::TimedOut { .. },
            ) => Feed::Unset,
            Err(
                OpError::Server {
                    code: ErrorCode::THROTTLED_OP | ErrorCode::NOT_READ_ONLY, ..
                }
                | OpError::QueueFull { .. },
            ) => {
                let (client, mut pauses) = (self.client.clone(), self.pauses);
                Feed::Paused(Box::pin(async move {
                    rest(&client, &mut pauses).await;
                    pauses
                }))
            }
            Err(OpError::AuthFailed | OpError::Closed { .. }) => Feed::Ended,
            // Besides an old server, this is one that refuses the watch. Whether it also refuses
            // reads is reported by those.
            Err(_) => return Some(self.is_unsupported()),
        };
        None
    }

    fn is_unsupported(&mut self) -> News {
        self.feed = Feed::Unsupported(self.client.session_id());
        News::Unsupported
    }
}

impl fmt::Debug for PersistentWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let feed = match &self.feed {
            Feed::Ended => "ended",
            Feed::Paused(_) => "paused",
            Feed::Setting(_) => "setting",
            Feed::Unset => "unset",
            Feed::Unsupported(_) => "unsupported",
            Feed::Watching(_) => "watching",
        };
        f.debug_struct("PersistentWatch").field("feed", &feed).finish_non_exhaustive()
    }
}
