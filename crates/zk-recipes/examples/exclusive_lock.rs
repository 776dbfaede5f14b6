//! Three instances of a service try to write the nightly report, and only one of them does. Run
//! this example on an in-process server with `cargo run -p zk-recipes --example exclusive_lock`. To
//! use a real ensemble, also set `ZK_CONNECT=host:port`.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::time::Duration;

use zk_recipes::{Client, ExclusiveLock, LockError};
use zk_testserver::{ServerConfig, TestServer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start(ServerConfig::default());
    let in_process = server.listen("127.0.0.1:0").await?.to_string();
    let hosts = std::env::var("ZK_CONNECT").unwrap_or(in_process);
    let mut tasks = Vec::new();
    for instance in 1..=3 {
        let client = Client::connect(hosts.as_str()).await?;
        let lock = ExclusiveLock::builder(&client, "/locks/nightly-report")?
            .identity(format!("instance {instance}"))
            .build()?;
        tasks.push(tokio::spawn(nightly_report(lock, instance)));
    }
    let mut reports = 0;
    for task in tasks {
        reports += task.await??;
    }
    assert_eq!(reports, 1);
    println!("One report was written.");
    Ok(())
}

async fn nightly_report(lock: ExclusiveLock, instance: usize) -> Result<usize, LockError> {
    let Some(guard) = lock.try_acquire().await? else {
        let holder = lock.holder().await?;
        let name = holder.map(|holder| String::from_utf8_lossy(&holder.identity).into_owned());
        println!("instance {instance} leaves it to {}", name.as_deref().unwrap_or("another"));
        return Ok(0);
    };
    println!("instance {instance} writes the report, with fencing token {}", guard.fencing_token());
    let written = guard.run(tokio::time::sleep(Duration::from_millis(500))).await;
    match written {
        Ok(()) => guard.release().await.map(|_| 1),
        Err(stopped) => {
            println!("instance {instance} has to stop: {stopped}");
            Ok(0)
        }
    }
}
