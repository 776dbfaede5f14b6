//! A presence says only of its own znodes that they are there, and one that was closed is gone.

use std::collections::BTreeMap;
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode, SessionId};
use zk_testserver::{CommitRecord, Outcome, RequestRecord};

use super::Case;
use super::liveness::patience;
use super::lives::{Life, lives};
use crate::history::{Event, Id, What};
use crate::world::plan::FaultKind;

/// How long the owner of a presence that gets no events may take to find that its znode is gone: it
/// tests the znode every 30 s, or a quarter later.
const TEST_MAX: Duration = Duration::from_secs(45);

/// Returns which presences were not there again in time after somebody had deleted their znodes, and
/// which did not notice it.
pub fn judge_deletions(case: &Case<'_>) -> Vec<String> {
    let Case { plan, program, events, requests, .. } = case;
    let mut violations = Vec::new();
    if plan.is_silent() {
        let limit = TEST_MAX + patience(plan);
        violations.extend(unnoticed(events, requests, limit));
    }
    // Whatever else happens may keep a presence away.
    let is_alone = plan.faults == [FaultKind::Deletion] && plan.resumes();
    if is_alone && program.moves.is_none() && program.ends.is_none() {
        let limit = plan.unapplied_max() + 2 * plan.round_trip_max();
        violations.extend(late(events, requests, limit));
    }
    violations
}

/// Returns which presences say that their znodes are there, long after somebody has deleted them. A
/// session that may not read the znode of somebody else at the same path cannot tell it from its own.
fn unnoticed(events: &[Event], requests: &[RequestRecord], limit: Duration) -> Vec<String> {
    let is_refused = |of: SessionId, path: &str, since: Duration, until: Duration| {
        requests.iter().any(|request| {
            (request.session, request.outcome) == (of, Outcome::Applied(ErrorCode::NO_AUTH))
                && request.path.as_deref() == Some(path)
                && (since..=until).contains(&request.at)
        })
    };
    let mut deleted: BTreeMap<(&str, i64), Duration> = BTreeMap::new();
    let mut violations = Vec::new();
    for event in events {
        match &event.what {
            What::Deleted { path, czxid } => drop(deleted.insert((path, *czxid), event.at)),
            What::Stands { path, czxid, session, .. } => {
                let at = deleted.get(&(path.as_str(), *czxid));
                if let Some(at) = at.filter(|at| event.at > **at + limit)
                    && !is_refused(*session, path, *at, event.at)
                {
                    violations.push(format!("its znode was deleted at {at:?}: {event}"));
                }
            }
            _ => {}
        }
    }
    violations
}

/// For how long nobody may have deleted a presence, so that it comes back without a pause.
const QUIET: Duration = Duration::from_secs(60);

/// Returns which presences did not create their znodes again at once. `limit`: how long that may take.
fn late(events: &[Event], requests: &[RequestRecord], limit: Duration) -> Vec<String> {
    // Since when the presences stand, until they have said so again.
    let mut standing: BTreeMap<Id, Option<(Duration, SessionId)>> = BTreeMap::new();
    let mut violations = Vec::new();
    for event in events {
        let What::Stands { presence, path, session, .. } = &event.what else { continue };
        let Some(first) = standing.get_mut(presence) else {
            standing.insert(*presence, Some((event.at, *session)));
            continue;
        };
        // Its owner does nothing with it between the first two times, and may write its data later.
        let Some((since, of)) = first.take().filter(|(_, of)| of == session) else { continue };
        let is_own = |other: &&Event| {
            other.at > since
                && other.at + limit < event.at
                && matches!(&other.what, What::Deleted { path: other, .. } if other == path)
        };
        let Some(deleted) = events.iter().find(is_own) else { continue };
        // It pauses if it is deleted again and again.
        let is_before = |other: &&Event| {
            other.at < deleted.at
                && other.at + QUIET > deleted.at
                && matches!(&other.what, What::Deleted { path: other, .. } if other == path)
        };
        if events.iter().any(|event| is_before(&event)) {
            continue;
        }
        let until = deleted.at + limit;
        let comes_back = requests.iter().any(|request| {
            request.session == of
                && request.op == OpCode::CREATE2
                && request.path.as_deref() == Some(path)
                && (deleted.at..=until).contains(&request.at)
        });
        if !comes_back {
            violations.push(format!("{path} of {of} was deleted at {:?}, and is late", deleted.at));
        }
    }
    violations
}

/// Returns how the promise was broken.
pub fn judge(events: &[Event], commits: &[CommitRecord]) -> Vec<String> {
    let created = commits.iter().filter(|commit| {
        commit.error == ErrorCode::OK && [OpCode::CREATE, OpCode::CREATE2].contains(&commit.op)
    });
    let owners = created
        .filter_map(|commit| Some(((commit.path.as_deref()?, commit.zxid.0), commit.session)));
    judge_owners(events, &owners.collect(), &lives(commits))
}

/// Judges presences by the session that has created each znode in each transaction.
fn judge_owners(
    events: &[Event],
    owners: &BTreeMap<(&str, i64), SessionId>,
    lives: &BTreeMap<&str, Vec<Life>>,
) -> Vec<String> {
    let mut violations = Vec::new();
    for event in events {
        let broken = match &event.what {
            What::Stands { path, session, czxid, .. } => match owners.get(&(path.as_str(), *czxid))
            {
                None => Some("there was no such znode"),
                Some(owner) if owner != session => Some("another session has created it"),
                Some(_) => None,
            },
            What::Gone { path, czxid, at } => {
                let mut lives = lives.get(path.as_str()).into_iter().flatten();
                let is_gone = |(created, deleted): &Life| {
                    created == czxid && deleted.is_some_and(|deleted| deleted <= *at)
                };
                (!lives.any(is_gone)).then_some("it was still there")
            }
            _ => None,
        };
        if let Some(broken) = broken {
            violations.push(format!("{broken}: {event}"));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use zk_recipes::{Acl, CreateMode, Permissions};

    use super::*;
    use crate::judges::tests::{connect, history, on_server};

    const PATH: &str = "/group/a";

    fn count(what: What) -> usize {
        let owners = BTreeMap::from([((PATH, 3), SessionId(1)), ((PATH, 7), SessionId(2))]);
        let lives = BTreeMap::from([(PATH, vec![(3, Some(5)), (7, None)])]);
        judge_owners(&history(vec![what]), &owners, &lives).len()
    }

    fn stands(session: i64, czxid: i64) -> What {
        let (presence, path) = (1, PATH.to_owned());
        What::Stands { presence, path, session: SessionId(session), czxid }
    }

    fn gone(czxid: i64, at: i64) -> What {
        What::Gone { path: PATH.to_owned(), czxid, at }
    }

    #[test]
    fn znodes_of_ones_own_are_accepted_and_others_are_seen() {
        assert_eq!((count(stands(1, 3)), count(stands(2, 7))), (0, 0));
        assert_eq!(count(stands(1, 7)), 1, "another session has created it");
        assert_eq!(count(stands(1, 4)), 1, "it never was");
    }

    fn deleted(czxid: i64) -> What {
        What::Deleted { path: PATH.to_owned(), czxid }
    }

    #[test]
    fn a_presence_that_does_not_notice_the_deletion_of_its_znode_is_seen() {
        let count =
            |whats, limit| unnoticed(&history(whats), &[], Duration::from_secs(limit)).len();
        assert_eq!(count(vec![stands(1, 3), deleted(3), deleted(5), stands(1, 3)], 1), 1);
        assert_eq!(count(vec![stands(1, 3), deleted(3), deleted(5), stands(1, 3)], 2), 0);
        assert_eq!(count(vec![stands(1, 3), deleted(3), deleted(5), stands(1, 7)], 1), 0);
    }

    #[test]
    fn a_presence_that_may_not_read_the_znode_of_its_successor_is_excused() {
        on_server(async |server| {
            server.admin_create("/group", b"", None);
            server.admin_create(PATH, b"", None);
            let mut acl = Acl::open();
            acl.iter_mut().for_each(|entry| entry.perms = Permissions::CREATE);
            assert!(server.admin_set_acl(PATH, acl));
            let client = connect(&server).await;
            let session = client.session_id().unwrap();
            client.get_data(PATH).await.unwrap_err();
            let mut requests = server.requests();
            let stands = || What::Stands { presence: 1, path: PATH.to_owned(), session, czxid: 3 };
            let events = history(vec![stands(), deleted(3), deleted(5), stands()]);
            // The deletion is in second 1, and the presence says in second 3 that it is there.
            let mut count = |second| {
                requests.iter_mut().for_each(|it| it.at = Duration::from_secs(second));
                unnoticed(&events, &requests, Duration::from_secs(1)).len()
            };
            assert_eq!((count(0), count(2), count(4)), (1, 0, 1));
        });
    }

    #[test]
    fn a_presence_that_comes_back_late_is_seen() {
        on_server(async |server| {
            let client = connect(&server).await;
            let session = client.session_id().unwrap();
            let stands = || What::Stands { presence: 1, path: PATH.to_owned(), session, czxid: 3 };
            let events = history(vec![stands(), deleted(3), stands(), stands()]);
            // The deletion is in second 1.
            let limit = Duration::from_millis(500);
            assert_eq!(late(&events, &[], limit).len(), 1);
            server.admin_create("/group", b"", None);
            client.create(PATH, "", CreateMode::Ephemeral).await.unwrap();
            let mut requests = server.requests();
            let at = |requests: &mut Vec<RequestRecord>, ms| {
                for request in requests.iter_mut() {
                    (request.at, request.op) = (Duration::from_millis(ms), OpCode::CREATE2);
                }
                late(&events, requests, limit).len()
            };
            assert_eq!((at(&mut requests, 1_400), at(&mut requests, 1_600)), (0, 1));
            let two = history(vec![stands(), deleted(3)]);
            assert_eq!(late(&two, &[], limit).len(), 0, "it may have been closed");
        });
    }

    #[test]
    fn a_znode_that_outlives_the_close_of_its_presence_is_seen() {
        assert_eq!((count(gone(3, 5)), count(gone(3, 9))), (0, 0));
        assert_eq!(count(gone(3, 4)), 1, "it was deleted later");
        assert_eq!(count(gone(7, 9)), 1, "it is still there");
        assert_eq!(count(gone(4, 9)), 1, "it never was");
    }
}
