//! What a cache could not read although it exists, and the names that it does not show.

use std::collections::BTreeMap;

use bytestring::ByteString;
use zk_session::OpError;

/// What a read is for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Aspect {
    Data,
    List,
}

/// The data and lists that could not be read, each with the reason.
#[derive(Debug, Default)]
pub(super) struct Unreadable(BTreeMap<(ByteString, Aspect), OpError>);

impl Unreadable {
    /// Records a failure. Returns whether it is the first one of this place.
    pub(super) fn insert(&mut self, path: &ByteString, aspect: Aspect, error: OpError) -> bool {
        self.0.insert((path.clone(), aspect), error).is_none()
    }

    /// Records that a place was read. Returns whether it could not be read before.
    pub(super) fn remove(&mut self, path: &ByteString, aspect: Aspect) -> bool {
        !self.0.is_empty() && self.0.remove(&(path.clone(), aspect)).is_some()
    }

    /// Records that a znode does not exist, so that nothing is below it either.
    pub(super) fn remove_below(&mut self, path: &str) {
        self.0.retain(|(other, _), _| other != path && !is_below(other, path));
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn contains(&self, path: &ByteString, aspect: Aspect) -> bool {
        !self.0.is_empty() && self.0.contains_key(&(path.clone(), aspect))
    }

    pub(super) fn places(&self) -> impl Iterator<Item = (&ByteString, Aspect)> {
        self.0.keys().map(|(path, aspect)| (path, *aspect))
    }

    /// Returns the paths below a path.
    pub(super) fn below(&self, path: &str) -> impl Iterator<Item = &ByteString> {
        self.0.keys().map(|(other, _)| other).filter(move |other| is_below(other, path))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ByteString, &OpError)> {
        self.0.iter().map(|((path, _), error)| (path, error))
    }
}

fn is_below(path: &str, ancestor: &str) -> bool {
    let rest = path.strip_prefix(ancestor.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
}

/// Returns whether this is the name of a znode that a recipe of this crate leaves for a moment
/// beside a shared value or a barrier, to know the outcome of a write. Programs that read the value
/// would see keys that mean nothing to them.
pub(super) fn is_marker(path: &str) -> bool {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    let Some((kind, id)) = name.rsplit_once('-') else { return false };
    let is_id = id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_id && (kind == "write" || kind.ends_with("-change"))
}
