//! What a cache shows of a znode is a path through the states that the znode had, and ends at the
//! last one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};
use zk_testserver::CommitRecord;

use super::Case;
use crate::history::{Copied, Event, Id, News, What};
use crate::world::plan::FaultKind;

/// The states of a znode: when each began, and its czxid and mzxid, or `None` if there was none.
type States = Vec<(i64, Option<(i64, i64)>)>;

/// What a cache has shown last of a znode: its newest state, and whether it was deleted since.
type Last = ((i64, i64), bool);

/// How long it takes at most until a cache shows a change of which a server has told it, beside the time
/// that the way of its requests takes.
const LATE: Duration = Duration::from_secs(20);

/// Returns how the promise was broken.
pub fn judge(case: &Case<'_>) -> Vec<String> {
    let Case { plan, program, events, commits, requests, .. } = case;
    // With enough time for checks, caches learn of what servers have not told.
    let hidden = if program.waits_for_checks(plan) { BTreeSet::new() } else { hidden(commits) };
    let mut violations = judge_events(events, commits, &hidden);
    let refuses = [
        FaultKind::Misreport,
        FaultKind::Refusal,
        FaultKind::Permission,
        FaultKind::Throttle,
        FaultKind::Overload,
        FaultKind::Stampede,
        FaultKind::Suspension,
        FaultKind::Stop,
    ];
    let is_refused = plan.faults.iter().any(|kind| refuses.contains(kind)) || plan.blind.is_some();
    if !is_refused && plan.has_persistent_watches() {
        violations.extend(judge_gaps(events));
    }
    if plan.faults == [FaultKind::Permission] && plan.has_persistent_watches() {
        let zxids = requests.iter().filter_map(|it| Some((it.zxid?.0, it.at))).collect();
        let longest = LATE + 10 * plan.round_trip_max() + 3 * plan.unapplied_max();
        violations.extend(judge_late(events, &zxids, longest));
    }
    violations
}

/// Judges caches that show a change so long after its transaction that no event can have told them of
/// it. Whoever finds such a change reads everything again, because there may be more. The second argument
/// says when the transactions were committed.
fn judge_late(events: &[Event], zxids: &BTreeMap<i64, Duration>, longest: Duration) -> Vec<String> {
    let mut complete: BTreeMap<Id, Duration> = BTreeMap::new();
    let mut violations = Vec::new();
    for event in events {
        match &event.what {
            What::CacheNews { cache, news: News::Gap | News::Unreadable, .. } => {
                complete.remove(cache);
            }
            What::CacheNews { cache, news: News::Complete, .. } => {
                complete.entry(*cache).or_insert(event.at);
            }
            What::CacheNews { cache, news: News::Left, .. } => {
                complete.entry(*cache).and_modify(|since| *since = event.at);
            }
            What::Shown { cache, path, state: Some((_, mzxid)) } => {
                let (Some(since), Some(at)) = (complete.get(cache), zxids.get(mzxid)) else {
                    continue;
                };
                if since < at && event.at > *at + longest {
                    violations.push(format!(
                        "cache {cache} shows at {:?} that {path} was changed at {at:?}, and has not \
                         read all again",
                        event.at
                    ));
                }
            }
            _ => {}
        }
    }
    violations
}

/// Judges caches that read everything again although their clients have kept their connections. Only the
/// end of a connection hides changes here, and that was told of already.
fn judge_gaps(events: &[Event]) -> Vec<String> {
    // When each cache was complete after a gap, and on which connection of its client.
    let mut gaps: BTreeMap<Id, u64> = BTreeMap::new();
    let mut complete: BTreeMap<Id, (u64, Duration)> = BTreeMap::new();
    let mut violations = Vec::new();
    for event in events {
        let What::CacheNews { cache, news, connection } = &event.what else { continue };
        match news {
            News::Gap => {
                let before = complete.remove(cache);
                // What is told at one moment may have waited for its caller.
                if before.is_some_and(|(last, at)| last == *connection && at < event.at) {
                    violations.push(format!(
                        "cache {cache} reads all again at {:?}, and connection {connection} of its \
                         client has not ended",
                        event.at
                    ));
                }
                gaps.insert(*cache, *connection);
            }
            News::Complete if gaps.get(cache) == Some(connection) => {
                complete.insert(*cache, (*connection, event.at));
            }
            News::Complete | News::Unreadable | News::Left => {
                gaps.remove(cache);
                complete.remove(cache);
            }
        }
    }
    violations
}

fn judge_events(
    events: &[Event],
    commits: &[CommitRecord],
    hidden: &BTreeSet<&str>,
) -> Vec<String> {
    let mut violations = Vec::new();
    let real = replay(commits);
    let nothing = States::new();
    let mut last: BTreeMap<(Id, &str), Last> = BTreeMap::new();
    for event in events {
        match &event.what {
            What::Shown { cache, path, state } => {
                let states = real.get(path.as_str()).unwrap_or(&nothing);
                let before = last.get(&(*cache, path.as_str())).copied();
                if let Some(broken) = check(states, before, *state) {
                    violations.push(format!(
                        "cache {cache} shows {path} as {state:?} at {:?}: {broken}",
                        event.at
                    ));
                }
                let newest = state.or(before.map(|(newest, _)| newest)).unwrap_or_default();
                last.insert((*cache, path), (newest, state.is_none()));
            }
            What::ReadAgain { path, before, after } => {
                let states = real.get(path.as_str()).unwrap_or(&nothing);
                if !is_newer(states, *before, *after) {
                    violations.push(format!(
                        "{path} was {before:?}, has changed, and was read as {after:?} at {:?}",
                        event.at
                    ));
                }
            }
            What::Copied { cache, root, shown, real } if shown != real => {
                let (more, less) =
                    (difference(shown, real, hidden), difference(real, shown, hidden));
                if !more.is_empty() || !less.is_empty() {
                    violations.push(format!(
                        "cache {cache} of {root} is complete, and shows {more:?} instead of \
                         {less:?}"
                    ));
                }
            }
            _ => {}
        }
    }
    violations
}

fn check(states: &States, before: Option<Last>, state: Option<(i64, i64)>) -> Option<&'static str> {
    let Some(state) = state else {
        let since = before.map_or(0, |((_, mzxid), _)| mzxid);
        let was_deleted = states.iter().any(|(zxid, state)| *zxid > since && state.is_none());
        return (!was_deleted).then_some("it was not deleted since the last state that was shown");
    };
    if !states.iter().any(|(_, real)| *real == Some(state)) {
        return Some("it never was in this state");
    }
    match before {
        Some((newest, _)) if state.1 < newest.1 => Some("it was shown in a newer state before"),
        Some((newest, true)) if state.0 <= newest.1 => Some("it was shown as deleted since"),
        _ => None,
    }
}

/// Returns whether a znode may have been in the second state after it had left the first one. A znode
/// is not there before its first state.
fn is_newer(states: &States, before: Option<(i64, i64)>, after: Option<(i64, i64)>) -> bool {
    let mut all: Vec<Option<(i64, i64)>> = vec![None];
    all.extend(states.iter().map(|(_, state)| *state));
    let first = all.iter().position(|state| *state == before);
    let last = all.iter().rposition(|state| *state == after);
    first.zip(last).is_some_and(|(first, last)| first < last)
}

/// Returns the states of all znodes that were ever created.
fn replay(commits: &[CommitRecord]) -> BTreeMap<&str, States> {
    let mut all: BTreeMap<&str, States> = BTreeMap::new();
    for commit in commits.iter().filter(|commit| commit.error == ErrorCode::OK) {
        let (Some(path), zxid) = (commit.path.as_deref(), commit.zxid.0) else { continue };
        let states = all.entry(path).or_default();
        let now = states.last().and_then(|(_, state)| *state);
        match commit.op {
            OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
                states.push((zxid, Some((zxid, zxid))));
            }
            OpCode::SET_DATA => states.push((zxid, now.map(|(czxid, _)| (czxid, zxid)))),
            OpCode::DELETE | OpCode::DELETE_CONTAINER | OpCode::CLOSE_SESSION => {
                states.push((zxid, None));
            }
            _ => {}
        }
    }
    all
}

/// Returns the znodes whose permissions were changed. Servers from 3.8.4 on tell those who may not
/// read of no event, so a cache learns with one of its checks what it has missed of such a znode, and
/// of those right below it. With many znodes, that takes longer than a run.
fn hidden(commits: &[CommitRecord]) -> BTreeSet<&str> {
    let is_change = |commit: &&CommitRecord| commit.op == OpCode::SET_ACL;
    commits.iter().filter(is_change).filter_map(|commit| commit.path.as_deref()).collect()
}

fn difference(these: &[Copied], those: &[Copied], hidden: &BTreeSet<&str>) -> Vec<Copied> {
    let is_hidden = |path: &str| {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        hidden.contains(path) || hidden.contains(parent)
    };
    let differs = |one: &&Copied| !those.contains(one) && !is_hidden(&one.0);
    these.iter().filter(differs).cloned().collect()
}

#[cfg(test)]
mod tests {
    use jute_codec::{Acl, SessionId, Zxid};

    use super::*;
    use crate::judges::tests::{history, on_server};

    /// `/a` is created, written, deleted and created again.
    fn commits() -> (Vec<CommitRecord>, [i64; 4]) {
        let commits = on_server(async |server| {
            server.admin_create("/a", b"", None);
            server.admin_set_data("/a", b"x");
            server.admin_delete("/a");
            server.admin_create("/a", b"", None);
            server.commits()
        });
        let of_a: Vec<i64> = commits.iter().map(|commit| commit.zxid.0).collect();
        assert!(commits.iter().all(|commit| commit.session == SessionId::NONE), "{commits:?}");
        assert!(commits.iter().all(|commit| commit.zxid > Zxid(0)), "{commits:?}");
        (commits, of_a.try_into().unwrap())
    }

    fn judge_all(events: &[Event], commits: &[CommitRecord]) -> Vec<String> {
        judge_events(events, commits, &hidden(commits))
    }

    #[test]
    fn a_gap_without_the_end_of_a_connection_is_seen() {
        use News::{Complete, Gap, Left};
        let count = |all: &[(News, u64)]| {
            let news = all.iter();
            let news =
                news.map(|&(news, connection)| What::CacheNews { cache: 1, news, connection });
            judge_gaps(&history(news.collect())).len()
        };
        assert_eq!(count(&[(Complete, 1), (Gap, 2), (Complete, 2), (Gap, 2)]), 1);
        assert_eq!(count(&[(Complete, 1), (Gap, 2), (Complete, 2), (Gap, 3)]), 0);
        assert_eq!(count(&[(Gap, 2), (Complete, 2), (Left, 2), (Gap, 2)]), 0);
        assert_eq!(count(&[(Gap, 1), (Complete, 2), (Gap, 2)]), 0, "it may be that of the second");
    }

    #[test]
    fn a_change_that_a_cache_has_missed_before_is_seen() {
        let news = |news| What::CacheNews { cache: 1, news, connection: 1 };
        let shown = What::Shown { cache: 1, path: "/a".to_owned(), state: Some((7, 9)) };
        // The events are a second apart, and the change was after the first second.
        let zxids = BTreeMap::from([(9, Duration::from_millis(1_500))]);
        let count = |whats: Vec<News>, longest| {
            let whats = whats.into_iter().map(news).chain([shown.clone()]).collect();
            judge_late(&history(whats), &zxids, Duration::from_secs(longest)).len()
        };
        use News::{Complete, Gap, Left, Unreadable};
        assert_eq!(count(vec![Complete, Complete, Complete, Complete], 1), 1);
        assert_eq!(count(vec![Complete, Complete, Complete, Complete], 3), 0);
        assert_eq!(count(vec![Complete, Complete, Gap, Complete], 1), 0);
        assert_eq!(count(vec![Complete, Complete, Unreadable, Complete], 1), 0);
        assert_eq!(count(vec![Complete, Complete, Complete, Left], 1), 0);
    }

    #[test]
    fn a_read_after_an_event_that_is_not_newer_is_seen() {
        let states = vec![(1, Some((1, 1))), (2, Some((1, 2))), (3, None), (4, Some((4, 4)))];
        let newer = |before, after| is_newer(&states, before, after);
        assert!(newer(Some((1, 1)), Some((1, 2))) && newer(Some((1, 2)), None));
        assert!(newer(None, Some((4, 4))) && newer(None, None));
        assert!(!newer(Some((1, 2)), Some((1, 2))) && !newer(Some((1, 2)), Some((1, 1))));
        assert!(!newer(Some((4, 4)), None));
    }

    fn count(commits: &[CommitRecord], states: &[Option<(i64, i64)>]) -> usize {
        let shown = |state: &Option<(i64, i64)>| What::Shown {
            cache: 1,
            path: "/a".to_owned(),
            state: *state,
        };
        judge_all(&history(states.iter().map(shown).collect()), commits).len()
    }

    #[test]
    fn a_path_through_the_history_may_skip_states() {
        let (commits, [created, written, _, again]) = commits();
        let all = [Some((created, created)), Some((created, written)), None, Some((again, again))];
        assert_eq!(count(&commits, &all), 0);
        assert_eq!(count(&commits, &[Some((created, created)), Some((again, again))]), 0);
        assert_eq!(count(&commits, &[Some((created, written)), None]), 0);
    }

    #[test]
    fn a_state_that_never_was_is_seen() {
        let (commits, [created, _, deleted, _]) = commits();
        assert_eq!(count(&commits, &[Some((created, deleted))]), 1);
    }

    #[test]
    fn a_way_back_is_seen() {
        let (commits, [created, written, ..]) = commits();
        assert_eq!(count(&commits, &[Some((created, written)), Some((created, created))]), 1);
        assert_eq!(count(&commits, &[Some((created, written)), None, Some((created, written))]), 1);
    }

    #[test]
    fn a_removal_without_a_deletion_is_seen() {
        let (commits, [_, _, _, again]) = commits();
        assert_eq!(count(&commits, &[Some((again, again)), None]), 1);
    }

    #[test]
    fn a_complete_cache_that_differs_is_seen() {
        let copied = |shown: &[i64]| What::Copied {
            cache: 1,
            root: "/a".to_owned(),
            shown: shown.iter().map(|zxid| ("/a".to_owned(), *zxid, *zxid)).collect(),
            real: vec![("/a".to_owned(), 7, 7)],
        };
        assert_eq!(judge_all(&history(vec![copied(&[7])]), &[]).len(), 0);
        assert_eq!(judge_all(&history(vec![copied(&[6])]), &[]).len(), 1);
        assert_eq!(judge_all(&history(vec![copied(&[])]), &[]).len(), 1);
    }

    #[test]
    fn what_servers_do_not_tell_may_differ_and_nothing_else() {
        let commits = on_server(async |server| {
            server.admin_create("/a", b"", None);
            assert!(server.admin_set_acl("/a", Acl::read()));
            server.commits()
        });
        let copied = |path: &str| {
            let real = vec![(path.to_owned(), 7, 7)];
            What::Copied { cache: 1, root: "/".to_owned(), shown: vec![], real }
        };
        let count = |path| judge_all(&history(vec![copied(path)]), &commits).len();
        assert_eq!((count("/a"), count("/a/b"), count("/a/b/c"), count("/b")), (0, 0, 1, 1));
    }
}
