//! Three tasks start and end two computations together, on an in-process server: `cargo run -p
//! zk-recipes --example double_barrier`. On a real ensemble, set `ZK_CONNECT=host:port`.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::time::{Duration, Instant};

use zk_recipes::{Client, DoubleBarrier};
use zk_testserver::{ServerConfig, TestServer};

const TASKS: u32 = 3;
const WORK: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start(ServerConfig::default());
    let in_process = server.listen("127.0.0.1:0").await?.to_string();
    let hosts = std::env::var("ZK_CONNECT").unwrap_or(in_process);
    let client = Client::connect(hosts).await?;
    let computation = DoubleBarrier::new(&client, "/examples/computation", TASKS)?;
    let start = Instant::now();
    let mut tasks = Vec::new();
    for number in 0..TASKS {
        let computation = computation.clone();
        tasks.push(tokio::spawn(async move {
            for round in 1..=2 {
                let inside = computation.enter().timeout(PATIENCE).await?;
                println!("{:>5} ms  task {number}, round {round}", start.elapsed().as_millis());
                tokio::time::sleep(WORK * (number + 1)).await;
                inside.leave().timeout(PATIENCE).await?;
            }
            Ok::<_, zk_recipes::RecipeError>(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    client.close().await;
    Ok(())
}
