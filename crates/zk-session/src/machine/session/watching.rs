//! Setting, restoring and removing watches, and their events.

use bytestring::ByteString;
use jute_codec::{
    AddWatchMode, ErrorCode, EventType, OpCode, ReadRequest, Reader, Record, Request, Response,
    WatcherEvent, WatcherType, WatchesRequest, xid,
};
use tracing::warn;

use super::{Phase, SessionMachine};
use crate::error::{OpError, Target, WatchEnded};
use crate::machine::batches;
use crate::machine::cause::DisconnectCause;
use crate::machine::event::{Event, WatchNews};
use crate::machine::flight::{Flight, Operation, OwnerId, WatchId};
use crate::machine::inflight::{Purpose, RequestedWatch, write_of_nothing};
use crate::machine::persistent::WatchMode;
use crate::machine::watch::WatchKind;
use crate::types::{WatchedEvent, Zxid};

impl SessionMachine {
    /// Removes all watches of an owner.
    pub(crate) fn remove_owner(&mut self, owner: OwnerId) {
        self.watches.one_shot.remove_owner(owner);
        for path in self.watches.persistent.remove_owner(owner) {
            self.remove_surplus_watch(&path);
        }
    }

    /// Adapts a request that is about to be sent to the watches that the server holds. Returns the
    /// watch that it sets.
    pub(super) fn prepare_watch(
        &mut self,
        operation: &mut Operation,
        owner: OwnerId,
    ) -> Option<RequestedWatch> {
        let id = operation.watch.map(|number| WatchId { owner, number });
        if let Request::AddWatch(add) = &mut operation.request {
            let mode = if add.mode == AddWatchMode::PERSISTENT_RECURSIVE {
                WatchMode::Recursive
            } else {
                WatchMode::Persistent
            };
            let sent = self.watches.persistent.begin(&add.path, mode);
            if sent == WatchMode::Recursive {
                add.mode = AddWatchMode::PERSISTENT_RECURSIVE;
            }
            return Some(RequestedWatch::Persistent { id, mode, sent });
        }
        // Servers before 3.9 do not tell the types of watches apart.
        if let Request::CheckWatches(watches) = &mut operation.request {
            let kind = std::mem::replace(&mut watches.kind, WatcherType::ANY);
            return Some(RequestedWatch::Check(kind));
        }
        if let Request::RemoveWatches(watches) = &mut operation.request {
            let kind = std::mem::replace(&mut watches.kind, WatcherType::ANY);
            return Some(RequestedWatch::Removal(kind));
        }
        let (read, kind) = watched_read(&mut operation.request)?;
        if self.watches.persistent.serves(&read.path, kind) {
            read.watch = false;
        }
        id.map(RequestedWatch::OneShot)
    }

    /// Sets the child watches of a path again after a request for a recursive watch, which replaces
    /// them at servers before 3.9.
    pub(super) fn renew_child_watches(&mut self, path: &str, sent: WatchMode) {
        let has_children_watched =
            self.watches.one_shot.kinds_on(path).any(|kind| kind == WatchKind::Child)
                || self.link.inflight().is_watching_children(path);
        if sent == WatchMode::Recursive && has_children_watched {
            // Changes up to this zxid were reported before, if a watch was set by then.
            for request in batches::restoring(path, [WatchKind::Child], None, self.seen.zxid()) {
                self.renew_watches(request);
            }
        }
    }

    /// Sends a request that sets watches again, or keeps it while a request is in flight alone.
    pub(super) fn renew_watches(&mut self, request: Request) {
        if self.link.probes.is_probing() {
            self.link.probes.defer(request);
        } else {
            self.link.send(self.now, xid::SET_WATCHES, &request, Some(Purpose::RenewWatches));
        }
    }

    /// Registers the watch that a request has set, unless nobody waits for its reply any longer.
    /// Fails if the connection is of no use without a watch that the server has refused.
    pub(super) fn set_watch(
        &mut self,
        watch: RequestedWatch,
        op: OpCode,
        code: ErrorCode,
        path: &str,
        is_wanted: bool,
    ) -> Result<(), DisconnectCause> {
        match watch {
            RequestedWatch::Check(_) => {}
            // What the server holds is not known.
            RequestedWatch::Removal(_) if !code.is_ok() && code != ErrorCode::NO_WATCHER => {
                return Err(DisconnectCause::SetWatches(code));
            }
            RequestedWatch::Removal(_) => {}
            RequestedWatch::OneShot(id) => {
                if let Some(kind) = watch_set(op, code)
                    && is_wanted
                {
                    self.watches.one_shot.insert(id, path, kind);
                }
            }
            RequestedWatch::Persistent { id, mode, sent } => {
                if self.watches.persistent.end(path, code.is_ok().then_some(sent)) {
                    return Err(DisconnectCause::SetWatches(code));
                }
                if let Some(id) = id
                    && code.is_ok()
                    && is_wanted
                {
                    self.watches.persistent.insert(id, path, mode);
                }
            }
        }
        self.remove_surplus_watch(path);
        Ok(())
    }

    /// Removes the persistent watch of a path at the server if no stream wants it.
    ///
    /// Servers before 3.9 remove all watches of the path at once, so the watch is kept as long as
    /// there are one-shot watches, or reads in flight that set some. Until then, its events are
    /// ignored. If the connection is busy, the watch is removed as soon as nothing else waits.
    pub(super) fn remove_surplus_watch(&mut self, path: &str) {
        if self.watches.persistent.is_surplus(path)
            && self.watches.one_shot.kinds_on(path).next().is_none()
            && !self.link.inflight().is_watching(path)
        {
            if !self.may_send() {
                self.link.surplus.insert(path.into());
                return;
            }
            self.watches.persistent.replace(path, None);
            let request = WatchesRequest { path: path.into(), kind: WatcherType::ANY };
            let request = Request::RemoveWatches(request);
            self.send_internal(&request, Purpose::RemoveWatches);
        }
    }

    /// Returns whether a flight that removes watches has to wait: a server that is asked to remove
    /// watches while it sets one replies that it has done both.
    pub(super) fn must_wait_to_remove(&self, flight: &Flight) -> bool {
        flight.operations.iter().any(|operation| {
            let Request::RemoveWatches(watches) = &operation.request else { return false };
            self.link.inflight().is_watching(&watches.path)
                || self.watches.persistent.is_adding(&watches.path)
        })
    }

    /// Sets the watches of a path again that a request for the removal of others has removed too.
    pub(super) fn renew_remaining_watches(&mut self, path: &str, removed: WatcherType) {
        let (kinds, modes) = covered(removed);
        let kept: Vec<_> =
            self.watches.one_shot.kinds_on(path).filter(|kind| !kinds.contains(kind)).collect();
        let streams = self.watches.persistent.streams_of(path);
        let streams: Vec<_> = streams.filter(|(_, mode)| !modes.contains(mode)).collect();
        let mode = streams.iter().map(|(_, mode)| *mode).max();
        self.watches.persistent.replace(path, mode);
        for (id, _) in streams {
            self.events.push_back(Event::PersistentWatch { id, news: WatchNews::Reset });
        }
        for request in batches::restoring(path, kept, mode, self.seen.zxid()) {
            self.renew_watches(request);
        }
    }

    /// Translates the reply to a request that checks or removes watches of any type on a path. A
    /// watch of the given type exists only if it is also registered here. Ends those that were
    /// removed.
    pub(super) fn watches_found(
        &mut self,
        op: OpCode,
        kind: WatcherType,
        path: &str,
        result: Result<Response, OpError>,
    ) -> Result<Response, OpError> {
        let is_known = match &result {
            Ok(_) => true,
            Err(error) => error.server_code() == Some(ErrorCode::NO_WATCHER),
        };
        if !is_known {
            return result;
        }
        let (kinds, modes) = covered(kind);
        let is_found = if op == OpCode::REMOVE_WATCHES {
            self.end_watches(path, kinds, modes)
        } else {
            let mut streams = self.watches.persistent.streams_of(path);
            result.is_ok()
                && (self.watches.one_shot.kinds_on(path).any(|kind| kinds.contains(&kind))
                    || streams.any(|(_, mode)| modes.contains(&mode)))
        };
        if is_found {
            Ok(Response::Empty)
        } else {
            Err(OpError::server(ErrorCode::NO_WATCHER).about(Target::new(op, path)))
        }
    }

    /// Ends the watches of these kinds and modes on a path. Returns whether there were any.
    fn end_watches(&mut self, path: &str, kinds: &[WatchKind], modes: &[WatchMode]) -> bool {
        let ended = self.watches.one_shot.take_on(path, kinds);
        let streams = self.watches.persistent.remove_modes(path, modes);
        let is_found = !ended.is_empty() || !streams.is_empty();
        let path = ByteString::from(path);
        for (id, kind) in ended {
            let kind = match kind {
                WatchKind::Child => EventType::CHILD_WATCH_REMOVED,
                WatchKind::Data | WatchKind::Exist => EventType::DATA_WATCH_REMOVED,
            };
            let event = WatchedEvent { kind, path: path.clone(), zxid: None };
            self.events.push_back(Event::Watch { id, event });
        }
        for id in streams {
            let news = WatchNews::Ended(WatchEnded::Removed);
            self.events.push_back(Event::PersistentWatch { id, news });
        }
        is_found
    }

    /// Asks the server to restore all watches, and to fire the one-shot watches whose znodes have
    /// changed since the connection was lost. Servers cannot do the latter for persistent watches,
    /// so their streams are told of a gap.
    pub(super) fn restore_watches(&mut self) {
        debug_assert_eq!(self.link.phase, Phase::Established);
        let Some(relative_zxid) = self.watches.restore_zxid() else {
            self.link.restoring(self.now, 0);
            return;
        };
        for id in self.watches.persistent.streams() {
            self.events.push_back(Event::PersistentWatch { id, news: WatchNews::Gap });
        }
        let requests =
            batches::restoring_all(&self.watches.one_shot, &self.watches.persistent, relative_zxid);
        self.watches.persistent.restoring_all();
        let batches = requests.len();
        for request in requests {
            self.link.send(self.now, xid::SET_WATCHES, &request, Some(Purpose::SetWatches));
        }
        if self.link.restoring(self.now, batches) {
            self.watches.restored();
        }
    }

    /// Handles the refusal to restore watches. A server that does not know the request would refuse
    /// it again on each connection, so the watches that it cannot restore end here.
    pub(super) fn handle_refused_watches(&mut self, op: OpCode, code: ErrorCode) {
        if code != ErrorCode::UNIMPLEMENTED {
            return;
        }
        if op == OpCode::SET_WATCHES2 {
            let streams: Vec<_> = self.watches.persistent.streams().collect();
            warn!(
                watches = streams.len(),
                "the server does not know persistent watches, so they end"
            );
            self.watches.persistent.clear();
            for id in streams {
                let news = WatchNews::Ended(WatchEnded::Unsupported);
                self.events.push_back(Event::PersistentWatch { id, news });
            }
            return;
        }
        // The event of a one-shot watch says only that its owner should read again. That is true of
        // each of them now, and reading again also sets a new watch.
        let fired = self.watches.one_shot.take();
        warn!(watches = fired.len(), "the server cannot restore watches, so all of them fire");
        for (id, path, kind) in fired {
            let kind = match kind {
                WatchKind::Child => EventType::NODE_CHILDREN_CHANGED,
                WatchKind::Data => EventType::NODE_DATA_CHANGED,
                WatchKind::Exist => EventType::NODE_CREATED,
            };
            let event = WatchedEvent { kind, path: (&*path).into(), zxid: None };
            self.events.push_back(Event::Watch { id, event });
        }
    }

    /// Makes the server of a resumed session catch up with what the client was told of elsewhere,
    /// if no zxid in a reply covers it. The server executes the requests of a connection in order,
    /// so neither the restored watches nor any read behind this write can show an older state. A
    /// sync would not do: a leader replies to the syncs of its own clients without applying what it
    /// has committed.
    pub(super) fn catch_up(&mut self) {
        if self.seen.is_behind() {
            self.send_internal(&write_of_nothing(), Purpose::CatchUp);
        }
    }

    pub(super) fn handle_event(
        &mut self,
        zxid: Zxid,
        body: &mut Reader,
    ) -> Result<(), DisconnectCause> {
        let WatcherEvent { kind, path, .. } = WatcherEvent::decode(body)
            .map_err(|error| DisconnectCause::Record { record: "WatcherEvent", error })?;
        // The header of an event has no zxid before 3.9.
        self.seen.event();
        let zxid = (zxid != Zxid::NONE).then_some(zxid);
        for id in self.watches.one_shot.fire(kind, &path) {
            let event = WatchedEvent { kind, path: path.clone(), zxid };
            self.events.push_back(Event::Watch { id, event });
        }
        for (id, kind, path) in self.watches.persistent.dispatch(kind, &path) {
            let news = WatchNews::Event(WatchedEvent { kind, path, zxid });
            self.events.push_back(Event::PersistentWatch { id, news });
        }
        self.remove_surplus_watch(&path);
        Ok(())
    }
}

/// Returns the read and the kind of its watch, if the request asks the server for a one-shot watch.
/// An exists on a missing znode sets a watch of another kind.
fn watched_read(request: &mut Request) -> Option<(&mut ReadRequest, WatchKind)> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "no others read")]
    let (read, kind) = match request {
        Request::Exists(read) | Request::GetData(read) => (read, WatchKind::Data),
        Request::GetChildren(read) | Request::GetChildren2(read) => (read, WatchKind::Child),
        _ => return None,
    };
    read.watch.then_some((read, kind))
}

/// Returns the kind of one-shot watch that a request has set, given that it asked for one.
fn watch_set(op: OpCode, code: ErrorCode) -> Option<WatchKind> {
    match (op, code) {
        (OpCode::EXISTS | OpCode::GET_DATA, ErrorCode::OK) => Some(WatchKind::Data),
        (OpCode::EXISTS, ErrorCode::NO_NODE) => Some(WatchKind::Exist),
        (OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2, ErrorCode::OK) => Some(WatchKind::Child),
        _ => None,
    }
}

/// Returns the watches that have a type of the protocol.
fn covered(kind: WatcherType) -> (&'static [WatchKind], &'static [WatchMode]) {
    match kind {
        WatcherType::CHILDREN => (&[WatchKind::Child], &[]),
        WatcherType::DATA => (&[WatchKind::Data, WatchKind::Exist], &[]),
        WatcherType::PERSISTENT => (&[], &[WatchMode::Persistent]),
        WatcherType::PERSISTENT_RECURSIVE => (&[], &[WatchMode::Recursive]),
        WatcherType::ANY => (&WatchKind::ALL, &[WatchMode::Persistent, WatchMode::Recursive]),
        _ => (&[], &[]),
    }
}
