//! A call that says `NotApplied` was not applied and never will be, and a call that succeeds was.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode, SessionId};
use zk_testserver::{CommitRecord, RequestRecord};

use super::refusal;
use super::users::{Used, Users};
use crate::history::{End, Event, Failure, Id, Piped, Told, What};
use crate::program::settled;
use crate::world::plan::{FaultKind, Plan};

/// The calls that know that nothing was sent for them: they withdraw what waits for a connection a
/// moment before their time is over.
const KNOW_WHAT_WAS_SENT: [&str; 6] =
    ["add", "set", "update", "create_settled", "commit_under", settled::WRITE];

/// The shortest timeout that leaves a client the time to withdraw a request.
const TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// Returns how the promise was broken. Only one call creates each of these paths.
pub fn judge(
    events: &[Event],
    commits: &[CommitRecord],
    requests: &[RequestRecord],
) -> Vec<String> {
    let is_create = |commit: &&CommitRecord| {
        commit.error == ErrorCode::OK && matches!(commit.op, OpCode::CREATE | OpCode::CREATE2)
    };
    let created: BTreeSet<&str> =
        commits.iter().filter(is_create).filter_map(|commit| commit.path.as_deref()).collect();
    let mut violations = judge_created(events, &created);
    let zxids = commits.iter().filter(is_create);
    let zxids = zxids.filter_map(|it| Some((it.path.as_deref()?, it.zxid.0))).collect();
    let refused = requests.iter().filter(|it| refusal(it).is_some());
    let refused = refused.filter_map(|it| it.path.as_deref()).collect();
    violations.extend(judge_pipes(events, &zxids, &refused));
    let creators = commits.iter().filter(is_create);
    violations.extend(judge_bound(
        events,
        &creators.filter_map(|it| Some((it.path.as_deref()?, it.session))).collect(),
    ));
    violations
}

/// Judges what may be created in one session only. The second argument says which session has created
/// each path.
fn judge_bound(events: &[Event], creators: &BTreeMap<&str, SessionId>) -> Vec<String> {
    let broken = |event: &Event| match &event.what {
        What::Bound { path, session } => {
            let creator = creators.get(path.as_str()).filter(|creator| *creator != session)?;
            Some(format!("{path} was bound to {session}, and {creator} has created it"))
        }
        _ => None,
    };
    events.iter().filter_map(broken).collect()
}

/// Judges creates that were handed over together: they are applied in their order, and none after one
/// that was lost and not applied, unless a server has refused that one.
fn judge_pipes(
    events: &[Event],
    zxids: &BTreeMap<&str, i64>,
    refused: &BTreeSet<&str>,
) -> Vec<String> {
    let broken = |event: &Event| {
        // A limited handle may send the next one after the end of a connection.
        let What::Piped { creates, is_single: false } = &event.what else { return None };
        let (mut newest, mut is_lost) = (0, false);
        for (path, end) in creates {
            match zxids.get(path.as_str()) {
                Some(zxid) if is_lost || *zxid < newest => {
                    return Some(format!("{path} was applied out of its order: {event}"));
                }
                Some(zxid) => newest = *zxid,
                None => is_lost |= *end == Piped::Lost && !refused.contains(path.as_str()),
            }
        }
        None
    };
    events.iter().filter_map(broken).collect()
}

/// Judges handles that have one request with the servers at a time: the next one arrives a round trip
/// later, on the same connection.
pub fn judge_limits(events: &[Event], requests: &[RequestRecord], plan: &Plan) -> Vec<String> {
    let arrived: BTreeMap<&str, (u64, Duration)> = requests
        .iter()
        .filter_map(|it| Some((it.path.as_deref()?, (it.connection, it.at))))
        .collect();
    judge_single(events, &arrived, |client| plan.latency_of(client))
}

fn judge_single(
    events: &[Event],
    arrived: &BTreeMap<&str, (u64, Duration)>,
    latency_of: impl Fn(usize) -> Duration,
) -> Vec<String> {
    let broken = |event: &Event| {
        let What::Piped { creates, is_single: true } = &event.what else { return None };
        let latency = event.who.map_or(Duration::ZERO, |who| latency_of(who.client));
        let times = creates.iter().filter_map(|(path, _)| arrived.get(path.as_str()));
        let times: Vec<_> = times.collect();
        let is_too_early = times.windows(2).any(|pair| match pair {
            [(one, first), (other, second)] => one == other && *second < *first + latency,
            _ => false,
        });
        is_too_early.then(|| format!("two were with the servers at once: {event}"))
    };
    events.iter().filter_map(broken).collect()
}

/// Judges calls for which nothing can have been sent, because there was no connection: their callers
/// are told that nothing was applied. Callers that are stopped learn too late that their time is nearly
/// over.
pub fn judge_unsent(events: &[Event], plan: &Plan) -> Vec<String> {
    // While credentials are sent, a connection has its number already, and nobody can use it yet.
    let has_credentials = plan.is_protected || plan.blind.is_some();
    let stops = [FaultKind::Stop, FaultKind::Suspension];
    if has_credentials || plan.faults.iter().any(|kind| stops.contains(kind)) {
        return Vec::new();
    }
    let mut calls: BTreeMap<Id, (Option<Used>, &Event)> = BTreeMap::new();
    let mut unsent: BTreeSet<Id> = BTreeSet::new();
    let mut violations = Vec::new();
    let mut users = Users::default();
    for event in events {
        users.see(event);
        match &event.what {
            What::Begun { call, name, timeout, .. }
                if KNOW_WHAT_WAS_SENT.contains(name)
                    && timeout.is_none_or(|timeout| timeout >= TIMEOUT_MIN) =>
            {
                calls.insert(*call, (event.who.map(|who| users.of(who)), event));
            }
            What::Unsent { call, told: Told::Unknown } => drop(unsent.insert(*call)),
            What::Ended { call, end } => {
                let Some((client, begun)) = calls.remove(call) else { continue };
                // A client that stops does not ask its session any more what was sent.
                let has_ended = client.is_some_and(|client| users.is_ending(client));
                let is_told = matches!(end, End::Failed(failure) if *failure != Failure::Closed);
                if is_told && !has_ended && unsent.contains(call) {
                    violations.push(format!("nothing was sent, and it is in doubt: {begun}"));
                }
            }
            _ => {}
        }
    }
    violations
}

fn judge_created(events: &[Event], created: &BTreeSet<&str>) -> Vec<String> {
    let broken = |event: &Event| match &event.what {
        What::Wrote { path, told: Told::Applied } if !created.contains(path.as_str()) => {
            Some(format!("{path} was created, its caller was told, and it was not"))
        }
        What::Wrote { path, told: Told::NotApplied } if created.contains(path.as_str()) => {
            Some(format!("{path} was not created, its caller was told, and it was"))
        }
        _ => None,
    };
    events.iter().filter_map(broken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draw;
    use crate::judges::tests::history;
    use crate::program::ends::EndKind;

    #[test]
    fn a_write_in_another_session_is_seen() {
        let (one, other) = (SessionId(1), SessionId(2));
        let bound = history(vec![What::Bound { path: "/a".to_owned(), session: one }]);
        let count = |creators: &[_]| judge_bound(&bound, &creators.iter().copied().collect()).len();
        assert_eq!((count(&[("/a", one)]), count(&[]), count(&[("/a", other)])), (0, 0, 1));
    }

    #[test]
    fn a_write_that_is_in_doubt_although_nothing_was_sent_is_seen() {
        let plan = Plan { faults: Vec::new(), ..Plan::draw(&mut Draw::new(1)) };
        let count = |name, ms, told, end, plan: &Plan| {
            let timeout = Some(Duration::from_millis(ms));
            let begun = What::Begun { call: 1, name, on: "/a".to_owned(), timeout };
            let ended = What::Ended { call: 1, end };
            judge_unsent(&history(vec![begun, What::Unsent { call: 1, told }, ended]), plan).len()
        };
        let failed = || End::Failed(Failure::TimedOut);
        assert_eq!(count("set", 100, Told::Unknown, failed(), &plan), 1);
        assert_eq!(count("set", 99, Told::Unknown, failed(), &plan), 0);
        assert_eq!(count("set", 100, Told::NotApplied, failed(), &plan), 0);
        assert_eq!(count("set", 100, Told::Unknown, End::Dropped, &plan), 0);
        assert_eq!(count("set", 100, Told::Unknown, End::Failed(Failure::Closed), &plan), 0);
        assert_eq!(count("put", 100, Told::Unknown, failed(), &plan), 0);
        let name = "set";
        let begun = What::Begun { call: 1, name, on: "/a".to_owned(), timeout: None };
        let ending = What::Ending { kind: EndKind::Close, life: 0 };
        let unsent = What::Unsent { call: 1, told: Told::Unknown };
        let ended = What::Ended { call: 1, end: End::Failed(Failure::Undecided) };
        let all = |whats: Vec<What>| judge_unsent(&history(whats), &plan).len();
        assert_eq!(all(vec![begun.clone(), unsent.clone(), ended.clone()]), 1);
        assert_eq!(all(vec![begun, ending, unsent, ended]), 0, "its client is closed");
        let plan = Plan { faults: vec![FaultKind::Stop], ..plan };
        assert_eq!(count("set", 100, Told::Unknown, failed(), &plan), 0);
    }

    #[test]
    fn creates_out_of_their_order_are_seen() {
        let count = |end, is_single, zxids: &[(&'static str, i64)]| {
            let creates = vec![("/a".to_owned(), end), ("/b".to_owned(), Piped::Other)];
            let events = history(vec![What::Piped { creates, is_single }]);
            let zxids = zxids.iter().copied().collect();
            let refused = BTreeSet::from(["/a"]);
            let count = judge_pipes(&events, &zxids, &BTreeSet::new()).len();
            assert!(judge_pipes(&events, &zxids, &refused).len() <= count);
            count
        };
        assert_eq!(count(Piped::Other, false, &[("/a", 1), ("/b", 2)]), 0);
        assert_eq!(count(Piped::Other, false, &[("/a", 2), ("/b", 1)]), 1);
        assert_eq!(count(Piped::Other, false, &[("/b", 2)]), 0);
        assert_eq!(count(Piped::Lost, false, &[("/b", 2)]), 1);
        assert_eq!(count(Piped::Lost, true, &[("/b", 2)]), 0);
    }

    #[test]
    fn two_requests_at_once_are_seen() {
        let creates = ["/a", "/b"].map(|path| (path.to_owned(), Piped::Other)).to_vec();
        let events = history(vec![What::Piped { creates, is_single: true }]);
        let count = |connection, ms| {
            let arrived = [
                ("/a", (1, Duration::from_millis(5))),
                ("/b", (connection, Duration::from_millis(ms))),
            ];
            judge_single(&events, &arrived.into(), |_| Duration::from_millis(10)).len()
        };
        assert_eq!((count(1, 25), count(1, 14), count(2, 14)), (0, 1, 0));
    }

    #[test]
    fn both_kinds_of_lies_are_seen() {
        let (none, some) = (BTreeSet::new(), BTreeSet::from(["/a"]));
        for (told, if_not_created, if_created) in
            [(Told::Applied, 1, 0), (Told::NotApplied, 0, 1), (Told::Unknown, 0, 0)]
        {
            let events = history(vec![What::Wrote { path: "/a".to_owned(), told }]);
            assert_eq!(judge_created(&events, &none).len(), if_not_created, "{told:?}");
            assert_eq!(judge_created(&events, &some).len(), if_created, "{told:?}");
        }
    }
}
