//! Three tasks wait until a barrier is opened, on an in-process server: `cargo run -p zk-recipes
//! --example barrier`. On a real ensemble, set `ZK_CONNECT=host:port`.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::time::{Duration, Instant};

use zk_recipes::{Barrier, Client};
use zk_testserver::{ServerConfig, TestServer};

const WORK: Duration = Duration::from_millis(300);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start(ServerConfig::default());
    let in_process = server.listen("127.0.0.1:0").await?.to_string();
    let hosts = std::env::var("ZK_CONNECT").unwrap_or(in_process);
    let client = Client::connect(hosts).await?;
    let migration = Barrier::new(&client, "/examples/migration")?;
    migration.close().await?;
    let start = Instant::now();
    let mut tasks = Vec::new();
    for number in 0..3 {
        let migration = migration.clone();
        tasks.push(tokio::spawn(async move {
            migration.wait().timeout(Duration::from_secs(10)).await?;
            println!("{:>5} ms  task {number} continues", start.elapsed().as_millis());
            Ok::<_, zk_recipes::RecipeError>(())
        }));
    }
    tokio::time::sleep(WORK).await;
    println!("{:>5} ms  the migration is complete", start.elapsed().as_millis());
    migration.open().await?;
    for task in tasks {
        task.await??;
    }
    client.close().await;
    Ok(())
}
