//! Transfers between three accounts, each of which has its own lock, on an in-process server:
//! `cargo run -p zk-recipes --example multi_lock`. On a real ensemble, set `ZK_CONNECT=host:port`.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::time::{Duration, Instant};

use zk_recipes::{Client, MultiLock, NamedLocks};
use zk_testserver::{ServerConfig, TestServer};

const WORK: Duration = Duration::from_millis(100);
/// Together, these transfers would wait for each other forever if each locked its first account
/// first.
const TRANSFERS: [(&str, &str); 3] = [("ann", "bob"), ("bob", "eve"), ("eve", "ann")];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start(ServerConfig::default());
    let in_process = server.listen("127.0.0.1:0").await?.to_string();
    let hosts = std::env::var("ZK_CONNECT").unwrap_or(in_process);
    let client = Client::connect(hosts).await?;
    let accounts = NamedLocks::new(&client, "/locks/accounts")?;
    let start = Instant::now();
    let mut tasks = Vec::new();
    for (from, to) in TRANSFERS {
        let both = MultiLock::builder().with(&accounts.lock(from)?).with(&accounts.lock(to)?);
        let both = both.build()?;
        tasks.push(tokio::spawn(async move {
            let guard = both.acquire().timeout(Duration::from_secs(30)).await?;
            println!("{:>5} ms  from {from} to {to}", start.elapsed().as_millis());
            guard.run(tokio::time::sleep(WORK)).await?;
            guard.release().await?;
            Ok::<(), Box<dyn Error + Send + Sync>>(())
        }));
    }
    for task in tasks {
        task.await?.map_err(|error| error.to_string())?;
    }
    client.close().await;
    Ok(())
}
