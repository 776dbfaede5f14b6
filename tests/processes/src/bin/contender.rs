//! One process of the contention suite. It acquires a lock again and again until its standard input
//! ends, and appends to a log.
//!
//! Its arguments are the number of the process, the connect string, the file of the log, the seed,
//! and the name of the case. If something unexpected happens, the process reports it on standard
//! error and fails.
#![expect(
    clippy::disallowed_methods,
    reason = "a process under test lives in real time; its log shows the wall clock to people"
)]

use std::fs::{File, OpenOptions};
use std::future::{Future, ready};
use std::io::Write as _;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::AsyncReadExt as _;
use tokio::time::{sleep, timeout};
use zk_recipes::kind::Kind;
use zk_recipes::{
    Client, CloseOutcome, Guard, LockError, LockState, LostReason, Released, SessionId, Time,
};
use zk_tests::case::{Case, Downgrading, number};
use zk_tests::grants::{Event, Record};
use zk_tests::random::SplitMix64;
use zk_tests::wait::PATIENCE;
use zk_tests::with_case;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be built");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = runtime.block_on(run(&arguments));
    // The runtime is not dropped, because a drop would wait for the read of the standard input.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("contender {}: {error}", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &[String]) -> Result<(), String> {
    let [process, hosts, log, seed, case] = arguments else {
        return Err("five arguments are needed".to_owned());
    };
    // The session timeout is short, so that a client that is cut off loses its session soon. A
    // lease would last only a second with this timeout, so every reconnect would lose the lock.
    let builder = Client::builder(hosts).session_timeout(SESSION_TIMEOUT).lease(None);
    let builder = builder.connect_within(PATIENCE);
    let client = builder.connect().await.map_err(|error| format!("cannot connect: {error}"))?;
    let log = OpenOptions::new().append(true).open(log);
    let base = Base {
        process: process.parse().map_err(|error| format!("{process}: {error}"))?,
        client: client.clone(),
        log: log.map_err(|error| format!("cannot open the log: {error}"))?,
        random: SplitMix64::new(seed.parse().map_err(|error| format!("{seed}: {error}"))?),
    };
    let fought = with_case!(case.as_str(), C => fight::<C>(base).await);
    fought.ok_or_else(|| format!("no such case: {case}"))??;
    match timeout(PATIENCE, client.close()).await {
        // The client holds nothing, so a session that expires leaves nothing behind.
        Ok(CloseOutcome::Closed | CloseOutcome::Abandoned) => Ok(()),
        Err(_) => Err("the close hangs".to_owned()),
    }
}

/// Acquires the lock again and again, until the standard input ends.
async fn fight<C: Case>(base: Base) -> Result<(), String> {
    let (lock, rival) = (C::of(&base.client), C::Rival::of(&base.client));
    let mut contender = Contender { base, lock, rival, round: 0 };
    contender.write(Event::Start, 0, "-")?;
    let mut ended = std::pin::pin!(end_of_input());
    while !is_over(ended.as_mut()).await {
        contender.round += 1;
        contender.contend().await.map_err(|error| format!("round {}: {error}", contender.round))?;
    }
    Ok(())
}

/// Waits until the parent process closes the pipe or exits.
async fn end_of_input() {
    let mut bytes = [0; 16];
    let mut input = tokio::io::stdin();
    while input.read(&mut bytes).await.is_ok_and(|length| length > 0) {}
}

async fn is_over(ended: Pin<&mut impl Future<Output = ()>>) -> bool {
    tokio::select! {
        biased;
        () = ended => true,
        () = ready(()) => false,
    }
}

/// Waits until a lock that is at risk is held again, or lost.
async fn until_certain<K: Kind>(guard: &Guard<K>) -> Result<(), String> {
    let is_certain = timeout(PATIENCE, async {
        while guard.state() == LockState::AtRisk {
            sleep(LOOK_INTERVAL).await;
        }
    });
    is_certain.await.map_err(|_| format!("at risk for too long: {guard:?}"))
}

/// The parts of a contender that do not depend on the case.
struct Base {
    process: usize,
    client: Client,
    log: File,
    random: SplitMix64,
}

/// A contender of a case. If the case is shared, the contender acts as the rival of the case in
/// some of the rounds.
struct Contender<C: Case> {
    base: Base,
    lock: C,
    rival: C::Rival,
    round: u64,
}

impl<C: Case> Contender<C> {
    /// Runs one round: waits, holds the lock, and releases it.
    async fn contend(&mut self) -> Result<(), String> {
        let since = self.base.client.now();
        let session = self.base.client.session_id();
        // Sometimes an acquire gives up, so its place in the queue must be cleaned up.
        let is_impatient = self.base.random.below(IMPATIENT_ONE_IN) == 0;
        let patience =
            if is_impatient { self.base.random.around(IMPATIENCE_MEAN) } else { PATIENCE };
        match self.try_to_hold(patience, since).await? {
            Ok(()) => Ok(()),
            Err(LockError::TimedOut(_)) if is_impatient => self.write(Event::Missed, 0, "-"),
            Err(LockError::Lost(LostReason::SessionExpired))
                if session != self.base.client.session_id() =>
            {
                self.write(Event::Expired, 0, "-")
            }
            Err(error) => Err(format!("acquire: {error}")),
        }?;
        match self.lock.stats().watches_missed + self.rival.stats().watches_missed {
            0 => Ok(()),
            missed => Err(format!("{missed} watches were missed")),
        }
    }

    /// Acquires and holds the lock, or returns the error of the acquire.
    async fn try_to_hold(
        &mut self,
        patience: Duration,
        since: Time,
    ) -> Result<Result<(), LockError>, String> {
        if C::IS_SHARED && self.base.random.below(RIVAL_ONE_IN) == 0 {
            let rival = self.rival.clone();
            return self.try_to_hold_as(rival, patience, since).await;
        }
        let lock = self.lock.clone();
        self.try_to_hold_as(lock, patience, since).await
    }

    async fn try_to_hold_as<D: Case>(
        &mut self,
        lock: D,
        patience: Duration,
        since: Time,
    ) -> Result<Result<(), LockError>, String> {
        let guard = match lock.acquire().timeout(patience).await {
            Ok(guard) => guard,
            Err(error) => return Ok(Err(error)),
        };
        let token = match D::token(&guard) {
            Some(token) => token.get(),
            None if D::IS_SHARED => 0,
            // The sequence numbers grow as tokens do, because `Contest::is_numbered` keeps the
            // directory. The first one is 0.
            None => i64::from(number(guard.path())) + 1,
        };
        self.write(Event::Grant, token, guard.path())?;
        if D::HAS_DOWNGRADE && self.base.random.below(DOWNGRADED_ONE_IN) == 0 {
            self.work(&guard).await;
            self.write(Event::Share, token, "-")?;
            let session = guard.session();
            if let Ok(downgrading) = D::downgrade(guard) {
                self.downgrade(token, session, downgrading, since).await?;
            }
        } else {
            self.work_and_release(token, guard, since).await?;
        }
        Ok(Ok(()))
    }

    /// Continues as a reader, whose log lines contain the token of the writer.
    async fn downgrade(
        &mut self,
        token: i64,
        session: SessionId,
        downgrading: Downgrading,
        since: Time,
    ) -> Result<(), String> {
        let downgraded = timeout(PATIENCE, downgrading).await;
        match downgraded.map_err(|_| format!("the downgrade of {token} hangs"))? {
            Ok(guard) => self.work_and_release(token, guard, since).await,
            Err(failed) => match (failed.error, failed.guard) {
                (LockError::Lost(reason), None) => {
                    self.write(Event::Release, token, &format!("{:?}", LockState::Lost(reason)))?;
                    self.check_loss(reason, session, since)?;
                    self.write(Event::Done, token, "downgrade")
                }
                (error, guard) => Err(format!("the downgrade of {token}: {error}, {guard:?}")),
            },
        }
    }

    async fn work<K: Kind>(&mut self, guard: &Guard<K>) {
        let work = HOLD_MIN + Duration::from_millis(self.base.random.below(HOLD_SPREAD_MS));
        tokio::select! {
            () = sleep(work) => {}
            _ = guard.lost() => {}
        }
    }

    async fn work_and_release<K: Kind>(
        &mut self,
        token: i64,
        guard: Guard<K>,
        since: Time,
    ) -> Result<(), String> {
        self.work(&guard).await;
        if self.base.random.below(STUBBORN_ONE_IN) == 0 {
            until_certain(&guard).await?;
        }
        let mut state = guard.state();
        self.write(Event::Release, token, &format!("{state:?}"))?;
        if !matches!(state, LockState::Lost(_)) {
            // If the lock was lost while the line was written, an earlier grant in the log is
            // legal.
            state = guard.state();
            if let LockState::Lost(reason) = state {
                self.write(Event::Lost, token, &format!("{reason:?}"))?;
            }
        }
        let session = guard.session();
        if let LockState::Lost(reason) = state {
            self.check_loss(reason, session, since)?;
        }
        let released = timeout(PATIENCE, guard.release()).await;
        let released = released
            .map_err(|_| format!("the release of {token} hangs"))?
            .map_err(|error| format!("release of {token}: {error}"))?;
        let is_legal = match released {
            Released::Released => true,
            Released::EndedWithSession => self.base.client.session_id() != Some(session),
            // No other process deletes znodes.
            Released::AlreadyGone => false,
        };
        if !is_legal {
            return Err(format!("the release of {token} in {session} ended as {released:?}"));
        }
        self.write(Event::Done, token, &format!("{released:?}"))
    }

    /// Checks that the loss is legal: the session is over, or received no reply for its whole
    /// timeout. The client did receive the reply to the create of this round.
    fn check_loss(
        &self,
        reason: LostReason,
        session: SessionId,
        since: Time,
    ) -> Result<(), String> {
        let elapsed = self.base.client.now().saturating_since(since);
        let status = self.base.client.status();
        let is_legal = match reason {
            LostReason::SessionExpired => status.session != Some(session),
            LostReason::DeadlinePassed => elapsed >= status.timeout,
            LostReason::Closed | LostReason::ZnodeDeleted | _ => false,
        };
        let told = format!("lost by {reason:?} in {session}, {elapsed:?} after its round began");
        if is_legal { Ok(()) } else { Err(format!("{told}: {status:?}")) }
    }

    fn write(&mut self, event: Event, token: i64, detail: &str) -> Result<(), String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let record = Record {
            event,
            process: self.base.process,
            round: self.round,
            token,
            detail: detail.to_owned(),
            connection: self.base.client.status().connection,
            ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        };
        // One write appends one line, whatever other processes append.
        let line = format!("{record}\n");
        let written = self.base.log.write(line.as_bytes()).map_err(|error| error.to_string())?;
        if written == line.len() { Ok(()) } else { Err(format!("written in part: {line}")) }
    }
}

/// Requested session timeout. Servers may grant another one.
const SESSION_TIMEOUT: Duration = Duration::from_secs(4);
const HOLD_MIN: Duration = Duration::from_millis(5);
const HOLD_SPREAD_MS: u64 = 16;
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
const RIVAL_ONE_IN: u64 = 2;
const DOWNGRADED_ONE_IN: u64 = 3;
const STUBBORN_ONE_IN: u64 = 2;
const IMPATIENT_ONE_IN: u64 = 8;
const IMPATIENCE_MEAN: Duration = Duration::from_millis(25);
