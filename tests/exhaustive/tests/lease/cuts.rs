//! The shipped client with servers that fail at every moment of the ping interval, with clocks that
//! run at different speeds, and with processes that are paused.

use std::time::Duration;

use tokio::task::JoinHandle;
use zk_recipes::{Client, Guard, Lease, LockState, LostReason};
use zk_session::SessionId;
use zk_tests::lockstep::Lockstep;
use zk_testserver::{CutOff, ServerConfig, TestServer};

use crate::{RATES, SECOND, by_pings, interval, ms};

/// `syncLimit` times `tickTime` of the servers.
const SYNC_LIMIT: Duration = Duration::from_secs(10);
/// Number of moments of the interval at which the cut may happen.
const MOMENTS: u32 = 16;
/// A time longer than any run.
const AGES: Duration = Duration::from_secs(3600);
/// Time after which pings or writes renew the lease, and it no longer depends on the handshake.
const SETTLED: Duration = Duration::from_secs(61);

/// A failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Failure {
    /// The network between the client and the servers drops all packets.
    Silence,
    /// The follower is cut off from its leader, and acknowledges pings until it notices.
    CutOff,
    /// Like `CutOff`, but the follower is also paused at the moment at which it would notice.
    CutOffAndPaused,
    /// The client's process is frozen for this many seconds.
    Frozen(u64),
}

/// An event shortly before the failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Prelude {
    Nothing,
    /// The server is paused when the cut happens, for less than an interval.
    Pause,
    /// The client has just moved to another server.
    Reconnect,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    lease: Lease,
    timeout: Duration,
    rate: u32,
    /// The moment of the interval, as a number below [`MOMENTS`].
    moment: u32,
    prelude: Prelude,
    failure: Failure,
}

/// One run, and the checks at every step.
struct Run {
    case: Case,
    world: Lockstep,
    client: Client,
    guard: Guard,
    lost: JoinHandle<LostReason>,
}

impl Run {
    fn start(case: Case) -> Self {
        let mut world =
            Lockstep::new(ServerConfig::default().max_session_timeout(SECOND * 60), case.rate);
        let client =
            world.client(|builder| builder.session_timeout(case.timeout).lease(case.lease));
        let guard = world.hold(&client);
        let lost = world.await_loss(&guard);
        Self { case, world, client, guard, lost }
    }

    fn session(&self) -> SessionId {
        self.guard.session()
    }

    /// Returns whether another client could hold the lock by now.
    fn is_over(&self) -> bool {
        self.world.serve(|server| server.stat(self.guard.path()).is_none())
    }

    /// Checks the state of the guard against the state of the servers.
    fn check(&mut self) {
        let (state, remaining) = self.world.look(|| (self.guard.state(), self.guard.remaining()));
        let remaining = remaining.expect("the timeout is long enough for a lease");
        let (case, now) = (self.case, self.world.now);
        if self.is_over() {
            assert_ne!(state, LockState::Held, "{case:?} at {now:?}");
            assert_eq!(remaining, Duration::ZERO, "{case:?} at {now:?}: {state:?}");
        }
        if remaining.is_zero() && !self.lost.is_finished() {
            // Timers of the runtime fire at whole milliseconds.
            self.world.step(ms(1));
            assert!(self.lost.is_finished(), "{case:?} at {now:?}: no event reported the loss");
        }
    }

    fn step(&mut self, time: Duration) {
        self.world.step(time);
        self.check();
    }

    /// Causes the failure, after its prelude.
    fn fail(&mut self, interval: Duration) {
        let session = self.session();
        let mut pause = Duration::ZERO;
        match self.case.prelude {
            Prelude::Nothing => {}
            Prelude::Pause => {
                pause = interval * 9 / 10;
                self.world.serve(|server| server.pause_connection(session, pause));
            }
            Prelude::Reconnect => {
                self.world.serve(TestServer::disconnect_all);
                for _ in 0..20 {
                    self.step(ms(10));
                }
                assert_eq!(self.client.status().connection, 2, "{:?}", self.case);
            }
        }
        // The client reaches no other server.
        self.world.serve(|server| server.refuse_for(AGES));
        let cut_off = CutOff { notices_after: pause + SYNC_LIMIT, unreported: SECOND };
        match self.case.failure {
            Failure::Silence => {
                self.world.serve(|server| server.pause_connection(session, AGES));
            }
            Failure::CutOff => self.world.serve(|server| server.cut_off(session, cut_off)),
            Failure::CutOffAndPaused => {
                self.world.serve(|server| server.cut_off(session, cut_off));
                let end = self.world.now + cut_off.notices_after - ms(50);
                while self.world.now < end {
                    self.step(ms(50).min(end - self.world.now));
                }
                let pause = interval * 9 / 10;
                self.world.serve(|server| server.pause_connection(session, pause));
            }
            Failure::Frozen(seconds) => {
                for _ in 0..seconds * 4 {
                    self.world.step_frozen(ms(250));
                }
                let guard = &self.guard;
                let (state, left) = self.world.thaw(|| (guard.state(), guard.remaining()));
                if self.is_over() {
                    assert_ne!(state, LockState::Held, "{:?}", self.case);
                    assert_eq!(left, Some(Duration::ZERO), "{:?}: {state:?}", self.case);
                }
                self.check();
            }
        }
    }

    /// Runs until another client could hold the lock and the guard is lost. Returns the time
    /// between the loss and the end of the run, or `None` if the guard was not lost because the
    /// process was frozen too briefly.
    fn play_out(&mut self) -> Option<Duration> {
        let silent_since = self.world.now;
        let mut lost_at = None;
        while !self.is_over() || lost_at.is_none() {
            let (now, left) = self.world.look(|| (self.client.now(), self.guard.remaining()));
            self.step(ms(50));
            let case = self.case;
            let is_past = self.world.look(|| now + left.unwrap_or_default() <= self.client.now());
            // While the servers acknowledge nothing, the promised end of the lease must not change.
            if is_past && case.failure == Failure::Silence {
                assert!(self.lost.is_finished(), "{case:?}: lost later than promised");
            }
            if self.lost.is_finished() {
                lost_at.get_or_insert(self.world.now);
            }
            let waited = self.world.now - silent_since;
            if matches!(case.failure, Failure::Frozen(_)) && lost_at.is_none() && waited > SECOND {
                return None;
            }
            assert!(waited < case.timeout * 3, "{case:?}: never over");
        }
        lost_at.map(|lost_at| self.world.now - lost_at)
    }
}

fn run(case: Case) -> Option<Duration> {
    let mut run = Run::start(case);
    let interval = interval(case.lease, case.timeout).expect("there is a lease");
    run.world.run_until(SETTLED, ms(100));
    let end = SETTLED + interval * case.moment / MOMENTS;
    run.world.run_until(end, ms(50));
    assert_eq!(run.world.look(|| run.guard.state()), LockState::Held, "{case:?}");
    run.fail(interval);
    let margin = run.play_out();
    run.world.look(|| drop(run.guard));
    margin
}

/// Leases, and session timeouts in seconds.
const LEASES: [(fn() -> Lease, u64); 6] = [
    (by_pings, 30),
    (by_pings, 40),
    (Lease::default, 4),
    (Lease::default, 10),
    (Lease::default, 30),
    (Lease::default, 60),
];

fn run_all(name: &str, preludes: &[Prelude], failures: &[Failure]) {
    let (mut cases, mut least) = (0, Duration::MAX);
    for (lease, seconds) in LEASES.map(|(lease, seconds)| (lease(), seconds)) {
        let timeout = Duration::from_secs(seconds);
        for rate in RATES {
            for moment in 0..MOMENTS {
                for &prelude in preludes {
                    for &failure in failures {
                        let case = Case { lease, timeout, rate, moment, prelude, failure };
                        least = run(case).map_or(least, |margin| least.min(margin));
                        cases += 1;
                    }
                }
            }
        }
    }
    eprintln!("{name}: {cases} cases, lost at least {least:?} before another could have the lock");
}

const PRELUDES: [Prelude; 3] = [Prelude::Nothing, Prelude::Pause, Prelude::Reconnect];

#[test]
fn a_guard_is_lost_before_another_can_have_the_lock_when_nothing_is_heard() {
    run_all("silence", &PRELUDES, &[Failure::Silence]);
}

#[test]
fn a_guard_is_lost_in_time_behind_a_follower_that_is_cut_off_and_acknowledges() {
    run_all("cut off", &PRELUDES, &[Failure::CutOff]);
}

#[test]
fn a_guard_is_lost_in_time_behind_a_follower_that_is_cut_off_and_stands_still_twice() {
    run_all("cut off, two pauses", &PRELUDES[..2], &[Failure::CutOffAndPaused]);
}

#[test]
fn a_guard_of_a_process_that_was_frozen_knows_before_anything_else_runs() {
    let failures = [1, 4, 8, 20, 35, 60].map(Failure::Frozen);
    run_all("frozen", &[Prelude::Nothing], &failures);
}
