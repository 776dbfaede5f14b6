//! Processes contend for each lock while servers are killed, paused and cut off.

use std::fs;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use zk_session::Time;
use zk_session::recipe::Session;
use zk_tests::agreement::difference;
use zk_tests::ensemble::{Ensemble, Fault, Server};
use zk_tests::fight::{Build, Fight, Network, nothing_is_left};
use zk_tests::grants::{Contest, Event, Expected, Record, check};
use zk_tests::target::Fixture;
use zk_tests::wait::{PATIENCE, soon};

/// The network does not fail in this test, so all gaps between grants are caused by faults of the
/// servers. The suite `contention` has networks that fail.
///
/// Servers that have lost a transaction keep no promise of a lock, so the run begins again then.
#[tokio::test(flavor = "multi_thread")]
async fn locks_are_safe_and_nobody_is_forgotten_while_servers_fail() {
    let mut ensemble = Ensemble::take().await;
    for attempt in 1.. {
        match contend(ensemble).await {
            Ok(()) => return,
            Err(Differ(what)) if attempt < ATTEMPTS_MAX => {
                eprintln!("chaos: attempt {attempt} proves nothing: {what}");
            }
            Err(Differ(what)) => panic!("the servers differ in each attempt: {what}"),
        }
        ensemble = Ensemble::take().await;
    }
}

/// The servers have different znodes, so they have lost something.
struct Differ(String);

async fn contend(ensemble: Ensemble) -> Result<(), Differ> {
    let fixture = crate::fixture().await;
    let seed = Session::of(&fixture.observer).unique_id() as u64;
    let build =
        Build { contender: env!("CARGO_BIN_EXE_contender"), folder: env!("CARGO_TARGET_TMPDIR") };
    let mut contests = Vec::new();
    for contest in Contest::all() {
        let fixture = crate::fixture().await;
        let network = Network::Calm;
        let fight = Fight::start(&fixture, build, contest, PROCESSES, network, seed).await;
        contests.push(Fought { contest, fixture, fight });
    }
    let begin = fixture.observer.now();
    let mut chaos = Chaos { ensemble, contests, begin, faults: Vec::new() };
    let begin = vec![0; chaos.contests.len()];
    chaos.served(&begin).await;
    sleep(REST).await;
    chaos.kill_leader(&fixture).await?;
    let follower = chaos.ensemble.follower().await;
    chaos.pause(&fixture, "follower", follower).await?;
    chaos.kill_leader(&fixture).await?;
    let follower = chaos.ensemble.follower().await;
    chaos.pause(&fixture, "follower", follower).await?;
    chaos.kill_leader(&fixture).await?;
    let leader = chaos.ensemble.leader().await;
    chaos.pause(&fixture, "leader", leader).await?;
    let follower = chaos.ensemble.follower().await;
    chaos.cut_off(&fixture, "follower", follower).await?;
    let leader = chaos.ensemble.leader().await;
    chaos.cut_off(&fixture, "leader", leader).await?;

    // However long the faults took, every process must be granted its lock after the last fault.
    let marks = chaos.lines();
    chaos.served(&marks).await;
    while fixture.observer.now().saturating_since(chaos.begin) < LEAST {
        sleep(REST).await;
    }
    for (index, fought) in chaos.contests.iter_mut().enumerate() {
        let Fought { contest, fixture, fight } = fought;
        let (contest, mark) = (*contest, marks[index]);
        let problems = fight.end().await;
        assert!(problems.is_empty(), "{problems:#?}\nlog: {}", fight.log.display());
        let expected = Expected { contest, processes: PROCESSES, grants_min: GRANTS_MIN, mark };
        let records = fight.records();
        let summary = check(&records, &expected)
            .unwrap_or_else(|problems| panic!("{problems:#?}\nlog: {}", fight.log.display()));
        let elapsed = fixture.observer.now().saturating_since(chaos.begin);
        eprintln!("chaos, {contest}: {:.1} s, {summary:?}", elapsed.as_secs_f64());
        for fault in &chaos.faults {
            let gap = longest_gap(&records, fault.from[index], fault.until[index]);
            eprintln!("chaos, {contest}: {gap:6} ms without a grant: {}", fault.what);
        }
        let calm = longest_gap(&records, mark, records.len());
        eprintln!("chaos, {contest}: {calm:6} ms at most after the last fault");
        nothing_is_left(fixture).await;
        fs::remove_file(&fight.log).expect("the log was there");
    }
    Ok(())
}

struct Chaos {
    ensemble: Ensemble,
    contests: Vec<Fought>,
    begin: Time,
    faults: Vec<Past>,
}

/// A fight, and its fixture.
struct Fought {
    contest: Contest,
    fixture: Fixture,
    fight: Fight,
}

/// A past fault: the number of lines in each log when the fault began, and when all servers served
/// clients again.
struct Past {
    what: String,
    from: Vec<usize>,
    until: Vec<usize>,
}

impl Chaos {
    async fn kill_leader(&mut self, fixture: &Fixture) -> Result<(), Differ> {
        let leader = self.ensemble.leader().await;
        let from = self.begin_fault(fixture, &format!("leader killed, {leader}"));
        let fault = self.ensemble.kill(&leader).await;
        let next = self.ensemble.leader_but(&leader).await;
        self.tell(fixture, &format!("{next} leads"));
        sleep(DOWN).await;
        fault.heal().await;
        self.end_fault(fixture, format!("leader killed, {leader}"), from).await
    }

    async fn pause(&mut self, fixture: &Fixture, role: &str, server: Server) -> Result<(), Differ> {
        let what = format!("{role} paused for {PAUSE:?}, {server}");
        let from = self.begin_fault(fixture, &what);
        let fault = self.ensemble.pause(&server).await;
        self.endure(fixture, role, server, fault).await;
        self.end_fault(fixture, what, from).await
    }

    async fn cut_off(
        &mut self,
        fixture: &Fixture,
        role: &str,
        server: Server,
    ) -> Result<(), Differ> {
        let what = format!("{role} cut off from its peers for {PAUSE:?}, {server}");
        let from = self.begin_fault(fixture, &what);
        let fault = self.ensemble.cut_off(&server).await;
        self.endure(fixture, role, server, fault).await;
        self.end_fault(fixture, what, from).await
    }

    async fn endure(&self, fixture: &Fixture, role: &str, server: Server, fault: Fault) {
        sleep(PAUSE).await;
        if role == "leader" {
            // If the leader still led after the pause, the pause would test nothing.
            let next = self.ensemble.leader_but(&server).await;
            self.tell(fixture, &format!("{next} leads"));
        }
        fault.heal().await;
    }

    fn begin_fault(&self, fixture: &Fixture, what: &str) -> Vec<usize> {
        self.tell(fixture, what);
        self.lines()
    }

    /// Returns the number of lines in each log.
    fn lines(&self) -> Vec<usize> {
        self.contests.iter().map(|fought| fought.fight.records().len()).collect()
    }

    async fn end_fault(
        &mut self,
        fixture: &Fixture,
        what: String,
        from: Vec<usize>,
    ) -> Result<(), Differ> {
        self.ensemble.whole().await;
        let until = self.lines();
        self.tell(fixture, "all serve");
        self.agree().await?;
        self.served(&until).await;
        self.faults.push(Past { what, from, until });
        sleep(REST).await;
        Ok(())
    }

    /// Fails if the servers have different znodes in the directory of a contest.
    async fn agree(&self) -> Result<(), Differ> {
        for Fought { contest, fixture, .. } in &self.contests {
            let mut servers = Vec::new();
            for server in self.ensemble.servers() {
                let client = fixture.builder_at(server.address).connect().await;
                servers.push(client.expect("all servers serve"));
            }
            let found = soon("the znodes of all servers", async {
                loop {
                    // A server may still lose a connection when it has just joined.
                    if let Ok(found) = difference(&servers, LOCKS).await {
                        return found;
                    }
                    sleep(LOOK_INTERVAL).await;
                }
            });
            if let Some(what) = found.await {
                return Err(Differ(format!("{contest}: {what}")));
            }
            for server in servers {
                server.close().await;
            }
        }
        Ok(())
    }

    /// Waits until every process was granted its lock after a line of its log.
    async fn served(&mut self, from: &[usize]) {
        for (Fought { contest, fight, .. }, from) in self.contests.iter_mut().zip(from) {
            let served = timeout(PATIENCE, async {
                while !fight.all_served(&fight.records(), 1, *from) {
                    assert!(!fight.one_has_ended(), "{contest}: a process has ended");
                    sleep(LOOK_INTERVAL).await;
                }
            });
            let is_served = served.await.is_ok();
            assert!(is_served, "{contest}: a process starves, log: {}", fight.log.display());
        }
    }

    fn tell(&self, fixture: &Fixture, what: &str) {
        let elapsed = fixture.observer.now().saturating_since(self.begin);
        eprintln!("chaos: {:5.1} s  {what}", elapsed.as_secs_f64());
    }
}

/// Returns the longest gap between grants that overlaps a part of the log, in milliseconds.
fn longest_gap(records: &[Record], from: usize, until: usize) -> u64 {
    let grants = records.iter().enumerate().filter(|(_, record)| record.event == Event::Grant);
    let grants: Vec<(usize, u64)> = grants.map(|(line, record)| (line, record.ms)).collect();
    let gaps = grants.windows(2).filter(|pair| pair[1].0 >= from && pair[0].0 <= until);
    gaps.map(|pair| pair[1].1.saturating_sub(pair[0].1)).max().unwrap_or(0)
}

/// How often the run begins at most.
const ATTEMPTS_MAX: u32 = 2;
/// The directory of the locks.
const LOCKS: &str = "/locks";
/// Number of processes for each lock.
const PROCESSES: usize = 3;
const GRANTS_MIN: usize = 100;
const REST: Duration = Duration::from_secs(3);
/// How long a server is down. This is long enough for an election in which it does not take part.
const DOWN: Duration = Duration::from_secs(6);
/// How long a server is paused or cut off. The session timeout of the processes is 4 s, so they
/// give up a connection after 2.7 s of silence. Servers give it up after 5 s. The session timeout
/// of the observer is 10 s.
const PAUSE: Duration = Duration::from_secs(9);
/// The run takes as long as the faults, and at least this long.
const LEAST: Duration = Duration::from_secs(120);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
