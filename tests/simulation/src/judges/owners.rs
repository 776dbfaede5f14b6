//! Nobody deletes an ephemeral znode of another session, and an acknowledgement is committed only while
//! its lease exists, or before a later taker has got the item.

use std::collections::{BTreeMap, BTreeSet};

use jute_codec::{ErrorCode, OpCode, SessionId};
use zk_testserver::CommitRecord;

use super::lives::{Authors, Life, authors, lives};
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
    let (lives, authors) = (lives(commits), authors(commits));
    violations.extend(judge_acks(events, &lives, &authors));
    violations.extend(judge_items(&lives, &authors));
    violations.extend(judge_taken(events, &lives, &authors));
    violations
}

/// Returns the path of the lease of an item.
fn lease_of(item: &str) -> String {
    item.replace("/entries/", "/taken/")
}

/// Judges who deletes items: whoever has the lease of the item, and not that of another one that had
/// the same name.
fn judge_items(lives: &BTreeMap<&str, Vec<Life>>, authors: &Authors<'_>) -> Vec<String> {
    let items = format!("{QUEUE}/entries/");
    let is_item = |path: &str| path.strip_prefix(&items).is_some_and(|name| !name.contains('/'));
    let mut violations = Vec::new();
    for (path, of_path) in lives.iter().filter(|(path, _)| is_item(path)) {
        let leased = lease_of(path);
        let leases = lives.get(leased.as_str()).map(Vec::as_slice).unwrap_or_default();
        for (created, deleted) in of_path {
            let Some(deleted) = *deleted else { continue };
            let Some(session) = authors.get(&(*path, deleted)) else { continue };
            let is_older = |(begun, ended): &&Life| {
                begun < created
                    && ended.is_none_or(|ended| ended > deleted)
                    && authors.get(&(leased.as_str(), *begun)) == Some(session)
            };
            if *session != SessionId::NONE
                && let Some((begun, _)) = leases.iter().find(is_older)
            {
                violations.push(format!(
                    "{session} has deleted {path} by {deleted:#x}, which {created:#x} has created, \
                     and its lease {begun:#x} is older"
                ));
            }
        }
    }
    violations
}

/// Judges what takers get: no item that an acknowledgement has deleted since their lease began. An
/// administrator may delete an item at any time.
fn judge_taken(
    events: &[Event],
    lives: &BTreeMap<&str, Vec<Life>>,
    authors: &Authors<'_>,
) -> Vec<String> {
    let mut taken: BTreeMap<u64, (&str, i64)> = BTreeMap::new();
    let mut violations = Vec::new();
    for event in events {
        match &event.what {
            What::Taken { path, lease, token, is_held: true, .. } => {
                taken.insert(*lease, (path, *token));
            }
            What::Granted { guard, zxid, .. } => {
                let Some((path, token)) = taken.get(guard) else { continue };
                let Some(deleted) = life_at(lives, path, *token).and_then(|life| life.1) else {
                    continue;
                };
                let leased = lease_of(path);
                let lease = lives.get(leased.as_str()).into_iter().flatten();
                let mut lease = lease.filter(|(created, _)| created == token);
                let is_leased = lease.any(|(_, ended)| ended.is_none_or(|ended| ended > deleted));
                let by = authors.get(&(*path, deleted)).filter(|it| **it != SessionId::NONE);
                if let Some(session) = by.filter(|_| is_leased && deleted <= *zxid) {
                    violations.push(format!(
                        "{path} was taken by lease {token:#x} at {:?}, and {session} had deleted it \
                         by {deleted:#x}",
                        event.at
                    ));
                }
            }
            _ => {}
        }
    }
    violations
}

/// Returns the life of the znode that was at a path when this transaction was committed.
fn life_at(lives: &BTreeMap<&str, Vec<Life>>, path: &str, zxid: i64) -> Option<Life> {
    let is_there = |(created, deleted): &&Life| {
        *created < zxid && deleted.is_none_or(|deleted| deleted > zxid)
    };
    lives.get(path).into_iter().flatten().find(is_there).copied()
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
    // one, because the name says nothing. Then that one may do the same.
    let mut unaware: BTreeSet<(&str, SessionId)> = BTreeSet::new();
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
            if session == SessionId::NONE || unaware.contains(&(path, session)) {
                unaware.insert((path, creator));
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
fn judge_acks(
    events: &[Event],
    lives: &BTreeMap<&str, Vec<Life>>,
    authors: &Authors<'_>,
) -> Vec<String> {
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
        let broken = broken_ack(path, *token, lives, &delivered)
            .or_else(|| not_acked(path, *token, lives, authors));
        if let Some(broken) = broken {
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
    let leased = lease_of(path);
    let mut leases = lives.get(leased.as_str()).into_iter().flatten();
    let (_, ended) = leases.find(|(created, _)| *created == token)?;
    // The item that was there when the lease began: later ones may have its name.
    let Some((_, deleted)) = life_at(lives, path, token) else {
        return Some(format!("lease {token:#x} began when {path} was not there"));
    };
    match (deleted, *ended) {
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

/// Returns how an administrator, and not the acknowledgement, has deleted an item. An acknowledgement
/// whose outcome is unknown believes that it has deleted the item if that is gone while the lease
/// exists, because the pin that it has created below the item keeps others from deleting it. So the
/// lease must have existed then, or the administrator must have deleted a pin.
fn not_acked(
    path: &str,
    token: i64,
    lives: &BTreeMap<&str, Vec<Life>>,
    authors: &Authors<'_>,
) -> Option<String> {
    let (created, deleted) = life_at(lives, path, token)?;
    let deleted = deleted?;
    if authors.get(&(path, deleted)) != Some(&SessionId::NONE) {
        return None;
    }
    let leased = lease_of(path);
    let lease = lives.get(leased.as_str())?.iter().find(|(begun, _)| *begun == token)?;
    if let Some(ended) = lease.1.filter(|ended| *ended < deleted) {
        return Some(format!(
            "the lease has ended with {ended:#x}, and an administrator has deleted {path} by \
             {deleted:#x}"
        ));
    }
    let pins = format!("{path}/");
    let was_unpinned = authors
        .range((pins.as_str(), i64::MIN)..)
        .take_while(|((pin, _), _)| pin.starts_with(&pins))
        .any(|((_, zxid), by)| *by == SessionId::NONE && (created..deleted).contains(zxid));
    let by_hand = || format!("an administrator has deleted {path} by {deleted:#x}, and no pin");
    (!was_unpinned).then(by_hand)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Share;
    use crate::judges::tests::history;

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
        // Only the one whose znode was deleted by hand may delete the next one.
        let after = |session| {
            let by = |op, session| change(op, session, path);
            let (create, delete) = (OpCode::CREATE2, OpCode::DELETE);
            let changes = [by(create, 1), by(delete, 0), by(create, 2), by(delete, session)];
            judge_deletes(changes.into_iter()).len()
        };
        assert_eq!((after(1), after(2), after(3)), (0, 0, 1));
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

    const PIN: &str = "/queue/entries/entry-100-0000000001/pin-1";

    #[test]
    fn an_acknowledgement_of_an_item_that_was_deleted_by_hand_is_seen() {
        let acked = |lease: Life, by: i64, unpinned: Option<i64>| {
            let lives = [(LEASE, vec![lease]), (ITEM, vec![(3, Some(9))])].into();
            let mut authors = Authors::from([((ITEM, 9), SessionId(by))]);
            authors.extend(unpinned.map(|zxid| ((PIN, zxid), SessionId::NONE)));
            not_acked(ITEM, 5, &lives, &authors).is_some()
        };
        assert!(!acked((5, Some(7)), 1, None), "a taker has deleted it");
        assert!(acked((5, Some(7)), 0, Some(8)), "the lease had ended");
        assert!(acked((5, Some(10)), 0, None), "the pin was there");
        assert!(!acked((5, Some(10)), 0, Some(8)));
        assert!(acked((5, Some(10)), 0, Some(2)), "of an item before");
    }

    #[test]
    fn an_item_that_the_lease_of_an_older_one_deletes_is_seen() {
        let count = |lease: Life, by: i64| {
            let lives = [(LEASE, vec![lease]), (ITEM, vec![(3, Some(4)), (6, Some(9))])].into();
            let authors = [((LEASE, lease.0), SessionId(1)), ((ITEM, 9), SessionId(by))].into();
            judge_items(&lives, &authors).len()
        };
        assert_eq!((count((5, None), 1), count((5, Some(10)), 1)), (1, 1));
        assert_eq!(count((7, None), 1), 0, "the lease is that of the item");
        assert_eq!((count((5, None), 0), count((5, None), 2)), (0, 0));
        assert_eq!(count((5, Some(8)), 1), 0, "the lease has ended");
    }

    #[test]
    fn an_item_that_was_acknowledged_before_it_was_taken_is_seen() {
        let count = |lease: Life, by: i64, zxid: i64| {
            let lives = [(LEASE, vec![lease]), (ITEM, vec![(3, Some(9))])].into();
            let authors = [((ITEM, 9), SessionId(by))].into();
            let (queue, item, path) = (QUEUE.to_owned(), "item-1".to_owned(), ITEM.to_owned());
            let (token, is_held, guard) = (lease.0, true, 1);
            let taken = What::Taken { queue, item, path, lease: guard, token, is_held };
            let (lock, share, path) = ("/queue item-1".to_owned(), Share::Alone, None);
            let token = Some(token);
            let granted = What::Granted { lock, guard, share, path, token, is_held, zxid };
            judge_taken(&history(vec![taken, granted]), &lives, &authors).len()
        };
        assert_eq!((count((5, None), 2, 9), count((5, Some(10)), 2, 12)), (1, 1));
        assert_eq!(count((5, None), 2, 8), 0, "it was acknowledged later");
        assert_eq!(count((5, None), 0, 9), 0, "by hand");
        assert_eq!(count((5, Some(7)), 2, 9), 0, "the lease has ended before");
    }
}
