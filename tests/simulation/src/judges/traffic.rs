//! Clients send and receive few bytes: pings when nobody wants anything, and otherwise so many for
//! each call.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};
use zk_testserver::{Outcome, RequestRecord};

use crate::history::{End, Event, Failure, Told, What};
use crate::program::bulk::{BULK, CREATES_MAX};
use crate::program::locks::{WIDE, WIDE_PERMITS};
use crate::program::queue::QUEUE;
use crate::program::values::PLAIN;
use crate::program::{Job, Program};
use crate::world::SESSION_TIMEOUTS;
use crate::world::kinds::{self, WorldKind};
use crate::world::plan::{FaultKind, Plan};

/// How many bytes a client may send and receive in a minute in which none of its tasks runs. The
/// shortest session timeout needs 45 pings, of 32 bytes with their replies.
const IDLE_MAX: u64 = 1_600;
/// That session timeout. Few worlds have a shorter one.
const SHORTEST: Duration = Duration::from_secs(4);
const MINUTE: Duration = Duration::from_secs(60);
/// The bytes of a ping with its reply.
const PING: u64 = 32;
/// The bytes of a write that renews a lease, with its reply.
const RENEWAL: u64 = 140;
/// How often a client with the shortest session writes while it has a lock.
const USUAL_RENEWAL: Duration = Duration::from_millis(200);
/// How many there may be for each call, with all that waits, renewals and reconnects need. The most
/// in the seeds 1 to 1,000 is 2,900.
const CALL_MAX: u64 = 4_000;
/// The same where faults or callers hardly pause. The most in 16,000 seeds is 4,300 for one recipe that
/// takes all faults, of double barriers, and 4,200 for callers in a hurry, of takers that list a queue
/// that others fill.
const CALL_IN_A_HURRY_MAX: u64 = 8_000;
/// How many there may be for each fault: in a run of few long calls, each of their repetitions needs a
/// connection. A run of 18 calls and 2,900 faults had 344 connections of 700 bytes.
const FAULT_MAX: u64 = 100;
/// The same for Keepers, and again for each task. Each lost connection costs a session there, all that
/// wait begin again, and the lists hold what the sessions before have left. In a run whose 500 faults
/// are restarts of the only server, each cost each of its ten tasks 260.
const FAULT_OF_KEEPER_MAX: u64 = 500;
/// The same for each task that follows a group: if a member is deleted, it joins again, and each
/// follower looks at both changes. In a run of 388 deletions, each cost each of six followers 130.
const FAULT_OF_FOLLOWER_MAX: u64 = 200;
/// How many there may be for each connection of a client that is told to use other servers, without any
/// fault: the handshake, the watches, and the configuration that it reads.
const MOVE_MAX: u64 = 1_000;
/// The bytes of a contender in a list.
const CONTENDER: u64 = 60;
/// The bytes of a znode of the tree that a cache reads again, with its list of children.
const TREE_ZNODE: u64 = 200;
/// The requests of a client that has lost its connection, and watches something.
const RESTORING: [OpCode; 2] = [OpCode::SET_WATCHES, OpCode::SET_WATCHES2];
/// The bytes of an item in a list, which a taker reads again if the items change meanwhile.
const ITEM: u64 = 3 * 30;
/// What a run may need beside its calls, in calls.
const CALLS_LEAST: u64 = 20;
/// How many there may be in a second, for each task, beside those for the calls that begin in it. The
/// most in the seeds 1 to 1,000 is 13,000 with them.
const STORM_MAX: u64 = 20_000;
/// How many there may be in a second for each call that begins in it: where links take no time, a task
/// makes more than twenty calls.
const STORM_OF_CALL: u64 = 1_000;

/// Returns how the promise was broken. The traffic is the number of bytes in each second.
pub fn judge(
    events: &[Event],
    requests: &[RequestRecord],
    traffic: &BTreeMap<u64, u64>,
    plan: &Plan,
    program: &Program,
    quiet: &Range<Duration>,
) -> Vec<String> {
    let clients = (0..program.clients.len()).filter(|client| program.uses(*client));
    let idle_max = clients.map(|client| idle_max(plan, client)).sum::<u64>();
    let tasks = program.tasks().count() as u64;
    // Seconds that belong to the quiet time as a whole. Afterwards the judges read what is left.
    let (from, to) = (quiet.start.as_secs() + 1, quiet.end.as_secs());
    let sum = |seconds: Range<u64>| traffic.range(seconds).map(|(_, bytes)| bytes).sum::<u64>();
    let mut violations = Vec::new();
    let idle = sum(from..to);
    if idle > idle_max {
        violations.push(format!("{idle} bytes between {quiet:?}, when no task runs"));
    }
    let (mut calls, mut faults, mut items, mut lists) = (0, 0, 0u64, 0);
    // The calls that may have left a contender, because they were refused for lack of a permission.
    let mut refused = 0u64;
    // Without persistent watches, all that wait for a permit list whenever a contender comes or goes.
    let contenders = u64::from(WIDE_PERMITS) + tasks;
    let kept = CONTENDER * not_removed(requests);
    let wide = if plan.has_persistent_watches() { 0 } else { 2 * tasks * contenders * CONTENDER };
    // The bytes for the calls that begin in each second, and for the faults in it.
    let mut begun: BTreeMap<u64, u64> = BTreeMap::new();
    // Each cache reads the whole tree when it begins, and again after a gap.
    let tree = if plan.kinds.is_wide { TREE_ZNODE * kinds::WIDE as u64 * tasks } else { 0 };
    let large = plan.kinds.narrow.map_or(0, |narrow| narrow.size as u64);
    for event in events {
        match event.what {
            What::Fault { .. } => {
                faults += 1;
                *begun.entry(event.at.as_secs()).or_default() += tree;
            }
            What::Ended { end: End::Failed(Failure::Refused(code)), .. }
                if ErrorCode(code) == ErrorCode::NO_AUTH && plan.may_forbid() =>
            {
                refused += 1;
            }
            What::Put { told, .. } => items += u64::from(told != Told::NotApplied),
            What::Acked { told: Told::Applied, .. } => items = items.saturating_sub(1),
            _ => {}
        }
        let What::Begun { on, .. } = &event.what else { continue };
        let list = match on.as_str() {
            // A taker lists all items.
            QUEUE => ITEM * items,
            WIDE => wide + kept,
            // The data of a large znode travels in one direction.
            path if path == BULK || path.starts_with(PLAIN) => large,
            _ => kept,
        };
        lists += list;
        // Takers list a queue that producers fill in no time, and those who wait for one of many
        // permits list all contenders.
        let of_call = if plan.is_hasty || on == WIDE { CALL_MAX } else { STORM_OF_CALL };
        *begun.entry(event.at.as_secs()).or_default() += of_call + list;
        calls += 1;
    }
    // A client that moves to another server has a gap without any fault.
    let caches = program.tasks().filter(|jobs| jobs.contains(&Job::Cache)).count() as u64;
    let moved = if program.moves.is_some() { MOVE_MAX } else { 0 };
    let gap = if plan.kinds.is_wide { TREE_ZNODE * kinds::WIDE as u64 * caches } else { 0 };
    for request in requests.iter().filter(|it| RESTORING.contains(&it.op)) {
        *begun.entry(request.at.as_secs()).or_default() += gap;
        lists += gap + moved;
    }
    let pings = idle_max * (to / 60 + 1);
    let total = sum(0..to);
    // Whoever keeps a lock for long renews its lease again and again, and all do while one is isolated.
    let is_patient =
        program.is_patient || plan.faults.contains(&FaultKind::Isolate) || lingers(plan);
    // In a crowd, holders give back one permit after the other, also when the faults have stopped.
    let until = if plan.is_of(WorldKind::Crowded) { quiet.start } else { plan.calm_at };
    let renewals = if is_patient { renewals(plan, program, until) } else { 0 };
    let is_in_a_hurry = plan.focus.is_some() || plan.is_hasty;
    let call_max = if is_in_a_hurry { CALL_IN_A_HURRY_MAX } else { CALL_MAX };
    let fault_max = if plan.resumes() { FAULT_MAX } else { FAULT_OF_KEEPER_MAX * (1 + tasks) };
    let followers = program.tasks().filter(|jobs| jobs.contains(&Job::Group)).count() as u64;
    // What a lost connection has carried may be sent again, and a narrow one carries it for long.
    let fault_max =
        fault_max + tree + FAULT_OF_FOLLOWER_MAX * followers + large * (CREATES_MAX as u64) * tasks;
    let carried = plan.kinds.narrow.map_or(0, |narrow| 2 * 1_000 * narrow.rate * tasks);
    // When these can be removed, each waiter lists all of them again after each removal.
    let left = CONTENDER * refused * refused * tasks;
    let of_calls = call_max * (calls + CALLS_LEAST) + fault_max * faults + lists + left;
    if total > pings + RENEWAL * renewals + of_calls {
        let what = format!("{total} bytes for {calls} calls and {faults} faults in {to} s");
        violations.push(what);
    }
    let storm = traffic.range(..to).find(|(second, bytes)| {
        **bytes
            > STORM_MAX * tasks
                + tree
                + left
                + carried
                + begun.get(second).copied().unwrap_or_default()
    });
    if let Some((second, bytes)) = storm {
        violations.push(format!("{bytes} bytes in second {second}"));
    }
    violations
}

/// Returns how many znodes a server has refused to remove for lack of a permission: those of calls that
/// have timed out stay, and others list them.
fn not_removed(requests: &[RequestRecord]) -> u64 {
    let is_refused = |request: &&RequestRecord| {
        request.op == OpCode::DELETE && request.outcome == Outcome::Applied(ErrorCode::NO_AUTH)
    };
    let paths = requests.iter().filter(is_refused).filter_map(|request| request.path.as_deref());
    paths.collect::<BTreeSet<_>>().len() as u64
}

/// Returns whether holders keep their locks for long, although the program does not say so.
fn lingers(plan: &Plan) -> bool {
    let is_doomed = plan.has_aims && plan.faults.contains(&FaultKind::Permission);
    plan.aims.is_steadfast || is_doomed || plan.is_of(WorldKind::Crowded)
}

/// Returns how often the clients may write to keep their leases until then.
fn renewals(plan: &Plan, program: &Program, until: Duration) -> u64 {
    let clients = (0..program.clients.len()).filter(|client| program.uses(*client));
    let usual = lingers(plan).then_some(USUAL_RENEWAL);
    let intervals = clients.filter_map(|client| plan.renewals(client).or(usual));
    let counts = intervals.map(|it| until.as_millis() / it.as_millis().max(1));
    u64::try_from(counts.sum::<u128>()).unwrap_or(u64::MAX)
}

/// Returns how many bytes a client may send and receive in a minute in which none of its tasks runs.
/// Pings that keep a lease are more frequent.
fn idle_max(plan: &Plan, client: usize) -> u64 {
    let pings = plan.lease(client).and_then(|lease| {
        SESSION_TIMEOUTS.iter().filter_map(|it| lease.ping_interval(Duration::from_secs(*it))).min()
    });
    let shorter = plan.kinds.session.filter(|timeout| *timeout < SHORTEST);
    let idle_max = shorter.map_or(IDLE_MAX, |timeout| {
        // The intervals of pings are in proportion to the timeout.
        let bytes = u128::from(IDLE_MAX) * SHORTEST.as_millis() / timeout.as_millis().max(1);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    });
    pings.map_or(idle_max, |interval| {
        let count = MINUTE.as_millis() / interval.as_millis().max(1);
        idle_max.max(PING * u64::try_from(count + 1).unwrap_or(u64::MAX))
    })
}

#[cfg(test)]
mod tests {
    use zk_testserver::ServerVersion;

    use super::*;
    use crate::draw::Draw;
    use crate::judges::tests::{history, request};
    use crate::world::plan::FaultKind;

    /// Judges the traffic of a client with a task and this many calls, which is quiet from 100 to
    /// 160 s.
    fn count(calls: u64, traffic: &[(u64, u64)]) -> usize {
        let mut program = Program::draw(&mut Draw::new(1));
        program.clients.truncate(1);
        program.clients.iter_mut().for_each(|tasks| tasks.truncate(1));
        let begun =
            |call| What::Begun { call, name: "acquire", on: "/a".to_owned(), timeout: None };
        let events = history((0..calls).map(begun).collect());
        let quiet = Duration::from_secs(100)..Duration::from_secs(160);
        let plan =
            Plan { leases: None, focus: None, is_hasty: false, ..Plan::draw(&mut Draw::new(1)) };
        judge(&events, &[], &traffic.iter().copied().collect(), &plan, &program, &quiet).len()
    }

    #[test]
    fn bytes_of_idle_clients_are_seen() {
        assert_eq!(count(0, &[(101, 800), (159, 800)]), 0);
        assert_eq!(count(0, &[(101, 800), (159, 801)]), 1);
        assert_eq!(count(0, &[(99, 5_000), (160, 5_000)]), 0);
    }

    #[test]
    fn what_refused_calls_have_left_is_listed_by_others() {
        let program = Program::draw(&mut Draw::new(1));
        let count = |faults: Vec<FaultKind>| {
            let plan = Plan { faults, has_rows: false, ..Plan::draw(&mut Draw::new(1)) };
            let refused = Failure::Refused(ErrorCode::NO_AUTH.0);
            let ended = |call| What::Ended { call, end: End::Failed(refused.clone()) };
            let events = history((0..300).map(ended).collect());
            let traffic = BTreeMap::from([(7, 5_000_000)]);
            let quiet = Duration::from_secs(100)..Duration::from_secs(160);
            judge(&events, &[], &traffic, &plan, &program, &quiet).len()
        };
        assert_eq!((count(vec![FaultKind::Permission]), count(vec![])), (0, 2));
    }

    #[test]
    fn znodes_that_a_server_does_not_remove_are_listed_by_others() {
        let record = |number| {
            let (op, outcome) = (OpCode::DELETE, Outcome::Applied(ErrorCode::NO_AUTH));
            let mut record = request();
            (record.op, record.path, record.outcome) = (op, Some(format!("/a/{number}")), outcome);
            record
        };
        let requests: Vec<_> = (0..10).chain(0..2).map(record).collect();
        assert_eq!((not_removed(&requests), not_removed(&[request()])), (10, 0));
    }

    #[test]
    fn a_lease_that_is_kept_by_pings_needs_more_of_them() {
        let tick = Duration::from_millis(500);
        let plan = |leases| Plan { leases, tick, ..Plan::draw(&mut Draw::new(1)) };
        let (usual, all) = (plan(None), (0..100).map(|seed| idle_max(&plan(Some(seed)), 0)));
        assert_eq!(idle_max(&usual, 0), IDLE_MAX);
        let more: Vec<u64> = all.filter(|most| *most != IDLE_MAX).collect();
        assert!((2..40).contains(&more.len()), "{more:?}");
        // No lease has pings at shorter intervals than 250 ms.
        assert!(more.iter().all(|most| *most <= 241 * PING), "{more:?}");
    }

    #[test]
    fn bytes_of_few_calls_are_seen() {
        let traffic: Vec<(u64, u64)> = (0..50).map(|second| (second, 10_000)).collect();
        assert_eq!(count(104, &traffic), 0);
        assert_eq!(count(103, &traffic), 1);
    }

    #[test]
    fn a_run_may_need_more_bytes_if_it_has_faults() {
        let program = Program::draw(&mut Draw::new(1));
        let plan = |version| Plan {
            focus: None,
            is_hasty: false,
            version,
            ..Plan::draw(&mut Draw::new(1))
        };
        let quiet = Duration::from_secs(100)..Duration::from_secs(160);
        let count_for = |program: &Program, faults: u64, version| {
            let fault = |number| What::Fault { number, text: String::new() };
            let events = history((0..faults).map(fault).collect());
            let bytes = (0..50).map(|second| (second, 10_000)).collect();
            judge(&events, &[], &bytes, &plan(version), program, &quiet).len()
        };
        let count = |faults, version| count_for(&program, faults, version);
        let (usual, keeper) = (ServerVersion::V3_9, ServerVersion::Keeper);
        let following = Program { clients: vec![vec![vec![Job::Group]; 6]], ..program.clone() };
        assert_eq!(count_for(&following, 1_000, usual), 0);
        assert_eq!((count(1_000, usual), count(5_000, usual)), (1, 0));
        assert_eq!((count(100, keeper), count(1_000, keeper)), (1, 0));
    }

    #[test]
    fn waiters_for_many_permits_list_more_often_without_persistent_watches() {
        let mut program = Program::draw(&mut Draw::new(1));
        program.clients.truncate(1);
        let quiet = Duration::from_secs(100)..Duration::from_secs(160);
        let count = |on: &str, version| {
            let begun =
                |call| What::Begun { call, name: "acquire", on: on.to_owned(), timeout: None };
            let events = history((0..100).map(begun).collect());
            let bytes = (0..50).map(|second| (second, 12_000)).collect();
            let plan = Plan { focus: None, is_hasty: false, ..Plan::draw(&mut Draw::new(1)) };
            judge(&events, &[], &bytes, &Plan { version, ..plan }, &program, &quiet).len()
        };
        assert_eq!(count(WIDE, ServerVersion::V3_9), 1);
        assert_eq!(count("/wider", ServerVersion::V3_5), 1);
        assert_eq!(count(WIDE, ServerVersion::V3_5), 0);
        assert_eq!(count(WIDE, ServerVersion::Keeper), 0);
    }

    #[test]
    fn storms_are_seen() {
        // The calls begin in the seconds from 0 on.
        assert_eq!((count(7, &[(7, 20_000)]), count(7, &[(7, 20_001)])), (0, 1));
        assert_eq!((count(8, &[(7, 21_000)]), count(8, &[(7, 21_001)])), (0, 1));
    }

    #[test]
    fn a_cache_reads_a_wide_tree_when_it_begins_and_after_a_fault_or_a_gap() {
        let mut program = Program::draw(&mut Draw::new(1));
        program.clients = vec![vec![vec![Job::Cache]]];
        let quiet = Duration::from_secs(100)..Duration::from_secs(160);
        let count_after = |is_wide: bool, gaps: usize, faults: u64, bytes: u64| {
            let mut restoring = request();
            restoring.op = OpCode::SET_WATCHES;
            let requests = vec![restoring; gaps];
            let fault = |number| What::Fault { number, text: String::new() };
            let events: Vec<_> = history((0..faults).map(fault).collect());
            let mut plan = Plan { focus: None, is_hasty: false, ..Plan::draw(&mut Draw::new(1)) };
            plan.kinds.is_wide = is_wide;
            let traffic = BTreeMap::from([(0, bytes)]);
            judge(&events, &requests, &traffic, &plan, &program, &quiet).len()
        };
        let count = |is_wide, faults, bytes| count_after(is_wide, 0, faults, bytes);
        let tree = TREE_ZNODE * kinds::WIDE as u64;
        assert_eq!(
            (count(true, 0, STORM_MAX + tree), count(true, 0, STORM_MAX + tree + 1)),
            (0, 1)
        );
        let again = STORM_MAX + 2 * tree;
        assert_eq!((count(true, 1, again), count(true, 1, again + 1)), (0, 1));
        assert_eq!((count_after(true, 1, 0, again), count_after(true, 1, 0, again + 1)), (0, 1));
        assert_eq!(count_after(false, 1, 0, STORM_MAX + 1), 1);
        assert_eq!(count(false, 1, STORM_MAX + 1), 1);
    }

    #[test]
    fn a_patient_holder_with_a_short_lease_may_write_often() {
        let (mut plan, mut program) =
            (Plan::draw(&mut Draw::new(1)), Program::draw(&mut Draw::new(1)));
        plan.faults.clear();
        plan.focus = None;
        plan.calm_at = Duration::from_secs(75);
        let mut seeds = (0..100).filter(|seed| {
            plan.leases = Some(*seed);
            (0..program.clients.len()).any(|client| plan.renewals(client).is_some())
        });
        plan.leases = seeds.next();
        assert!(plan.leases.is_some());
        let count = |is_patient: bool, program: &mut Program| {
            program.is_patient = is_patient;
            let bytes = (0..75).map(|second| (second, 1_500)).collect();
            let quiet = Duration::from_secs(100)..Duration::from_secs(160);
            judge(&[], &[], &bytes, &plan, program, &quiet).len()
        };
        assert_eq!((count(false, &mut program), count(true, &mut program)), (1, 0));
    }
}
