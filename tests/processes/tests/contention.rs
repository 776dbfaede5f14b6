//! Several processes contend for each lock, each behind a network that fails at random.
//!
//! `CONTENTION_SECONDS` sets the duration of each fight. `CONTENTION_SEED` repeats the faults of an
//! earlier run, and their times. Which requests the faults hit depends on the machine, so the log
//! of a failing run is kept.
#![expect(clippy::disallowed_methods, reason = "other processes are watched, in real time")]

use std::env;
use std::fs;
use std::str::FromStr;
use std::time::Duration;
use zk_session::recipe::Session;

use tokio::sync::Semaphore;
use tokio::time::sleep;
use zk_tests::case::{Case, ExclusiveLock, FairLock, Reader};
use zk_tests::fight::{Build, Fight, Network, nothing_is_left};
use zk_tests::for_each_lock;
use zk_tests::grants::{Contest, Event, Expected, Record, Summary, check, progress, read};
use zk_tests::proxy::Statistics;
use zk_tests::target::Fixture;
use zk_tests::wait::PATIENCE;

/// The number of fights that run at a time. A fight mostly waits: its processes use less than a
/// twentieth of a processor. All at once would still delay each other's grants.
static TURNS: Semaphore = Semaphore::const_new(3);

for_each_lock! {
    #[tokio::test(flavor = "multi_thread")] locks: [
        processes_behind_failing_networks_hold_the_lock_as_they_may_and_in_order,
    ]
}

async fn processes_behind_failing_networks_hold_the_lock_as_they_may_and_in_order<C: Case>() {
    let contest = Contest::of::<C>();
    let summary = fight_for(contest).await;
    if contest.is_shared {
        assert!(summary.shared > 0 && summary.shared < summary.grants, "{summary:?}");
        assert!(summary.joins > 0, "no two readers held the lock together: {summary:?}");
    }
    if contest.has_downgrade {
        assert!(summary.downgrades > 0, "no writer became a reader: {summary:?}");
    }
}

async fn fight_for(contest: Contest) -> Summary {
    let _turn = TURNS.acquire().await.expect("it is never closed");
    let fixture = Fixture::start().await;
    let seconds = Duration::from_secs(variable("CONTENTION_SECONDS").unwrap_or(3));
    let seed = variable("CONTENTION_SEED")
        .unwrap_or_else(|| Session::of(&fixture.observer).unique_id() as u64);
    let build =
        Build { contender: env!("CARGO_BIN_EXE_contender"), folder: env!("CARGO_TARGET_TMPDIR") };
    let mut fight = Fight::start(&fixture, build, contest, PROCESSES, Network::Failing, seed).await;

    let begin = fixture.observer.now();
    let mark = go_on(&mut fight, &fixture, seconds).await;
    let problems = fight.end().await;
    let elapsed = fixture.observer.now().saturating_since(begin);
    assert!(problems.is_empty(), "{problems:#?}");

    let expected = Expected { contest, processes: PROCESSES, grants_min: GRANTS_MIN, mark };
    let summary = check(&fight.records(), &expected)
        .unwrap_or_else(|problems| panic!("{problems:#?}\nlog: {}", fight.log.display()));
    let network = fight.network();
    report(contest, elapsed, &summary, &network);
    assert!(network.cut > network.lost && network.lost > 0, "too few faults: {network:?}");
    assert!(summary.cuts_waiting > 0, "no fault has hit a waiter: {summary:?}");
    nothing_is_left(&fixture).await;
    fs::remove_file(&fight.log).expect("the log was there");
    summary
}

#[test]
fn the_checker_accepts_turns() {
    let summary = check_lines(&[ROUND_A, ROUND_B].concat()).expect("everything is in order");
    assert_eq!((summary.grants, summary.losses), (2, 0));
    assert_eq!((summary.cuts_waiting, summary.cuts_holding, summary.cuts_releasing), (1, 2, 4));
    assert_eq!(summary.gap_max, Duration::from_millis(30));
}

#[test]
fn the_checker_catches_two_holders() {
    // The second process is granted the lock while the first believes that it holds the lock.
    for state in ["Held", "AtRisk"] {
        let overlap = overlap(&format!("release 0 1 10 {state} 1 1020"));
        assert_problem(&overlap, "two holders");
    }
}

#[test]
fn the_checker_accepts_a_second_holder_when_the_first_has_lost_the_lock() {
    let known = overlap("release 0 1 10 Lost(SessionExpired) 1 1020");
    assert_eq!(check_lines(&known).expect("the first knows").losses, 1);
    let known_later = overlap("release 0 1 10 AtRisk 1 1020\nlost 0 1 10 SessionExpired 1 1021");
    assert_eq!(check_lines(&known_later).expect("the first knows").losses, 1);
}

#[test]
fn the_checker_catches_a_lock_that_was_lost_by_the_later_holder() {
    let overlap =
        overlap("release 0 1 10 Held 1 1020").replace("Held 1 1040", "Lost(Closed) 1 1040");
    assert_problem(&overlap, "two holders");
}

#[test]
fn the_checker_catches_a_grant_without_a_lock() {
    // The second process claims a grant without a token, out of turn.
    let cheat = ["grant 1 1 0 /lock/cheat 1 1005", "release 1 1 0 Held 1 1006", ""].join("\n");
    let cheat = ROUND_A.replacen("release", &format!("{cheat}release"), 1);
    let done = "done 1 1 0 Released 1 1050\n";
    assert_problem(&[&cheat, done].concat(), "two holders");
    assert_problem(&[&cheat, done].concat(), "the token does not grow");
}

#[test]
fn the_checker_catches_grants_out_of_order_and_tokens_used_twice() {
    let swapped = [STARTS, ROUND_B, &ROUND_A.replace(STARTS, "")].concat();
    assert_problem(&swapped, "the token does not grow");
    let same_token = [ROUND_A, &ROUND_B.replace(" 11 ", " 10 ")].concat();
    assert_problem(&same_token, "granted twice");
    let same_znode = [ROUND_A, &ROUND_B.replace("/lock/b", "/lock/a")].concat();
    assert_problem(&same_znode, "granted twice");
}

#[test]
fn the_checker_catches_starvation() {
    assert_problem(ROUND_A, "process 1 was granted the lock 0 times");
    let log = [ROUND_A, ROUND_B].concat();
    let records = read(&log).expect("a log");
    let expected =
        Expected { contest: Contest::of::<FairLock>(), processes: 2, grants_min: 1, mark: 4 };
    let problems = check(&records, &expected).expect_err("one was not served again");
    assert_eq!(problems, ["process 0 starved from line 4 on"]);
}

#[test]
fn the_checker_catches_what_is_incomplete() {
    let log = [ROUND_A, ROUND_B].concat();
    assert_problem(&log.replace("release 1 1 11 Held 1 1040\n", ""), "out of turn");
    assert_problem(&log.replace("done 1 1 11 Released 1 1050\n", ""), "did not come to its end");
    assert_problem(&log.replace("start 1 0 0 - 1 1000\n", ""), "out of turn");
    assert_problem(&[&log, "start 2 0 0 - 1 1\n"].concat(), "an unknown process");
    assert!(read("grant 0 1\n").is_err(), "a line in part was accepted");
    assert_eq!(read("grant 0 1").map(|records| records.len()), Ok(0));
}

#[test]
fn the_checker_lets_readers_share_and_nobody_else() {
    let (read, write) = ("__READ__", "__WRIT__");
    let check = |log: String| check_of(Contest::of::<Reader>(), &log);
    let shared = check(both_inside((read, 0, 1), (read, 0, 2))).expect("readers share");
    assert_eq!((shared.shared, shared.joins), (2, 1));
    // The readers may have been granted the lock in any order.
    check(both_inside((read, 0, 2), (read, 0, 1))).expect("readers do not wait for each other");
    for (first, second) in [
        ((read, 0, 1), (write, 12, 2)),
        ((write, 11, 1), (read, 0, 2)),
        ((write, 11, 1), (write, 12, 2)),
    ] {
        let problems = check(both_inside(first, second)).expect_err("a writer was not alone");
        assert!(problems[0].contains("two holders"), "{problems:?}");
        // A process that knows that it has lost the lock does not count as a holder.
        let log = both_inside(first, second);
        let known = log.replacen("Held", "Lost(SessionExpired)", 1);
        assert_eq!(check(known).expect("the first knows").losses, 1);
    }
}

#[test]
fn the_checker_lets_a_writer_go_on_as_a_reader() {
    let (read, write) = ("__READ__", "__WRIT__");
    let share = "share 0 1 11 - 1 1005\n";
    let check = |log: String| check_of(Contest::of::<Reader>(), &log);
    let joined = both_inside_after(share, (write, 11, 1), (read, 0, 2));
    let summary = check(joined).expect("a reader joins it");
    assert_eq!((summary.downgrades, summary.joins), (1, 1));
    let writer = both_inside_after(share, (write, 11, 1), (write, 12, 2));
    let problems = check(writer).expect_err("a writer joins it");
    assert!(problems[0].contains("two holders"), "{problems:?}");
    let reader = both_inside_after(&share.replace("11", "0"), (read, 0, 1), (read, 0, 2));
    let problems = check(reader).expect_err("it was a reader before");
    assert!(problems[0].contains("out of turn"), "{problems:?}");
}

#[test]
fn the_checker_catches_readers_and_writers_that_pass_each_other() {
    let turns = |first: (&str, i64, u32), second: (&str, i64, u32)| {
        // The first process releases the lock before the second is granted it.
        let log = both_inside(first, second);
        let (head, rest) = log.split_once("grant 1").expect("two grants");
        let (grant, rest) = rest.split_once('\n').expect("lines");
        let (ends, others) = rest.split_once("release 1").expect("two releases");
        let log = format!("{head}{ends}grant 1{grant}\nrelease 1{others}");
        check_of(Contest::of::<Reader>(), &log)
    };
    let (read, write) = ("__READ__", "__WRIT__");
    turns((read, 0, 1), (write, 12, 2)).expect("in order");
    turns((read, 0, 2), (read, 0, 1)).expect("no reader waits for another");
    for (first, second) in [
        ((write, 12, 2), (read, 0, 1)),
        ((read, 0, 2), (write, 11, 1)),
        ((write, 12, 2), (write, 11, 1)),
    ] {
        let problems = turns(first, second).expect_err("the second was ahead");
        assert!(problems.iter().any(|problem| problem.contains("has passed it")), "{problems:?}");
    }
}

#[test]
fn the_checker_knows_that_an_exclusive_lock_has_one_znode() {
    let log = [ROUND_A, ROUND_B].concat().replace("/lock/b", "/lock/a");
    check_of(Contest::of::<ExclusiveLock>(), &log).expect("the name is not the znode");
    let problems = check_of(Contest::of::<ExclusiveLock>(), &log.replace(" 11 ", " 10 "));
    assert!(problems.expect_err("one znode").iter().any(|problem| problem.contains("twice")));
    let known = overlap("release 0 1 10 Held 1 1020");
    let problems = check_of(Contest::of::<ExclusiveLock>(), &known).expect_err("two hold it");
    assert!(problems[0].contains("two holders"), "{problems:?}");
}

/// Both processes start, and process 0 takes its turn. The numbers of reconnects in each phase
/// differ.
const ROUND_A: &str = "\
start 0 0 0 - 1 1000
start 1 0 0 - 1 1000
grant 0 1 10 /lock/a 2 1005
release 0 1 10 Held 4 1020
done 0 1 10 Released 8 1025
";
const STARTS: &str = "start 0 0 0 - 1 1000\nstart 1 0 0 - 1 1000\n";
const ROUND_B: &str = "\
grant 1 1 11 /lock/b 1 1035
release 1 1 11 Held 1 1040
done 1 1 11 Released 1 1050
";

/// Returns a log in which process 1 is granted the lock before process 0 writes this line.
fn overlap(release: &str) -> String {
    let (grant_b, rest_b) = ROUND_B.split_once('\n').expect("several lines");
    let log = format!("{STARTS}grant 0 1 10 /lock/a 1 1005\n{grant_b}\n{release}\n");
    [&log, "done 0 1 10 Released 1 1025\n", rest_b].concat()
}

fn check_lines(log: &str) -> Result<Summary, Vec<String>> {
    check_of(Contest::of::<FairLock>(), log)
}

fn check_of(contest: Contest, log: &str) -> Result<Summary, Vec<String>> {
    let records = read(log).expect("a log");
    check(&records, &Expected { contest, processes: 2, grants_min: 1, mark: 0 })
}

/// Returns a log of readers and writers in which each process takes a turn, and the second is
/// granted the lock before the first releases it. The arguments are the mark, token and sequence
/// number of each process.
fn both_inside(first: (&str, i64, u32), second: (&str, i64, u32)) -> String {
    both_inside_after("", first, second)
}

fn both_inside_after(between: &str, first: (&str, i64, u32), second: (&str, i64, u32)) -> String {
    let path = |(kind, _, number): (&str, i64, u32)| format!("/lock/x-{kind}{number:010}");
    let (a, b) = (first.1, second.1);
    format!(
        "{STARTS}grant 0 1 {a} {} 1 1005\n{between}grant 1 1 {b} {} 1 1006\n\
         release 0 1 {a} Held 1 1007\ndone 0 1 {a} Released 1 1008\n\
         release 1 1 {b} Held 1 1009\ndone 1 1 {b} Released 1 1010\n",
        path(first),
        path(second),
    )
}

fn assert_problem(log: &str, what: &str) {
    let problems = check_lines(log).expect_err(log);
    assert!(problems.iter().any(|problem| problem.contains(what)), "not {what}: {problems:#?}");
}

/// Lets the fight continue for this time, and then, within bounds, until all processes were granted
/// the lock in the last third. Returns the last line of the log after two thirds of the time.
async fn go_on(fight: &mut Fight, fixture: &Fixture, time: Duration) -> usize {
    let begin = fixture.observer.now();
    let mut mark = None;
    let mut outage_at = OUTAGE_INTERVAL;
    loop {
        sleep(LOOK_INTERVAL).await;
        let records = fight.records();
        let elapsed = fixture.observer.now().saturating_since(begin);
        // The last third has no outage, because every process must be granted the lock in it.
        if elapsed >= outage_at && mark.is_none() {
            outage_at += OUTAGE_INTERVAL;
            cut_off_the_last(fight, &records);
        }
        if elapsed >= time * 2 / 3 {
            mark = mark.or(Some(records.len()));
        }
        let is_over = elapsed >= time && had_enough(fight, &records, mark.unwrap_or(0));
        if is_over || elapsed >= time + PATIENCE || fight.one_has_ended() {
            return mark.unwrap_or(0);
        }
    }
}

/// Cuts off the process that was granted the lock last, for longer than its session timeout.
fn cut_off_the_last(fight: &Fight, records: &[Record]) {
    if let Some(last) = records.iter().rfind(|record| record.event == Event::Grant) {
        fight.cut_off(last.process, OUTAGE);
    }
}

/// Returns whether enough has happened. How long that takes depends on the machine.
fn had_enough(fight: &Fight, records: &[Record], mark: usize) -> bool {
    let network = fight.network();
    fight.all_served(records, GRANTS_MIN, 0)
        && fight.all_served(records, 1, mark)
        && network.lost > 0
        && network.cut > network.lost
        && progress(records).cuts_waiting > 0
}

fn report(contest: Contest, elapsed: Duration, summary: &Summary, network: &Statistics) {
    let Summary { grants, missed, losses, expired, gap_max, .. } = summary;
    let Summary { at_risk, cuts_waiting, cuts_holding, cuts_releasing, .. } = summary;
    let Summary { shared, joins, downgrades, .. } = summary;
    eprintln!(
        "{contest}: {:.1} s, {PROCESSES} processes, {grants} grants, {shared} of them shared, {joins} \
         joined others, {downgrades} downgrades, {missed} gave up, \
         {losses} losses, {expired} expired, longest gap between grants {} ms; \
         {} connections cut, {} of them with a reply lost, {} refused, {} unreachable; reconnects while \
         waiting {cuts_waiting}, holding {cuts_holding}, releasing {cuts_releasing}; {at_risk} released at risk",
        elapsed.as_secs_f64(),
        gap_max.as_millis(),
        network.cut,
        network.lost,
        network.refused,
        network.unreachable,
    );
}

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    let number = text.parse().ok();
    Some(number.unwrap_or_else(|| panic!("{name}={text}: not a number")))
}

/// Number of processes.
const PROCESSES: usize = 5;
/// Minimum number of grants of each process, however short the run.
const GRANTS_MIN: usize = 5;
/// Time between outages that end sessions. A short run has none.
const OUTAGE_INTERVAL: Duration = Duration::from_secs(6);
/// Length of these outages, which is longer than the contenders' session timeouts, and shorter than
/// any timeout of the suite.
const OUTAGE: Duration = Duration::from_secs(6);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
