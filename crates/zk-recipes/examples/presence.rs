//! A znode is present until its owner closes it, although its session expires and another client
//! deletes it, on an in-process server: `cargo run -p zk-recipes --example presence`. On a real
//! ensemble, set `ZK_CONNECT=host:port`.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::time::Duration;

use zk_recipes::{Client, Presence, PresenceState};
use zk_testserver::{ServerConfig, TestServer};

const PATH: &str = "/services/search/host-7";
const PAUSE: Duration = Duration::from_millis(300);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestServer::start(ServerConfig::default());
    let in_process = server.listen("127.0.0.1:0").await?.to_string();
    let hosts = std::env::var("ZK_CONNECT").unwrap_or(in_process);
    let (client, other) = (Client::connect(&hosts).await?, Client::connect(&hosts).await?);

    // An earlier run of this program may have left its znode, until its session expires.
    let builder = Presence::builder(&client, PATH)?.keep_trying();
    let presence = builder.begin("10.0.0.7:8080").timeout(Duration::from_secs(60)).await?;
    show("begun", &presence);
    presence.set_data("10.0.0.7:8080, ready").await?;

    other.delete(PATH, None).await?;
    tokio::time::sleep(PAUSE).await;
    show("deleted by another client", &presence);

    // On a real ensemble, no session is expired here.
    client.session_id().into_iter().for_each(|session| server.expire(session));
    tokio::time::sleep(PAUSE * 5).await;
    show("expired", &presence);

    println!("closed: {:?}", presence.close().await?);
    Ok(())
}

fn show(when: &str, presence: &Presence) {
    let state = presence.state();
    if let PresenceState::Present { session, czxid, .. } = state {
        println!("{when}: present in session {session}, created by transaction {czxid}");
    } else {
        println!("{when}: {state:?}");
    }
}
