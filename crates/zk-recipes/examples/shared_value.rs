//! Two tasks change a shared value while another one follows it, on an in-process server:
//! `cargo run -p zk-recipes --example shared_value`. On a real ensemble, set
//! `ZK_CONNECT=host:port`.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;

use zk_recipes::{Client, SharedValue, ValueError};
use zk_testserver::{ServerConfig, TestServer};

const TASKS: [&str; 2] = ["red", "blue"];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start(ServerConfig::default());
    let in_process = server.listen("127.0.0.1:0").await?.to_string();
    let hosts = std::env::var("ZK_CONNECT").unwrap_or(in_process);
    let client = Client::connect(hosts).await?;
    let colours = SharedValue::new(&client, "/examples/colours")?;
    colours.set("").await?;
    let mut changes = colours.changes();
    for colour in TASKS {
        let colours = colours.clone();
        tokio::spawn(async move {
            // The function is called again if another client has written in the meantime.
            colours.update(|old| [&old[..], colour.as_bytes(), b" "].concat().into()).await?;
            Ok::<_, ValueError>(())
        });
    }
    // Values that follow each other fast may be skipped, but never the last one.
    while let Some(value) = changes.next().await? {
        let text = String::from_utf8_lossy(value.bytes());
        println!("The colours are {text:?}, at {:?}.", value.version());
        if TASKS.iter().all(|colour| text.contains(colour)) {
            break;
        }
    }
    client.close().await;
    Ok(())
}
