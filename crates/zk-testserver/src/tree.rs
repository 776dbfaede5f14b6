//! The tree of znodes: state and its primitive changes. Who may change what is decided in
//! `commit`.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use jute_codec::{Acl, NameList, Stat};

use crate::config::SequenceOverflow;
use crate::order::{Names, Order};
use crate::path;

/// An access control list; `None` is the one of built-in znodes, which grants everything.
pub(crate) type SharedAcl = Option<Arc<[Acl]>>;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Owner {
    /// Persistent.
    Nobody,
    /// Ephemeral of this session.
    Session(i64),
    Container,
    /// With a time to live, in milliseconds.
    Ttl(i64),
}

/// Identity of a transaction: its zxid and its time, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) zxid: i64,
    pub(crate) time_ms: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) data: Option<Bytes>,
    pub(crate) acl: SharedAcl,
    pub(crate) owner: Owner,
    pub(crate) version: i32,
    pub(crate) aversion: i32,
    pub(crate) children: Names,
    /// Number of children ever created: the sequence.
    pub(crate) creates: i32,
    pub(crate) mtime: i64,
    ctime: i64,
    czxid: i64,
    mzxid: i64,
    pzxid: i64,
}

impl Node {
    fn new(data: Option<Bytes>, acl: SharedAcl, owner: Owner, stamp: Stamp, order: Order) -> Self {
        Self {
            data,
            acl,
            owner,
            version: 0,
            aversion: 0,
            children: Names::new(order),
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
            cversion: self.creates.wrapping_mul(2).wrapping_sub(num_children),
            aversion: self.aversion,
            ephemeral_owner: match self.owner {
                Owner::Session(session) => session,
                Owner::Nobody | Owner::Container | Owner::Ttl(_) => 0,
            },
            data_length: count(self.data.as_ref().map_or(0, Bytes::len)),
            num_children,
            pzxid: self.pzxid,
        }
    }

    pub(crate) fn data_length(&self) -> i64 {
        i64::from(count(self.data.as_ref().map_or(0, Bytes::len)))
    }

    pub(crate) fn mzxid(&self) -> i64 {
        self.mzxid
    }

    pub(crate) fn pzxid(&self) -> i64 {
        self.pzxid
    }

    pub(crate) fn child_names(&self) -> NameList {
        self.children.iter().collect()
    }
}

/// Takes back one primitive change, which has to be the last one that is not taken back.
#[derive(Clone, Debug)]
pub(crate) enum Undo {
    Create { path: String, parent_creates: i32, parent_pzxid: i64 },
    Delete { path: String, node: Box<Node>, parent_pzxid: i64 },
    SetData { path: String, data: Option<Bytes>, version: i32, mtime: i64, mzxid: i64 },
}

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    nodes: BTreeMap<String, Node>,
    ephemerals: BTreeMap<i64, Names>,
    /// Containers and znodes with a time to live.
    mortals: Names,
    overflow: SequenceOverflow,
    order: Order,
}

impl Tree {
    /// A tree with the built-in znodes.
    pub(crate) fn new(overflow: SequenceOverflow, order: Order) -> Self {
        let start = Stamp { zxid: 0, time_ms: 0 };
        let mut nodes = BTreeMap::new();
        for path in path::SPECIAL {
            let mut node = Node::new(Some(Bytes::new()), None, Owner::Nobody, start, order);
            match path {
                "/" => node.children.insert("zookeeper"),
                "/zookeeper" => {
                    node.children.insert("config");
                    node.children.insert("quota");
                }
                "/zookeeper/config" => {
                    node.acl = Some(Acl::read().into());
                    node.aversion = -1;
                }
                _ => {}
            }
            nodes.insert(path.to_owned(), node);
        }
        Self { nodes, ephemerals: BTreeMap::new(), mortals: Names::new(order), overflow, order }
    }

    /// The empty path is another name of the root.
    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(if path.is_empty() { "/" } else { path })
    }

    pub(crate) fn get_mut(&mut self, path: &str) -> Option<&mut Node> {
        self.nodes.get_mut(if path.is_empty() { "/" } else { path })
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes of all paths and data.
    pub(crate) fn data_size(&self) -> usize {
        let nodes = self.nodes.iter();
        nodes.map(|(path, node)| path.len() + node.data.as_ref().map_or(0, Bytes::len)).sum()
    }

    /// All descendants of a path.
    pub(crate) fn count_below(&self, path: &str) -> usize {
        if matches!(path, "" | "/") {
            return self.nodes.len() - 1;
        }
        let prefix = format!("{path}/");
        let below =
            self.nodes.range::<str, _>((Bound::Excluded(prefix.as_str()), Bound::Unbounded));
        below.take_while(|(path, _)| path.starts_with(&prefix)).count()
    }

    /// Number of znodes and bytes of data, of a path and everything below it.
    pub(crate) fn usage(&self, path: &str) -> (i64, i64) {
        let below = format!("{path}/");
        let nodes = self.nodes.range::<str, _>((Bound::Included(below.as_str()), Bound::Unbounded));
        let nodes = nodes.take_while(|(path, _)| path.starts_with(&below)).map(|(_, node)| node);
        let nodes = nodes.chain(self.nodes.get(path));
        nodes.fold((0, 0), |(count, bytes), node| (count + 1, bytes + node.data_length()))
    }

    pub(crate) fn ephemerals_of(&self, session: i64) -> impl Iterator<Item = &str> {
        self.ephemerals.get(&session).into_iter().flat_map(Names::iter)
    }

    pub(crate) fn ephemerals(&self) -> impl Iterator<Item = (&str, i64)> {
        let owned = self.ephemerals.iter();
        owned.flat_map(|(session, paths)| paths.iter().map(|path| (path, *session)))
    }

    /// Containers and znodes with a time to live.
    pub(crate) fn mortals(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.mortals.iter().filter_map(|path| Some((path, self.nodes.get(path)?)))
    }

    /// Adds a znode. The caller has checked that the parent exists and the path does not.
    pub(crate) fn insert(
        &mut self,
        path: &str,
        data: Option<Bytes>,
        acl: SharedAcl,
        owner: Owner,
        stamp: Stamp,
    ) -> Undo {
        let (overflow, order) = (self.overflow, self.order);
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
        self.enter(path.to_owned(), Node::new(data, acl, owner, stamp, order));
        undo
    }

    /// Removes a znode. The caller has checked that it exists and has no children.
    pub(crate) fn remove(&mut self, path: &str, stamp: Stamp) -> Undo {
        let node = self.leave(path);
        let parent = self.parent_of(path);
        let parent_pzxid = std::mem::replace(&mut parent.pzxid, stamp.zxid);
        parent.children.remove(path::name(path));
        Undo::Delete { path: path.to_owned(), node: Box::new(node), parent_pzxid }
    }

    /// Replaces the data of a znode. The caller has checked that it exists.
    pub(crate) fn set_data(&mut self, path: &str, data: Option<Bytes>, stamp: Stamp) -> Undo {
        let node = self.nodes.get_mut(path).expect("the caller found the znode");
        let undo = Undo::SetData {
            path: path.to_owned(),
            data: std::mem::replace(&mut node.data, data),
            version: node.version,
            mtime: node.mtime,
            mzxid: node.mzxid,
        };
        node.version = node.version.wrapping_add(1);
        node.mtime = stamp.time_ms;
        node.mzxid = stamp.zxid;
        undo
    }

    pub(crate) fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Create { path, parent_creates, parent_pzxid } => {
                self.leave(&path);
                let parent = self.parent_of(&path);
                parent.children.remove(path::name(&path));
                parent.creates = parent_creates;
                parent.pzxid = parent_pzxid;
            }
            Undo::Delete { path, node, parent_pzxid } => {
                let parent = self.parent_of(&path);
                parent.children.insert(path::name(&path));
                parent.pzxid = parent_pzxid;
                self.enter(path, *node);
            }
            Undo::SetData { path, data, version, mtime, mzxid } => {
                let node = self.nodes.get_mut(&path).expect("it was there for the change");
                node.data = data;
                node.version = version;
                node.mtime = mtime;
                node.mzxid = mzxid;
            }
        }
    }

    fn parent_of(&mut self, path: &str) -> &mut Node {
        let parent = path::parent(path).expect("a checked path has a parent");
        self.nodes.get_mut(parent).expect("a znode has its parent as long as it lives")
    }

    fn enter(&mut self, path: String, node: Node) {
        match node.owner {
            Owner::Session(session) => {
                let order = self.order;
                let paths = self.ephemerals.entry(session);
                paths.or_insert_with(|| Names::new(order)).insert(&path);
            }
            Owner::Container | Owner::Ttl(_) => {
                self.mortals.insert(&path);
            }
            Owner::Nobody => {}
        }
        self.nodes.insert(path, node);
    }

    fn leave(&mut self, path: &str) -> Node {
        let node = self.nodes.remove(path).expect("the caller found the znode");
        if let Owner::Session(session) = node.owner
            && let Some(paths) = self.ephemerals.get_mut(&session)
        {
            paths.remove(path);
            if paths.is_empty() {
                self.ephemerals.remove(&session);
            }
        }
        self.mortals.remove(path);
        node
    }
}

/// Saturates far beyond what memory holds.
pub(crate) fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
