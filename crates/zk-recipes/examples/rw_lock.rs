//! Readers share a lock, and each writer holds it alone. Run this example on an in-process server
//! with `cargo run -p zk-recipes --example rw_lock`. To use a real ensemble, also set
//! `ZK_CONNECT=host:port`.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::time::{Duration, Instant};

use zk_recipes::{Client, LockError, RwLock};
use zk_testserver::{ServerConfig, TestServer};

const CONTENDERS: &str = "RRRWRRW";
const WORK: Duration = Duration::from_millis(200);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start(ServerConfig::default());
    let in_process = server.listen("127.0.0.1:0").await?.to_string();
    let hosts = std::env::var("ZK_CONNECT").unwrap_or(in_process);
    println!("Readers (R) and writers (W) come as {CONTENDERS}. Times are in milliseconds.\n");
    let start = Instant::now();
    let mut tasks = Vec::new();
    for (number, kind) in CONTENDERS.chars().enumerate() {
        let client = Client::connect(hosts.as_str()).await?;
        let lock = RwLock::new(&client, "/locks/catalogue")?;
        tasks.push(tokio::spawn(async move {
            let name = format!("{kind}{number}");
            if kind == 'R' {
                read(lock, &name, start).await
            } else {
                write(lock, &name, start).await
            }
        }));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for task in tasks {
        task.await??;
    }
    println!("\nNobody was passed: readers between two writers were in together.");
    Ok(())
}

async fn read(lock: RwLock, name: &str, start: Instant) -> Result<(), LockError> {
    let reading = lock.read().await?;
    println!("{:>6}  {name} reads", start.elapsed().as_millis());
    tokio::time::sleep(WORK).await;
    println!("{:>6}  {name} leaves: {:?}", start.elapsed().as_millis(), reading.release().await?);
    Ok(())
}

async fn write(lock: RwLock, name: &str, start: Instant) -> Result<(), LockError> {
    let writing = lock.write().await?;
    println!("{:>6}  {name} WRITES with {}", start.elapsed().as_millis(), writing.fencing_token());
    tokio::time::sleep(WORK).await;
    // Other readers may enter, but no other writer can change the data before it is read again.
    let reading = writing.downgrade().await?;
    println!("{:>6}  {name} goes on reading", start.elapsed().as_millis());
    reading.release().await.map(drop)
}
