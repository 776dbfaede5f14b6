//! Reads and watches.

use std::time::Duration;

use bytestring::ByteString;
use jute_codec::{
    AclReply, AddWatchMode, AddWatchRequest, ChildrenReply, DataReply, ErrorCode, EventType,
    Permissions, ReadOp, ReadRequest, ReadResult, Request, Response, SessionId, WatchesRequest,
    Zxid,
};

use crate::acl::{Identities, redacted};
use crate::tree::{Node, count};
use crate::version::ServerVersion;
use crate::watch::{Table, is_watcher_type};

use super::Server;

impl Server {
    /// Processes a request that writes nothing.
    pub(super) fn read(
        &mut self,
        id: u64,
        session: SessionId,
        request: &Request,
        now: Duration,
    ) -> Result<Response, ErrorCode> {
        match request {
            Request::AddWatch(add) => self.add_watch(id, add),
            Request::CheckWatches(watches) => {
                self.require_watcher_type(watches)?;
                let is_found = self.replica(id).watches.contains(&watches.path, id, watches.kind);
                // 3.8.0 continues with the ancestors, and fails if the path has none.
                let is_rootless = !watches.path.is_empty() && !watches.path.starts_with('/');
                if !is_found && is_rootless && self.config.version < ServerVersion::V3_9 {
                    return Err(ErrorCode::MARSHALLING_ERROR);
                }
                found(is_found)
            }
            Request::RemoveWatches(watches) => {
                self.require_watcher_type(watches)?;
                found(self.replica_mut(id).watches.remove(&watches.path, id, watches.kind))
            }
            Request::Exists(exists) => self.exists(id, exists),
            Request::GetAcl(path) => self.get_acl(id, path),
            Request::GetAllChildrenNumber(path) => {
                self.readable(id, path)?;
                Ok(Response::GetAllChildrenNumber(count(self.replica(id).tree.count_below(path))))
            }
            Request::GetChildren(get) => self.get_children(id, get),
            Request::GetChildren2(get) => self.get_children2(id, get),
            Request::GetData(get) => self.get_data(id, get),
            Request::GetEphemerals(prefix) => {
                let prefix = prefix.as_deref().filter(|prefix| *prefix != "/").unwrap_or_default();
                let paths = self.replica(id).tree.ephemerals_of(session);
                let mut paths: Vec<&str> = paths.filter(|path| path.starts_with(prefix)).collect();
                self.config.order.arrange(&mut paths, |path| (*path).to_owned());
                Ok(Response::GetEphemerals(paths.into_iter().map(Into::into).collect()))
            }
            Request::MultiRead(ops) => {
                Ok(Response::MultiRead(ops.iter().map(|op| self.read_one(id, op)).collect()))
            }
            Request::SetWatches(set) => {
                self.set_watches(id, set.relative_zxid, [&set.data, &set.exist, &set.child], now);
                Ok(Response::Empty)
            }
            Request::SetWatches2(set) => {
                self.set_watches(id, set.relative_zxid, [&set.data, &set.exist, &set.child], now);
                for path in &set.persistent {
                    self.replica_mut(id).watches.add_persistent(path, id, false);
                }
                for path in &set.persistent_recursive {
                    self.replica_mut(id).watches.add_persistent(path, id, true);
                }
                Ok(Response::Empty)
            }
            Request::WhoAmI => Ok(Response::WhoAmI(
                self.identities(id)
                    .map(|identities| identities.client_info(self.config.order))
                    .unwrap_or_default(),
            )),
            // The caller handles all other requests.
            Request::Auth(_)
            | Request::CloseSession
            | Request::Create(_)
            | Request::Delete(_)
            | Request::Multi(_)
            | Request::Ping
            | Request::Reconfig(_)
            | Request::Sasl(_)
            | Request::SetAcl(_)
            | Request::SetData(_)
            | Request::Sync(_)
            | _ => Err(ErrorCode::MARSHALLING_ERROR),
        }
    }

    fn add_watch(&mut self, id: u64, add: &AddWatchRequest) -> Result<Response, ErrorCode> {
        let is_recursive = match add.mode {
            AddWatchMode::PERSISTENT => false,
            AddWatchMode::PERSISTENT_RECURSIVE => true,
            _ => return Err(ErrorCode::MARSHALLING_ERROR),
        };
        self.replica_mut(id).watches.add_persistent(&add.path, id, is_recursive);
        Ok(Response::AddWatch(ErrorCode::OK))
    }

    fn get_children(&mut self, id: u64, get: &ReadRequest) -> Result<Response, ErrorCode> {
        let children = self.readable(id, &get.path)?.child_names();
        self.watch(Table::Child, get, id);
        Ok(Response::GetChildren(children))
    }

    fn get_children2(&mut self, id: u64, get: &ReadRequest) -> Result<Response, ErrorCode> {
        let node = self.readable(id, &get.path)?;
        let reply = ChildrenReply { children: node.child_names(), stat: node.stat() };
        self.watch(Table::Child, get, id);
        Ok(Response::GetChildren2(reply))
    }

    fn get_data(&mut self, id: u64, get: &ReadRequest) -> Result<Response, ErrorCode> {
        let node = self.readable(id, &get.path)?;
        let reply = DataReply { data: node.data.clone(), stat: node.stat() };
        self.watch(Table::Data, get, id);
        Ok(Response::GetData(reply))
    }

    fn exists(&mut self, id: u64, exists: &ReadRequest) -> Result<Response, ErrorCode> {
        if exists.path.contains('\0') {
            return Err(ErrorCode::BAD_ARGUMENTS);
        }
        let result = match self.replica(id).tree.get(&exists.path) {
            None => Err(ErrorCode::NO_NODE),
            Some(node) => {
                if self.config.version.exists_needs_read() {
                    self.readable(id, &exists.path)?;
                }
                Ok(Response::Exists(node.stat()))
            }
        };
        self.watch(Table::Data, exists, id);
        result
    }

    fn get_acl(&self, id: u64, path: &str) -> Result<Response, ErrorCode> {
        let node = self.replica(id).tree.get(path).ok_or(ErrorCode::NO_NODE)?;
        let acl = node.acl.as_deref();
        if !self.is_allowed(id, Permissions::READ | Permissions::ADMIN, node) {
            return Err(ErrorCode::NO_AUTH);
        }
        let stat = node.stat();
        let acl = match acl {
            None => jute_codec::Acl::open(),
            Some(acl) if self.is_allowed(id, Permissions::ADMIN, node) => acl.to_vec(),
            Some(acl) => redacted(acl),
        };
        Ok(Response::GetAcl(AclReply { acl, stat }))
    }

    fn read_one(&self, id: u64, op: &ReadOp) -> ReadResult {
        let path = match op {
            ReadOp::GetChildren(path) | ReadOp::GetData(path) => path,
        };
        match (op, self.readable(id, path)) {
            (_, Err(error)) => ReadResult::Error(error),
            (ReadOp::GetChildren(_), Ok(node)) => ReadResult::Children(node.child_names()),
            (ReadOp::GetData(_), Ok(node)) => {
                ReadResult::Data { data: node.data.clone(), stat: node.stat() }
            }
        }
    }

    /// Restores one-shot watches. Those that missed a change trigger at once, in the order of the
    /// lists.
    fn set_watches(
        &mut self,
        id: u64,
        since: Zxid,
        [data, exist, child]: [&Vec<ByteString>; 3],
        now: Duration,
    ) {
        for path in data {
            match self.replica(id).tree.get(path).map(Node::mzxid) {
                None => self.send_event(id, EventType::NODE_DELETED, path, Zxid::NONE, now),
                Some(mzxid) if mzxid > since => {
                    self.send_event(id, EventType::NODE_DATA_CHANGED, path, Zxid::NONE, now);
                }
                Some(_) => self.replica_mut(id).watches.add_one_shot(Table::Data, path, id),
            }
        }
        for path in exist {
            if self.replica(id).tree.get(path).is_some() {
                self.send_event(id, EventType::NODE_CREATED, path, Zxid::NONE, now);
            } else {
                self.replica_mut(id).watches.add_one_shot(Table::Data, path, id);
            }
        }
        for path in child {
            match self.replica(id).tree.get(path).map(Node::pzxid) {
                None => self.send_event(id, EventType::NODE_DELETED, path, Zxid::NONE, now),
                Some(pzxid) if pzxid > since => {
                    self.send_event(id, EventType::NODE_CHILDREN_CHANGED, path, Zxid::NONE, now);
                }
                Some(_) => self.replica_mut(id).watches.add_one_shot(Table::Child, path, id),
            }
        }
    }

    fn watch(&mut self, table: Table, read: &ReadRequest, id: u64) {
        if read.watch {
            self.replica_mut(id).watches.add_one_shot(table, &read.path, id);
        }
    }

    fn readable(&self, id: u64, path: &str) -> Result<&Node, ErrorCode> {
        let node = self.replica(id).tree.get(path).ok_or(ErrorCode::NO_NODE)?;
        if self.is_allowed(id, Permissions::READ, node) {
            Ok(node)
        } else {
            Err(ErrorCode::NO_AUTH)
        }
    }

    fn is_allowed(&self, id: u64, perms: Permissions, node: &Node) -> bool {
        self.identities(id).is_some_and(|who| who.is_allowed(perms, node.acl.as_deref()))
    }

    fn identities(&self, id: u64) -> Option<&Identities> {
        self.connections.get(id).map(|connection| &connection.identities)
    }

    fn require_watcher_type(&self, watches: &WatchesRequest) -> Result<(), ErrorCode> {
        let is_known = is_watcher_type(watches.kind, self.config.version);
        if is_known { Ok(()) } else { Err(ErrorCode::MARSHALLING_ERROR) }
    }
}

fn found(is_found: bool) -> Result<Response, ErrorCode> {
    if is_found { Ok(Response::Empty) } else { Err(ErrorCode::NO_WATCHER) }
}
