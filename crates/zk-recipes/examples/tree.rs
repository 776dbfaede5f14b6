//! Creates a path and deletes its subtree, on an in-process server:
//! `cargo run -p zk-recipes --example tree`. On a real ensemble, set `ZK_CONNECT=host:port`.

#![expect(clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::time::Duration;

use zk_recipes::{Client, CreateMode, Tree};
use zk_testserver::{ServerConfig, TestServer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start(ServerConfig::default());
    let in_process = server.listen("127.0.0.1:0").await?.to_string();
    let hosts = std::env::var("ZK_CONNECT").unwrap_or(in_process);
    let client = Client::connect(hosts).await?;
    // Both calls repeat requests whose replies are lost, until this time has passed.
    let tree = Tree::of(&client).timeout(Duration::from_secs(10));
    tree.ensure("/examples/jobs/pending").await?;
    for job in 0..3 {
        let path = format!("/examples/jobs/pending/{job}");
        client.create(&path, "", CreateMode::Persistent).await?;
    }
    let deleted = tree.delete("/examples/jobs").await?;
    println!("{deleted} znodes are deleted.");
    client.close().await;
    Ok(())
}
