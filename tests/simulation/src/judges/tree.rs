//! A subtree that was deleted is gone, with all that was there when the deletion began; a path that
//! was created was there; and nothing is created or deleted that nobody has asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode, SessionId};
use zk_testserver::{CommitRecord, RequestRecord};

use super::Case;
use super::lives::{Life, lives};
use crate::history::{Event, Id, TreeCall, TreeEnd, What};
use crate::program::trees::{FOREST, LEAF, WIDE};

/// How often a machine creates a directory, or lists one, before it gives up. It needs others who
/// undo what it does as often.
const CREATES_MIN: usize = 5;
const LISTS_MIN: usize = 15;
/// How many flights the deletion of a subtree of `DIRECTORIES` directories takes at most. One list at
/// a time would take more.
const FLIGHTS_MAX: usize = 16;

/// Returns how the promise was broken.
pub fn judge(case: &Case<'_>) -> Vec<String> {
    let calls = calls(case.events);
    if calls.is_empty() {
        return Vec::new();
    }
    let mut violations = judge_ends(&calls, &lives(case.commits), case.commits);
    violations.extend(judge_writes(&calls, case.commits, case.sessions, case.plan.resumes()));
    // Where servers take time for each request, those of a flight do not arrive together.
    if case.plan.faults.is_empty() && case.plan.service.is_zero() {
        violations.extend(judge_flights(&calls, case.requests, case.sessions));
    }
    violations
}

/// A call of a tree.
#[derive(Clone, Copy, Debug)]
struct Call<'a> {
    client: usize,
    call: TreeCall,
    path: &'a str,
    from: i64,
    end: Option<(TreeEnd, i64)>,
}

impl Call<'_> {
    fn is_done(&self) -> bool {
        matches!(self.end, Some((TreeEnd::Done(_), _)))
    }

    /// Returns whether the client may write for this call at this transaction.
    fn may_write_at(&self, zxid: i64) -> bool {
        self.from < zxid && self.end.is_none_or(|(_, to)| zxid <= to)
    }
}

fn calls(events: &[Event]) -> Vec<Call<'_>> {
    let mut calls: BTreeMap<Id, Call<'_>> = BTreeMap::new();
    for event in events {
        match &event.what {
            What::TreeBegun { tree, call, path, from } => {
                let client = event.who.map_or(0, |who| who.client);
                let begun = Call { client, call: *call, path, from: *from, end: None };
                calls.insert(*tree, begun);
            }
            What::TreeEnded { tree, end, to } => {
                if let Some(call) = calls.get_mut(tree) {
                    call.end = Some((*end, *to));
                }
            }
            _ => {}
        }
    }
    calls.into_values().collect()
}

/// Judges what the calls have told their callers.
fn judge_ends(
    calls: &[Call<'_>],
    lives: &BTreeMap<&str, Vec<Life>>,
    commits: &[CommitRecord],
) -> Vec<String> {
    let mut violations = Vec::new();
    for call in calls {
        let Call { path, from, .. } = *call;
        let Some((end, to)) = call.end else { continue };
        // The changes of others, or of this call, in its time.
        let changes = |ops: &[OpCode], is_near: &dyn Fn(&str) -> bool| {
            let is_one = |commit: &&CommitRecord| {
                commit.error == ErrorCode::OK
                    && (from + 1..=to).contains(&commit.zxid.0)
                    && ops.contains(&commit.op)
                    && commit.path.as_deref().is_some_and(is_near)
            };
            commits.iter().filter(is_one).count()
        };
        match (call.call, end) {
            (TreeCall::Delete, TreeEnd::Done(count)) => {
                // Each znode that was there has gone, whatever has taken its place.
                let is_left = |(created, deleted): &Life| {
                    *created <= from && deleted.is_none_or(|deleted| deleted > to)
                };
                let below = lives.iter().filter(|(other, _)| is_at_or_below(other, path));
                let left = below.filter(|(_, lives)| lives.iter().any(is_left));
                violations.extend(left.map(|(other, _)| {
                    format!("{path} was deleted between {from:#x} and {to:#x}, and {other} was not")
                }));
                let deletes = changes(&[OpCode::DELETE], &|other| is_at_or_below(other, path));
                if usize::try_from(count).map_or(true, |count| count > deletes) {
                    violations.push(format!(
                        "the deletion of {path} from {from:#x} to {to:#x} has deleted {deletes} \
                         znodes at most, and counts {count}"
                    ));
                }
            }
            (TreeCall::Ensure, TreeEnd::Done(_)) => {
                let was_there = |(created, deleted): &Life| {
                    *created <= to && deleted.is_none_or(|deleted| deleted > from)
                };
                if !lives.get(path).is_some_and(|lives| lives.iter().any(was_there)) {
                    violations.push(format!(
                        "{path} was created between {from:#x} and {to:#x}, and was not there"
                    ));
                }
            }
            (TreeCall::Delete, TreeEnd::Refused(code))
                if ErrorCode(code) == ErrorCode::NOT_EMPTY =>
            {
                let creates = changes(&CREATES, &|other| is_at_or_below(other, path));
                if creates < LISTS_MIN {
                    violations.push(format!(
                        "the deletion of {path} from {from:#x} to {to:#x} was given up after \
                         {creates} creates"
                    ));
                }
            }
            (TreeCall::Ensure, TreeEnd::Refused(code)) if ErrorCode(code) == ErrorCode::NO_NODE => {
                let deletes = [OpCode::DELETE, OpCode::DELETE_CONTAINER];
                let deletes = changes(&deletes, &|other| is_at_or_below(path, other));
                if deletes < CREATES_MIN {
                    violations.push(format!(
                        "the creation of {path} from {from:#x} to {to:#x} was given up after \
                         {deletes} deletions"
                    ));
                }
            }
            (_, TreeEnd::Refused(_)) => {}
        }
    }
    violations
}

const CREATES: [OpCode; 3] = [OpCode::CREATE, OpCode::CREATE2, OpCode::CREATE_CONTAINER];

/// Judges what the clients have written: only what a call wants, and nothing after its end. A server
/// that does not resume sessions may still have requests of an earlier one in its queue.
fn judge_writes(
    calls: &[Call<'_>],
    commits: &[CommitRecord],
    sessions: &BTreeMap<SessionId, usize>,
    resumes: bool,
) -> Vec<String> {
    let mut violations = Vec::new();
    for commit in commits.iter().filter(|commit| commit.error == ErrorCode::OK) {
        let (Some(path), Some(client)) = (commit.path.as_deref(), sessions.get(&commit.session))
        else {
            continue;
        };
        let is_delete = commit.op == OpCode::DELETE;
        // Some creates are those of the caller itself.
        let is_plain = path.split('/').any(|name| name.starts_with(LEAF) || name.starts_with(WIDE));
        let is_create = CREATES.contains(&commit.op) && !is_plain;
        if !is_at_or_below(path, FOREST) || !(is_delete || is_create) {
            continue;
        }
        let is_earlier = |(id, of): (&SessionId, &usize)| of == client && *id > commit.session;
        let may_be_late = !resumes && sessions.iter().any(is_earlier);
        let is_wanted = |call: &Call<'_>| {
            let concerns = match call.call {
                TreeCall::Delete => is_delete && is_at_or_below(path, call.path),
                TreeCall::Ensure => is_create && is_at_or_below(call.path, path),
            };
            let is_in_time = call.may_write_at(commit.zxid.0);
            let is_late = may_be_late && call.from < commit.zxid.0;
            concerns && call.client == *client && (is_in_time || is_late)
        };
        if !calls.iter().any(is_wanted) {
            violations.push(format!(
                "client {client} has done this at {:#x}, and no call of it wants that: {:?} {path}",
                commit.zxid.0, commit.op
            ));
        }
    }
    violations
}

/// Judges in how many flights subtrees of many directories were deleted that no other call of the
/// client concerned. Requests of a flight arrive together. Without a delay, all flights do.
fn judge_flights(
    calls: &[Call<'_>],
    requests: &[RequestRecord],
    sessions: &BTreeMap<SessionId, usize>,
) -> Vec<String> {
    let deletes = calls.iter().filter(|call| call.call == TreeCall::Delete);
    let is_alone = |call: &&Call<'_>| {
        let is_other = |other: &Call<'_>| {
            other.client == call.client
                && other.path != call.path
                && is_at_or_below(call.path, other.path)
                && call.end.is_none_or(|(_, to)| other.from <= to)
                && other.end.is_none_or(|(_, to)| call.from <= to)
        };
        let is_wide = call.path.split('/').any(|name| name.starts_with(WIDE));
        is_wide && call.is_done() && !deletes.clone().any(is_other)
    };
    let slow = deletes.clone().filter(is_alone).filter_map(|call| {
        let is_own = |request: &&RequestRecord| {
            let is_part = request.op == OpCode::DELETE
                || matches!(request.op, OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2);
            is_part
                && sessions.get(&request.session) == Some(&call.client)
                && request.path.as_deref().is_some_and(|path| is_at_or_below(path, call.path))
        };
        let times = requests.iter().filter(is_own).map(|request| request.at);
        let flights = times.collect::<BTreeSet<Duration>>().len();
        let path = call.path;
        (flights > FLIGHTS_MAX).then(|| format!("the deletion of {path} took {flights} flights"))
    });
    slow.collect()
}

/// Returns whether a path is another one, or below it.
fn is_at_or_below(path: &str, other: &str) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::tests::{connect, history, on_server};

    const ALL: i64 = i64::MAX;

    fn begun(tree: Id, call: TreeCall, path: &str, from: i64) -> What {
        What::TreeBegun { tree, call, path: path.to_owned(), from }
    }

    fn ended(tree: Id, end: TreeEnd, to: i64) -> What {
        What::TreeEnded { tree, end, to }
    }

    /// Returns how many promises a call has broken that has ended like this.
    fn count(call: TreeCall, path: &str, end: TreeEnd, lives: &[(&str, Life)]) -> usize {
        let events = history(vec![begun(1, call, path, 5), ended(1, end, 9)]);
        let lives = lives.iter().map(|(path, life)| (*path, vec![*life])).collect();
        judge_ends(&calls(&events), &lives, &[]).len()
    }

    #[test]
    fn what_is_left_of_a_subtree_is_seen() {
        let left = |path, life| count(TreeCall::Delete, "/f/a", TreeEnd::Done(0), &[(path, life)]);
        assert_eq!(left("/f/a", (3, Some(7))), 0);
        assert_eq!(left("/f/a", (3, None)), 1);
        assert_eq!(left("/f/a/x", (3, Some(10))), 1, "it was deleted by somebody else, later");
        assert_eq!(left("/f/a/x", (6, None)), 0, "it was not there at the beginning");
        assert_eq!(left("/f/ab", (3, None)), 0, "it is beside it");
        let dropped = history(vec![begun(1, TreeCall::Delete, "/f/a", 5)]);
        let lives = BTreeMap::from([("/f/a", vec![(3, None)])]);
        assert_eq!(judge_ends(&calls(&dropped), &lives, &[]).len(), 0);
    }

    #[test]
    fn a_path_that_was_not_there_is_seen() {
        let made = |path, life| count(TreeCall::Ensure, "/f/a", TreeEnd::Done(0), &[(path, life)]);
        assert_eq!(made("/f/a", (7, None)), 0);
        assert_eq!(made("/f/a", (3, Some(6))), 0, "it was there at the beginning");
        assert_eq!(made("/f/a", (3, Some(5))), 1);
        assert_eq!(made("/f/a", (10, None)), 1);
        assert_eq!(made("/f/ab", (3, None)), 1);
    }

    #[test]
    fn calls_that_were_given_up_without_a_reason_are_seen() {
        let refused = |call, code: ErrorCode| count(call, "/f", TreeEnd::Refused(code.0), &[]);
        assert_eq!(refused(TreeCall::Delete, ErrorCode::NOT_EMPTY), 1);
        assert_eq!(refused(TreeCall::Ensure, ErrorCode::NO_NODE), 1);
        assert_eq!(refused(TreeCall::Delete, ErrorCode::NO_AUTH), 0, "another judge knows");
    }

    #[test]
    fn a_count_of_znodes_that_nobody_has_deleted_is_seen() {
        assert_eq!(count(TreeCall::Delete, "/f/a", TreeEnd::Done(1), &[]), 1);
    }

    /// Records what one client has done: it creates and deletes `/forest/a/x`.
    fn writes() -> (Vec<CommitRecord>, Vec<RequestRecord>, BTreeMap<SessionId, usize>) {
        on_server(async |server| {
            server.admin_create("/forest", b"", None);
            let client = connect(&server).await;
            let tree = zk_recipes::Tree::of(&client);
            tree.ensure("/forest/a/x").await.unwrap();
            tree.delete("/forest/a").await.unwrap();
            let sessions = BTreeMap::from([(client.session_id().unwrap(), 0)]);
            (server.commits(), server.requests(), sessions)
        })
    }

    #[test]
    fn writes_that_nobody_has_asked_for_are_seen() {
        let (commits, _, mut sessions) = writes();
        let last = commits.iter().map(|commit| commit.zxid.0).max().unwrap();
        let judge = |ensured: &str, deleted: &str, to: i64, sessions: &_, resumes| {
            let events = history(vec![
                begun(1, TreeCall::Ensure, ensured, 0),
                begun(2, TreeCall::Delete, deleted, 0),
                ended(2, TreeEnd::Done(0), to),
            ]);
            judge_writes(&calls(&events), &commits, sessions, resumes).len()
        };
        let own = sessions.clone();
        let count = |ensured, deleted, to| judge(ensured, deleted, to, &own, true);
        assert_eq!(count("/forest/a/x", "/forest/a", ALL), 0, "{commits:?}");
        assert_eq!(count("/forest/a", "/forest/a", ALL), 1, "it has created /forest/a/x");
        assert_eq!(count("/forest/a/x", "/forest/a/x", ALL), 1, "it has deleted /forest/a");
        assert_eq!(count("/forest/a/x", "/forest/ab", ALL), 2);
        assert_eq!(count("/forest/a/x", "/forest/a", last - 1), 1, "a delete was late");
        let mut late = |id: i64, resumes| {
            sessions.insert(SessionId(id), 0);
            judge("/forest/a/x", "/forest/a", last - 1, &sessions, resumes)
        };
        assert_eq!(late(1, false), 1, "no session has followed");
        assert_eq!(late(i64::MAX, true), 1, "the session went on");
        assert_eq!(late(i64::MAX, false), 0, "a Keeper may have had it in its queue");
    }

    #[test]
    fn lists_one_after_the_other_are_seen() {
        let (_, requests, sessions) = writes();
        let request = requests.iter().find(|request| request.op == OpCode::DELETE).unwrap();
        let count = |flights: usize, is_alone: bool| {
            let path = format!("/forest/{WIDE}1");
            let requests = (0_u64..).take(flights).map(|flight| {
                let mut request = request.clone();
                request.path = Some(format!("{path}/{flight}"));
                request.at = Duration::from_millis(flight);
                request
            });
            let mut whats = vec![begun(1, TreeCall::Delete, &path, 0)];
            if !is_alone {
                whats.push(begun(2, TreeCall::Delete, FOREST, 0));
            }
            whats.push(ended(1, TreeEnd::Done(0), 9));
            let events = history(whats);
            judge_flights(&calls(&events), &requests.collect::<Vec<_>>(), &sessions).len()
        };
        assert_eq!(count(FLIGHTS_MAX, true), 0);
        assert_eq!(count(FLIGHTS_MAX + 1, true), 1);
        assert_eq!(count(FLIGHTS_MAX + 1, false), 0, "another call sends, too");
    }
}
