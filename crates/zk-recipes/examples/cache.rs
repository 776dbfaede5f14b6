//! A service follows its configuration while somebody changes it, on an in-process server:
//! `cargo run -p zk-recipes --example cache`. On a real ensemble, set `ZK_CONNECT=host:port`.

#![expect(clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;

use zk_recipes::{Cache, CacheEvent, Client, CreateMode, CreateOptions};
use zk_testserver::{ServerConfig, TestServer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start(ServerConfig::default());
    let in_process = server.listen("127.0.0.1:0").await?.to_string();
    let hosts = std::env::var("ZK_CONNECT").unwrap_or(in_process);
    let client = Client::connect(format!("{hosts}/examples-cache")).await?;
    let options = || CreateOptions::from(CreateMode::Ephemeral);
    client.create("/color", "red", options()).await?;

    let mut config = Cache::children(&client, "/").build()?;
    config.complete().await?;
    println!("{} znodes: {:?}", config.len(), config.stats());

    client.set_data("/color", "blue", None).await?;
    client.create("/size", "7", options()).await?;
    client.delete("/color", None).await?;
    while config.get("/size").is_none() || config.get("/color").is_some() {
        match config.next().await? {
            CacheEvent::Added { path, node } => println!("{path} is {:?}", node.data),
            CacheEvent::Changed { path, node, .. } => println!("{path} is now {:?}", node.data),
            CacheEvent::Removed { path, .. } => println!("{path} is gone"),
            CacheEvent::Complete | CacheEvent::Gap | CacheEvent::Unreadable { .. } | _ => {}
        }
    }
    println!("left: {:?}", config.get("/size").map(|node| &node.data));
    client.close().await;
    Ok(())
}
