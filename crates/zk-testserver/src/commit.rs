//! Transactions: what a write does to the tree, or why it is refused.
//!
//! A write is first a [`Proposal`]: it is in the log but not visible. Committing validates and
//! applies it in one step. Real servers validate when they propose. The result is the same, because
//! commits happen in log order: nothing else is committed between a proposal and its commit.

use std::sync::Arc;

use bytes::Bytes;
use jute_codec::{
    CheckRequest, CreateMode, CreateRequest, DeleteRequest, ErrorCode, EventType, MultiOp,
    MultiResult, OpCode, Permissions, ReconfigRequest, SessionId, SetAclRequest, SetDataRequest,
    Stat, Version, Zxid,
};

use crate::acl::Identities;
use crate::config::ServerConfig;
use crate::multi::Step;
use crate::path;
use crate::quota;
use crate::tree::{Change, Lifetime, Node, SharedAcl, Stamp, Tree, Undo, count, next_version};

/// A write that has a place in the log.
#[derive(Clone, Debug)]
pub(crate) struct Proposal {
    /// The session that sent the write; [`SessionId::NONE`] for the server itself and for tests.
    pub(crate) session: SessionId,
    pub(crate) xid: i32,
    pub(crate) op: OpCode,
    pub(crate) write: Write,
    /// The identities of the writer.
    pub(crate) identities: Identities,
    /// The time of the transaction, in milliseconds since 1970.
    pub(crate) time_ms: i64,
}

#[derive(Clone, Debug)]
pub(crate) enum Write {
    Check(CheckRequest),
    /// Ends this session.
    CloseSession(SessionId),
    Create(CreateRequest),
    /// Creates an ephemeral that belongs to another session. Only tests can do that.
    CreateFor(SessionId, CreateRequest),
    CreateSession,
    Delete(DeleteRequest),
    /// A client sent this request, although only servers should send it.
    DeleteContainer(String),
    Multi(Vec<Step>),
    Reconfig(ReconfigRequest),
    /// Fails before the tree is read.
    Refused(ErrorCode, Option<String>),
    SetAcl(SetAclRequest),
    SetData(SetDataRequest),
}

/// The result of a transaction.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) zxid: Zxid,
    pub(crate) error: ErrorCode,
    pub(crate) path: Option<String>,
    pub(crate) stat: Option<Stat>,
    /// The new configuration, after a reconfiguration.
    pub(crate) data: Option<Bytes>,
    /// The results of a multi, whether or not it failed.
    pub(crate) results: Option<Vec<MultiResult>>,
    /// Changes that may trigger watches, in order.
    pub(crate) changes: Vec<Change>,
    /// The operations that were applied and their paths, in order.
    pub(crate) steps: Vec<(OpCode, Option<String>)>,
}

/// Validates and applies a proposal.
pub(crate) fn commit(
    tree: &mut Tree,
    config: &ServerConfig,
    proposal: &Proposal,
    zxid: Zxid,
) -> Committed {
    let stamp = Stamp { zxid, time_ms: proposal.time_ms };
    let mut txn = Transaction {
        tree,
        config,
        identities: &proposal.identities,
        session: proposal.session,
        stamp,
        changes: Vec::new(),
        undo: Vec::new(),
    };
    let requested_path = proposal.write.path().map(str::to_owned);
    let mut results = None;
    let mut steps = Vec::new();
    let done = match &proposal.write {
        Write::Check(check) => txn.check(check).map(|()| Done::of(&check.path)),
        Write::CloseSession(session) => {
            steps = txn.close_session(*session);
            Ok(Done::default())
        }
        Write::Create(create) => txn.create(create),
        Write::CreateFor(owner, create) => {
            txn.session = *owner;
            txn.create(create)
        }
        Write::CreateSession => Ok(Done::default()),
        Write::Delete(delete) => txn.delete(delete),
        Write::DeleteContainer(path) => txn.delete_container(path),
        Write::Multi(ops) => match txn.multi(ops, &mut steps) {
            Ok(all) => {
                results = Some(all);
                Ok(Done::default())
            }
            Err((error, all)) => {
                results = Some(all);
                Err(error)
            }
        },
        Write::Reconfig(reconfig) => txn.reconfig(reconfig),
        Write::Refused(error, _) => Err(*error),
        Write::SetAcl(set_acl) => txn.set_acl(set_acl),
        Write::SetData(set_data) => txn.set_data(set_data),
    };
    let changes = txn.changes;
    // Update the counts only now, because operations of a multi that fails must not count.
    for change in &changes {
        quota::account(tree, change);
    }
    let (error, done) = match done {
        Ok(done) => (ErrorCode::OK, done),
        Err(error) => (error, Done { path: requested_path, ..Done::default() }),
    };
    let Done { path, stat, data } = done;
    if steps.is_empty() {
        steps.push((proposal.op, path.clone()));
    }
    Committed { zxid, error, path, stat, data, results, changes, steps }
}

impl Write {
    /// Returns the path of the request, if there is exactly one.
    pub(crate) fn path(&self) -> Option<&str> {
        match self {
            Self::Check(check) => Some(&check.path),
            Self::Create(create) | Self::CreateFor(_, create) => Some(&create.path),
            Self::Delete(delete) => Some(&delete.path),
            Self::DeleteContainer(path) => Some(path),
            Self::SetAcl(set_acl) => Some(&set_acl.path),
            Self::SetData(set_data) => Some(&set_data.path),
            Self::Refused(_, path) => path.as_deref(),
            Self::CloseSession(_) | Self::CreateSession | Self::Multi(_) | Self::Reconfig(_) => {
                None
            }
        }
    }
}

/// The result of one successful operation.
#[derive(Default)]
struct Done {
    path: Option<String>,
    stat: Option<Stat>,
    data: Option<Bytes>,
}

impl Done {
    fn of(path: &str) -> Self {
        Self { path: Some(path.to_owned()), ..Self::default() }
    }
}

struct Transaction<'a> {
    tree: &'a mut Tree,
    config: &'a ServerConfig,
    identities: &'a Identities,
    session: SessionId,
    stamp: Stamp,
    changes: Vec<Change>,
    undo: Vec<Undo>,
}

// The order of the checks is visible to clients: the first check that fails determines the error.
impl Transaction<'_> {
    fn create(&mut self, create: &CreateRequest) -> Result<Done, ErrorCode> {
        let lifetime = match create.mode {
            CreateMode::Persistent | CreateMode::PersistentSequential => Lifetime::Persistent,
            CreateMode::Ephemeral | CreateMode::EphemeralSequential => {
                Lifetime::Ephemeral(self.session)
            }
            CreateMode::Container => Lifetime::Container,
            CreateMode::PersistentTtl(ttl) | CreateMode::PersistentSequentialTtl(ttl) => {
                if !self.config.extended_types {
                    return Err(ErrorCode::UNIMPLEMENTED);
                }
                Lifetime::Ttl(ttl.as_millis())
            }
        };
        let parent_path = parent_for_change(&create.path)?;
        let acl = self.identities.resolve(&create.acl, self.config)?;
        let parent = self.tree.get(parent_path).ok_or(ErrorCode::NO_NODE)?;
        let parent_acl = parent.acl.clone();
        self.require(Permissions::CREATE, &parent_acl)?;
        let path = if create.mode.is_sequential() {
            format!("{}{:010}", create.path, parent.creates)
        } else {
            create.path.to_string()
        };
        if !path::is_valid(&path) {
            return Err(ErrorCode::BAD_ARGUMENTS);
        }
        if self.tree.get(&path).is_some() {
            return Err(ErrorCode::NODE_EXISTS);
        }
        if matches!(parent.lifetime, Lifetime::Ephemeral(_)) {
            return Err(ErrorCode::NO_CHILDREN_FOR_EPHEMERALS);
        }
        let acl: SharedAcl = Some(Arc::from(acl));
        let length = count(create.data.as_ref().map_or(0, Bytes::len));
        quota::check(self.tree, self.config, &path, i64::from(length), 1)?;
        let data = create.data.clone();
        self.undo.push(self.tree.insert(&path, data, acl.clone(), lifetime, self.stamp));
        self.changed(EventType::NODE_CREATED, &path, (acl, parent_acl), 0);
        let stat = self.stat(&path);
        Ok(Done { path: Some(path), stat, data: None })
    }

    fn delete(&mut self, delete: &DeleteRequest) -> Result<Done, ErrorCode> {
        let path = &*delete.path;
        let parent_path = parent_for_change(path)?;
        if path::SPECIAL.contains(&path) {
            return Err(ErrorCode::BAD_ARGUMENTS);
        }
        let parent = self.tree.get(parent_path).ok_or(ErrorCode::NO_NODE)?;
        let parent_acl = parent.acl.clone();
        self.require(Permissions::DELETE, &parent_acl)?;
        let node = self.tree.get(path).ok_or(ErrorCode::NO_NODE)?;
        require_version(delete.version, node.version)?;
        if !node.children.is_empty() {
            return Err(ErrorCode::NOT_EMPTY);
        }
        let acl = node.acl.clone();
        let bytes = node.data_length();
        self.undo.push(self.tree.remove(path, self.stamp));
        self.changed(EventType::NODE_DELETED, path, (acl, parent_acl), bytes);
        Ok(Done::of(path))
    }

    /// Deletes any znode that is not ephemeral, as real servers do, because they trust the sender
    /// of this request.
    fn delete_container(&mut self, path: &str) -> Result<Done, ErrorCode> {
        let parent = parent_for_change(path)?;
        if path::SPECIAL.contains(&path) {
            return Err(ErrorCode::BAD_ARGUMENTS);
        }
        let node = self.tree.get(path).ok_or(ErrorCode::NO_NODE)?;
        if !node.children.is_empty() {
            return Err(ErrorCode::NOT_EMPTY);
        }
        if matches!(node.lifetime, Lifetime::Ephemeral(_)) {
            return Err(ErrorCode::BAD_VERSION);
        }
        let parent_acl = self.tree.get(parent).ok_or(ErrorCode::NO_NODE)?.acl.clone();
        let acl = node.acl.clone();
        let bytes = node.data_length();
        self.undo.push(self.tree.remove(path, self.stamp));
        self.changed(EventType::NODE_DELETED, path, (acl, parent_acl), bytes);
        Ok(Done::of(path))
    }

    fn set_data(&mut self, set_data: &SetDataRequest) -> Result<Done, ErrorCode> {
        let path = &*set_data.path;
        if !path::is_valid(path) {
            return Err(ErrorCode::BAD_ARGUMENTS);
        }
        let node = self.tree.get(path).ok_or(ErrorCode::NO_NODE)?;
        let acl = node.acl.clone();
        let bytes = node.data_length();
        self.require(Permissions::WRITE, &acl)?;
        let length = count(set_data.data.as_ref().map_or(0, Bytes::len));
        quota::check(self.tree, self.config, path, i64::from(length) - bytes, 0)?;
        require_version(set_data.version, node.version)?;
        self.undo.push(self.tree.set_data(path, set_data.data.clone(), self.stamp));
        self.changed(EventType::NODE_DATA_CHANGED, path, (acl, None), bytes);
        Ok(Done { path: Some(path.to_owned()), stat: self.stat(path), data: None })
    }

    /// Replaces an access control list. The change needs no undo entry, because a multi cannot
    /// contain it, and triggers no watch.
    fn set_acl(&mut self, set_acl: &SetAclRequest) -> Result<Done, ErrorCode> {
        let path = &*set_acl.path;
        if !path::is_valid(path) {
            return Err(ErrorCode::BAD_ARGUMENTS);
        }
        let resolved = self.identities.resolve(&set_acl.acl, self.config)?;
        let node = self.tree.get(path).ok_or(ErrorCode::NO_NODE)?;
        self.require(Permissions::ADMIN, &node.acl)?;
        require_version(set_acl.version, node.aversion)?;
        let node = self.tree.get_mut(path).ok_or(ErrorCode::NO_NODE)?;
        node.acl = Some(Arc::from(resolved));
        node.aversion = next_version(node.aversion);
        Ok(Done { path: Some(path.to_owned()), stat: self.stat(path), data: None })
    }

    /// Changes the members of the ensemble. It needs no undo entry, because a multi cannot contain
    /// it.
    fn reconfig(&mut self, reconfig: &ReconfigRequest) -> Result<Done, ErrorCode> {
        if !self.config.reconfig_enabled {
            return Err(ErrorCode::RECONFIG_DISABLED);
        }
        let membership = self.tree.membership.as_ref().ok_or(ErrorCode::UNIMPLEMENTED)?;
        let membership = membership.change(reconfig, self.stamp.zxid.0)?;
        let node = self.tree.get(path::CONFIG).ok_or(ErrorCode::NO_NODE)?;
        let (acl, bytes) = (node.acl.clone(), node.data_length());
        self.require(Permissions::WRITE, &acl)?;
        let data = Some(self.tree.set_membership(membership, self.stamp));
        self.changed(EventType::NODE_DATA_CHANGED, path::CONFIG, (acl, None), bytes);
        Ok(Done { path: Some(path::CONFIG.to_owned()), stat: self.stat(path::CONFIG), data })
    }

    fn check(&self, check: &CheckRequest) -> Result<(), ErrorCode> {
        if !path::is_valid(&check.path) {
            return Err(ErrorCode::BAD_ARGUMENTS);
        }
        let node = self.tree.get(&check.path).ok_or(ErrorCode::NO_NODE)?;
        self.require(Permissions::READ, &node.acl)?;
        require_version(check.version, node.version)
    }

    fn multi(
        &mut self,
        ops: &[Step],
        steps: &mut Vec<(OpCode, Option<String>)>,
    ) -> Result<Vec<MultiResult>, (ErrorCode, Vec<MultiResult>)> {
        let mut results = Vec::with_capacity(ops.len());
        for (index, op) in ops.iter().enumerate() {
            match self.step(op) {
                Ok((result, op, path)) => {
                    results.push(result);
                    steps.push((op, path));
                }
                Err(error) => {
                    // Undo the newest operation first: each entry restores the state before its own
                    // operation.
                    while let Some(undo) = self.undo.pop() {
                        self.tree.undo(undo);
                    }
                    self.changes.clear();
                    steps.clear();
                    let results = (0..ops.len()).map(|other| match other.cmp(&index) {
                        std::cmp::Ordering::Less => ErrorCode::OK,
                        std::cmp::Ordering::Equal => error,
                        std::cmp::Ordering::Greater => ErrorCode::RUNTIME_INCONSISTENCY,
                    });
                    return Err((error, results.map(MultiResult::Error).collect()));
                }
            }
        }
        Ok(results)
    }

    fn step(&mut self, step: &Step) -> Result<(MultiResult, OpCode, Option<String>), ErrorCode> {
        let op = match step {
            Step::Op(op) => op,
            Step::Refused(error, _) => return Err(*error),
        };
        Ok(match op {
            MultiOp::Check(check) => {
                self.check(check)?;
                (MultiResult::Check, OpCode::CHECK, Some(check.path.to_string()))
            }
            MultiOp::Create(create) => {
                let done = self.create(create)?;
                let path = done.path.clone().unwrap_or_default().into();
                // 3.8.0 replies to create2 as it does to create, but includes the stat of
                // containers.
                let has_stat = self.config.version.has_late_multi();
                let is_short = match create.op() {
                    OpCode::CREATE => true,
                    OpCode::CREATE2 => !has_stat,
                    _ => false,
                };
                let result = if is_short {
                    MultiResult::Create { path }
                } else {
                    MultiResult::Create2 { path, stat: done.stat.unwrap_or_default() }
                };
                (result, create.op(), done.path)
            }
            MultiOp::Delete(delete) => {
                (MultiResult::Delete, OpCode::DELETE, self.delete(delete)?.path)
            }
            MultiOp::SetData(set_data) => {
                let done = self.set_data(set_data)?;
                let stat = done.stat.unwrap_or_default();
                (MultiResult::SetData(stat), OpCode::SET_DATA, done.path)
            }
        })
    }

    fn close_session(&mut self, session: SessionId) -> Vec<(OpCode, Option<String>)> {
        let paths: Vec<String> = self.tree.ephemerals_of(session).map(str::to_owned).collect();
        let mut steps = vec![(OpCode::CLOSE_SESSION, None)];
        for path in paths {
            let acl_of = |path: &str| self.tree.get(path).and_then(|node| node.acl.clone());
            let acl = acl_of(&path);
            let parent_acl = path::parent(&path).and_then(acl_of);
            let bytes = self.tree.get(&path).map_or(0, Node::data_length);
            self.tree.remove(&path, self.stamp);
            self.changed(EventType::NODE_DELETED, &path, (acl, parent_acl), bytes);
            steps.push((OpCode::CLOSE_SESSION, Some(path)));
        }
        steps
    }

    fn require(&self, perms: Permissions, acl: &SharedAcl) -> Result<(), ErrorCode> {
        if self.identities.is_allowed(perms, acl.as_deref()) {
            Ok(())
        } else {
            Err(ErrorCode::NO_AUTH)
        }
    }

    /// Records a change. The two lists belong to the znode and to its parent. `before` is the
    /// previous length of the data.
    fn changed(
        &mut self,
        event: EventType,
        path: &str,
        (acl, parent_acl): (SharedAcl, SharedAcl),
        before: i64,
    ) {
        let bytes = self.tree.get(path).map_or(0, Node::data_length) - before;
        self.changes.push(Change { event, path: path.to_owned(), acl, parent_acl, bytes });
    }

    fn stat(&self, path: &str) -> Option<Stat> {
        self.tree.get(path).map(Node::stat)
    }
}

/// Returns the parent of a path to create or delete. This check runs before any other check of the
/// path.
fn parent_for_change(path: &str) -> Result<&str, ErrorCode> {
    match path::parent(path) {
        Some(parent) if !path.contains('\0') => Ok(parent),
        _ => Err(ErrorCode::BAD_ARGUMENTS),
    }
}

fn require_version(expected: Version, actual: Version) -> Result<(), ErrorCode> {
    if expected == Version::ANY || expected == actual {
        Ok(())
    } else {
        Err(ErrorCode::BAD_VERSION)
    }
}
