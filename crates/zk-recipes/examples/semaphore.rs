//! Five tasks share two permits, on an in-process server: `cargo run -p zk-recipes --example
//! semaphore`. On a real ensemble, set `ZK_CONNECT=host:port`.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::time::{Duration, Instant};

use zk_recipes::{Client, Semaphore};
use zk_testserver::{ServerConfig, TestServer};

const TASKS: usize = 5;
const WORK: Duration = Duration::from_millis(200);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start(ServerConfig::default());
    let in_process = server.listen("127.0.0.1:0").await?.to_string();
    let hosts = std::env::var("ZK_CONNECT").unwrap_or(in_process);
    let client = Client::connect(hosts).await?;
    let mut uploads = Semaphore::builder(&client, "/limits/uploads")?
        .permits(2)
        .accept_stored_permits()
        .build()?;
    let start = Instant::now();
    let mut tasks = Vec::new();
    for number in 0..TASKS {
        let uploads = uploads.clone();
        tasks.push(tokio::spawn(async move {
            let permit = uploads.acquire().await?;
            println!("{:>5} ms  task {number} has a permit", start.elapsed().as_millis());
            tokio::time::sleep(WORK).await;
            permit.release().await
        }));
    }
    tokio::time::sleep(WORK * 3 / 2).await;
    println!("{:>5} ms  three permits from now on", start.elapsed().as_millis());
    uploads.set_permits(3).await?;
    for task in tasks {
        task.await??;
    }
    println!("Stored: {:?}", uploads.stored_permits().await?);
    Ok(())
}
