//! What a server refuses becomes rarer: whoever is refused waits longer each time. And nobody reads the
//! configuration of the ensemble each time that it changes, however fast that is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};
use zk_testserver::{Outcome, RequestRecord};

use super::{Case, refusal};
use crate::history::{End, Event, Id, What};
use crate::program::Job;
use crate::program::locks::ROOT;
use crate::program::values::VALUE;

/// The znode with the servers of the ensemble.
const CONFIG: &str = "/zookeeper/config";
/// The path of a write that renews the lease.
const RENEWED: &str = "/";

/// How many digits the identity of an attempt has at least. Only one attempt has a path with it.
const IDENTITY: usize = 16;
/// So many writes of an attempt are refused only in a longer time: the pauses between them grow from
/// 200 ms to 5 s.
const OF_ATTEMPTS: Rate = Rate { count: 12, within: Duration::from_secs(6) };
/// The same for reads of the configuration. The pauses between them begin with half a second and double
/// each time.
const OF_CONFIG: Rate = Rate { count: 5, within: Duration::from_secs(5) };
/// The time between two reads of the configuration on one connection.
const CONFIG_SPACING: Duration = Duration::from_secs(2);
/// After so many refusals of renewals in a row, the pause is 16 times as long as the first one.
const RENEWALS: usize = 6;
/// Whatever the latency, the last pause is so many times as long as the first one, unless a pause is
/// longer than [`RENEWAL_PAUSE`].
const RENEWAL_GROWTH: u32 = 2;
const RENEWAL_PAUSE: Duration = Duration::from_millis(700);
/// Pauses of one client do not shrink to less than this part of the first one. If one does, other writes
/// to the same path are among the renewals, such as a barrier without a read.
const OTHERS: u32 = 4;

/// In this time, a stream of changes reads a value that it may not read no more often than this, and so
/// does each call: the pauses grow from 200 ms.
const STREAMED: Duration = Duration::from_secs(5);
const STREAMED_MAX: usize = 6;

/// So many in so short a time.
#[derive(Clone, Copy, Debug)]
struct Rate {
    count: usize,
    within: Duration,
}

/// A request that is repeated: its connection, its operation and its path.
type Key<'a> = (u64, i32, &'a str);

/// Returns how the promise was broken.
pub fn judge(case: &Case<'_>) -> Vec<String> {
    let mut violations = judge_requests(case.requests);
    // A client that may send one request at a time sends a barrier without the read behind it.
    if case.plan.outstanding.is_none() {
        violations.extend(renewals(case.requests));
    }
    violations.extend(streams(case));
    violations
}

fn judge_requests(requests: &[RequestRecord]) -> Vec<String> {
    let mut violations = too_often(requests, OF_ATTEMPTS, |request, code| {
        let is_of_recipe = is_write(request.op) && !is_of_revocation(request);
        code != ErrorCode::THROTTLED_OP && is_of_recipe && has_identity(request)
    });
    violations.extend(too_often(requests, OF_CONFIG, |request, _| is_of_config(request)));
    violations.extend(reads_of_config(requests));
    violations
}

/// Returns the code with which a server has refused a request, for any reason.
fn any_refusal(request: &RequestRecord) -> Option<ErrorCode> {
    let is_denied = request.outcome == Outcome::Applied(ErrorCode::NO_AUTH);
    refusal(request).or_else(|| is_denied.then_some(ErrorCode::NO_AUTH))
}

fn is_write(op: OpCode) -> bool {
    [OpCode::CREATE, OpCode::CREATE2, OpCode::DELETE, OpCode::SET_DATA, OpCode::MULTI].contains(&op)
}

/// Returns whether a caller asks a contender to leave, which each call does once.
fn is_of_revocation(request: &RequestRecord) -> bool {
    let is_of_lock = request.path.as_deref().is_some_and(|path| path.starts_with(ROOT));
    request.op == OpCode::SET_DATA && is_of_lock
}

fn has_identity(request: &RequestRecord) -> bool {
    let path = request.path.as_deref().unwrap_or_default();
    path.split(|letter: char| !letter.is_ascii_hexdigit()).any(|digits| digits.len() >= IDENTITY)
}

fn is_of_config(request: &RequestRecord) -> bool {
    request.op == OpCode::GET_DATA && request.path.as_deref() == Some(CONFIG)
}

/// Returns which of these requests were refused more often than at this rate.
fn too_often(
    requests: &[RequestRecord],
    rate: Rate,
    is_judged: impl Fn(&RequestRecord, ErrorCode) -> bool,
) -> Vec<String> {
    let mut last: BTreeMap<Key<'_>, VecDeque<Duration>> = BTreeMap::new();
    let mut violations = Vec::new();
    for request in requests {
        let (Some(path), Some(code)) = (request.path.as_deref(), any_refusal(request)) else {
            continue;
        };
        if !is_judged(request, code) {
            continue;
        }
        let times = last.entry((request.connection, request.op.0, path)).or_default();
        times.push_back(request.at);
        if times.len() < rate.count {
            continue;
        }
        let Some(first) = times.pop_front() else { continue };
        if request.at < first + rate.within {
            let (Rate { count, .. }, RequestRecord { session, op, at, .. }) = (rate, request);
            violations.push(format!(
                "{session}: {op} of {path} was refused {count} times from {first:?} to {at:?}"
            ));
            times.clear();
        }
    }
    violations
}

/// Judges writes that renew the lease, of which there is one at a time on a connection. Each write that
/// a server has executed begins anew. What a read follows at once is no renewal, but its barrier.
fn renewals(requests: &[RequestRecord]) -> Vec<String> {
    let reads = requests.iter().filter(|request| !is_write(request.op) && request.path.is_some());
    let reads: BTreeSet<(u64, i32)> = reads.map(|it| (it.connection, it.xid)).collect();
    let is_barrier = |request: &RequestRecord| {
        request.xid.checked_add(1).is_some_and(|xid| reads.contains(&(request.connection, xid)))
    };
    let mut refused: BTreeMap<u64, Vec<Duration>> = BTreeMap::new();
    let mut violations = Vec::new();
    for request in requests.iter().filter(|request| is_write(request.op)) {
        let RequestRecord { connection, session, op, path, at, .. } = request;
        if any_refusal(request).is_none() {
            refused.remove(connection);
        } else if *op == OpCode::MULTI && path.as_deref() == Some(RENEWED) && !is_barrier(request) {
            let times = refused.entry(*connection).or_default();
            if times.last().is_some_and(|last| *at >= *last + RENEWAL_PAUSE) {
                times.clear();
            }
            times.push(*at);
            if times.len() < RENEWALS {
                continue;
            }
            if let ([first, second, ..], [.., before, last]) = (&times[..], &times[..])
                && *last - *before < RENEWAL_GROWTH * (*second - *first)
                && times.is_sorted_by(|from, to| OTHERS * (*to - *from) >= *second - *first)
            {
                violations.push(format!("{session}: renewals were refused at {times:?}"));
            }
            times.clear();
        }
    }
    violations
}

/// Judges clients that follow the value: each stream, and each call of the value, may read it a few times
/// on a connection. Callers who hurry begin one stream after the other.
fn streams(case: &Case<'_>) -> Vec<String> {
    let Case { plan, program, events, requests, sessions, .. } = case;
    let mut violations = Vec::new();
    if plan.is_hasty {
        return violations;
    }
    for (client, tasks) in program.clients.iter().enumerate() {
        let streams = tasks.iter().filter(|jobs| jobs.contains(&Job::Changes)).count();
        let is_read = |request: &&RequestRecord| {
            request.op == OpCode::GET_DATA
                && request.path.as_deref() == Some(VALUE)
                && sessions.get(&request.session) == Some(&client)
        };
        // A read that succeeds and another connection end the pauses.
        let mut times: BTreeMap<(u64, usize), Vec<Duration>> = BTreeMap::new();
        let mut successes = 0;
        for request in requests.iter().filter(is_read) {
            match any_refusal(request) {
                Some(_) => {
                    times.entry((request.connection, successes)).or_default().push(request.at);
                }
                None => successes += 1,
            }
        }
        let uses = uses(events, client);
        for times in times.values().filter(|_| streams > 0) {
            violations.extend(read_too_often(times, streams, &uses).map(|(first, count)| {
                format!("client {client} was refused the value {count} times from {first:?} on")
            }));
        }
    }
    violations
}

/// Returns from when until when a client may read the value for another reason than a stream that goes
/// on: a call of the value, or another stream of a task whose stream has failed, or that uses another
/// client from then on.
fn uses(events: &[Event], client: usize) -> Vec<(Duration, Duration)> {
    let mut streams: BTreeSet<Id> = BTreeSet::new();
    let mut begun: BTreeMap<Id, Duration> = BTreeMap::new();
    let mut uses = Vec::new();
    for event in events.iter().filter(|event| event.who.is_some_and(|who| who.client == client)) {
        match &event.what {
            What::Begun { call, name: "changes", .. } => drop(streams.insert(*call)),
            What::Begun { call, on, .. } if on == VALUE => drop(begun.insert(*call, event.at)),
            // Its caller begins another one.
            What::Ended { call, end: End::Failed(_) } if streams.contains(call) => {
                uses.push((event.at, event.at + STREAMED));
            }
            What::Ended { call, .. } => {
                uses.extend(begun.remove(call).map(|from| (from, event.at)));
            }
            What::Renewed { .. } => uses.push((event.at, event.at + STREAMED)),
            _ => {}
        }
    }
    uses.extend(begun.into_values().map(|from| (from, Duration::MAX)));
    uses
}

/// Returns when too many reads began that were refused at these times, and how many there were.
fn read_too_often(
    times: &[Duration],
    streams: usize,
    uses: &[(Duration, Duration)],
) -> Option<(Duration, usize)> {
    // The requests of a call that has just ended may arrive a bit later.
    times.iter().enumerate().find_map(|(index, first)| {
        let last = *first + STREAMED;
        let count = times.iter().skip(index).take_while(|at| **at < last).count();
        if count <= STREAMED_MAX * streams {
            return None;
        }
        let is_meanwhile = |(from, to): &&(Duration, Duration)| {
            *from <= last && *first <= to.saturating_add(STREAMED)
        };
        let uses = uses.iter().filter(is_meanwhile).count();
        (count > STREAMED_MAX * (streams + uses)).then_some((*first, count))
    })
}

fn reads_of_config(requests: &[RequestRecord]) -> Vec<String> {
    let mut last: BTreeMap<u64, Duration> = BTreeMap::new();
    let mut violations = Vec::new();
    let is_read = |request: &&RequestRecord| {
        is_of_config(request) && request.outcome == Outcome::Applied(ErrorCode::OK)
    };
    for RequestRecord { connection, session, at, .. } in requests.iter().filter(is_read) {
        let before = last.insert(*connection, *at);
        if let Some(before) = before.filter(|before| *at < *before + CONFIG_SPACING) {
            violations.push(format!("{session} reads {CONFIG} at {before:?} and at {at:?}"));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Failure;
    use crate::judges::tests::{history, request};

    /// Returns requests of this kind with this outcome on one connection, at these times.
    fn requests(op: OpCode, path: &str, outcome: Outcome, ms: &[u64]) -> Vec<RequestRecord> {
        let request = request();
        let with = |ms: &u64| {
            let (path, at) = (Some(path.to_owned()), Duration::from_millis(*ms));
            let mut request = request.clone();
            (request.op, request.path, request.outcome, request.at) = (op, path, outcome, at);
            request
        };
        ms.iter().map(with).collect()
    }

    const REFUSED: Outcome = Outcome::Refused(ErrorCode::SYSTEM_ERROR);

    #[test]
    fn an_attempt_that_is_refused_all_the_time_is_seen() {
        let path = "/locks/a/0123456789abcdef0123456789abcdef-__lock__";
        let often: Vec<u64> = (0..12).map(|number| number * 400).collect();
        let rarely: Vec<u64> = (0..12).map(|number| number * 600).collect();
        let count =
            |op, path, outcome, ms: &[u64]| judge_requests(&requests(op, path, outcome, ms)).len();
        assert_eq!(count(OpCode::CREATE2, path, REFUSED, &often), 1);
        assert_eq!(count(OpCode::CREATE2, path, REFUSED, &rarely), 0);
        assert_eq!(count(OpCode::CREATE2, "/locks/a", REFUSED, &often), 0, "those of many callers");
        let throttled = Outcome::Refused(ErrorCode::THROTTLED_OP);
        assert_eq!(count(OpCode::CREATE2, path, throttled, &often), 0);
        assert_eq!(count(OpCode::CREATE2, path, Outcome::Applied(ErrorCode::OK), &often), 0);
        let forbidden = Outcome::Applied(ErrorCode::NO_AUTH);
        assert_eq!(count(OpCode::DELETE, path, forbidden, &often), 1);
    }

    #[test]
    fn renewals_that_do_not_become_rare_are_seen() {
        let of = |ms: &[u64]| requests(OpCode::MULTI, RENEWED, REFUSED, ms);
        let (often, rarely) = ([0, 600, 1_200, 1_800, 2_400, 3_000], [0, 50, 150, 350, 750, 1_550]);
        assert_eq!((renewals(&of(&often)).len(), renewals(&of(&rarely)).len()), (1, 0));
        let short = [0, 111, 263, 479, 794, 1_273];
        assert_eq!(renewals(&of(&short)).len(), 0, "seed 416611846976");
        let written = requests(OpCode::SET_DATA, "/a", Outcome::Applied(ErrorCode::OK), &[1_500]);
        let mut between = of(&often);
        between.splice(3..3, written);
        assert_eq!(renewals(&between).len(), 0, "a write has begun anew");
        let others = [7_474, 7_722, 7_755, 8_025, 8_265, 8_518];
        assert_eq!(renewals(&of(&others)).len(), 0, "seed 600000026504");
        let mut barriers = of(&often);
        let mut reads = requests(OpCode::GET_DATA, "/a", REFUSED, &often);
        barriers.iter_mut().zip(1_000..).for_each(|(it, number)| it.xid = 2 * number);
        reads.iter_mut().zip(1_000..).for_each(|(it, number)| it.xid = 2 * number + 1);
        barriers.append(&mut reads);
        assert_eq!(renewals(&barriers).len(), 0, "each is the barrier of a read");
    }

    #[test]
    fn a_configuration_that_is_read_too_often_is_seen() {
        let of = |outcome, ms: &[u64]| {
            judge_requests(&requests(OpCode::GET_DATA, CONFIG, outcome, ms)).len()
        };
        assert_eq!(of(REFUSED, &[0, 1_000, 2_000, 3_000, 4_000]), 1);
        assert_eq!(of(REFUSED, &[0, 500, 1_500, 3_500, 7_500]), 0);
        let read = Outcome::Applied(ErrorCode::OK);
        assert_eq!((of(read, &[0, 1_999]), of(read, &[0, 2_000, 4_000])), (1, 0));
    }

    #[test]
    fn a_stream_that_reads_again_at_once_is_seen() {
        let seconds = Duration::from_secs;
        let times: Vec<Duration> =
            (0..7).map(|number| Duration::from_millis(number * 100)).collect();
        let count = |uses: &[_]| read_too_often(&times, 1, uses).map(|(_, count)| count);
        assert_eq!(count(&[]), Some(7));
        assert_eq!(count(&[(seconds(20), seconds(30))]), Some(7), "a later call");
        assert_eq!(count(&[(seconds(0), seconds(30))]), None);
        let begun = |call, name| What::Begun { call, name, on: VALUE.to_owned(), timeout: None };
        let ended = What::Ended { call: 1, end: End::Done };
        let events = history(vec![begun(1, "get"), ended, begun(2, "changes"), begun(3, "set")]);
        assert_eq!(uses(&events, 0), [(seconds(0), seconds(1)), (seconds(3), Duration::MAX)]);
        assert_eq!(uses(&events, 1), []);
        let ended = What::Ended { call: 4, end: End::Failed(Failure::TimedOut) };
        let events = history(vec![begun(4, "changes"), ended]);
        assert_eq!(uses(&events, 0), [(seconds(1), seconds(1) + STREAMED)], "another stream");
        let rarely: Vec<Duration> =
            [0, 200, 600, 1_400, 3_000, 6_200, 11_200].map(Duration::from_millis).to_vec();
        assert_eq!(read_too_often(&rarely, 1, &[]), None);
    }
}
