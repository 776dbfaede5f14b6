//! Creates, changes and deletes a znode with operations that settle, on an in-process server:
//! `cargo run -p zk-recipes --example settled_client`. On a real ensemble, set
//! `ZK_CONNECT=host:port`.

#![expect(clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::time::Duration;

use zk_recipes::{Client, CreateMode, Outcome, SettledClient};
use zk_testserver::{ServerConfig, TestServer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start(ServerConfig::default());
    let in_process = server.listen("127.0.0.1:0").await?.to_string();
    let hosts = std::env::var("ZK_CONNECT").unwrap_or(in_process);
    let client = Client::connect(hosts).await?;
    // Requests whose replies are lost are repeated, until this time has passed.
    let settled = SettledClient::new(&client, "/examples/markers")?;
    let settled = settled.timeout(Duration::from_secs(10));
    let path = "/examples/settled/job-";
    let job = settled.create_with_parents(path, "new", CreateMode::PersistentSequential).await?;
    let job = job.path.ok_or("somebody has deleted the job already")?;
    match settled.set_data(&job, "done", None).await {
        Ok(_) => println!("The job is done."),
        Err(error) if error.outcome() == Outcome::NotApplied => println!("Not done: {error}"),
        Err(error) => println!("Perhaps done: {error}"),
    }
    settled.delete(&job, None).await?;
    drop(settled);
    client.close().await;
    Ok(())
}
