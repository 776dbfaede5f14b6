//! Five contenders take turns with a fair lock, on an in-process server or on those that
//! `ZK_CONNECT=host:port` names: `cargo run -p zk-recipes --example fair_lock`.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::time::{Duration, Instant};

use zk_recipes::{Client, FairLock, LockError, Phase};
use zk_testserver::{ServerConfig, TestServer};

const CONTENDERS: usize = 5;
const WORK: Duration = Duration::from_millis(200);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start(ServerConfig::default());
    let (hosts, kind) = match std::env::var("ZK_CONNECT") {
        Ok(hosts) => (hosts, "the servers"),
        Err(_) => (server.listen("127.0.0.1:0").await?.to_string(), "an in-process server"),
    };
    println!("{CONTENDERS} contenders, one lock (/locks/demo) on {kind} at {hosts}.");
    println!("Each holds it for {} ms. Times are in milliseconds.\n", WORK.as_millis());
    let start = Instant::now();
    let (mut tasks, mut holds) = (Vec::new(), Vec::new());
    for number in 1..=CONTENDERS {
        // Each contender has its own session, as it would in a separate process.
        let client = Client::builder(hosts.as_str()).connect_within(Duration::from_secs(5));
        let client = client.connect().await.map_err(|error| error.to_string())?;
        let lock = FairLock::new(&client, "/locks/demo")?;
        tasks.push(tokio::spawn(contend(lock, number, start)));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for task in tasks {
        holds.push(task.await??);
    }
    holds.sort(); // One that loses its connection may come after others that started later.
    let tokens: Vec<i64> = holds.into_iter().map(|(_, token)| token).collect();
    println!("\nAll contenders were served in order, and the fencing tokens only grew: {tokens:?}");
    assert!(tokens.is_sorted());
    Ok(())
}

async fn contend(lock: FairLock, number: usize, start: Instant) -> Result<(u128, i64), LockError> {
    let say =
        |what: &str| println!("{:>6}  contender {number}  {what}", start.elapsed().as_millis());
    let (acquire, mut phases) = lock.acquire().timeout(Duration::from_secs(60)).phases();
    let mut acquiring = acquire.into_future();
    let guard = loop {
        tokio::select! {
            guard = &mut acquiring => break guard?,
            Some(Phase::Queued { ahead }) = phases.next() => say(&format!("queued, {ahead} ahead")),
        }
    };
    let (since, token) = (start.elapsed().as_millis(), guard.fencing_token().get());
    say(&format!("HOLDS the lock, fencing token {token}"));
    tokio::time::sleep(WORK).await;
    guard.validate().await?;
    say("releases the lock"); // The next one may hold it before the reply arrives here.
    guard.release().await?;
    Ok((since, token))
}
