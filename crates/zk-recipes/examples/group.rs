//! Three members join a group, change, expire and leave, and an observer prints it, on an
//! in-process server: `cargo run -p zk-recipes --example group`. On a real ensemble, set
//! `ZK_CONNECT=host:port`.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::time::{Duration, Instant};

use zk_recipes::{Client, Group, GroupChange};
use zk_testserver::{ServerConfig, TestServer};

const GROUP: &str = "/services/search/members";
const PAUSE: Duration = Duration::from_millis(300);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start(ServerConfig::default());
    let in_process = server.listen("127.0.0.1:0").await?.to_string();
    let hosts = std::env::var("ZK_CONNECT").unwrap_or(in_process);
    let observer = Client::connect(&hosts).await?;
    let mut watch = Group::new(&observer, GROUP)?.watch();
    let printing = tokio::spawn(async move {
        let start = Instant::now();
        while let Ok(change) = watch.next_within(Duration::from_secs(2)).await {
            let (what, member) = match change {
                GroupChange::Joined(member) => ("joined", member),
                GroupChange::Left(member) => ("left", member),
                GroupChange::Changed(member) => ("changed", member),
                _ => continue,
            };
            let data = String::from_utf8_lossy(&member.data);
            println!("{:>5} ms  {} {what}: {data}", start.elapsed().as_millis(), member.id);
        }
    });

    let client = Client::connect(&hosts).await?;
    let group = Group::new(&client, GROUP)?;
    let mut members = Vec::new();
    for number in 1..=3 {
        let address = format!("10.0.0.{number}:8080");
        members.push(group.join(&format!("host-{number}"), address).await?);
    }
    tokio::time::sleep(PAUSE).await;
    for first in members.iter().take(1) {
        first.set_data("10.0.0.1:8080, draining").await?;
    }
    tokio::time::sleep(PAUSE).await;
    // On a real ensemble, no session is expired here.
    client.session_id().into_iter().for_each(|session| server.expire(session));
    tokio::time::sleep(PAUSE * 5).await;
    for member in members {
        println!("          {} {:?}", member.path(), member.state());
        member.leave().await?;
    }
    printing.await?;
    Ok(())
}
