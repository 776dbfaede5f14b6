//! One process of the contention suite: takes a lock again and again until its standard input
//! ends, and writes down what it sees.
//!
//! Arguments: number of the process, connect string, file of the log, seed, and what it fights for:
//! `fair`, `read-write` or `exclusive`. What is not expected goes to standard error, and the process
//! fails.
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
    Client, CloseOutcome, ConfigError, ExclusiveLock, FairLock, Guard, LockError, LockState,
    LockStats, LostReason, Released, RwLock, SessionId, Time, WriteGuard,
};
use zk_tests::grants::{Contest, Event, LOCK, Record};
use zk_tests::random::SplitMix64;
use zk_tests::wait::PATIENCE;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be built");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = runtime.block_on(run(&arguments));
    // Not dropped: that would wait for the read of the standard input.
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
    let [process, hosts, log, seed, contest] = arguments else {
        return Err("five arguments, please".to_owned());
    };
    // The session is short, so that one that is cut off is over soon. A lease would be a second of
    // it, and every reconnect a loss.
    let builder = Client::builder(hosts).session_timeout(SESSION_TIMEOUT).lease(None);
    let builder = builder.connect_within(PATIENCE);
    let client = builder.connect().await.map_err(|error| format!("cannot connect: {error}"))?;
    let lock = lock(&client, contest.parse()?).map_err(|error| error.to_string())?;
    let log = OpenOptions::new().append(true).open(log);
    let mut contender = Contender {
        process: process.parse().map_err(|error| format!("{process}: {error}"))?,
        client: client.clone(),
        lock,
        log: log.map_err(|error| format!("cannot open the log: {error}"))?,
        random: SplitMix64::new(seed.parse().map_err(|error| format!("{seed}: {error}"))?),
        round: 0,
    };
    contender.write(Event::Start, 0, "-")?;
    let mut ended = std::pin::pin!(end_of_input());
    while !is_over(ended.as_mut()).await {
        contender.round += 1;
        contender.contend().await.map_err(|error| format!("round {}: {error}", contender.round))?;
    }
    match timeout(PATIENCE, client.close()).await {
        // It holds nothing, so a session that ends by itself leaves nothing behind.
        Ok(CloseOutcome::Closed | CloseOutcome::Abandoned) => Ok(()),
        Err(_) => Err("the close hangs".to_owned()),
    }
}

// Without the safety timer, which would hide a lost wake-up.
fn lock(client: &Client, contest: Contest) -> Result<Lock, ConfigError> {
    Ok(match contest {
        Contest::Fair => Lock::Fair(FairLock::builder(client, LOCK)?.safety_relist(None).build()?),
        Contest::ReadWrite => {
            Lock::ReadWrite(RwLock::builder(client, LOCK)?.safety_relist(None).build()?)
        }
        Contest::Exclusive => {
            Lock::Exclusive(ExclusiveLock::builder(client, LOCK)?.safety_relist(None).build()?)
        }
    })
}

/// Waits until whoever has started this process lets go of it, or is no more.
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

/// Goes on holding a lock that is at risk, until it is held for certain or lost.
async fn until_certain<K: Kind>(guard: &Guard<K>) -> Result<(), String> {
    let is_certain = timeout(PATIENCE, async {
        while guard.state() == LockState::AtRisk {
            sleep(LOOK_INTERVAL).await;
        }
    });
    is_certain.await.map_err(|_| format!("at risk for too long: {guard:?}"))
}

#[derive(Clone)]
enum Lock {
    Fair(FairLock),
    ReadWrite(RwLock),
    Exclusive(ExclusiveLock),
}

impl Lock {
    fn stats(&self) -> LockStats {
        match self {
            Self::Fair(lock) => lock.stats(),
            Self::ReadWrite(lock) => lock.stats(),
            Self::Exclusive(lock) => lock.stats(),
        }
    }
}

struct Contender {
    process: usize,
    client: Client,
    lock: Lock,
    log: File,
    random: SplitMix64,
    round: u64,
}

impl Contender {
    /// One round: wait, hold, release.
    async fn contend(&mut self) -> Result<(), String> {
        let since = self.client.now();
        let session = self.client.session_id();
        // Now and then one gives up, so that there are places in the queue to be cleaned up.
        let is_impatient = self.random.below(IMPATIENT_ONE_IN) == 0;
        let patience = if is_impatient { self.random.around(IMPATIENCE_MEAN) } else { PATIENCE };
        match self.try_to_hold(patience, since).await? {
            Ok(()) => Ok(()),
            Err(LockError::TimedOut) if is_impatient => self.write(Event::Missed, 0, "-"),
            Err(LockError::Lost(LostReason::SessionExpired))
                if session != self.client.session_id() =>
            {
                self.write(Event::Expired, 0, "-")
            }
            Err(error) => Err(format!("acquire: {error}")),
        }?;
        match self.lock.stats().watches_missed {
            0 => Ok(()),
            missed => Err(format!("{missed} watches were missed")),
        }
    }

    /// Waits and holds, or says why it did not get the lock.
    async fn try_to_hold(
        &mut self,
        patience: Duration,
        since: Time,
    ) -> Result<Result<(), LockError>, String> {
        let refused = match self.lock.clone() {
            Lock::Fair(lock) => match lock.acquire().timeout(patience).await {
                Ok(guard) => {
                    let token = guard.fencing_token().as_i64();
                    return self.hold(token, guard, since).await.map(Ok);
                }
                Err(error) => error,
            },
            Lock::Exclusive(lock) => match lock.acquire().timeout(patience).await {
                Ok(guard) => {
                    let token = guard.fencing_token().as_i64();
                    return self.hold(token, guard, since).await.map(Ok);
                }
                Err(error) => error,
            },
            Lock::ReadWrite(lock) if self.random.below(READER_ONE_IN) == 0 => {
                match lock.read().timeout(patience).await {
                    Ok(guard) => return self.hold(0, guard, since).await.map(Ok),
                    Err(error) => error,
                }
            }
            Lock::ReadWrite(lock) => match lock.write().timeout(patience).await {
                Ok(guard) if self.random.below(DOWNGRADED_ONE_IN) == 0 => {
                    return self.downgrade(guard, since).await.map(Ok);
                }
                Ok(guard) => {
                    let token = guard.fencing_token().as_i64();
                    return self.hold(token, guard, since).await.map(Ok);
                }
                Err(error) => error,
            },
        };
        Ok(Err(refused))
    }

    async fn hold<K: Kind>(
        &mut self,
        token: i64,
        guard: Guard<K>,
        since: Time,
    ) -> Result<(), String> {
        self.write(Event::Grant, token, guard.path())?;
        self.work_and_release(token, guard, since).await
    }

    /// Holds for writing, and goes on as a reader.
    async fn downgrade(&mut self, guard: WriteGuard, since: Time) -> Result<(), String> {
        let token = guard.fencing_token().as_i64();
        self.write(Event::Grant, token, guard.path())?;
        self.work(&guard).await;
        self.write(Event::Share, token, "-")?;
        let session = guard.session();
        let downgraded = timeout(PATIENCE, guard.downgrade()).await;
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
        let work = HOLD_MIN + Duration::from_millis(self.random.below(HOLD_SPREAD_MS));
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
        if self.random.below(STUBBORN_ONE_IN) == 0 {
            until_certain(&guard).await?;
        }
        let mut state = guard.state();
        self.write(Event::Release, token, &format!("{state:?}"))?;
        if !matches!(state, LockState::Lost(_)) {
            // Lost while the line was written: what others wrote before it is no offence.
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
            Released::EndedWithSession => self.client.session_id() != Some(session),
            // Nobody else deletes here.
            Released::AlreadyGone => false,
        };
        if !is_legal {
            return Err(format!("the release of {token} in {session} ended as {released:?}"));
        }
        self.write(Event::Done, token, &format!("{released:?}"))
    }

    /// A lock may be lost only if its session is over, or was without a server's word for its
    /// whole timeout. The create of this round was such a word.
    fn check_loss(
        &self,
        reason: LostReason,
        session: SessionId,
        since: Time,
    ) -> Result<(), String> {
        let elapsed = self.client.now().saturating_since(since);
        let status = self.client.status();
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
            process: self.process,
            round: self.round,
            token,
            detail: detail.to_owned(),
            connection: self.client.status().connection,
            ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        };
        // One write appends one line, whoever else appends.
        let line = format!("{record}\n");
        let written = self.log.write(line.as_bytes()).map_err(|error| error.to_string())?;
        if written == line.len() { Ok(()) } else { Err(format!("written in part: {line}")) }
    }
}

/// Asked for; servers may grant another.
const SESSION_TIMEOUT: Duration = Duration::from_secs(4);
const HOLD_MIN: Duration = Duration::from_millis(5);
const HOLD_SPREAD_MS: u64 = 16;
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
const READER_ONE_IN: u64 = 2;
const DOWNGRADED_ONE_IN: u64 = 3;
const STUBBORN_ONE_IN: u64 = 2;
const IMPATIENT_ONE_IN: u64 = 8;
const IMPATIENCE_MEAN: Duration = Duration::from_millis(25);
