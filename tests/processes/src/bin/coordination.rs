//! Our side of a counter, of barriers, or of a lock to be revoked, which other clients share.
//!
//! ```text
//! coordination SERVER:PORT PATH decimal|32|64 TIMES [SUM]   adds 1 so often, or checks the sum
//! coordination SERVER:PORT PATH prepare|barriers|hold|ask TIMES
//! ```
//!
//! If something unexpected happens, the process reports it on standard error and fails.
#![expect(clippy::disallowed_methods, reason = "a process under test lives in real time")]

use std::error::Error;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use zk_recipes::{Barrier, Client, Counter, CounterFormat, FairLock, request_revocation};
use zk_tests::wait::PATIENCE;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, path, what, times, sum @ ..] = &arguments[..] else {
        return Err("four or five arguments, please".into());
    };
    let client = Client::connect(server).await?;
    let times: u32 = times.parse()?;
    match (what.as_str(), sum) {
        ("prepare", _) => {
            for number in 0..times {
                Barrier::new(&client, &format!("{path}/ours-{number}"))?.close().await?;
            }
        }
        ("barriers", _) => barriers(&client, path, times).await?,
        ("hold", _) => hold(&client, path, times).await?,
        ("ask", _) => ask(&client, path, times).await?,
        (format, sum) => {
            let format = match format {
                "decimal" => CounterFormat::Decimal,
                "32" => CounterFormat::BigEndian32,
                "64" => CounterFormat::BigEndian64,
                other => return Err(format!("no format: {other}").into()),
            };
            let counter = Counter::builder(&client, path)?.format(format).build()?;
            if let [sum] = sum {
                client.catch_up().await?;
                let found = counter.get().await?;
                if found != sum.parse::<i64>()? {
                    return Err(format!("{found} instead of {sum}").into());
                }
            } else {
                for _ in 0..times {
                    counter.add(1).await?;
                }
            }
        }
    }
    client.close().await;
    Ok(())
}

/// Opens what the other side has closed, and waits until it opens what we have closed.
async fn barriers(client: &Client, path: &str, times: u32) -> Result<(), Box<dyn Error>> {
    for number in 0..times {
        let theirs = Barrier::new(client, &format!("{path}/theirs-{number}"))?;
        let ours = Barrier::new(client, &format!("{path}/ours-{number}"))?;
        if theirs.is_open().await? || ours.is_open().await? {
            return Err(format!("barrier {number} is open already").into());
        }
        theirs.open().await?;
        ours.wait().timeout(PATIENCE).await?;
    }
    Ok(())
}

/// Holds the lock until somebody asks for it, again and again.
async fn hold(client: &Client, path: &str, times: u32) -> Result<(), Box<dyn Error>> {
    let lock = FairLock::new(client, path)?;
    for _ in 0..times {
        let guard = lock.acquire().timeout(PATIENCE).await?;
        timeout(PATIENCE, guard.revocation_requested()).await?;
        guard.release().await?;
    }
    Ok(())
}

/// Asks this many holders for the lock, each until it has released it: Curator misses a request
/// that is written right after the create of its znode, because it does not watch the znode yet.
async fn ask(client: &Client, path: &str, times: u32) -> Result<(), Box<dyn Error>> {
    let lock = FairLock::new(client, path)?;
    let mut asked = 0;
    while asked < times {
        let holders = lock.contenders().await?;
        let Some(holder) = holders.first() else { continue };
        while request_revocation(client, &holder.path).await? {
            sleep(ASK_INTERVAL).await;
        }
        asked += 1;
    }
    Ok(())
}

/// Time between two requests to the same holder.
const ASK_INTERVAL: Duration = Duration::from_millis(10);
