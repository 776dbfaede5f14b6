//! Streams of the events of persistent watches.

use std::fmt;
use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytestring::ByteString;
use futures_core::Stream;
use jute_codec::{
    AddWatchMode, AddWatchRequest, ErrorCode, Request, Response, WatcherType, WatchesRequest,
};

use crate::chroot::translate::{Root, event_to_client};
use crate::client::Client;
use crate::driver::command::{Command, WatchSender};
use crate::driver::shared::Shared;
use crate::driver::watch_queue::{WatchReceiver, watch_queue};
use crate::error::{OpError, WatchEnded};
use crate::machine::{Operation, OwnerId, WatchMode, WatchNumber};
use crate::operation::op::Op;
use crate::path;
use crate::watch::item::WatchItem;

/// Default of [`WatchOptions::capacity`].
pub const WATCH_CAPACITY_DEFAULT: usize = 1024;

/// Options of a persistent watch; see [`Client::watch`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "options do nothing until a watch is set with them"]
pub struct WatchOptions {
    mode: WatchMode,
    capacity: usize,
}

impl WatchOptions {
    /// Creates options with the default capacity.
    pub fn new(mode: WatchMode) -> Self {
        Self { mode, capacity: WATCH_CAPACITY_DEFAULT }
    }

    /// Sets how many items the stream holds while nobody reads it. One more item replaces all of
    /// them by a [gap](crate::GapCause::Overflow). Default: 1024.
    pub fn capacity(mut self, items: usize) -> Self {
        self.capacity = items;
        self
    }
}

impl From<WatchMode> for WatchOptions {
    fn from(mode: WatchMode) -> Self {
        Self::new(mode)
    }
}

/// The events of a persistent watch; see [`Client::watch`].
///
/// Dropping the stream removes the watch. It keeps the client's session open.
///
/// From 3.8.4 and 3.9.2 on, a server discards the events about znodes that the client may not read
/// at that moment, and the stream shows no gap for them.
///
/// As a [`Stream`], it yields what [`next`](Self::next) returns, and ends after the first error. Both may
/// alternate.
#[must_use = "dropping the stream removes the watch"]
pub struct WatchStream {
    shared: Arc<Shared>,
    owner: OwnerId,
    path: ByteString,
    mode: WatchMode,
    items: WatchReceiver,
    /// The stream has yielded the reason for its end.
    has_ended: bool,
}

impl Client {
    /// Watches a znode, or with [`WatchMode::Recursive`] also all its descendants, until the stream
    /// is dropped. The znode need not exist. The watch reports every change that the server commits
    /// after its reply to this call; it stays in place when it fires, and when the znode is deleted.
    ///
    /// A read that is submitted after an event was taken shows the change, unless the client has
    /// reconnected in between, which causes a gap. Several events can have the same zxid, because a
    /// transaction can change several znodes.
    ///
    /// **Connection loss.** The stream survives. After each reconnect it yields
    /// [`WatchItem::Gap`], because servers do not report the changes in between. If the connection
    /// is lost before this call completes, the call fails with [`OpError::ConnectionLoss`], and
    /// there is no watch. The stream ends with its session.
    ///
    /// **Old servers.** Servers before 3.6 do not know persistent watches: the call fails with
    /// [`OpError::Unsupported`], and the server closes the connection. If the client is reconnected
    /// to such a server later, the stream ends with [`WatchEnded::Unsupported`].
    ///
    /// **Other watches.** One path can have any number of streams and one-shot watches, with servers
    /// of all versions. (Servers before 3.9 replace one by the other, so the client lets them share
    /// one watch.) If the path has streams of both modes, those of [`WatchMode::Persistent`] may
    /// report a created or deleted child twice; on servers of 3.7.3 to 3.8, they do not report
    /// children that the client may not read.
    pub fn watch(&self, path: &str, options: impl Into<WatchOptions>) -> Op<WatchStream> {
        let WatchOptions { mode, capacity } = options.into();
        if let Err(error) = path::validate(path) {
            return Op::failed(error);
        }
        let capacity = NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN);
        let shared = self.shared();
        let owner = shared.fresh_owner();
        let (sender, items) = watch_queue(capacity);
        let path = ByteString::from(path);
        // Created before the request is sent, so that no event can arrive before the stream exists.
        let stream = WatchStream {
            shared: Arc::clone(shared),
            owner,
            path: path.clone(),
            mode,
            items,
            has_ended: false,
        };
        let mode = match mode {
            WatchMode::Persistent => AddWatchMode::PERSISTENT,
            WatchMode::Recursive => AddWatchMode::PERSISTENT_RECURSIVE,
        };
        let request = Request::AddWatch(AddWatchRequest { path, mode });
        let operation = Operation::watched(request, WatchNumber::FIRST);
        let watcher = Some((owner, WatchSender::Stream(sender)));
        self.enqueue(Root::Client, operation, watcher, move |answer| {
            let _: Response = answer.result?;
            Ok(stream)
        })
    }

    /// Removes the watches of this type that this client has on a path, including those of its
    /// recipes. Their watchers and streams end with [`WatchEnded::Removed`]; all other watches stay.
    /// Usually, dropping the watcher or the stream is simpler.
    ///
    /// Fails with `NO_WATCHER` if there is none. After a lost connection the watches are still
    /// there. The removal is sent only when earlier calls that set watches on the path have
    /// completed; it delays the requests after it for that long. Servers before 3.9 can remove only
    /// all watches of a path, so the client then sets the others again, and streams among them yield
    /// a gap.
    pub fn remove_watches(&self, path: &str, kind: WatcherType) -> Op<()> {
        let request = WatchesRequest { path: path.into(), kind };
        self.about_watches(path, Request::RemoveWatches(request), |result| result.map(drop))
    }

    /// Returns whether this client has watches of this type on a path, and the server has watches
    /// there too.
    pub fn check_watches(&self, path: &str, kind: WatcherType) -> Op<bool> {
        let request = WatchesRequest { path: path.into(), kind };
        self.about_watches(path, Request::CheckWatches(request), |result| match result {
            Ok(_) => Ok(true),
            Err(OpError::Server { code: ErrorCode::NO_WATCHER, .. }) => Ok(false),
            Err(error) => Err(error),
        })
    }

    fn about_watches<T: 'static>(
        &self,
        path: &str,
        request: Request,
        convert: impl FnOnce(Result<Response, OpError>) -> Result<T, OpError> + Send + 'static,
    ) -> Op<T> {
        match path::validate(path) {
            Ok(()) => {
                let operation = Operation::new(request);
                self.enqueue(Root::Client, operation, None, |answer| convert(answer.result))
            }
            Err(error) => Op::failed(error),
        }
    }
}

impl WatchStream {
    /// Waits for the next item. Once the stream has ended, each call returns the reason.
    ///
    /// Cancel safe: no item is lost.
    ///
    /// # Errors
    ///
    /// Fails if the session has ended, the client is closed, or a server cannot restore the watch.
    pub async fn next(&mut self) -> Result<WatchItem, WatchEnded> {
        let item = poll_fn(|cx| self.items.poll_next(cx)).await?;
        Ok(self.seen(item))
    }

    /// Returns the next item if there is one.
    ///
    /// # Errors
    ///
    /// Fails like [`next`](Self::next).
    pub fn try_next(&mut self) -> Result<Option<WatchItem>, WatchEnded> {
        Ok(self.items.try_next().transpose()?.map(|item| self.seen(item)))
    }

    /// Gives an item from the session's task the paths of the handle that set the watch.
    fn seen(&self, mut item: WatchItem) -> WatchItem {
        if let WatchItem::Event(event) = &mut item {
            event_to_client(&self.shared.chroot, event);
        }
        item
    }

    /// Returns the watched path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns what the watch covers.
    pub fn mode(&self) -> WatchMode {
        self.mode
    }

    /// Returns how often the backlog exceeded the capacity and was replaced by a gap.
    pub fn overflows(&self) -> u64 {
        self.items.overflows()
    }
}

impl Stream for WatchStream {
    type Item = Result<WatchItem, WatchEnded>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let item = ready!(self.items.poll_next(cx));
        self.has_ended = item.is_err();
        Poll::Ready(Some(item.map(|item| self.seen(item))))
    }
}

impl fmt::Debug for WatchStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchStream")
            .field("path", &self.path)
            .field("mode", &self.mode)
            .field("backlog", &self.items.len())
            .finish_non_exhaustive()
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.shared.send(Command::RemoveOwner(self.owner));
    }
}
