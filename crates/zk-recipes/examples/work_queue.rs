//! Two consumers share the items of a producer, and one of them fails, on an in-process server:
//! `cargo run -p zk-recipes --example work_queue`. On a real ensemble, set `ZK_CONNECT=host:port`.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::time::Duration;

use zk_recipes::{Client, RecipeError, WorkQueue, WorkQueueError};
use zk_testserver::{ServerConfig, TestServer};

/// How long a consumer waits for an item before it stops.
const IDLE: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start(ServerConfig::default());
    let in_process = server.listen("127.0.0.1:0").await?.to_string();
    let hosts = std::env::var("ZK_CONNECT").unwrap_or(in_process);
    let client = Client::connect(hosts).await?;
    let queue = WorkQueue::builder(&client, "/queues/reports")?.limit(1_000).build()?;

    queue.put_batch(["one", "two", "three", "four"]).await?;
    queue.put("urgent").priority(10).await?;
    println!("{} items", queue.length().await?);

    // The item returns to the queue, because it is dropped without an acknowledgement.
    let dropped = queue.take().await?;
    println!("a consumer fails with {:?}", dropped.data());
    drop(dropped);

    let consumers = ["a", "b"].map(|name| tokio::spawn(consume(name, queue.clone())));
    for consumer in consumers {
        consumer.await??;
    }
    println!("{} items are left", queue.length().await?);
    Ok(())
}

async fn consume(name: &str, queue: WorkQueue) -> Result<(), WorkQueueError> {
    loop {
        let item = match queue.take().timeout(IDLE).await {
            Err(WorkQueueError::Recipe(RecipeError::TimedOut(_))) => return Ok(()),
            item => item?,
        };
        println!("{name} works on {:?}, priority {}", item.data(), item.priority());
        tokio::time::sleep(Duration::from_millis(50)).await;
        item.ack().await?;
    }
}
