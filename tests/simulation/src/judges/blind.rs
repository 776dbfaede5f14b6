//! Whoever waits for a lock, or follows a group, lists the directory when it changes, and not now and
//! then, also if it may not read the one ahead. Judged if nothing goes wrong in a world.

use std::collections::BTreeMap;
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode, SessionId};
use zk_testserver::{Outcome, RequestRecord};

use super::Case;
use super::turns::parse;
use crate::history::{Event, What};
use crate::program::groups::GROUP;

/// The directories of locks, and those above them.
const LOCKS: [&str; 6] = ["/locks", "/rw", "/semaphore", "/permits", "/election", "/named"];

/// How many lists of a group in a row may have no reason. A group first asks for the state of its
/// directory, and a member that comes before the list of the same flight is in the list already, so the
/// next check of the group finds a change that it knows.
const LISTS_MAX: usize = 1;

/// Waiters check more rarely than this whether they have missed a change.
const CHECK_MIN: Duration = Duration::from_secs(5);

/// Returns how the promise was broken.
pub fn judge(case: &Case<'_>) -> Vec<String> {
    let Case { plan, program, events, requests, sessions, .. } = case;
    // Whoever ends, or moves to another server, looks again.
    let is_moving = program.ends.is_some() || program.moves.is_some();
    if !plan.faults.is_empty() || (plan.blind.is_none() && is_moving) {
        return Vec::new();
    }
    let waits = |client: usize| plan.blind.is_none() || plan.is_blind(client);
    let blind = sessions.iter().filter(|(_, client)| waits(**client));
    let blind = blind.map(|(session, client)| (*session, *client)).collect();
    // From a write until the list of somebody who was told of it.
    let late = plan.unapplied_max() + 4 * plan.round_trip_max() + plan.tick;
    judge_lists(events, requests, &blind, late)
}

fn judge_lists(
    events: &[Event],
    requests: &[RequestRecord],
    blind: &BTreeMap<SessionId, usize>,
    late: Duration,
) -> Vec<String> {
    let directory = |request: &RequestRecord| {
        let path = request.path.as_deref()?;
        let is_write = matches!(request.op, OpCode::CREATE | OpCode::CREATE2 | OpCode::DELETE);
        match parse(path) {
            Some((directory, _)) if is_write => Some(directory.to_owned()),
            // The path of a create has no number.
            _ if is_write => Some(path.rsplit_once('/')?.0.to_owned()),
            _ => None,
        }
    };
    // These may change any directory.
    let is_large =
        |request: &RequestRecord| matches!(request.op, OpCode::CLOSE_SESSION | OpCode::MULTI);
    let writes: Vec<(Duration, Option<String>)> = requests
        .iter()
        .filter_map(|it| {
            let directory = directory(it).filter(|_| !is_large(it));
            (is_large(it) || directory.is_some()).then_some((it.at, directory))
        })
        .collect();
    let has_begun = |client: usize, from: Duration, to: Duration| {
        events.iter().any(|event| {
            let is_own = event.who.is_some_and(|who| who.client == client);
            let is_call = matches!(event.what, What::Begun { .. } | What::Ended { .. });
            is_own && is_call && from < event.at && event.at <= to
        })
    };
    let mut last: BTreeMap<(SessionId, &str), Duration> = BTreeMap::new();
    let mut unfounded: BTreeMap<(SessionId, &str), usize> = BTreeMap::new();
    let mut violations = Vec::new();
    let is_list = |request: &&RequestRecord| {
        matches!(request.op, OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2)
            && request.outcome == Outcome::Applied(ErrorCode::OK)
    };
    for list in requests.iter().filter(is_list) {
        let (Some(path), Some(client)) = (list.path.as_deref(), blind.get(&list.session)) else {
            continue;
        };
        let is_group = path == GROUP;
        if !is_group && !LOCKS.iter().any(|directory| path.starts_with(directory)) {
            continue;
        }
        let Some(before) = last.insert((list.session, path), list.at) else { continue };
        if list.at - before < late + CHECK_MIN {
            // Something before the last list may have been its reason.
            continue;
        }
        let is_changed = writes.iter().any(|(at, of)| {
            of.as_deref().is_none_or(|of| of == path) && before < *at && *at <= list.at
        });
        let in_a_row = unfounded.entry((list.session, path)).or_default();
        if is_changed || has_begun(*client, before, list.at) {
            *in_a_row = 0;
            continue;
        }
        *in_a_row += 1;
        if *in_a_row > if is_group { LISTS_MAX } else { 0 } {
            violations.push(format!(
                "client {client} lists {path} at {:?} and at {:?}, and nothing has changed",
                before, list.at
            ));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::tests::{connect, on_server};

    /// Returns the requests of a run in which somebody lists a directory this often, and perhaps creates
    /// something in it after each list.
    fn requests(directory: &str, lists: usize, creates: bool) -> Vec<RequestRecord> {
        on_server(async |server| {
            server.admin_create(directory, b"", None);
            let client = connect(&server).await;
            for number in 0..lists {
                client.get_children(directory).await.unwrap();
                tokio::time::advance(Duration::from_secs(20)).await;
                if creates {
                    let path = format!("{directory}/{number}");
                    client.create(&path, "", zk_recipes::CreateMode::Persistent).await.unwrap();
                }
            }
            client.close().await;
            server.requests()
        })
    }

    #[test]
    fn a_list_without_a_reason_is_seen() {
        let count_of = |directory, lists, creates, is_blind| {
            let requests = requests(directory, lists, creates);
            let sessions = requests.iter().filter(|_| is_blind).map(|it| (it.session, 0)).collect();
            judge_lists(&[], &requests, &sessions, Duration::from_secs(1)).len()
        };
        let count = |creates, is_blind| count_of("/rw", 2, creates, is_blind);
        assert_eq!((count(false, true), count(true, true), count(false, false)), (1, 0, 0));
        assert_eq!(count_of(GROUP, 2, false, true), 0, "it may have known the change already");
        assert_eq!((count_of(GROUP, 3, false, true), count_of(GROUP, 3, true, true)), (1, 0));
    }
}
