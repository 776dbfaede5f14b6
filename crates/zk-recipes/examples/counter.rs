//! Five tasks count together while another one follows the number, on an in-process server:
//! `cargo run -p zk-recipes --example counter`. On a real ensemble, set `ZK_CONNECT=host:port`.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;

use zk_recipes::{Client, Counter};
use zk_testserver::{ServerConfig, TestServer};

const TASKS: i64 = 5;
const ADDITIONS: i64 = 4;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start(ServerConfig::default());
    let in_process = server.listen("127.0.0.1:0").await?.to_string();
    let hosts = std::env::var("ZK_CONNECT").unwrap_or(in_process);
    let client = Client::connect(hosts).await?;
    let visits = Counter::new(&client, "/examples/visits")?;
    let sum = visits.get().await? + TASKS * ADDITIONS;
    for _ in 0..TASKS {
        let visits = visits.clone();
        tokio::spawn(async move {
            for _ in 0..ADDITIONS {
                // Each addition counts once, even if its connection is lost.
                visits.add(1).await?;
            }
            Ok::<_, zk_recipes::ValueError>(())
        });
    }
    let mut changes = visits.changes();
    // Numbers that follow each other fast may be skipped, but never the last one.
    while let Some(number) = changes.next().await? {
        println!("The counter is {number}.");
        if number == sum {
            break;
        }
    }
    client.close().await;
    Ok(())
}
