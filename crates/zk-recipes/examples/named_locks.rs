//! Workers that process orders, one at a time for each order, on an in-process server: `cargo run
//! -p zk-recipes --example named_locks`. On a real ensemble, set `ZK_CONNECT=host:port`.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::time::{Duration, Instant};

use zk_recipes::{Client, NamedLocks};
use zk_testserver::{ServerConfig, TestServer};

const WORK: Duration = Duration::from_millis(100);
const ORDERS: [&str; 6] = ["shop/1", "shop/2", "shop/1", "shop/3", "shop/1", "shop/2"];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start(ServerConfig::default());
    let in_process = server.listen("127.0.0.1:0").await?.to_string();
    let hosts = std::env::var("ZK_CONNECT").unwrap_or(in_process);
    let client = Client::connect(hosts).await?;
    let locks = NamedLocks::new(&client, "/locks/orders")?;
    let start = Instant::now();
    let mut workers = Vec::new();
    for (worker, order) in ORDERS.into_iter().enumerate() {
        let lock = locks.lock(order)?;
        workers.push(tokio::spawn(async move {
            let guard = lock.acquire().await?;
            println!("{:>5} ms  worker {worker} has order {order}", start.elapsed().as_millis());
            tokio::time::sleep(WORK).await;
            guard.release().await
        }));
    }
    for worker in workers {
        worker.await??;
    }
    println!("Directories that are left: {:?}", client.get_children(locks.root()).await?);
    client.close().await;
    Ok(())
}
