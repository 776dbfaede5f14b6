//! A lock is held by those that may hold it together, and the tokens of its guards grow.

use std::collections::{BTreeMap, BTreeSet};

use zk_testserver::RequestRecord;

use super::replaced::Replaced;
use super::{Case, is_tampered};
use crate::history::{Event, Id, Share, What};

/// Returns how the promise was broken.
pub fn judge(case: &Case<'_>) -> Vec<String> {
    let Case { events, commits, requests, deleted, .. } = case;
    let arrival = |request: &RequestRecord| case.arrival(request);
    judge_events(events, deleted, &Replaced::new(deleted, commits, requests, arrival))
}

fn judge_events(
    events: &[Event],
    deleted: &BTreeSet<String>,
    replaced: &Replaced<'_>,
) -> Vec<String> {
    let mut violations = Vec::new();
    let mut tokens: BTreeMap<&str, (i64, Id)> = BTreeMap::new();
    let mut paths: BTreeMap<Id, &str> = BTreeMap::new();
    let mut of_guards: BTreeMap<Id, i64> = BTreeMap::new();
    for event in events {
        if let What::Granted { guard, path: Some(path), token, .. } = &event.what {
            paths.insert(*guard, path);
            of_guards.extend(token.map(|token| (*guard, token)));
        }
        let is_excused = |guard: &Id, path: &str| {
            replaced.is_excused(path, of_guards.get(guard).copied(), event.at)
        };
        violations.extend(
            said(&event.what, is_excused)
                .map(|(on, rule)| format!("{on} at {:?}: {rule}", event.at)),
        );
        match &event.what {
            What::Held { lock, guards } => {
                // An administrator who deletes the znode of a holder lets the next one in before
                // the holder knows. The znodes of others change nothing.
                let is_own = |(guard, _): &&(Id, Share)| match paths.get(guard) {
                    Some(path) if replaced.has(path) => !is_excused(guard, path),
                    Some(path) => !is_tampered(deleted, path),
                    None => is_judged(lock, deleted),
                };
                let guards: Vec<(Id, Share)> = guards.iter().filter(is_own).copied().collect();
                if let Some(rule) = broken_rule(&guards) {
                    violations.push(format!("{lock} at {:?}: {rule}: {guards:?}", event.at));
                }
            }
            // A guard that was not held when it was returned may be older than the last one.
            What::Granted { lock, guard, token: Some(token), is_held: true, .. }
                if has_order(lock, paths.get(guard), deleted) =>
            {
                let last = tokens.insert(lock, (*token, *guard));
                if let Some((greater, other)) = last.filter(|(last, _)| last >= token) {
                    violations.push(format!(
                        "{lock} at {:?}: guard {guard} has token {token}, and guard {other} before \
                         it had {greater}",
                        event.at
                    ));
                }
            }
            _ => {}
        }
    }
    violations
}

/// Returns where this breaks the promise by itself, and how. The last argument says whether others may
/// have deleted the znode of a guard.
fn said(what: &What, is_excused: impl Fn(&Id, &str) -> bool) -> Option<(String, String)> {
    let (on, rule) = match what {
        What::Outlived { lock, guard, session } => {
            (lock, format!("guard {guard} is held, and its session {session:?} has ended"))
        }
        What::Unleased { lock, guard } => {
            (lock, format!("guard {guard} is held, and its client has no lease"))
        }
        What::HeldByClosed { lock, guard } => {
            (lock, format!("guard {guard} is held, and its client is closed"))
        }
        What::Vanished { lock, guard, path } if !is_excused(guard, path) => (
            lock,
            format!("guard {guard} is relied on, its session lives, and {path} is not there"),
        ),
        What::Foreign { lock, guard, path, owner } => {
            (lock, format!("guard {guard} is relied on, and {path} belongs to {owner}"))
        }
        What::Mislaid { lock, guard, path } => {
            (lock, format!("guard {guard} is lost because {path} was deleted, and it is there"))
        }
        What::Revoked { lock, guard } => {
            (lock, format!("guard {guard} was lost, and is not any more"))
        }
        What::Dared { lock, guard } => {
            (lock, format!("guard {guard} is at risk, and was to be lost then"))
        }
        What::Late { lock } => {
            (lock, "a body counts as completed after the loss of the lock".to_owned())
        }
        What::RanAtRisk { lock } => {
            (lock, "a body that stops at risk has run without the lock".to_owned())
        }
        What::RanLost { lock } => (lock, "a body has run after the loss of the lock".to_owned()),
        What::TrustedKeeper { client, life } => {
            return Some((
                format!("client {client}, life {life}"),
                "it has a lease on a Keeper".to_owned(),
            ));
        }
        What::Hurried { lock } => {
            (lock, "somebody leads again without a pause after a loss".to_owned())
        }
        What::Hung { item } => (item, "the lease was held for longer than it may be".to_owned()),
        What::GrantedLost { locks } => {
            return Some((
                format!("{locks:?}"),
                "all are granted, although one was lost".to_owned(),
            ));
        }
        _ => return None,
    };
    Some((on.clone(), rule))
}

/// Nothing is promised about the order of tokens after a deletion in the directory of the lock. That
/// of a named lock has another name than the lock.
fn has_order(lock: &str, path: Option<&&str>, deleted: &BTreeSet<String>) -> bool {
    let other = path.filter(|path| !path.starts_with(lock)).and_then(|path| path.rsplit_once('/'));
    is_judged(other.map_or(lock, |(directory, _)| directory), deleted)
}

/// Where the znode of a guard is not known, nothing is promised after a deletion in the directory.
fn is_judged(lock: &str, deleted: &BTreeSet<String>) -> bool {
    let path = lock.split(' ').next().unwrap_or(lock);
    !is_tampered(deleted, path)
}

fn broken_rule(guards: &[(Id, Share)]) -> Option<&'static str> {
    let alone = guards.iter().filter(|(_, share)| *share == Share::Alone).count();
    let permits = guards.iter().find_map(|(_, share)| match share {
        Share::Permit(permits) => Some(*permits),
        Share::Alone | Share::Reader => None,
    });
    if alone > 1 {
        return Some("two are held that exclude each other");
    }
    if alone == 1 && guards.len() > 1 {
        return Some("a reader and a writer are held");
    }
    permits
        .filter(|permits| guards.len() > *permits)
        .map(|_| "more are held than there are permits")
}

#[cfg(test)]
mod tests {
    use jute_codec::SessionId;

    use super::*;
    use crate::judges::tests::history;

    fn held(guards: &[(Id, Share)]) -> What {
        What::Held { lock: "/locks/a".to_owned(), guards: guards.to_vec() }
    }

    fn granted(guard: Id, token: i64, is_held: bool) -> What {
        let (lock, share) = ("/locks/a".to_owned(), Share::Alone);
        What::Granted { lock, guard, share, path: None, token: Some(token), is_held, zxid: 0 }
    }

    /// Judges a history in which an administrator has deleted these znodes of holders.
    fn judge_deleted(events: &[Event], deleted: &BTreeSet<String>) -> Vec<String> {
        let granted = events.iter().filter_map(|event| match &event.what {
            What::Granted { path, token, .. } => Some((path.as_deref()?, (*token)?)),
            _ => None,
        });
        let granted = granted.filter(|(path, _)| deleted.contains(*path));
        judge_events(events, deleted, &Replaced::by_hand(deleted, granted))
    }

    fn count(whats: Vec<What>) -> usize {
        judge_deleted(&history(whats), &BTreeSet::new()).len()
    }

    #[test]
    fn a_guard_without_its_znode_is_seen_and_so_is_one_that_comes_back() {
        let lock = || "/locks/a".to_owned();
        let path = "/locks/a/x-lock-0000000001".to_owned();
        let vanished = What::Vanished { lock: lock(), guard: 1, path: path.clone() };
        assert_eq!(count(vec![vanished.clone()]), 1);
        let deleted = BTreeSet::from([path.clone()]);
        assert_eq!(judge_deleted(&history(vec![vanished]), &deleted).len(), 0);
        let (guard, owner) = (1, SessionId(7));
        let foreign = What::Foreign { lock: lock(), guard, path: path.clone(), owner };
        assert_eq!(judge_deleted(&history(vec![foreign]), &deleted).len(), 1);
        assert_eq!(count(vec![What::Mislaid { lock: lock(), guard: 1, path }]), 1);
        assert_eq!(count(vec![What::Revoked { lock: lock(), guard: 1 }]), 1);
        assert_eq!(count(vec![What::Dared { lock: lock(), guard: 1 }]), 1);
        assert_eq!(count(vec![What::RanLost { lock: lock() }]), 1);
        assert_eq!(count(vec![What::Hurried { lock: lock() }]), 1);
    }

    #[test]
    fn two_holders_are_seen() {
        assert_eq!(count(vec![held(&[(1, Share::Alone)]), held(&[(2, Share::Alone)])]), 0);
        assert_eq!(count(vec![held(&[(1, Share::Alone), (2, Share::Alone)])]), 1);
    }

    #[test]
    fn a_writer_beside_a_reader_is_seen() {
        assert_eq!(count(vec![held(&[(1, Share::Reader), (2, Share::Reader)])]), 0);
        assert_eq!(count(vec![held(&[(1, Share::Reader), (2, Share::Alone)])]), 1);
    }

    #[test]
    fn a_permit_too_many_is_seen() {
        let permits =
            |count: u64| held(&(0..count).map(|id| (id, Share::Permit(2))).collect::<Vec<_>>());
        assert_eq!(count(vec![permits(2)]), 0);
        assert_eq!(count(vec![permits(3)]), 1);
    }

    #[test]
    fn a_token_that_does_not_grow_is_seen() {
        assert_eq!(count(vec![granted(1, 7, true), granted(2, 9, true)]), 0);
        assert_eq!(count(vec![granted(1, 7, true), granted(2, 7, true)]), 1);
        assert_eq!(count(vec![granted(1, 7, true), granted(2, 6, true)]), 1);
        assert_eq!(count(vec![granted(1, 7, true), granted(2, 6, false)]), 0);
    }

    #[test]
    fn tokens_have_no_order_after_a_deletion_in_the_directory_of_a_named_lock() {
        let granted = |guard: Id, token| {
            let (lock, share) = ("/named/order/1".to_owned(), Share::Alone);
            let path = Some(format!("/named/order%2F1/lock-{guard}"));
            What::Granted { lock, guard, share, path, token: Some(token), is_held: true, zxid: 0 }
        };
        let events = history(vec![granted(1, 7), granted(2, 6)]);
        let violations =
            |path: &str| judge_deleted(&events, &BTreeSet::from([path.to_owned()])).len();
        assert_eq!(violations("/named/order%2F1/lock-2"), 0);
        assert_eq!(violations("/named/order%2F2/lock-2"), 1);
    }

    #[test]
    fn a_guard_that_outlives_its_session_is_seen() {
        let lock = "/locks/a".to_owned();
        let (guard, session) = (1, Some(SessionId(7)));
        assert_eq!(count(vec![What::Outlived { lock, guard, session }]), 1);
    }

    #[test]
    fn a_body_that_ends_after_the_loss_is_seen() {
        assert_eq!(count(vec![What::Late { lock: "/locks/a".to_owned() }]), 1);
        assert_eq!(count(vec![What::GrantedLost { locks: ["/locks/a", "/locks/b"] }]), 1);
    }

    #[test]
    fn a_body_that_runs_at_risk_and_a_lease_without_an_end_are_seen() {
        assert_eq!(count(vec![What::RanAtRisk { lock: "/locks/a".to_owned() }]), 1);
        assert_eq!(count(vec![What::Hung { item: "item-1".to_owned() }]), 1);
    }

    #[test]
    fn a_guard_without_a_lease_is_seen() {
        let lock = "/locks/a".to_owned();
        assert_eq!(count(vec![What::Unleased { lock, guard: 1 }]), 1);
    }

    #[test]
    fn a_lease_on_a_keeper_is_seen() {
        assert_eq!(count(vec![What::TrustedKeeper { client: 0, life: 0 }]), 1);
        assert_eq!(count(vec![What::Followed]), 0);
    }

    #[test]
    fn a_guard_of_a_closed_client_is_seen() {
        let lock = "/locks/a".to_owned();
        assert_eq!(count(vec![What::HeldByClosed { lock, guard: 1 }]), 1);
    }

    #[test]
    fn the_deletion_of_a_waiter_lets_nobody_in() {
        let granted = |guard: Id| {
            let (lock, share) = ("/locks/a".to_owned(), Share::Alone);
            let path = Some(format!("/locks/a/lock-{guard}"));
            What::Granted { lock, guard, share, path, token: None, is_held: true, zxid: 0 }
        };
        let both = held(&[(1, Share::Alone), (2, Share::Alone)]);
        let events = history(vec![granted(1), granted(2), both]);
        let violations =
            |path: &str| judge_deleted(&events, &BTreeSet::from([path.to_owned()])).len();
        assert_eq!(violations("/locks/a/lock-3"), 1);
        assert_eq!(violations("/locks/a/lock-1"), 0, "its holder cannot know");
    }

    #[test]
    fn nothing_is_promised_after_an_administrator_has_deleted_a_contender() {
        let events = history(vec![held(&[(1, Share::Alone), (2, Share::Alone)])]);
        let deleted = BTreeSet::from(["/locks/a/lock-0000000001".to_owned()]);
        assert_eq!(judge_deleted(&events, &deleted).len(), 0);
    }
}
