//! A producer or a consumer of a work queue, beside those of kazoo's `LockingQueue`.
//!
//! Arguments: `HOST:PORT`, directory of the queue, `make`, `put`, `end` or `take`, name, number of items
//! to put. `make` creates the directories as plain znodes, since kazoo does so only once. A consumer
//! prints a line `took ITEM` for each item that it has, and `acked ITEM` when it has acknowledged
//! the item, and ends when it has taken an item that begins with `end`.
#![expect(clippy::print_stdout, reason = "the script that starts this program reads it")]

use std::error::Error;
use std::time::Duration;

use zk_recipes::{Client, CreateMode, ErrorCode, OpError, WorkQueue};

const PATIENCE: Duration = Duration::from_secs(40);

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [hosts, directory, what, name, count] = &arguments[..] else {
        return Err("usage: worker HOST:PORT DIRECTORY make|put|end|take NAME COUNT".into());
    };
    let client = Client::connect(hosts.as_str()).await?;
    let queue = WorkQueue::new(&client, directory)?;
    match what.as_str() {
        "make" => make(&client, directory).await?,
        "put" => put(&queue, name, count.parse()?).await?,
        "end" => {
            for number in 0..count.parse()? {
                queue.put(format!("end-{number}")).priority(999).await?;
            }
        }
        "take" => take(&queue).await?,
        other => return Err(format!("an unknown word: {other}").into()),
    }
    client.close().await;
    Ok(())
}

async fn make(client: &Client, directory: &str) -> Result<(), OpError> {
    for path in ["", "/entries", "/taken"] {
        let path = format!("{directory}{path}");
        match client.create(&path, "", CreateMode::Persistent).await {
            Ok(_) | Err(OpError::Server { code: ErrorCode::NODE_EXISTS, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn put(queue: &WorkQueue, name: &str, count: usize) -> Result<(), Failure> {
    for number in 0..count {
        let priority = if number % 10 == 9 { 50 } else { 100 };
        queue.put(format!("{name}-{number:04}")).priority(priority).await?;
    }
    Ok(())
}

async fn take(queue: &WorkQueue) -> Result<(), Failure> {
    loop {
        let item = queue.take().timeout(PATIENCE).await?;
        let name = String::from_utf8(item.data().to_vec())?;
        println!("took {name}");
        item.ack().await?;
        println!("acked {name}");
        if name.starts_with("end") {
            return Ok(());
        }
    }
}
