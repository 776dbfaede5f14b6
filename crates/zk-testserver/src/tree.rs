//! The tree of znodes and its primitive changes. `commit` decides which changes are allowed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use jute_codec::{Acl, EventType, NameList, SessionId, Stat, Version, Zxid};

use crate::config::{SequenceOverflow, ServerConfig};
use crate::membership::Membership;
use crate::order::{NameSet, Order};
use crate::path;

/// An access control list. `None` is the list of built-in znodes, which grants everything.
pub(crate) type SharedAcl = Option<Arc<[Acl]>>;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lifetime {
    Persistent,
    /// Ends with this session.
    Ephemeral(SessionId),
    Container,
    /// Ends when the znode has not changed for this many milliseconds.
    Ttl(i64),
}

/// The zxid of a transaction, and its time in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) zxid: Zxid,
    pub(crate) time_ms: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) data: Option<Bytes>,
    pub(crate) acl: SharedAcl,
    pub(crate) lifetime: Lifetime,
    pub(crate) version: Version,
    pub(crate) aversion: Version,
    pub(crate) children: NameSet,
    /// Number of children ever created; the next sequence number.
    pub(crate) creates: i32,
    pub(crate) mtime: i64,
    ctime: i64,
    czxid: Zxid,
    mzxid: Zxid,
    pzxid: Zxid,
}

impl Node {
    fn new(
        data: Option<Bytes>,
        acl: SharedAcl,
        lifetime: Lifetime,
        stamp: Stamp,
        order: Order,
    ) -> Self {
        Self {
            data,
            acl,
            lifetime,
            version: Version(0),
            aversion: Version(0),
            children: NameSet::new(order),
            creates: 0,
            mtime: stamp.time_ms,
            ctime: stamp.time_ms,
            czxid: stamp.zxid,
            mzxid: stamp.zxid,
            pzxid: stamp.zxid,
        }
    }

    pub(crate) fn stat(&self) -> Stat {
        let num_children = count(self.children.len());
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            cversion: Version(self.creates.wrapping_mul(2).wrapping_sub(num_children)),
            aversion: self.aversion,
            ephemeral_owner: match self.lifetime {
                Lifetime::Ephemeral(session) => session,
                Lifetime::Persistent | Lifetime::Container | Lifetime::Ttl(_) => SessionId::NONE,
            },
            data_length: count(self.data.as_ref().map_or(0, Bytes::len)),
            num_children,
            pzxid: self.pzxid,
        }
    }

    pub(crate) fn data_length(&self) -> i64 {
        i64::from(count(self.data.as_ref().map_or(0, Bytes::len)))
    }

    pub(crate) fn mzxid(&self) -> Zxid {
        self.mzxid
    }

    pub(crate) fn pzxid(&self) -> Zxid {
        self.pzxid
    }

    pub(crate) fn child_names(&self) -> NameList {
        self.children.iter().collect()
    }
}

/// A change that was applied to one znode.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) event: EventType,
    pub(crate) path: String,
    /// Access control list that decides which connections may see the event.
    pub(crate) acl: SharedAcl,
    /// Access control list that decides which connections may see the event of the parent.
    pub(crate) parent_acl: SharedAcl,
    /// Growth of the data in bytes; negative if it shrank.
    pub(crate) bytes: i64,
}

/// Reverts one primitive change. Changes must be reverted in reverse order.
#[derive(Clone, Debug)]
pub(crate) enum Undo {
    Create { path: String, parent_creates: i32, parent_pzxid: Zxid },
    Delete { path: String, node: Box<Node>, parent_pzxid: Zxid },
    SetData { path: String, data: Option<Bytes>, version: Version, mtime: i64, mzxid: Zxid },
}

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    nodes: BTreeMap<String, Node>,
    ephemerals: BTreeMap<SessionId, NameSet>,
    /// Paths of containers and znodes with a time to live.
    reapable: NameSet,
    overflow: SequenceOverflow,
    order: Order,
    /// The servers that the znode with the configuration names.
    pub(crate) membership: Option<Membership>,
}

impl Tree {
    /// Creates a tree with the built-in znodes.
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let order = config.order;
        let start = Stamp { zxid: Zxid(0), time_ms: 0 };
        let mut nodes = BTreeMap::new();
        for path in path::SPECIAL {
            let mut node = Node::new(Some(Bytes::new()), None, Lifetime::Persistent, start, order);
            match path {
                "/" => node.children.insert("zookeeper"),
                "/zookeeper" => {
                    node.children.insert("quota");
                    if config.version.has_config_znode() {
                        node.children.insert("config");
                    }
                }
                "/zookeeper/config" if !config.version.has_config_znode() => continue,
                "/zookeeper/config" => {
                    node.acl = Some(Acl::read().into());
                    node.aversion = Version(-1);
                    if let Some(membership) = &config.membership {
                        node.data = Some(Bytes::from(membership.text()));
                        node.version = Version(-1);
                    }
                }
                _ => {}
            }
            nodes.insert(path.to_owned(), node);
        }
        let mut membership = config.membership.clone();
        if let Some(membership) = membership.as_mut().filter(|_| config.multi_address) {
            membership.enable_multi_address();
        }
        Self {
            nodes,
            ephemerals: BTreeMap::new(),
            reapable: NameSet::new(order),
            overflow: config.sequence_overflow,
            membership,
            order,
        }
    }

    /// Returns the znode at a path. The empty path is an alias of the root.
    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(if path.is_empty() { "/" } else { path })
    }

    pub(crate) fn get_mut(&mut self, path: &str) -> Option<&mut Node> {
        self.nodes.get_mut(if path.is_empty() { "/" } else { path })
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the number of bytes in all paths and data.
    pub(crate) fn data_size(&self) -> usize {
        let nodes = self.nodes.iter();
        nodes.map(|(path, node)| path.len() + node.data.as_ref().map_or(0, Bytes::len)).sum()
    }

    /// Returns the number of descendants of a path.
    pub(crate) fn count_below(&self, path: &str) -> usize {
        if matches!(path, "" | "/") {
            return self.nodes.len() - 1;
        }
        let prefix = format!("{path}/");
        let below =
            self.nodes.range::<str, _>((Bound::Excluded(prefix.as_str()), Bound::Unbounded));
        below.take_while(|(path, _)| path.starts_with(&prefix)).count()
    }

    /// Returns the number of znodes and the number of bytes of data at a path and below it.
    pub(crate) fn usage(&self, path: &str) -> (i64, i64) {
        let below = format!("{path}/");
        let nodes = self.nodes.range::<str, _>((Bound::Included(below.as_str()), Bound::Unbounded));
        let nodes = nodes.take_while(|(path, _)| path.starts_with(&below)).map(|(_, node)| node);
        let nodes = nodes.chain(self.nodes.get(path));
        nodes.fold((0, 0), |(count, bytes), node| (count + 1, bytes + node.data_length()))
    }

    pub(crate) fn ephemerals_of(&self, session: SessionId) -> impl Iterator<Item = &str> {
        self.ephemerals.get(&session).into_iter().flat_map(NameSet::iter)
    }

    pub(crate) fn ephemerals(&self) -> impl Iterator<Item = (&str, SessionId)> {
        let owned = self.ephemerals.iter();
        owned.flat_map(|(session, paths)| paths.iter().map(|path| (path, *session)))
    }

    /// Returns the containers and the znodes with a time to live.
    pub(crate) fn reapable(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.reapable.iter().filter_map(|path| Some((path, self.nodes.get(path)?)))
    }

    /// Adds a znode. The caller must have checked that the parent exists and the path does not.
    pub(crate) fn insert(
        &mut self,
        path: &str,
        data: Option<Bytes>,
        acl: SharedAcl,
        lifetime: Lifetime,
        stamp: Stamp,
    ) -> Undo {
        debug_assert!(!self.nodes.contains_key(path), "{path} exists already");
        let overflow = self.overflow;
        let order = self.order;
        let parent = self.parent_of(path);
        let undo = Undo::Create {
            path: path.to_owned(),
            parent_creates: parent.creates,
            parent_pzxid: parent.pzxid,
        };
        parent.creates = match overflow {
            SequenceOverflow::Sticky => parent.creates.saturating_add(1),
            SequenceOverflow::Wrapping => parent.creates.wrapping_add(1),
        };
        parent.pzxid = stamp.zxid;
        parent.children.insert(path::name(path));
        self.attach(path.to_owned(), Node::new(data, acl, lifetime, stamp, order));
        undo
    }

    /// Removes a znode. The caller must have checked that it exists and has no children.
    pub(crate) fn remove(&mut self, path: &str, stamp: Stamp) -> Undo {
        let node = self.detach(path);
        debug_assert!(node.children.is_empty(), "removing {path} would orphan its children");
        let parent = self.parent_of(path);
        let parent_pzxid = std::mem::replace(&mut parent.pzxid, stamp.zxid);
        parent.children.remove(path::name(path));
        Undo::Delete { path: path.to_owned(), node: Box::new(node), parent_pzxid }
    }

    /// Replaces the data of a znode. The caller must have checked that it exists.
    pub(crate) fn set_data(&mut self, path: &str, data: Option<Bytes>, stamp: Stamp) -> Undo {
        let node = self.nodes.get_mut(path).expect("the caller checked that the znode exists");
        let undo = Undo::SetData {
            path: path.to_owned(),
            data: std::mem::replace(&mut node.data, data),
            version: node.version,
            mtime: node.mtime,
            mzxid: node.mzxid,
        };
        node.version = next_version(node.version);
        node.mtime = stamp.time_ms;
        node.mzxid = stamp.zxid;
        undo
    }

    /// Replaces the servers of the ensemble. Returns the new configuration as text. Its version is
    /// in the text; that of the znode stays -1.
    pub(crate) fn set_membership(&mut self, membership: Membership, stamp: Stamp) -> Bytes {
        let text = Bytes::from(membership.text());
        self.membership = Some(membership);
        if let Some(node) = self.nodes.get_mut(path::CONFIG) {
            node.data = Some(text.clone());
            node.version = Version(-1);
            node.mtime = stamp.time_ms;
            node.mzxid = stamp.zxid;
        }
        text
    }

    pub(crate) fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Create { path, parent_creates, parent_pzxid } => {
                self.detach(&path);
                let parent = self.parent_of(&path);
                parent.children.remove(path::name(&path));
                parent.creates = parent_creates;
                parent.pzxid = parent_pzxid;
            }
            Undo::Delete { path, node, parent_pzxid } => {
                let parent = self.parent_of(&path);
                parent.children.insert(path::name(&path));
                parent.pzxid = parent_pzxid;
                self.attach(path, *node);
            }
            Undo::SetData { path, data, version, mtime, mzxid } => {
                let node = self.nodes.get_mut(&path).expect("later changes were reverted before");
                node.data = data;
                node.version = version;
                node.mtime = mtime;
                node.mzxid = mzxid;
            }
        }
    }

    fn parent_of(&mut self, path: &str) -> &mut Node {
        let parent = path::parent(path).expect("a valid path has a parent");
        self.nodes.get_mut(parent).expect("a znode with children cannot be deleted")
    }

    fn attach(&mut self, path: String, node: Node) {
        match node.lifetime {
            Lifetime::Ephemeral(session) => {
                let order = self.order;
                let paths = self.ephemerals.entry(session);
                paths.or_insert_with(|| NameSet::new(order)).insert(&path);
            }
            Lifetime::Container | Lifetime::Ttl(_) => {
                self.reapable.insert(&path);
            }
            Lifetime::Persistent => {}
        }
        self.nodes.insert(path, node);
    }

    fn detach(&mut self, path: &str) -> Node {
        let node = self.nodes.remove(path).expect("the caller checked that the znode exists");
        if let Lifetime::Ephemeral(session) = node.lifetime
            && let Some(paths) = self.ephemerals.get_mut(&session)
        {
            paths.remove(path);
            if paths.is_empty() {
                self.ephemerals.remove(&session);
            }
        }
        self.reapable.remove(path);
        node
    }
}

/// Returns the version after one more change. It wraps around, as on real servers.
pub(crate) fn next_version(version: Version) -> Version {
    Version(version.0.wrapping_add(1))
}

/// Converts a length to the wire type. More than `i32::MAX` would not fit into memory anyway.
pub(crate) fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
