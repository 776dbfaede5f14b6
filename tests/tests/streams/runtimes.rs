//! Streams are polled by a runtime that is not that of the client, has no timers, and is woken by
//! what happens there.

use std::thread;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use tokio::sync::mpsc;
use zk_recipes::{
    Client, Election, FairLock, Group, Phase, SessionState, SettledClient, SharedValue,
};
use zk_testserver::{ServerConfig, TestServer};

/// How long a test may wait for an item.
const PATIENCE: Duration = Duration::from_secs(30);

/// Hands the items of a stream over from another runtime.
#[expect(clippy::disallowed_methods, reason = "a runtime of its own needs a thread")]
fn elsewhere<S>(stream: S) -> mpsc::UnboundedReceiver<S::Item>
where
    S: Stream<Item: Send> + Send + Unpin + 'static,
{
    let (sender, items) = mpsc::unbounded_channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("it is free");
        runtime.block_on(stream.for_each(async |item| drop(sender.send(item))));
    });
    items
}

async fn item<T>(items: &mut mpsc::UnboundedReceiver<T>) -> T {
    let item = tokio::time::timeout(PATIENCE, items.recv()).await;
    item.expect("it is woken").expect("the stream goes on")
}

#[tokio::test]
async fn a_stream_wakes_a_task_of_another_runtime() {
    let server = TestServer::start(ServerConfig::default());
    let address = server.listen("127.0.0.1:0").await.expect("the port is free").to_string();
    let client = Client::connect(address).await.expect("the server runs");
    server.admin_create("/x", b"0", None);
    let value = SharedValue::new(&client, "/x").expect("the path is valid");
    let settled = SettledClient::new(&client, "/markers").expect("the path is valid");
    let group = Group::new(&client, "/group").expect("the path is valid");
    let election = Election::new(&client, "/election").expect("the path is valid");
    let lock = FairLock::new(&client, "/lock").expect("the path is valid");
    let mut values = elsewhere(value.changes());
    let mut states = elsewhere(settled.changes("/x").expect("the path is valid"));
    let mut members = elsewhere(group.watch());
    let mut leaders = elsewhere(election.observe());
    let mut sessions = elsewhere(client.states());
    let (acquire, phases) = lock.acquire().phases();
    let mut phases = elsewhere(phases);

    for number in 0..5_u8 {
        let text = number.to_string();
        server.admin_set_data("/x", text.as_bytes());
        // The first item may be older.
        while item(&mut values).await.expect("it can be read").expect("it exists").bytes()
            != text.as_bytes()
        {}
        while item(&mut states).await.expect("it can be read").expect("it exists").0 != text {}
    }
    let member = group.join("a", "").await.expect("nobody else has this id");
    item(&mut members).await.expect("it can be read");
    let leader = election.campaign().await.expect("there is no other candidate");
    while item(&mut leaders).await.expect("it can be read").is_none() {}
    let guard = acquire.await.expect("it is free");
    while item(&mut phases).await != Phase::Held {}
    guard.release().await.expect("it is held");
    while item(&mut phases).await != Phase::Released {}
    drop((member, leader));
    client.close().await;
    while item(&mut sessions).await.state != SessionState::Closed {}
    while let Some(status) = sessions.recv().await {
        assert_eq!(status.state, SessionState::Closed);
    }
    assert!(phases.recv().await.is_none());
    item(&mut values).await.expect_err("the client is closed");
    assert!(values.recv().await.is_none());
}
