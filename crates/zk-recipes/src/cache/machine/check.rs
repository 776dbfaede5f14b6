//! Reading again what has not changed, one znode after the other.
//!
//! Servers report no change to whoever may not read the znode, and tell nobody that permissions have
//! changed. So a cache whose client has lost the permission, for a while or for good, would go on to
//! show what there was. A znode that is read again tells: either that is refused, or it shows what no
//! event has reported. In both cases more may have been missed, so everything is read again.
//!
//! What precedes a reply on the connection is known when the reply is handled. So if an event has come
//! since the read was sent, the reply says nothing about missed events.

use std::ops::Bound;

use super::*;

/// Which znodes are checked.
#[derive(Debug, Default)]
pub(super) struct Checks {
    /// The znode that is being read again, as long as no event explains a difference.
    current: Option<ByteString>,
    /// The one before the next one.
    last: Option<ByteString>,
}

impl Checks {
    /// Records that a read of this znode has another reason, or that none is left to come.
    pub(super) fn explain(&mut self, path: &ByteString) {
        self.current.take_if(|checked| checked == path);
    }

    /// Records that everything is read.
    pub(super) fn stop(&mut self) {
        self.current = None;
    }
}

impl CacheMachine {
    /// Reads the next znode again: its data, and then the list of its children, if there are any. Does
    /// nothing if the cache is incomplete, because it reads then anyway, or if it sets a watch on each
    /// znode, because servers that need it report all changes.
    pub(in super::super) fn check(&mut self) {
        let is_idle = self.is_complete && self.work.is_empty() && self.postponed.is_empty();
        if is_idle && self.source == Source::Persistent {
            let path = self.next_checked();
            self.request(&path, Aspect::Data);
            self.checks.last = Some(path.clone());
            self.checks.current = Some(path);
        }
    }

    /// Returns the next path in the cache, or the root. What is known to be unreadable is read again
    /// without a check.
    fn next_checked(&self) -> ByteString {
        let last = self.checks.last.clone();
        let after = last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut next = self.nodes.range((after, Bound::Unbounded)).map(|(path, _)| path);
        let next = next.find(|path| !self.unreadable.contains(path, Aspect::Data));
        next.unwrap_or(&self.root).clone()
    }

    /// Returns whether the result of a read shows that a change was not reported.
    pub(super) fn has_missed(&mut self, read: &Read, result: &Result<Response, OpError>) -> bool {
        let Read { path, aspect, .. } = read;
        if self.checks.current.as_ref() != Some(path) {
            return false;
        }
        let code = result.as_ref().err().and_then(OpError::server_code);
        match (result, code) {
            (Ok(Response::GetData(DataReply { stat, .. })), _) => {
                let known = self.nodes.get(path).map(|node| (node.stat.czxid, node.stat.mzxid));
                let is_same = known == Some((stat.czxid, stat.mzxid));
                let is_inner = self.depth(path).is_some_and(|depth| depth < self.limits.depth);
                let is_leaf = stat.num_children == 0 && self.children(path).is_empty();
                if is_same && is_inner && !is_leaf && !self.unreadable.contains(path, Aspect::List)
                {
                    self.request(path, Aspect::List);
                }
                !is_same
            }
            (Ok(Response::GetChildren(names)), _) => !self.has_children(path, names.clone()),
            (_, Some(ErrorCode::NO_AUTH)) => !self.unreadable.contains(path, *aspect),
            (_, Some(ErrorCode::NO_NODE)) => self.nodes.contains_key(path),
            _ => false,
        }
    }

    /// Returns whether these are the children in the cache, except for those that are being read.
    fn has_children(&self, path: &ByteString, names: NameList) -> bool {
        let names: Vec<ByteString> = names.into();
        let listed: BTreeSet<ByteString> =
            names.iter().filter(|name| !is_marker(name)).map(|name| child(path, name)).collect();
        let known: BTreeSet<ByteString> = self.children(path).into_iter().collect();
        let mut different = listed.symmetric_difference(&known);
        different.all(|path| self.work.contains_key(path))
    }
}
