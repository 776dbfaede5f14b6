//! Five contenders take turns with a fair lock.
//!
//! Without installing anything: `cargo run -p zk-recipes --example fair_lock` starts an
//! in-process server. On a real ensemble: `ZK_CONNECT=host:port,... cargo run ...`.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::future::IntoFuture;
use std::time::{Duration, Instant};

use zk_recipes::{Client, FairLock, Phase};
use zk_testserver::{ServerConfig, TestServer};

const CONTENDERS: usize = 5;
const WORK: Duration = Duration::from_millis(200);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The in-process server lives as long as this handle.
    let (hosts, _server) = match std::env::var("ZK_CONNECT") {
        Ok(hosts) => (hosts, None),
        Err(_) => {
            let server = TestServer::start(ServerConfig::default());
            (server.listen("127.0.0.1:0").await?.to_string(), Some(server))
        }
    };
    let kind = if _server.is_some() { "an in-process server" } else { "a real ensemble" };
    println!("{CONTENDERS} contenders, one lock (/locks/demo) on {kind} at {hosts}.");
    println!("Each holds it for {} ms. Times are in milliseconds.\n", WORK.as_millis());

    let start = Instant::now();
    let mut tasks = Vec::new();
    for number in 1..=CONTENDERS {
        // A session each, as separate processes would have.
        let client = Client::connect(hosts.as_str()).await?;
        tasks.push(tokio::spawn(contend(client, number, start)));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut tokens = Vec::new();
    for task in tasks {
        tokens.push(task.await?.map_err(|error| error.to_string())?);
    }
    println!("\nEverybody was served, in order; the fencing tokens only grew: {tokens:?}");
    assert!(tokens.is_sorted());
    Ok(())
}

async fn contend(client: Client, number: usize, start: Instant) -> Result<i64, String> {
    let say = |what: String| {
        println!("{:>6}  contender {number}  {what}", start.elapsed().as_millis());
    };
    let lock = FairLock::new(&client, "/locks/demo").map_err(|error| error.to_string())?;
    let (acquire, mut phases) = lock.acquire().timeout(Duration::from_secs(60)).phases();
    let mut acquiring = acquire.into_future();
    let guard = loop {
        tokio::select! {
            guard = &mut acquiring => break guard.map_err(|error| error.to_string())?,
            Some(phase) = phases.next() => match phase {
                Phase::Queued { ahead } => say(format!("queued, {ahead} ahead")),
                Phase::Claiming | _ => say("asks for a place in the queue".into()),
            },
        }
    };
    let token = guard.fencing_token();
    say(format!("HOLDS the lock, fencing token {token}"));
    tokio::time::sleep(WORK).await;
    guard.validate().await.map_err(|error| error.to_string())?;
    let released = guard.release().await.map_err(|error| error.to_string())?;
    say(format!("releases: {released:?}"));
    client.close().await;
    Ok(token.as_i64())
}
