//! A holder acquires a lock twice, while another contender waits, on an in-process server:
//! `cargo run -p zk-recipes --example holder`. On a real ensemble, set `ZK_CONNECT=host:port`.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::time::{Duration, Instant};

use zk_recipes::kind::Fair;
use zk_recipes::{Client, FairLock, Holder, LockError};
use zk_testserver::{ServerConfig, TestServer};

const WORK: Duration = Duration::from_millis(200);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start(ServerConfig::default());
    let in_process = server.listen("127.0.0.1:0").await?.to_string();
    let hosts = std::env::var("ZK_CONNECT").unwrap_or(in_process);
    let client = Client::connect(hosts).await?;
    let lock = FairLock::new(&client, "/locks/accounts")?;
    let start = Instant::now();
    let accounts = Holder::new(&lock);
    let transferring = {
        let accounts = accounts.clone();
        tokio::spawn(async move { transfer(&accounts, start).await })
    };
    tokio::time::sleep(WORK / 2).await;
    let guard = lock.acquire().await?;
    println!("{:>5} ms  another contender holds the lock", start.elapsed().as_millis());
    guard.release().await?;
    transferring.await??;
    client.close().await;
    Ok(())
}

async fn transfer(accounts: &Holder<Fair>, start: Instant) -> Result<(), LockError> {
    let level = accounts.acquire().await?;
    println!("{:>5} ms  level {}", start.elapsed().as_millis(), accounts.levels());
    audit(accounts, start).await?;
    tokio::time::sleep(WORK).await;
    println!("{:>5} ms  the last level ends", start.elapsed().as_millis());
    level.release().await?;
    Ok(())
}

async fn audit(accounts: &Holder<Fair>, start: Instant) -> Result<(), LockError> {
    let level = accounts.acquire().await?;
    println!("{:>5} ms  level {}", start.elapsed().as_millis(), accounts.levels());
    tokio::time::sleep(WORK).await;
    level.release().await?;
    Ok(())
}
