//! Decides what a cache reads, and what it reports.
//!
//! Events say only that something has changed, so each of them causes a read. A node is shown as one
//! read has returned it, or not at all, so it is never shown in a state in which it never was.
//!
//! Replies and events arrive through different queues. The caller hands over all events that have
//! arrived before it hands over a reply; so a reply is never newer than an unknown event, but may be
//! older than a known one. A reply that may be older than a known deletion is discarded.
//!
//! A read that is refused says nothing about what there is. So what was known stays in the cache, and
//! the cache is incomplete until the read succeeds.
//!
//! With a persistent watch, the tree is listed only after a gap; between gaps, events name every
//! new znode, and one of them after the other is read again ([`check`]). With one-shot watches, each
//! znode has one watch on its data and one on its list.

mod batch;
mod check;
mod read;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{
    DataReply, ErrorCode, EventType, NameList, ReadOp, ReadResult, Request, Response,
};
use zk_session::recipe::{Operation, WatchNumber};
use zk_session::{OpError, Outcome, Stat, WatchMode};

use self::batch::Batches;
pub(super) use self::batch::operation;
use self::check::Checks;
pub(super) use self::read::Read;
use self::read::{Progress, Work, child};
use super::error::CacheError;
use super::event::{CacheEvent, CachedNode};
use super::stats::CacheStats;
use super::unreadable::{Aspect, Unreadable, is_marker};

/// The limits of a cache.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Limits {
    /// How many levels below the root are cached.
    pub(super) depth: usize,
    pub(super) nodes: usize,
    pub(super) bytes: usize,
    /// Maximum number of requests in flight.
    pub(super) reads: usize,
    /// The cache is complete although it could not read something below its root.
    pub(super) accepts_unreadable: bool,
}

/// How the cache learns of changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Source {
    /// A persistent watch.
    Persistent,
    /// A watch for each znode and list.
    OneShot,
}

/// The machine of a cache.
#[derive(Debug)]
pub(super) struct CacheMachine {
    root: ByteString,
    limits: Limits,
    source: Source,
    nodes: BTreeMap<ByteString, Arc<CachedNode>>,
    bytes: usize,
    work: BTreeMap<ByteString, Work>,
    queue: VecDeque<(ByteString, Aspect)>,
    /// Reads that a server could not serve; they are queued again after a pause.
    postponed: Vec<(ByteString, Aspect)>,
    /// What could not be read although it exists.
    unreadable: Unreadable,
    batches: Batches,
    checks: Checks,
    /// Number of paths whose work is deep.
    deep: usize,
    is_complete: bool,
    /// There is a source of events.
    is_started: bool,
    news: VecDeque<CacheEvent>,
    /// The one-shot watches that are set, or that reads in flight set.
    armed: BTreeMap<(ByteString, Aspect), WatchNumber>,
    by_number: BTreeMap<WatchNumber, (ByteString, Aspect)>,
    next_number: WatchNumber,
    error: Option<CacheError>,
    stats: CacheStats,
}

impl CacheMachine {
    pub(super) fn new(root: ByteString, limits: Limits) -> Self {
        Self {
            root,
            limits,
            source: Source::Persistent,
            nodes: BTreeMap::new(),
            bytes: 0,
            work: BTreeMap::new(),
            queue: VecDeque::new(),
            postponed: vec![],
            unreadable: Unreadable::default(),
            batches: Batches::default(),
            checks: Checks::default(),
            deep: 0,
            is_complete: false,
            is_started: false,
            news: VecDeque::new(),
            armed: BTreeMap::new(),
            by_number: BTreeMap::new(),
            next_number: WatchNumber::FIRST,
            error: None,
            stats: CacheStats::default(),
        }
    }

    /// Returns the mode of watch that reports what is cached.
    pub(super) fn watch_mode(&self) -> WatchMode {
        if self.limits.depth == 0 { WatchMode::Persistent } else { WatchMode::Recursive }
    }

    pub(super) fn root(&self) -> &ByteString {
        &self.root
    }

    pub(super) fn nodes_max(&self) -> usize {
        self.limits.nodes
    }

    /// Returns the maximum number of requests in flight.
    pub(super) fn requests_max(&self) -> usize {
        self.limits.reads
    }

    /// Counts a request.
    pub(super) fn sent(&mut self) {
        self.stats.requests += 1;
    }

    pub(super) fn nodes(&self) -> &BTreeMap<ByteString, Arc<CachedNode>> {
        &self.nodes
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn unreadable(&self) -> &Unreadable {
        &self.unreadable
    }

    /// Returns why the cache is incomplete although nothing is left to read, or `None`.
    pub(super) fn obstacle(&self) -> Option<CacheError> {
        if self.is_complete || self.deep > 0 || !self.is_started {
            return None;
        }
        let (path, error) = self.unreadable.iter().next()?;
        let (root, path) = (self.root.to_string(), path.to_string());
        Some(CacheError::Unreadable { root, path, error: error.clone() })
    }

    /// Reads again what could not be read.
    pub(super) fn retry_unreadable(&mut self) {
        let places: Vec<_> =
            self.unreadable.places().map(|(path, aspect)| (path.clone(), aspect)).collect();
        for (path, aspect) in places {
            self.request_deep(&path, aspect);
        }
    }

    pub(super) fn stats(&self) -> CacheStats {
        CacheStats {
            nodes: self.nodes.len(),
            bytes: self.bytes,
            uses_one_shot_watches: self.source == Source::OneShot,
            ..self.stats
        }
    }

    /// Takes the next change. The error, if any, is the last one.
    pub(super) fn poll_news(&mut self) -> Option<Result<CacheEvent, CacheError>> {
        match self.news.pop_front() {
            Some(event) => Some(Ok(event)),
            None => self.error.clone().map(Err),
        }
    }

    pub(super) fn fail(&mut self, error: CacheError) {
        self.error.get_or_insert(error);
    }

    /// Reads everything: the source of events is in place, and has missed what was before.
    pub(super) fn start(&mut self, source: Source) {
        self.source = source;
        self.is_started = true;
        self.armed.clear();
        self.by_number.clear();
        self.read_all();
    }

    /// Records that changes may have been missed. Reads everything again, unless there is no source
    /// of events; then [`start`](Self::start) follows.
    pub(super) fn gap(&mut self, is_overflow: bool, has_source: bool) {
        self.stats.gaps += 1;
        self.stats.overflows += u64::from(is_overflow);
        self.news.push_back(CacheEvent::Gap);
        self.is_complete = false;
        self.is_started = has_source;
        self.checks.stop();
        // The events of deletions may be among those that were missed.
        for work in self.work.values_mut() {
            work.data.discard();
        }
        if has_source {
            self.read_all();
        }
    }

    fn read_all(&mut self) {
        self.is_complete = false;
        let root = self.root.clone();
        self.request_deep(&root, Aspect::Data);
    }

    /// Handles an event of the persistent watch.
    pub(super) fn event(&mut self, kind: EventType, path: &ByteString) {
        if self.depth(path).is_some_and(|depth| depth <= self.limits.depth) && !self.hides(path) {
            self.changed(kind, path);
            self.note_complete();
        }
    }

    /// Handles the event of a one-shot watch.
    pub(super) fn fired(&mut self, number: WatchNumber, kind: EventType) {
        let Some((path, aspect)) = self.by_number.remove(&number) else { return };
        self.armed.remove(&(path.clone(), aspect));
        match aspect {
            Aspect::List if kind != EventType::NODE_DELETED => self.request(&path, Aspect::List),
            Aspect::Data | Aspect::List => {
                self.changed(kind, &path);
                if path == self.root {
                    // Nothing else reports that it is created again.
                    self.request(&path, Aspect::Data);
                }
            }
        }
    }

    fn hides(&self, path: &ByteString) -> bool {
        *path != self.root && is_marker(path)
    }

    fn changed(&mut self, kind: EventType, path: &ByteString) {
        self.checks.explain(path);
        match kind {
            EventType::NODE_DELETED => {
                self.remove(path);
                if let Some(work) = self.work.get_mut(path) {
                    work.data.discard();
                }
            }
            EventType::NODE_CHILDREN_CHANGED => {}
            _ => self.request(path, Aspect::Data),
        }
    }

    fn request(&mut self, path: &ByteString, aspect: Aspect) {
        let work = self.work.entry(path.clone()).or_default();
        work.awaits_creation &= aspect != Aspect::Data;
        match work.of(aspect) {
            idle @ Progress::Idle => {
                *idle = Progress::Queued;
                self.queue.push_back((path.clone(), aspect));
            }
            Progress::Queued => {}
            Progress::InFlight { again, .. } => *again = true,
        }
        self.check_limits();
    }

    fn request_deep(&mut self, path: &ByteString, aspect: Aspect) {
        self.request(path, aspect);
        let Some(work) = self.work.get_mut(path) else { return };
        for progress in [&mut work.data, &mut work.list] {
            if let Progress::InFlight { is_late, .. } = progress {
                *is_late = true;
            }
        }
        self.deepen(path);
    }

    /// Extends the reads of a znode to everything below it.
    fn deepen(&mut self, path: &ByteString) {
        let work = self.work.entry(path.clone()).or_default();
        if !std::mem::replace(&mut work.is_deep, true) {
            self.deep += 1;
        }
    }

    /// Takes the next read to send.
    pub(super) fn poll_read(&mut self) -> Option<Read> {
        if self.error.is_some() {
            return None;
        }
        let (path, aspect) = self.queue.pop_front()?;
        self.stats.reads += 1;
        let work = self.work.entry(path.clone()).or_default();
        *work.of(aspect) = Progress::InFlight { again: false, discard: false, is_late: false };
        let is_exists = aspect == Aspect::Data && work.awaits_creation;
        let place = (path.clone(), aspect);
        // A watch that is set already reports what a second one would.
        let watch = (self.source == Source::OneShot && !self.armed.contains_key(&place))
            .then_some(self.next_number);
        if let Some(number) = watch {
            self.next_number = number.next();
            self.armed.insert(place.clone(), number);
            self.by_number.insert(number, place);
        }
        Some(Read { path, aspect, watch, is_exists })
    }

    /// Handles the reply to a read.
    pub(super) fn reply(&mut self, read: &Read, result: Result<Response, OpError>) {
        let Read { path, aspect, .. } = read;
        let work = self.work.entry(path.clone()).or_default();
        let progress = std::mem::take(work.of(*aspect));
        let (again, discard, mut is_late) = match progress {
            Progress::InFlight { again, discard, is_late } => (again, discard, is_late),
            Progress::Idle | Progress::Queued => unreachable!("it was in flight"),
        };
        if self.has_missed(read, &result) {
            self.gap(false, true);
            is_late = true;
        }
        if discard || again {
            // Before the result, which may request the same.
            self.request(path, *aspect);
        }
        // Otherwise what is below has to be read after another reply.
        let is_final = !discard && !is_late;
        match result {
            Ok(Response::GetData(found)) if !discard => self.found(path, found, is_final),
            Ok(Response::GetData(_)) => {}
            Ok(Response::Exists(_)) => self.request(path, Aspect::Data),
            Ok(Response::GetChildren(names)) => {
                let names: Vec<ByteString> = names.into();
                self.listed(path, &names, is_final);
            }
            Ok(other) => unreachable!("the reply was decoded as that of another read: {other:?}"),
            Err(error) => self.failed(read, &error, is_final),
        }
        self.tidy(path);
    }

    fn failed(&mut self, read: &Read, error: &OpError, is_final: bool) {
        let Read { path, aspect, watch, is_exists } = read;
        let is_missing = error.server_code() == Some(ErrorCode::NO_NODE);
        if let Some(number) = watch
            && !(is_missing && *is_exists)
        {
            self.by_number.remove(number);
            self.armed.remove(&(path.clone(), *aspect));
        }
        match error {
            _ if is_missing => {
                self.remove(path);
                self.settle(path, is_final);
                if *aspect == Aspect::List {
                    // Whether it exists is a question of its data.
                    self.request(path, Aspect::Data);
                } else if *path == self.root && self.source == Source::OneShot && !is_exists {
                    self.request(path, Aspect::Data);
                    if let Some(work) = self.work.get_mut(path) {
                        work.awaits_creation = true;
                    }
                }
            }
            OpError::ConnectionLoss { .. }
            | OpError::RuntimeStopped { .. }
            | OpError::SessionExpired { .. }
            | OpError::TimedOut { .. } => {
                self.request(path, *aspect);
            }
            OpError::ResponseTooLarge { .. } | OpError::Undecodable { .. } => {
                self.refused(path, *aspect, error, is_final)
            }
            _ if error.server_code() == Some(ErrorCode::NO_AUTH) => {
                self.refused(path, *aspect, error, is_final)
            }
            OpError::Server { .. } => {
                if self.work.get(path).is_some_and(|work| work.of_ref(*aspect) == Progress::Idle) {
                    self.postponed.push((path.clone(), *aspect));
                }
            }
            OpError::AuthFailed | OpError::Closed { .. } => self.fail(CacheError::Closed),
            OpError::ChrootMissing { .. }
            | OpError::InvalidPath { .. }
            | OpError::QueueFull { .. }
            | OpError::Recalled { .. }
            | OpError::RequestTooLarge { .. }
            | OpError::Unsupported { .. }
            | _ => self.fail(CacheError::Client(error.clone())),
        }
    }

    /// Returns whether reads wait for a pause.
    pub(super) fn is_paused(&self) -> bool {
        !self.postponed.is_empty()
    }

    /// Sends the reads again that a server could not serve.
    pub(super) fn resume(&mut self) {
        for (path, aspect) in std::mem::take(&mut self.postponed) {
            self.request(&path, aspect);
        }
    }

    /// Keeps what is known of a place that could not be read, and reads what is known below it: the
    /// refusal says nothing about those znodes.
    fn refused(&mut self, path: &ByteString, aspect: Aspect, error: &OpError, is_final: bool) {
        self.stats.unreadable += 1;
        if self.unreadable.insert(path, aspect, error.clone()) {
            self.is_complete &= self.is_accepted(path);
            let (path, error) = (path.clone(), error.clone());
            self.news.push_back(CacheEvent::Unreadable { path, error });
        }
        if is_final && self.work.get(path).is_some_and(|work| work.is_deep) {
            for child in self.children(path) {
                self.request_deep(&child, Aspect::Data);
            }
        }
        self.settle(path, is_final);
        self.check_limits();
    }

    /// Reads what is below a place that could not be read before: the refusal has ended that read.
    fn readable(&mut self, path: &ByteString, aspect: Aspect) {
        if self.unreadable.remove(path, aspect) {
            self.deepen(path);
        }
    }

    fn is_accepted(&self, path: &ByteString) -> bool {
        self.limits.accepts_unreadable && *path != self.root
    }

    fn found(&mut self, path: &ByteString, found: DataReply, is_final: bool) {
        self.readable(path, Aspect::Data);
        let stat = Stat::from(found.stat);
        // A slice of the reply would keep all received bytes in memory.
        let data = Bytes::copy_from_slice(&found.data.unwrap_or_default());
        self.batches.found(data.len());
        let node = Arc::new(CachedNode { data, stat });
        let cost = node.cost(path);
        match self.nodes.get(path).cloned() {
            None => {
                self.bytes += cost;
                self.nodes.insert(path.clone(), Arc::clone(&node));
                self.news.push_back(CacheEvent::Added { path: path.clone(), node });
            }
            Some(old) if node.is_older(&old) => {}
            Some(old) => {
                self.bytes = self.bytes + cost - old.cost(path);
                self.nodes.insert(path.clone(), Arc::clone(&node));
                if (old.stat.czxid, old.stat.mzxid) != (stat.czxid, stat.mzxid) {
                    let path = path.clone();
                    self.news.push_back(CacheEvent::Changed { path, node, previous: old });
                }
            }
        }
        self.check_limits();
        let is_inner = self.depth(path).is_some_and(|depth| depth < self.limits.depth);
        let is_deep = is_final && self.work.get(path).is_some_and(|work| work.is_deep);
        let needs_watch = self.source == Source::OneShot
            && !self.armed.contains_key(&(path.clone(), Aspect::List));
        if is_inner && (needs_watch || is_deep && stat.num_children > 0) {
            self.request(path, Aspect::List);
        } else if is_deep {
            for child in self.children(path) {
                self.request_deep(&child, Aspect::Data);
            }
            self.settle(path, is_final);
        }
    }

    fn listed(&mut self, path: &ByteString, names: &[ByteString], is_final: bool) {
        self.readable(path, Aspect::List);
        let names: Vec<_> = names.iter().filter(|name| !is_marker(name)).collect();
        let is_deep = self.work.get(path).is_some_and(|work| work.is_deep);
        let listed = |name: &ByteString| child(path, name);
        // A znode that is not in the list may be newer than the list, so it is read too.
        let mut children = self.children(path);
        children.extend(names.iter().copied().map(listed));
        children.sort_unstable();
        children.dedup();
        let mut listed: Vec<_> = names.into_iter().map(listed).collect();
        listed.sort_unstable();
        for child in children {
            if is_deep {
                self.request_deep(&child, Aspect::Data);
            } else if self.nodes.contains_key(&child) != listed.binary_search(&child).is_ok() {
                self.request(&child, Aspect::Data);
            }
        }
        self.settle(path, is_final);
    }

    /// Records that everything below a path was requested, or that it does not exist.
    fn settle(&mut self, path: &ByteString, is_final: bool) {
        if is_final
            && let Some(work) = self.work.get_mut(path)
            && std::mem::take(&mut work.is_deep)
        {
            self.deep -= 1;
        }
    }

    /// Forgets work that is done, and notices the end of a read of everything.
    fn tidy(&mut self, path: &ByteString) {
        if let Some(Work { data: Progress::Idle, list: Progress::Idle, is_deep: false, .. }) =
            self.work.get(path)
        {
            self.work.remove(path);
            self.checks.explain(path);
        }
        self.note_complete();
    }

    fn note_complete(&mut self) {
        if self.deep > 0 || !self.is_started || self.is_complete {
            return;
        }
        if self.unreadable.places().all(|(path, _)| self.is_accepted(path)) {
            self.is_complete = true;
            self.news.push_back(CacheEvent::Complete);
        }
    }

    /// Removes a znode and everything below it from the cache, children first.
    fn remove(&mut self, path: &ByteString) {
        self.unreadable.remove_below(path);
        let mut gone = self.below(path);
        gone.extend(self.nodes.contains_key(path).then(|| path.clone()));
        gone.sort_unstable_by(|one, other| other.cmp(one));
        for path in gone {
            if let Some(previous) = self.nodes.remove(&path) {
                self.bytes -= previous.cost(&path);
                self.news.push_back(CacheEvent::Removed { path, previous });
            }
        }
    }

    fn below(&self, path: &ByteString) -> Vec<ByteString> {
        let prefix = if **path == *"/" { String::from("/") } else { format!("{path}/") };
        let from = self.nodes.range(ByteString::from(prefix.as_str())..).map(|(path, _)| path);
        from.take_while(|other| other.starts_with(&prefix))
            .filter(|other| *other != path)
            .cloned()
            .collect()
    }

    fn children(&self, path: &ByteString) -> Vec<ByteString> {
        let depth = self.depth(path).map_or(0, |depth| depth + 1);
        let mut children = self.below(path);
        children.extend(self.unreadable.below(path).cloned());
        children.retain(|child| self.depth(child) == Some(depth));
        children
    }

    /// Returns how many levels a path is below the root; `None` if it is not below it.
    fn depth(&self, path: &str) -> Option<usize> {
        let inside = match (&*self.root, path) {
            ("/", "/") => "",
            ("/", path) => path,
            (root, path) => path.strip_prefix(root)?,
        };
        (inside.is_empty() || inside.starts_with('/')).then(|| inside.matches('/').count())
    }

    fn check_limits(&mut self) {
        let Limits { nodes, bytes, .. } = self.limits;
        // Some of the work is on znodes that no longer exist.
        let is_too_much = self.work.len() > nodes.saturating_mul(2).saturating_add(1024);
        let is_too_much = is_too_much || self.unreadable.len() > nodes;
        if self.nodes.len() > nodes || self.bytes > bytes || is_too_much {
            self.fail(CacheError::TooLarge {
                path: self.root.to_string(),
                nodes: self.nodes.len().max(self.work.len()),
                bytes: self.bytes,
                nodes_max: nodes,
                bytes_max: bytes,
            });
        }
    }
}

#[cfg(test)]
mod tests;
