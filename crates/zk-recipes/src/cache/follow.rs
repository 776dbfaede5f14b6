//! A cache that is driven by its user.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytestring::ByteString;
use jute_codec::Request;
use zk_session::recipe::{Change, Flight, Lane, LaneEvent, Operation, Session, Token};
use zk_session::{
    Client, GapCause, OpError, SessionState, Time, WatchEnded, WatchItem, WatchOptions, WatchStream,
};

use super::error::CacheError;
use super::event::{CacheEvent, CachedNode};
use super::log::Log;
use super::machine::{CacheMachine, Read, Source, operation};
use super::stats::CacheStats;
use crate::engine::feed::view;
use crate::machine::{is_check_due, next_check};
use crate::stream::stream;

/// How long the cache waits after a server could not serve a read.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause before the cache reads again what it could not read.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The fewest events that may wait while nobody polls the cache.
const EVENTS_MIN: usize = 1024;

/// A copy of a znode, of a znode and its children, or of a tree.
///
/// The cache follows the servers while [`next`](Self::next) is awaited: it has no task of its own.
/// Between two calls its contents stay the same, and what the servers report meanwhile is kept up to
/// a limit; beyond that, everything is read again.
///
/// **What it shows.** Each znode is shown as one read has returned it, and never goes back to an
/// earlier state, so it is never shown in a state in which it never was. States that follow each
/// other fast may be skipped. Different znodes may be shown as of different times.
///
/// **Connection loss.** The cache survives lost connections and expired sessions. After each of them
/// it reports [`CacheEvent::Gap`], reads everything again with a limited number of requests, reports
/// the differences, and then [`CacheEvent::Complete`].
///
/// **Lost permissions.** Servers report no change to whoever may not read the znode, and tell nobody
/// that permissions have changed. So the cache reads something again every 30 s, one znode after the
/// other. If it is refused, or finds what no event has reported, it treats that as a gap.
///
/// **Old servers.** Servers before 3.6 do not know persistent watches. The cache then uses watches
/// on each znode and each list of children, which cost two requests per znode and no gaps.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use zk_recipes::{Cache, CacheEvent, Client, CreateMode};
///
/// let client = Client::connect(format!("{address}/app")).await?;
/// client.create("/config", "", CreateMode::Persistent).await?;
/// client.create("/config/color", "red", CreateMode::Persistent).await?;
///
/// let mut config = Cache::tree(&client, "/config").build()?;
/// config.complete().await?;
/// assert_eq!(config.get("/config/color").map(|node| &*node.data), Some(&b"red"[..]));
///
/// client.set_data("/config/color", "blue", None).await?;
/// let CacheEvent::Changed { path, node, .. } = config.next().await? else { panic!() };
/// assert_eq!((&*path, &*node.data), ("/config/color", &b"blue"[..]));
/// # Ok(()) }
/// ```
pub struct Cache {
    client: Client,
    machine: CacheMachine,
    lane: Lane,
    feed: Feed,
    reads: BTreeMap<Token, Vec<Read>>,
    /// When to continue after a pause.
    resume_at: Option<Time>,
    /// When to read again what could not be read, and the pause before.
    retry: Option<(Time, Duration)>,
    /// When to read something again although no event says that it has changed.
    check_at: Time,
    log: Log,
    /// The stream has yielded why the cache has ended.
    has_ended: bool,
}

/// Where the events come from.
enum Feed {
    /// The watch is being set.
    Setting(zk_session::Op<WatchStream>),
    /// A persistent watch.
    Watching(WatchStream),
    /// Watches of the lane.
    OneShot,
    /// A server could not set the watch.
    Paused,
    /// There is nothing left to follow.
    Ended,
}

impl Cache {
    pub(super) fn new(client: Client, machine: CacheMachine) -> Self {
        let lane = Session::of(&client).lane();
        let reads = BTreeMap::new();
        let (feed, log) = (Feed::Paused, Log::default());
        let check_at = next_check(view(&lane));
        let mut cache = Self {
            client,
            machine,
            lane,
            feed,
            reads,
            resume_at: None,
            retry: None,
            check_at,
            log,
            has_ended: false,
        };
        cache.lane.wake_at(check_at);
        cache.set_watch();
        cache
    }

    /// Follows the servers until something in the cache changes.
    ///
    /// A lost **connection** is reported as [`CacheEvent::Gap`] after the reconnect, and is never an
    /// error. **Cancel safe**: no change is lost.
    ///
    /// # Errors
    ///
    /// Fails if the client is closed, or if there is more to cache than the limits allow. Each later
    /// call fails too.
    pub async fn next(&mut self) -> Result<CacheEvent, CacheError> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Follows the servers until the cache shows everything, and discards the changes on the way.
    /// Returns at once if that is the case already.
    ///
    /// If the path of the cache does not exist, the cache is complete and empty; see
    /// [`is_missing`](Self::is_missing).
    ///
    /// After a lost **connection** it waits for the next one, without a limit. **Cancel safe**: the
    /// cache continues with the next call.
    ///
    /// # Errors
    ///
    /// Fails like [`next`](Self::next), and with [`CacheError::Unreadable`] if something could not
    /// be read. In that case the cache continues, and another call tries again.
    pub async fn complete(&mut self) -> Result<(), CacheError> {
        if self.machine.obstacle().is_some() {
            self.machine.retry_unreadable();
        }
        poll_fn(|cx| self.poll_complete(cx)).await?;
        // The changes up to here are in the cache.
        while let Some(event) = self.take_news() {
            event?;
        }
        Ok(())
    }

    fn poll_complete(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CacheError>> {
        loop {
            let is_pending = match self.poll_event(cx) {
                _ if self.is_complete() => return Poll::Ready(Ok(())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(_)) => false,
                Poll::Pending => true,
            };
            if let Some(obstacle) = self.machine.obstacle() {
                return Poll::Ready(Err(obstacle));
            }
            if is_pending {
                return Poll::Pending;
            }
        }
    }

    /// Returns whether the cache shows everything that it follows. This is not the case before the
    /// first read has completed, after a gap, and while something is [unreadable](Self::unreadable).
    pub fn is_complete(&self) -> bool {
        self.machine.is_complete()
    }

    /// Returns whether the cache is complete and its path does not exist.
    pub fn is_missing(&self) -> bool {
        self.is_complete() && self.get(self.path()).is_none()
    }

    /// Returns the paths that could not be read although they exist, with the reasons. A path has
    /// two entries if neither its data nor the list of its children could be read.
    pub fn unreadable(&self) -> impl Iterator<Item = (&ByteString, &OpError)> {
        self.machine.unreadable().iter()
    }

    /// Returns a znode in the cache.
    pub fn get(&self, path: &str) -> Option<&Arc<CachedNode>> {
        self.machine.nodes().get(path)
    }

    /// Returns all znodes in the cache, in the order of their paths.
    pub fn iter(&self) -> impl Iterator<Item = (&ByteString, &Arc<CachedNode>)> {
        self.machine.nodes().iter()
    }

    /// Returns the number of znodes in the cache.
    pub fn len(&self) -> usize {
        self.machine.nodes().len()
    }

    /// Returns whether there is no znode in the cache.
    pub fn is_empty(&self) -> bool {
        self.machine.nodes().is_empty()
    }

    /// Returns the figures of the cache: its size, its gaps and its reads.
    pub fn stats(&self) -> CacheStats {
        self.machine.stats()
    }

    /// Returns the path of the cache.
    pub fn path(&self) -> &str {
        self.machine.root()
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CacheEvent, CacheError>> {
        loop {
            if let Some(news) = self.take_news() {
                return Poll::Ready(news);
            }
            // Events that wait are taken first, so that several changes of a znode cost one read.
            let mut moved = false;
            while self.poll_feed(cx) {
                moved = true;
            }
            self.send_reads();
            if let Poll::Ready(event) = self.lane.poll_next(cx) {
                // Events that precede a reply on the connection are in the stream by now.
                while self.poll_feed(cx) {}
                self.handle(event);
                moved = true;
            }
            if !moved {
                match self.take_news() {
                    Some(news) => return Poll::Ready(news),
                    None => return Poll::Pending,
                }
            }
        }
    }

    fn take_news(&mut self) -> Option<Result<CacheEvent, CacheError>> {
        let news = self.machine.poll_news()?;
        if news.is_err() {
            // A cache that has ended needs no watch.
            self.feed = Feed::Ended;
        }
        if let Ok(event) = &news {
            self.log.event(self.client.now(), self.machine.root(), event, self.is_missing());
        }
        Some(news)
    }

    /// Takes an item of the stream, or makes progress with its watch. Returns false if there is
    /// nothing to do until the task is woken.
    fn poll_feed(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.feed {
            Feed::Setting(op) => {
                let Poll::Ready(result) = Pin::new(op).poll(cx) else { return false };
                self.watch_set(result);
                true
            }
            Feed::Watching(stream) => {
                // Unlike `next`, this is not subject to tokio's cooperative budget.
                let item = match stream.try_next() {
                    Ok(None) => match pin!(stream.next()).poll(cx) {
                        Poll::Ready(item) => item,
                        Poll::Pending => return false,
                    },
                    Ok(Some(item)) => Ok(item),
                    Err(ended) => Err(ended),
                };
                self.handle_item(item);
                true
            }
            Feed::Ended | Feed::OneShot | Feed::Paused => false,
        }
    }

    fn watch_set(&mut self, result: Result<WatchStream, OpError>) {
        match result {
            Ok(stream) => {
                self.feed = Feed::Watching(stream);
                self.start(Source::Persistent);
            }
            Err(OpError::Unsupported { .. }) => {
                self.feed = Feed::OneShot;
                self.start(Source::OneShot);
            }
            Err(OpError::ConnectionLoss { .. } | OpError::SessionExpired { .. }) => {
                self.set_watch()
            }
            Err(OpError::AuthFailed | OpError::Closed { .. }) => self.end(CacheError::Closed),
            Err(OpError::QueueFull { .. } | OpError::Server { .. }) => {
                self.feed = Feed::Paused;
                self.pause();
            }
            Err(error) => self.end(CacheError::Client(error)),
        }
    }

    fn set_watch(&mut self) {
        if matches!(
            self.lane.status().state,
            SessionState::AuthFailed | SessionState::Closed | SessionState::Expired
        ) {
            // There is no other session to set it in: each request would be refused at once.
            return self.end(CacheError::Closed);
        }
        // As many events as there are znodes cost less memory than the cache, and fewer reads than
        // a gap.
        let capacity = self.machine.nodes_max().max(EVENTS_MIN);
        let options = WatchOptions::new(self.machine.watch_mode()).capacity(capacity);
        self.feed = Feed::Setting(self.client.watch(self.machine.root(), options));
    }

    /// Begins to read. A session may be resumed, or another one opened, on a server that lags
    /// behind, so what it has to show first is everything that was committed before.
    fn start(&mut self, source: Source) {
        let sync = Operation::new(Request::Sync(self.machine.root().clone()));
        let flight = Flight { operations: vec![sync], session: None, deadline: None };
        if self.lane.submit(flight).is_err() {
            return self.end(CacheError::Closed);
        }
        self.machine.start(source);
    }

    fn handle_item(&mut self, item: Result<WatchItem, WatchEnded>) {
        match item {
            Ok(WatchItem::Event(event)) => self.machine.event(event.kind, &event.path),
            Ok(WatchItem::Gap(cause)) => self.machine.gap(cause == GapCause::Overflow, true),
            Err(WatchEnded::SessionExpired) => {
                self.machine.gap(false, false);
                self.set_watch();
            }
            Err(WatchEnded::Unsupported) => {
                self.machine.gap(false, false);
                self.feed = Feed::OneShot;
                self.start(Source::OneShot);
            }
            Err(WatchEnded::Removed) => self.end(CacheError::WatchRemoved),
            Ok(_) | Err(_) => self.end(CacheError::Closed),
        }
    }

    fn handle(&mut self, event: LaneEvent) {
        match event {
            LaneEvent::Alarm => self.handle_alarm(),
            LaneEvent::Change(Change::Ended { .. }) => {
                // The session's watches have ended with it.
                if matches!(self.feed, Feed::OneShot) {
                    self.machine.gap(false, false);
                    self.set_watch();
                }
            }
            LaneEvent::Reply { token, reply } => {
                // The reply to a sync belongs to no read.
                if let Some(reads) = self.reads.remove(&token)
                    && let Some(result) = reply.results.into_iter().next()
                {
                    self.machine.replies(&reads, result);
                    self.arm_retry();
                    if self.machine.is_paused() {
                        self.pause();
                    }
                }
            }
            LaneEvent::Watch { number, kind } => self.machine.fired(number, kind),
            LaneEvent::Stopped => self.end(CacheError::Closed),
            LaneEvent::Change(_) | _ => {}
        }
    }

    fn handle_alarm(&mut self) {
        let now = self.client.now();
        if self.resume_at.is_some_and(|at| at <= now) {
            self.resume_at = None;
            self.machine.resume();
            if matches!(self.feed, Feed::Paused) {
                self.set_watch();
            }
        }
        if let Some((at, pause)) = self.retry
            && at <= now
        {
            let pause = (pause * 2).min(RETRY_MAX);
            self.retry = Some((now + pause, pause));
            self.machine.retry_unreadable();
        }
        let view = view(&self.lane);
        if is_check_due(view, &mut self.check_at) {
            self.check_at = next_check(view);
            self.machine.check();
        }
        let retry_at = self.retry.map(|(at, _)| at);
        for at in self.resume_at.into_iter().chain(retry_at).chain([self.check_at]) {
            self.lane.wake_at(at);
        }
    }

    /// Schedules another read of what could not be read.
    fn arm_retry(&mut self) {
        if self.machine.unreadable().len() == 0 {
            self.retry = None;
        } else if self.retry.is_none() {
            let at = self.client.now() + PAUSE;
            self.retry = Some((at, PAUSE));
            self.lane.wake_at(at);
        }
    }

    fn send_reads(&mut self) {
        if !matches!(self.feed, Feed::OneShot | Feed::Watching(_)) {
            // What is read before there is a watch would have to be read again.
            return;
        }
        while self.reads.len() < self.machine.requests_max() {
            let reads = self.machine.poll_reads();
            if reads.is_empty() {
                return;
            }
            let operations = vec![operation(&reads)];
            self.machine.sent();
            match self.lane.submit(Flight { operations, session: None, deadline: None }) {
                Ok(token) => drop(self.reads.insert(token, reads)),
                Err(_) => return self.end(CacheError::Closed),
            }
        }
    }

    fn pause(&mut self) {
        let at = self.resume_at.unwrap_or_else(|| self.client.now() + PAUSE);
        self.resume_at = Some(at);
        self.lane.wake_at(at);
    }

    fn end(&mut self, error: CacheError) {
        self.feed = Feed::Ended;
        self.machine.fail(error);
    }
}

stream!(Cache, CacheEvent, CacheError);

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("path", &self.path())
            .field("is_complete", &self.is_complete())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
