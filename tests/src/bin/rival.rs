//! One contender of ours in a mixed queue, which tells the referee what it does.
//!
//! ```text
//! rival REFEREE:PORT SERVER:PORT DIRECTORY curator|kazoo lock|read-write SEED
//! ```
//!
//! What is not expected goes to standard error, and the process fails.
#![expect(clippy::disallowed_methods, reason = "a process under test lives in real time")]

use std::process::ExitCode;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::sleep;
use zk_recipes::{Client, FairLock, LockError, Naming, Released};
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
        lock: lock(&client, directory, naming, kind)?,
        referee: Referee::connect(referee).await?,
        random: SplitMix64::new(seed.parse().map_err(|error| format!("{seed}: {error}"))?),
    };
    rival.referee.tell("hello ours", &["go"]).await?;
    while rival.contend().await? {}
    rival.referee.tell("done", &["bye"]).await?;
    client.close().await;
    Ok(())
}

// Without the safety timer, which would hide a lost wake-up.
fn lock(client: &Client, directory: &str, naming: &str, kind: &str) -> Result<Lock, String> {
    let naming = match naming {
        "curator" => Naming::curator(),
        "kazoo" => Naming::kazoo(),
        other => return Err(format!("neither curator nor kazoo: {other}")),
    };
    match kind {
        "lock" => FairLock::builder(client, directory)
            .and_then(|lock| lock.naming(naming).safety_relist(None).build())
            .map(Lock::Fair)
            .map_err(|error| error.to_string()),
        other => Err(format!("neither lock nor read-write: {other}")),
    }
}

enum Lock {
    Fair(FairLock),
}

struct Rival {
    lock: Lock,
    referee: Referee,
    random: SplitMix64,
}

impl Rival {
    /// One round: wait, hold, release. False if that was the last.
    async fn contend(&mut self) -> Result<bool, String> {
        // Now and then one gives up, so that those behind are woken, and it is not their turn.
        let is_impatient = self.random.below(IMPATIENT_ONE_IN) == 0;
        let patience = if is_impatient { self.random.around(IMPATIENCE_MEAN) } else { PATIENCE };
        let Lock::Fair(lock) = &self.lock;
        let guard = match lock.acquire().timeout(patience).await {
            Ok(guard) => guard,
            Err(LockError::TimedOut) if is_impatient => return self.referee.missed().await,
            Err(error) => return Err(format!("acquire: {error}")),
        };
        self.referee.enter("exclusive", guard.path()).await?;
        self.work().await;
        let goes_on = self.referee.leave().await?;
        released(guard.release().await)?;
        Ok(goes_on)
    }

    async fn work(&mut self) {
        sleep(self.random.around(WORK_MEAN)).await;
    }
}

fn released(outcome: Result<Released, LockError>) -> Result<(), String> {
    // Nobody else deletes here, and no session ends.
    match outcome {
        Ok(Released::Released) => Ok(()),
        other => Err(format!("released: {other:?}")),
    }
}

/// Hears what the rival does.
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
            Err(format!("referee, {word}: answered {answer:?}"))
        }
    }
}

const WORK_MEAN: Duration = Duration::from_millis(3);
const IMPATIENT_ONE_IN: u64 = 8;
const IMPATIENCE_MEAN: Duration = Duration::from_millis(10);
