//! Nobody deletes an ephemeral znode of another session, and an acknowledgement is committed only while
//! its lease exists, or before a later taker has got the item.

use std::collections::{BTreeMap, BTreeSet};

use jute_codec::{ErrorCode, OpCode, SessionId};
use zk_testserver::CommitRecord;

use super::lives::{Life, lives};
use crate::history::{Event, Told, What};
use crate::program::queue::QUEUE;

/// The names by which contenders, leases and participants are known.
const OF_RECIPES: [&str; 9] = [
    "/locks/",
    "/rw/",
    "/semaphore/",
    "/permits/",
    "/election/",
    "/exclusive/",
    "/named/",
    "/queue/",
    "/meeting/",
];

/// Returns how the promise was broken.
pub fn judge(events: &[Event], commits: &[CommitRecord]) -> Vec<String> {
    let mut violations = judge_deletes(commits.iter().map(Change::of));
    violations.extend(judge_acks(events, &lives(commits)));
    violations
}

/// A change that was committed.
#[derive(Clone, Copy, Debug)]
struct Change<'a> {
    op: OpCode,
    is_applied: bool,
    session: SessionId,
    path: &'a str,
}

impl<'a> Change<'a> {
    fn of(commit: &'a CommitRecord) -> Self {
        let CommitRecord { op, session, error, path, .. } = commit;
        let path = path.as_deref().unwrap_or_default();
        Self { op: *op, is_applied: *error == ErrorCode::OK, session: *session, path }
    }
}

/// Judges who deletes contenders, leases and participants. Items belong to nobody.
fn judge_deletes<'a>(changes: impl Iterator<Item = Change<'a>>) -> Vec<String> {
    let mut creators: BTreeMap<&str, SessionId> = BTreeMap::new();
    // Where an administrator has deleted the znode of a holder, the holder may delete that of the next
    // one, because the name says nothing.
    let mut tampered: BTreeSet<&str> = BTreeSet::new();
    let mut violations = Vec::new();
    let is_of_recipe = |path: &str| OF_RECIPES.iter().any(|start| path.starts_with(start));
    let items = format!("{QUEUE}/entries/");
    for change in changes.filter(|it| it.is_applied && is_of_recipe(it.path)) {
        let Change { op, session, path, .. } = change;
        if op == OpCode::CREATE || op == OpCode::CREATE2 {
            creators.insert(path, session);
        } else if op == OpCode::DELETE
            && let Some(creator) = creators.remove(path)
            && session != creator
            && !path.starts_with(&items)
            && is_ephemeral(path)
        {
            if session == SessionId::NONE {
                tampered.insert(path);
            }
            if tampered.contains(path) {
                continue;
            }
            violations.push(format!("{session} has deleted {path}, which {creator} has created"));
        }
    }
    violations
}

/// Returns whether only ephemeral znodes have such a path.
fn is_ephemeral(path: &str) -> bool {
    super::turns::parse(path).is_some()
        || path.starts_with(&format!("{QUEUE}/taken/"))
        || path == crate::program::locks::EXCLUSIVE
}

/// Judges acknowledgements whose takers were told that they have succeeded.
fn judge_acks(events: &[Event], lives: &BTreeMap<&str, Vec<Life>>) -> Vec<String> {
    let taken = events.iter().filter_map(|event| match &event.what {
        What::Taken { path, lease, token, .. } => Some((*lease, (path.as_str(), *token))),
        _ => None,
    });
    let taken: BTreeMap<u64, (&str, i64)> = taken.collect();
    let delivered: BTreeSet<(&str, i64)> = taken.values().copied().collect();
    let mut violations = Vec::new();
    for event in events {
        let What::Acked { lease, told: Told::Applied, item, .. } = &event.what else { continue };
        let Some((path, token)) = taken.get(lease) else { continue };
        if let Some(broken) = broken_ack(path, *token, lives, &delivered) {
            violations.push(format!("{item} at {:?}: {broken}", event.at));
        }
    }
    violations
}

/// An acknowledgement names its lease by a path. If an administrator deletes the lease, the next taker
/// creates one at that path, and then reads the item: an acknowledgement in between deletes an item
/// that nobody else has got.
fn broken_ack(
    path: &str,
    token: i64,
    lives: &BTreeMap<&str, Vec<Life>>,
    delivered: &BTreeSet<(&str, i64)>,
) -> Option<String> {
    let leased = path.replace("/entries/", "/taken/");
    let mut leases = lives.get(leased.as_str()).into_iter().flatten();
    let (_, ended) = leases.find(|(created, _)| *created == token)?;
    // The item that was there when the lease began: later ones may have its name.
    let mut items = lives.get(path).into_iter().flatten();
    let is_leased = |(created, deleted): &&Life| {
        *created < token && deleted.is_none_or(|deleted| deleted > token)
    };
    let Some((_, deleted)) = items.find(is_leased) else {
        return Some(format!("lease {token:#x} began when {path} was not there"));
    };
    match (*deleted, *ended) {
        (None, _) => Some(format!("{path} was acknowledged, and is there")),
        (Some(deleted), Some(ended)) if ended < deleted => {
            let mut later = delivered.range((path, ended)..(path, deleted));
            let (_, next) = later.next()?;
            Some(format!(
                "{path} was acknowledged by {deleted:#x}, the lease has ended with {ended:#x}, and \
                 lease {next:#x} has got the item"
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: &str = "/queue/taken/entry-100-0000000001";
    const ITEM: &str = "/queue/entries/entry-100-0000000001";

    fn change(op: OpCode, session: i64, path: &str) -> Change<'_> {
        Change { op, is_applied: true, session: SessionId(session), path }
    }

    #[test]
    fn whoever_deletes_a_contender_of_another_session_is_seen() {
        let path = "/exclusive/lock";
        let by = |session| {
            let created = change(OpCode::CREATE2, 1, path);
            judge_deletes([created, change(OpCode::DELETE, session, path)].into_iter())
        };
        assert_eq!(by(1), Vec::<String>::new());
        assert_eq!(by(2).len(), 1);
        assert_eq!(by(0).len(), 0, "an administrator has no session");
        // Who acknowledges an item has not put it.
        let changes = [change(OpCode::CREATE2, 1, ITEM), change(OpCode::DELETE, 2, ITEM)];
        assert_eq!(judge_deletes(changes.into_iter()), Vec::<String>::new());
    }

    #[test]
    fn an_acknowledgement_without_its_lease_is_seen() {
        let acked_beside = |lease: Life, item: Life, other: i64| {
            let lives = [(LEASE, vec![lease]), (ITEM, vec![item])].into();
            broken_ack(ITEM, 5, &lives, &[(ITEM, 5), (ITEM, other)].into())
        };
        let acked = |lease: Life, item: Life| acked_beside(lease, item, 8);
        assert_eq!(acked((5, Some(9)), (3, Some(9))), None);
        assert_eq!(acked((5, None), (3, Some(9))), None);
        assert!(acked((5, Some(7)), (3, Some(9))).is_some(), "another one had the item");
        let later = acked_beside((5, Some(7)), (3, Some(9)), 10);
        assert_eq!(later, None, "nobody had the item before");
        assert!(acked((5, Some(9)), (6, Some(9))).is_some(), "the item is newer");
        assert!(acked((5, Some(9)), (3, None)).is_some(), "the item is there");
    }
}
