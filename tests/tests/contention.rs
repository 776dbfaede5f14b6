//! Several processes fight for one lock, each behind a network that fails at random.
//!
//! `CONTENTION_SECONDS` says for how long, `CONTENTION_SEED` repeats the faults of an earlier run:
//! which they are and when they begin. What they hit is left to the machine, so a failing run is
//! known by its log, which is kept.
#![expect(clippy::disallowed_methods, reason = "other processes are watched, in real time")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};
use zk_session::{ErrorCode, OpError};
use zk_tests::grants::{DIRECTORY, Event, Expected, Record, Summary, check, progress, read};
use zk_tests::proxy::{Proxy, Statistics};
use zk_tests::target::Fixture;
use zk_tests::wait::PATIENCE;

#[tokio::test(flavor = "multi_thread")]
async fn processes_behind_failing_networks_hold_the_lock_one_at_a_time_and_in_order() {
    let fixture = Fixture::start().await;
    let seconds = Duration::from_secs(variable("CONTENTION_SECONDS").unwrap_or(5));
    let seed = variable("CONTENTION_SEED").unwrap_or_else(|| fixture.observer.unique_id() as u64);
    let mut fight = Fight::start(&fixture, seed).await;
    eprintln!("CONTENTION_SEED={seed}, log: {}", fight.log.display());

    let begin = fixture.observer.now();
    let mark = fight.go_on(&fixture, seconds).await;
    let problems = fight.end().await;
    let elapsed = fixture.observer.now().saturating_since(begin);
    assert!(problems.is_empty(), "{problems:#?}");

    let expected = Expected { processes: PROCESSES, grants_min: GRANTS_MIN, mark };
    let summary = check(&fight.records(), &expected)
        .unwrap_or_else(|problems| panic!("{problems:#?}\nlog: {}", fight.log.display()));
    let network = fight.network();
    report(elapsed, &summary, &network);
    assert!(network.cut > network.lost && network.lost > 0, "too few faults: {network:?}");
    assert!(summary.cuts_waiting > 0, "no fault has hit a waiter: {summary:?}");
    nothing_is_left(&fixture).await;
    fs::remove_file(&fight.log).expect("the log was there");
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
    // The second is granted the lock while the first believes that it holds it.
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
    // A cheat has neither a token nor a turn.
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
    let expected = Expected { processes: 2, grants_min: 1, mark: 4 };
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

/// Process 0 is started, as process 1 is, and takes its turn; reconnects of each phase differ in
/// number.
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

/// A log in which process 1 is granted the lock before process 0 has written this.
fn overlap(release: &str) -> String {
    let (grant_b, rest_b) = ROUND_B.split_once('\n').expect("several lines");
    let log = format!("{STARTS}grant 0 1 10 /lock/a 1 1005\n{grant_b}\n{release}\n");
    [&log, "done 0 1 10 Released 1 1025\n", rest_b].concat()
}

fn check_lines(log: &str) -> Result<Summary, Vec<String>> {
    let records = read(log).expect("a log");
    check(&records, &Expected { processes: 2, grants_min: 1, mark: 0 })
}

fn assert_problem(log: &str, what: &str) {
    let problems = check_lines(log).expect_err(log);
    assert!(problems.iter().any(|problem| problem.contains(what)), "not {what}: {problems:#?}");
}

/// The processes, and what they have in common.
struct Fight {
    log: PathBuf,
    contenders: Vec<Child>,
    /// For each process one for each server.
    proxies: Vec<Vec<Proxy>>,
}

impl Fight {
    async fn start(fixture: &Fixture, seed: u64) -> Self {
        let name = format!("contention-{:016x}.log", fixture.observer.unique_id() as u64);
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&log, "").expect("the log can be written");
        let mut fight = Self { log, contenders: Vec::new(), proxies: Vec::new() };
        for process in 0..PROCESSES {
            let seed = seed.wrapping_add(process as u64);
            let mut proxies = fixture.proxies().await;
            for proxy in &mut proxies {
                // The same faults at the same time: it is the network of the process that fails.
                proxy.chaos(seed, FAULT_INTERVAL_MEAN);
            }
            let hosts: Vec<String> = proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
            let contender = Command::new(env!("CARGO_BIN_EXE_contender"))
                .arg(process.to_string())
                .arg(format!("{}{}", hosts.join(","), fixture.chroot()))
                .arg(&fight.log)
                .arg(seed.to_string())
                .stdin(Stdio::piped())
                .kill_on_drop(true)
                .spawn();
            fight.contenders.push(contender.expect("the contender was built with this test"));
            fight.proxies.push(proxies);
        }
        fight
    }

    /// Lets the fight go on for some time, and until everybody had a share of its end, if that
    /// comes within bounds. The line that was the last after two thirds of the time.
    async fn go_on(&mut self, fixture: &Fixture, time: Duration) -> usize {
        let begin = fixture.observer.now();
        let mut mark = None;
        let mut outage_at = OUTAGE_INTERVAL;
        loop {
            sleep(LOOK_INTERVAL).await;
            let records = self.records();
            let elapsed = fixture.observer.now().saturating_since(begin);
            // None in the last third, which is there to see everybody served.
            if elapsed >= outage_at && mark.is_none() {
                outage_at += OUTAGE_INTERVAL;
                self.cut_off_the_last(&records);
            }
            if elapsed >= time * 2 / 3 {
                mark = mark.or(Some(records.len()));
            }
            let is_over = elapsed >= time && self.had_enough(&records, mark.unwrap_or(0));
            if is_over || elapsed >= time + PATIENCE || self.one_has_ended() {
                return mark.unwrap_or(0);
            }
        }
    }

    /// Takes the network away from who was granted the lock last, for longer than its session
    /// lives.
    fn cut_off_the_last(&self, records: &[Record]) {
        let last = records.iter().rfind(|record| record.event == Event::Grant);
        for proxy in last.and_then(|record| self.proxies.get(record.process)).into_iter().flatten()
        {
            proxy.refuse_for(OUTAGE);
            proxy.cut_all();
        }
    }

    /// How much happens within a time is left to the machine, so the time is not what counts.
    fn had_enough(&self, records: &[Record], mark: usize) -> bool {
        let network = self.network();
        let grants = |process: usize, from: usize| {
            let is_grant =
                |record: &&Record| record.event == Event::Grant && record.process == process;
            records.iter().skip(from).filter(is_grant).count()
        };
        (0..PROCESSES).all(|process| grants(process, 0) >= GRANTS_MIN && grants(process, mark) > 0)
            && network.lost > 0
            && network.cut > network.lost
            && progress(records).cuts_waiting > 0
    }

    /// None does, unless it fails.
    fn one_has_ended(&mut self) -> bool {
        self.contenders.iter_mut().any(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Tells the processes to end, and waits for it. What is wrong with how they did.
    async fn end(&mut self) -> Vec<String> {
        for contender in &mut self.contenders {
            drop(contender.stdin.take());
        }
        let mut problems = Vec::new();
        for (process, contender) in self.contenders.iter_mut().enumerate() {
            match timeout(END_PATIENCE, contender.wait()).await {
                Ok(Ok(status)) if status.success() => {}
                Ok(ended) => problems.push(format!("process {process}: {ended:?}")),
                Err(_) => {
                    problems.push(format!("process {process} hangs"));
                    contender.kill().await.expect("a child can be killed");
                }
            }
        }
        problems
    }

    fn records(&self) -> Vec<Record> {
        let log = fs::read_to_string(&self.log).expect("the log can be read");
        read(&log).unwrap_or_else(|problem| panic!("{}: {problem}", self.log.display()))
    }

    /// Counts of all proxies together.
    fn network(&self) -> Statistics {
        let mut sum = Statistics::default();
        for one in self.proxies.iter().flatten().map(Proxy::statistics) {
            sum.accepted += one.accepted;
            sum.refused += one.refused;
            sum.unreachable += one.unreachable;
            sum.cut += one.cut;
            sum.lost += one.lost;
        }
        sum
    }
}

fn report(elapsed: Duration, summary: &Summary, network: &Statistics) {
    let Summary { grants, missed, losses, expired, gap_max, .. } = summary;
    let Summary { at_risk, cuts_waiting, cuts_holding, cuts_releasing, .. } = summary;
    eprintln!(
        "contention: {:.1} s, {PROCESSES} processes, {grants} grants, {missed} gave up, \
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

/// Waits until no contender is left in the lock's directory, nor any other ephemeral: sessions
/// that could not be closed end by themselves.
async fn nothing_is_left(fixture: &Fixture) {
    let mut ephemerals = Vec::new();
    let seen = timeout(PATIENCE, async {
        loop {
            ephemerals = ephemerals_below(fixture, fixture.chroot()).await;
            if ephemerals.is_empty() {
                break;
            }
            sleep(LOOK_INTERVAL).await;
        }
    });
    let is_clean = seen.await.is_ok();
    assert!(is_clean, "left behind: {ephemerals:?}");
    let children = children(fixture, &fixture.full(DIRECTORY)).await;
    assert_eq!(children, [""; 0], "left in the directory of the lock");
}

async fn ephemerals_below(fixture: &Fixture, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut paths = vec![path.to_owned()];
    while let Some(path) = paths.pop() {
        let stat = fixture.observer.exists(&path).await.expect("the observer is connected");
        if stat.is_some_and(|stat| stat.ephemeral_owner.is_some()) {
            found.push(path.clone());
        }
        let below = children(fixture, &path).await;
        paths.extend(below.iter().map(|name| format!("{path}/{name}")));
    }
    found
}

async fn children(fixture: &Fixture, path: &str) -> Vec<String> {
    match fixture.observer.get_children(path).await {
        Ok(names) => names.iter().map(ToString::to_string).collect(),
        // An empty container is removed by the server in the end.
        Err(OpError::Server(ErrorCode::NO_NODE)) => Vec::new(),
        Err(error) => panic!("cannot list {path}: {error}"),
    }
}

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    let number = text.parse().ok();
    Some(number.unwrap_or_else(|| panic!("{name}={text}: not a number")))
}

const PROCESSES: usize = 5;
/// Grants that every process must get, however short the run.
const GRANTS_MIN: usize = 5;
const FAULT_INTERVAL_MEAN: Duration = Duration::from_secs(1);
/// Between outages that end sessions: a short run has none.
const OUTAGE_INTERVAL: Duration = Duration::from_secs(6);
/// Longer than the contenders' sessions live, and shorter than anybody's patience.
const OUTAGE: Duration = Duration::from_secs(6);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// A contender finishes its round: an acquire, a release and a close, each within its own bound.
const END_PATIENCE: Duration = Duration::from_secs(4 * PATIENCE.as_secs());
