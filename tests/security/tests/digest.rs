//! SASL with DIGEST-MD5, with a real server that requires SASL.
//!
//! `.ci/security` starts the servers and runs this suite.

#[path = "support/network.rs"]
mod network;
mod support;
#[path = "support/survival.rs"]
mod survival;

use std::time::Duration;

use support::{SESSION_TIMEOUT, given, private_znode, until_failure, until_suspended};
use survival::survive_cuts;
use zk_session::{
    Client, ClientBuilder, ConnectError, DisconnectCause, ErrorCode, FailureCause, OpError, Sasl,
    SaslFailure, SessionState,
};
use zk_tests::proxy::Proxy;

/// A server with the users of `tests/security/digest.jaas`, which requires SASL.
fn server() -> String {
    format!("localhost:{}", given("SECURITY_DIGEST_PORT"))
}

fn to(server: &str, name: &str, password: &str) -> ClientBuilder {
    Client::builder(server).sasl(Sasl::digest_md5(name, password)).session_timeout(SESSION_TIMEOUT)
}

#[tokio::test]
async fn the_right_password_is_an_identity_on_every_connection() {
    let port = given("SECURITY_DIGEST_PORT").parse().expect("a port");
    let proxy = Proxy::start(([127, 0, 0, 1], port).into()).await;
    let address = proxy.addr().to_string();
    let alice = to(&address, "alice", "alice-secret").connect().await.expect("the right password");
    let session = alice.session_id();
    private_znode(&alice, "/alice", "sasl", "alice").await;
    proxy.cut_all();
    until_suspended(&alice).await;
    assert_eq!(alice.get_data("/alice").await.expect("it is ours").0, "secret");
    assert_eq!(alice.session_id(), session, "the session survives");
    let bob = to(&server(), "bob", "bob-secret").connect().await.expect("the right password");
    let refused = bob.get_data("/alice").await.expect_err("it is not his");
    assert_eq!(refused.server_code(), Some(ErrorCode::NO_AUTH));
    alice.close().await;
    bob.close().await;
}

#[tokio::test]
async fn cuts_cost_no_session_no_identity_no_watch_and_no_request() {
    let port = given("SECURITY_DIGEST_PORT").parse().expect("a port");
    let client = |network: &network::Network| {
        let builder = to(&server(), "alice", "alice-secret").auth("digest", "user:password");
        builder.transport(network.tcp(port))
    };
    let (new, resumed) = survive_cuts(client, "/digest-cut").await;
    eprintln!("{new} cuts of new sessions, and {resumed} of resumed ones");
    assert!(new >= 16 && resumed >= 20, "only {new} and {resumed} cuts");
}

#[tokio::test]
async fn names_and_passwords_may_have_letters_beyond_ascii() {
    let client = to(&server(), "jürgen", "grün €").connect().await.expect("the right password");
    private_znode(&client, "/jürgen", "sasl", "jürgen").await;
    assert_eq!(client.get_data("/jürgen").await.expect("it is ours").0, "secret");
    client.close().await;
}

#[tokio::test]
async fn wrong_passwords_and_unknown_names_are_final_and_known_at_once() {
    // With the password of another user, this server may accept even a name that it does not know.
    for (name, password) in [("alice", "a guess"), ("mallory", "another guess")] {
        let refused = to(&server(), name, password).connect().await.map(|_| ());
        assert_eq!(refused, Err(ConnectError::AuthFailed), "{name}");
    }
}

#[tokio::test]
async fn a_client_without_sasl_is_refused_by_a_server_that_requires_it() {
    // The server opens the session, and refuses the first request.
    let client = Client::builder(server()).start().expect("the options are valid");
    let refused = client.get_data("/").await.map(|_| ());
    assert_eq!(refused, Err(OpError::AuthFailed));
    assert_eq!(client.state(), SessionState::AuthFailed);
}

#[tokio::test]
async fn a_client_with_sasl_never_works_without_it() {
    let plain = format!("localhost:{}", given("SECURITY_PLAIN_PORT"));
    let client = to(&plain, "alice", "alice-secret").start().expect("the options are valid");
    until_failure(&client, |text| text.contains(&SaslFailure::NotOffered.to_string())).await;
    let cause = client.last_failure().expect("it has failed").cause;
    let expected = DisconnectCause::Sasl(SaslFailure::NotOffered);
    assert_eq!(cause, FailureCause::Disconnected(expected));
    let timed_out = tokio::time::timeout(Duration::from_secs(1), client.exists("/")).await;
    assert!(timed_out.is_err(), "no request is sent without authentication");
}
