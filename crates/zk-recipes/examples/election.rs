//! Three instances of a service elect a leader. An administrator deletes the znode of the first
//! leader, which then campaigns again. Run this example on an in-process server with
//! `cargo run -p zk-recipes --example election`. To use a real ensemble, also set
//! `ZK_CONNECT=host:port`.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::time::Duration;

use zk_recipes::{Client, Election, Leadership, LockError};
use zk_testserver::{ServerConfig, TestServer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start(ServerConfig::default());
    let in_process = server.listen("127.0.0.1:0").await?.to_string();
    let hosts = std::env::var("ZK_CONNECT").unwrap_or(in_process);
    let mut tasks = Vec::new();
    for instance in 1..=3 {
        let client = Client::connect(hosts.as_str()).await?;
        let election = Election::builder(&client, "/services/billing/leader")?
            .identity(format!("instance {instance}"))
            .build()?;
        tasks.push(tokio::spawn(serve(client, election, instance)));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn serve(client: Client, election: Election, instance: usize) -> Result<(), LockError> {
    if let Some(leader) = election.leader().await? {
        println!("instance {instance} follows {}", String::from_utf8_lossy(&leader.identity));
    }
    let mut terms = 0;
    let work = async move |leadership: &Leadership| {
        terms += 1;
        println!("instance {instance} LEADS, with token {}", leadership.fencing_token());
        tokio::time::sleep(Duration::from_millis(300)).await;
        if instance == 1 && terms == 1 {
            println!("instance 1 loses its znode to an administrator");
            let _ = client.delete(leadership.path(), None).await;
            std::future::pending::<()>().await;
        }
        terms
    };
    let terms = election.run_while_leader(work).await?;
    println!("instance {instance} has done its work, in term {terms}");
    Ok(())
}
