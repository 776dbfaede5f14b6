//! Learning of new members from the events of a persistent watch.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytestring::ByteString;
use jute_codec::{ErrorCode, EventType};
use zk_session::{Client, Op, OpError, SessionId, WatchEnded, WatchItem, WatchMode, WatchStream};

use crate::engine::drive::rest;
use crate::machine::Pauses;

/// A recursive persistent watch of the directory of a group. It is set again when its session ends.
pub(super) struct Names {
    client: Client,
    directory: ByteString,
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

/// What a group learns from its persistent watch.
#[derive(Debug)]
pub(super) enum News {
    /// A znode in or below the directory has changed.
    Event(EventType, ByteString),
    /// Events may have been missed. The watch is in place.
    Missed,
    /// The watch is gone, and will be set again.
    Lost,
    /// The watch was set.
    Set,
    /// There is no persistent watch in this session.
    Unsupported,
}

impl Names {
    pub(super) fn new(client: &Client, directory: &ByteString) -> Self {
        let (client, directory) = (client.clone(), directory.clone());
        Self { client, directory, pauses: Pauses::default(), feed: Feed::Unset }
    }

    /// Takes the next item of the watch.
    pub(super) fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<News> {
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
    pub(super) fn poll_set(&mut self, cx: &mut Context<'_>) -> Poll<News> {
        loop {
            match &mut self.feed {
                Feed::Unset => {
                    let mode = WatchMode::Recursive;
                    self.feed = Feed::Setting(self.client.watch(&self.directory, mode));
                }
                Feed::Setting(op) => {
                    let result = ready!(Pin::new(op).poll(cx));
                    return Poll::Ready(self.was_set(result));
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

    fn was_set(&mut self, result: Result<WatchStream, OpError>) -> News {
        match result {
            Ok(stream) => {
                self.pauses.reset();
                self.feed = Feed::Watching(stream);
                News::Set
            }
            Err(
                OpError::ConnectionLoss { .. }
                | OpError::SessionExpired { .. }
                | OpError::TimedOut { .. },
            ) => {
                self.feed = Feed::Unset;
                News::Lost
            }
            Err(
                OpError::Server {
                    code: ErrorCode::THROTTLED_OP | ErrorCode::NOT_READ_ONLY, ..
                }
                | OpError::QueueFull { .. },
            ) => {
                let (client, mut pauses) = (self.client.clone(), self.pauses);
                let pause = async move {
                    rest(&client, &mut pauses).await;
                    pauses
                };
                self.feed = Feed::Paused(Box::pin(pause));
                News::Lost
            }
            Err(OpError::AuthFailed | OpError::Closed { .. }) => {
                self.feed = Feed::Ended;
                News::Lost
            }
            // Besides an old server, this is one that refuses the watch. Whether it also refuses the
            // list is reported by the list.
            Err(_) => self.is_unsupported(),
        }
    }

    fn is_unsupported(&mut self) -> News {
        self.feed = Feed::Unsupported(self.client.session_id());
        News::Unsupported
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let feed = match &self.feed {
            Feed::Ended => "ended",
            Feed::Paused(_) => "paused",
            Feed::Setting(_) => "setting",
            Feed::Unset => "unset",
            Feed::Unsupported(_) => "unsupported",
            Feed::Watching(_) => "watching",
        };
        f.debug_struct("Names").field("feed", &feed).finish_non_exhaustive()
    }
}
