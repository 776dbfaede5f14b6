//! A contender of this project in a mixed queue, which reports to the referee.
//!
//! ```text
//! rival REFEREE:PORT SERVER:PORT DIRECTORY curator|kazoo WHAT SEED
//!
//! WHAT: lock, read-write, election (a latch or kazoo's election), selector
//! ```
//!
//! If something unexpected happens, the process reports it on standard error and fails.
#![expect(clippy::disallowed_methods, reason = "a process under test lives in real time")]

use std::process::ExitCode;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::sleep;
use zk_recipes::kind::Kind;
use zk_recipes::{
    Client, ConfigError, Election, ElectionNaming, FairLock, Guard, LockState, Naming, Released,
    RwLock, RwNaming, WriteGuard,
};
use zk_tests::random::SplitMix64;
use zk_tests::wait::PATIENCE;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("rival {}: {problem}", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &[String]) -> Result<(), String> {
    let [referee, server, directory, naming, kind, seed] = arguments else {
        return Err("six arguments, please".to_owned());
    };
    let client = Client::connect(server).await.map_err(|error| format!("connect: {error}"))?;
    let mut rival = Rival {
        lock: lock(&client, directory, naming, kind).map_err(|error| error.to_string())?,
        referee: Referee::connect(referee).await?,
        random: SplitMix64::new(seed.parse().map_err(|error| format!("{seed}: {error}"))?),
    };
    rival.referee.tell("hello ours", &["go"]).await?;
    while rival.contend().await? {}
    rival.referee.tell("done", &["bye"]).await?;
    client.close().await;
    Ok(())
}

// The lock has no safety timer, which would hide a lost wake-up.
fn lock(client: &Client, directory: &str, naming: &str, kind: &str) -> Result<Lock, ConfigError> {
    let is_kazoo = naming == "kazoo";
    match kind {
        "lock" => {
            let naming = if is_kazoo { Naming::kazoo() } else { Naming::curator() };
            let lock = FairLock::builder(client, directory)?.naming(naming).watch_check(None);
            lock.build().map(Lock::Fair)
        }
        "election" | "selector" => {
            let naming = match kind {
                "election" if is_kazoo => ElectionNaming::kazoo(),
                "election" => ElectionNaming::leader_latch(),
                _ => ElectionNaming::leader_selector(),
            };
            let election = Election::builder(client, directory)?.naming(naming).watch_check(None);
            election.build().map(Lock::Election)
        }
        _ => {
            let naming = if is_kazoo { RwNaming::kazoo() } else { RwNaming::curator() };
            let lock = RwLock::builder(client, directory)?.naming(naming).watch_check(None);
            lock.build().map(Lock::ReadWrite)
        }
    }
}

#[derive(Clone)]
enum Lock {
    Election(Election),
    Fair(FairLock),
    ReadWrite(RwLock),
}

struct Rival {
    lock: Lock,
    referee: Referee,
    random: SplitMix64,
}

impl Rival {
    /// Runs one round: waits, holds the lock, and releases it. Returns false if the round was the
    /// last.
    async fn contend(&mut self) -> Result<bool, String> {
        // Sometimes an acquire gives up, so contenders behind it are woken before their turn.
        let is_impatient = self.random.below(IMPATIENT_ONE_IN) == 0;
        let patience = if is_impatient { self.random.around(IMPATIENCE_MEAN) } else { PATIENCE };
        let refused = match self.lock.clone() {
            Lock::Election(election) => match election.campaign().timeout(patience).await {
                Ok(leadership) => return self.hold("exclusive", leadership).await,
                Err(error) => error,
            },
            Lock::Fair(lock) => match lock.acquire().timeout(patience).await {
                Ok(guard) => return self.hold("exclusive", guard).await,
                Err(error) => error,
            },
            Lock::ReadWrite(lock) if self.random.below(2) == 0 => {
                match lock.read().timeout(patience).await {
                    Ok(guard) => return self.hold("shared", guard).await,
                    Err(error) => error,
                }
            }
            Lock::ReadWrite(lock) => match lock.write().timeout(patience).await {
                Ok(guard) if self.random.below(DOWNGRADED_ONE_IN) == 0 => {
                    return self.downgrade(guard).await;
                }
                Ok(guard) => return self.hold("exclusive", guard).await,
                Err(error) => error,
            },
        };
        if is_impatient && refused.is_timed_out() {
            self.referee.missed().await
        } else {
            Err(format!("acquire: {refused}"))
        }
    }

    async fn hold<K: Kind>(&mut self, kind: &str, guard: Guard<K>) -> Result<bool, String> {
        self.referee.enter(kind, guard.path()).await?;
        self.work_and_leave(guard).await
    }

    async fn downgrade(&mut self, guard: WriteGuard) -> Result<bool, String> {
        self.referee.enter("exclusive", guard.path()).await?;
        self.work().await;
        self.referee.tell("downgrade", &["ok"]).await?;
        let guard = guard.downgrade().await.map_err(|error| format!("downgrade: {error}"))?;
        self.work_and_leave(guard).await
    }

    async fn work_and_leave<K: Kind>(&mut self, guard: Guard<K>) -> Result<bool, String> {
        self.work().await;
        if guard.state() != LockState::Held {
            return Err(format!("it is not held: {guard:?}"));
        }
        let goes_on = self.referee.leave().await?;
        // No other process deletes znodes, and no session expires.
        match guard.release().await {
            Ok(Released::Released) => Ok(goes_on),
            other => Err(format!("released: {other:?}")),
        }
    }

    async fn work(&mut self) {
        sleep(self.random.around(WORK_MEAN)).await;
    }
}

/// Connection to the referee.
struct Referee {
    stream: BufReader<TcpStream>,
}

impl Referee {
    async fn connect(address: &str) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    async fn enter(&mut self, kind: &str, znode: &str) -> Result<(), String> {
        self.tell(&format!("enter {kind} {znode}"), &["ok"]).await.map(drop)
    }

    async fn leave(&mut self) -> Result<bool, String> {
        Ok(self.tell("leave", &["on", "enough"]).await? == "on")
    }

    async fn missed(&mut self) -> Result<bool, String> {
        Ok(self.tell("missed", &["on", "enough"]).await? == "on")
    }

    async fn tell(&mut self, word: &str, answers: &[&str]) -> Result<String, String> {
        let mut answer = String::new();
        let told = async {
            self.stream.write_all(format!("{word}\n").as_bytes()).await?;
            self.stream.read_line(&mut answer).await
        };
        told.await.map_err(|error| format!("referee, {word}: {error}"))?;
        let answer = answer.trim_end();
        if answers.contains(&answer) {
            Ok(answer.to_owned())
        } else {
            Err(format!("referee, {word}: the reply is {answer:?}"))
        }
    }
}

const WORK_MEAN: Duration = Duration::from_millis(3);
const DOWNGRADED_ONE_IN: u64 = 3;
const IMPATIENT_ONE_IN: u64 = 8;
const IMPATIENCE_MEAN: Duration = Duration::from_millis(10);
