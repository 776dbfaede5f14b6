//! The referee of one mixed queue: the detector of overlaps, in a process of its own.
//!
//! ```text
//! referee SERVER:PORT DIRECTORY exclusive|shared CONTENDERS HAND_OFFS SECONDS
//! ```
//!
//! It prints the address on which it listens. Every contender connects to it, sends a line at a
//! time, and waits for the reply. `zk_tests::referee` describes the messages.
//!
//! | message | reply |
//! |---|---|
//! | `hello IMPLEMENTATION` | `go`, when all are connected |
//! | `enter exclusive ZNODE`, `enter shared ZNODE`, `downgrade` | `ok` |
//! | `leave`, `missed` | `on`, or `enough` |
//! | `done` | `bye`, when all are done and the directory was checked |
//!
//! Finally it prints the figures. If a rule was violated, it prints the problems on standard error,
//! and fails.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a program between processes lives in real time"
)]

use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use zk_session::{Client, ErrorCode, OpError};
use zk_tests::referee::{Figures, Readers, Referee, Rules, Word};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match referee(&arguments).await {
        Ok(figures) => {
            println!("{figures}");
            ExitCode::SUCCESS
        }
        Err(problems) => {
            for problem in problems {
                eprintln!("referee: {problem}");
            }
            ExitCode::FAILURE
        }
    }
}

async fn referee(arguments: &[String]) -> Result<Figures, Vec<String>> {
    let (server, rules, limit) = read(arguments).map_err(|problem| vec![problem])?;
    let world = |error: String| vec![error];
    let directory = rules.directory.clone();
    let client = Client::connect(server).await.map_err(|error| world(error.to_string()))?;
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.map_err(|error| world(error.to_string()))?;
    let address = listener.local_addr().map_err(|error| world(error.to_string()))?;
    println!("{address}");
    let table = Arc::new(Table {
        referee: Mutex::new(Referee::new(rules)),
        stage: watch::Sender::new(Stage::Gathering),
    });
    tokio::spawn(accept(listener, table.clone()));
    let over = timeout(limit, async {
        table.reached(Stage::Contended).await;
        // The contenders' sessions are still alive, so znodes that they have left behind are
        // visible.
        if let Err(problem) = is_empty(&client, &directory).await {
            table.referee().problem(problem);
        }
    });
    if over.await.is_err() {
        let mut referee = table.referee();
        let missing = referee.missing();
        referee.problem(format!("not over after {limit:?}, missing: {missing:?}"));
    }
    table.reach(Stage::Over);
    // The last replies are in flight.
    let _ = timeout(FAREWELL_MAX, table.reached(Stage::Left)).await;
    client.close().await;
    table.referee().verdict()
}

fn read(arguments: &[String]) -> Result<(&str, Rules, Duration), String> {
    let [server, directory, kind, contenders, hand_offs, seconds] = arguments else {
        return Err("six arguments, please".to_owned());
    };
    let readers = match kind.as_str() {
        "exclusive" => None,
        "shared" => Some(Readers { joins_min: JOINS_MIN, downgrades_min: DOWNGRADES_MIN }),
        other => return Err(format!("neither exclusive nor shared: {other}")),
    };
    let number = |text: &String| text.parse().map_err(|error| format!("{text}: {error}"));
    let rules = Rules {
        directory: directory.clone(),
        contenders: number(contenders)?,
        hand_offs_min: number(hand_offs)?,
        grants_min: GRANTS_MIN,
        readers,
    };
    let seconds = number(seconds)?;
    Ok((server, rules, Duration::from_secs(seconds as u64)))
}

/// State that all connections share.
struct Table {
    referee: Mutex<Referee>,
    stage: watch::Sender<Stage>,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Stage {
    /// The referee waits for contenders that are not connected yet.
    Gathering,
    Contending,
    /// All contenders are done.
    Contended,
    /// The directory was checked.
    Over,
    /// All contenders have disconnected.
    Left,
}

impl Table {
    fn referee(&self) -> MutexGuard<'_, Referee> {
        self.referee.lock().expect("no thread panics while it has the lock")
    }

    async fn reached(&self, stage: Stage) {
        let mut stages = self.stage.subscribe();
        stages.wait_for(|now| *now >= stage).await.expect("the sender lives as long as the table");
    }

    /// Wakes the connections that wait for all others.
    fn advance(&self) {
        let referee = self.referee();
        let stage = if referee.all_are_gone() {
            Stage::Left
        } else if referee.all_are_done() {
            Stage::Contended
        } else if referee.all_are_here() {
            Stage::Contending
        } else {
            Stage::Gathering
        };
        self.reach(stage);
    }

    /// Advances the stage, which never moves backwards.
    fn reach(&self, stage: Stage) {
        self.stage.send_if_modified(|now| {
            let is_later = *now < stage;
            *now = stage.max(*now);
            is_later
        });
    }
}

async fn accept(listener: TcpListener, table: Arc<Table>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        tokio::spawn(serve(stream, table.clone()));
    }
}

async fn serve(stream: TcpStream, table: Arc<Table>) {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    let implementation = match next(&mut lines).await {
        Some(Ok(Word::Hello(implementation))) => implementation,
        other => return table.referee().problem(format!("no hello, but {other:?}")),
    };
    let number = table.referee().admit(&implementation);
    table.advance();
    table.reached(Stage::Contending).await;
    talk(number, &mut lines, &mut writer, &table).await;
    table.referee().hung_up(number);
    table.advance();
}

/// Serves a contender until it disconnects or the queue ends.
async fn talk(
    number: usize,
    lines: &mut Lines<BufReader<OwnedReadHalf>>,
    writer: &mut OwnedWriteHalf,
    table: &Table,
) {
    let mut answer = "go";
    while writer.write_all(format!("{answer}\n").as_bytes()).await.is_ok() {
        let word = match next(lines).await {
            None => return,
            Some(Err(problem)) => return table.referee().problem(problem),
            Some(Ok(word)) => word,
        };
        table.referee().hear(number, &word);
        answer = match word {
            Word::Enter(..) | Word::Downgrade => "ok",
            Word::Leave | Word::Missed if table.referee().is_enough() => "enough",
            Word::Hello(_) | Word::Leave | Word::Missed => "on",
            Word::Done => {
                table.advance();
                table.reached(Stage::Over).await;
                "bye"
            }
        };
    }
}

async fn next(lines: &mut Lines<BufReader<OwnedReadHalf>>) -> Option<Result<Word, String>> {
    Some(lines.next_line().await.ok()??.parse())
}

/// Reads the directory until it is empty, because contenders that gave up are removed in the
/// background.
async fn is_empty(client: &Client, directory: &str) -> Result<(), String> {
    let end = Instant::now() + DELETION_MAX;
    loop {
        let names = match client.get_children(directory).await {
            // Servers delete empty containers.
            Err(OpError::Server { code: ErrorCode::NO_NODE, .. }) => return Ok(()),
            Err(error) => return Err(format!("cannot list {directory}: {error}")),
            Ok(names) if names.is_empty() => return Ok(()),
            Ok(names) => names,
        };
        if Instant::now() >= end {
            return Err(format!("left in {directory}: {names:?}"));
        }
        sleep(LOOK_INTERVAL).await;
    }
}

const GRANTS_MIN: usize = 5;
const JOINS_MIN: usize = 3;
const DOWNGRADES_MIN: usize = 5;
const DELETION_MAX: Duration = Duration::from_secs(1);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
const FAREWELL_MAX: Duration = Duration::from_secs(1);
