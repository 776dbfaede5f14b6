//! Each verb that is not in `main`, and each limit, as a client sees it.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use zk_session::{Acl, Client, CreateMode, ErrorCode, OpError, Permissions, Ttl};

use crate::connect;
use crate::program::Program;

fn code<T>(result: Result<T, OpError>) -> Option<ErrorCode> {
    result.err().and_then(|error| error.server_code())
}

#[tokio::test]
async fn a_reply_is_delayed_and_a_signal_ends_the_program_meanwhile() {
    let mut program = Program::start(&[]);
    let client = connect(&program).await;
    program.ok("delay/1h?op=getData");
    let mut read = pin!(client.get_data("/"));
    while program.json("/requests").as_array().is_none_or(Vec::is_empty) {
        // The session is a task of this thread.
        tokio::task::yield_now().await;
    }
    assert_eq!(program.json("/requests")[0]["outcome"], json!("applied"));
    assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(program.json("/faults"), json!([]));
    program.signal(Signal::TERM);
    assert_eq!(program.exit_code(), Some(0));
}

#[tokio::test]
async fn requests_are_delayed_until_reset() {
    let program = Program::start(&[]);
    let client = connect(&program).await;
    program.ok("adddelay/50");
    let begun = client.now();
    client.exists("/").await.unwrap();
    assert!(client.now().saturating_since(begun) >= Duration::from_millis(50));
    program.ok("adddelay/3600000");
    let mut read = pin!(client.exists("/"));
    assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    program.ok("reset");
    read.await.unwrap();
}

#[tokio::test]
async fn requests_are_throttled_and_connections_refused_for_a_time() {
    let program = Program::start(&[]);
    let client = connect(&program).await;
    program.ok("throttle/1h");
    assert_eq!(code(client.exists("/").await), Some(ErrorCode::THROTTLED_OP));
    program.ok("reset");
    client.exists("/").await.unwrap();
    program.ok("refuse/1h");
    assert_eq!(program.word("ruok"), "");
    program.ok("reset");
    assert_eq!(program.word("ruok"), "imok");
    program.ok("electnewleader");
    while client.exists("/").await.is_err() {}
}

#[tokio::test]
async fn due_containers_are_reaped_on_command() {
    let program = Program::start(&["--reap-interval", "1h"]);
    let client = connect(&program).await;
    client.create("/c", "", CreateMode::Container).await.unwrap();
    client.create("/c/a", "", CreateMode::Persistent).await.unwrap();
    client.delete("/c/a", None).await.unwrap();
    assert!(client.exists("/c").await.unwrap().is_some());
    program.ok("reap");
    assert!(client.exists("/c").await.unwrap().is_none());
}

#[tokio::test]
async fn the_superuser_passes_every_check() {
    let digest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";
    let program = Program::start(&["--super-digest", digest]);
    let client = connect(&program).await;
    client.create("/a", "secret", CreateMode::Persistent).await.unwrap();
    let nobody = Acl::new(Permissions::ALL, "digest", "nobody:2jmj7l5rSw0yVb/vlWAYkK/YBwk=");
    client.set_acl("/a", vec![nobody], None).await.unwrap();
    assert_eq!(code(client.get_data("/a").await), Some(ErrorCode::NO_AUTH));
    client.add_auth("digest", "super:test").await.unwrap();
    assert_eq!(client.get_data("/a").await.unwrap().0, "secret");
}

#[tokio::test]
async fn limits_are_those_of_the_options() {
    let program =
        Program::start(&["--jute-maxbuffer", "2000", "--log-capacity", "5", "--extended-types"]);
    let client = connect(&program).await;
    assert_eq!(client.status().timeout, Duration::from_secs(30));
    for number in 0..20 {
        client.create(&format!("/{number}"), "", CreateMode::Persistent).await.unwrap();
    }
    let paths = |page: &str| -> Vec<String> {
        let records = program.json(page);
        let records = records.as_array().expect("it is a list");
        records.iter().map(|it| it["path"].as_str().expect("a path").to_owned()).collect()
    };
    let newest: Vec<String> = (15..20).map(|number| format!("/{number}")).collect();
    assert_eq!(paths("/requests"), newest, "the oldest ones are discarded");
    assert_eq!(paths("/commits"), newest);
    assert_eq!(paths("/requests?last=2"), newest[3..]);
    assert_eq!(paths("/commits?last=0"), [""; 0]);
    assert_eq!(paths("/commits?last=9"), newest);
    let ttl = CreateMode::PersistentTtl(Ttl::from_millis(60_000).unwrap());
    client.create("/ttl", "", ttl).await.expect("types are extended");
    // The server ends the connection at a request that is too long.
    client.create("/long", vec![0; 3_000], CreateMode::Persistent).await.unwrap_err();
    assert!(client.exists("/long").await.unwrap().is_none());
}

#[tokio::test]
async fn it_imitates_a_keeper() {
    let program = Program::start(&["--server-version", "keeper"]);
    let client = connect(&program).await;
    let refused = client.who_am_i().await.unwrap_err();
    assert!(matches!(refused, OpError::Unsupported { .. }), "{refused}");
}

#[tokio::test]
async fn members_are_elected_and_sessions_move_to_another_one() {
    let program = Program::start(&["--members", "3", "--lag", "1h"]);
    let members: Vec<&str> = program.connect_string.split(',').collect();
    let writer = Client::connect(members[0]).await.unwrap();
    let reader = Client::connect(members[1]).await.unwrap();
    writer.create("/a", "", CreateMode::Persistent).await.unwrap();
    assert_eq!(reader.exists("/a").await.unwrap(), None);
    program.ok("elect/1ms");
    // All members are equal after an election.
    loop {
        match reader.exists("/a").await {
            Ok(found) => break assert!(found.is_some()),
            Err(error) => assert!(matches!(error, OpError::ConnectionLoss { .. }), "{error}"),
        }
    }
}
