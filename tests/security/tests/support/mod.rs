//! What the suites of this package share.

#![allow(dead_code, unreachable_pub, reason = "each suite uses a part")]
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a panic fails the test")]

use std::env;
use std::time::Duration;

use zk_session::{Acl, Client, CreateMode, CreateOptions, Id, Permissions, SessionState};
use zk_tests::wait::soon;
use zk_tests::world::sleep_ms;

/// The session timeout of clients of real servers. It is so long because those servers have just
/// started, share the machine with what computes, and were once silent for three seconds, in which a
/// client with a session of ten gives up a connection.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the value of a variable that `.ci/security` sets.
pub fn given(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set; run .ci/security"))
}

/// Waits until a client reports a failure like this.
pub async fn until_failure(client: &Client, is_expected: impl Fn(&str) -> bool) {
    for _ in 0..2_000 {
        if client.last_failure().is_some_and(|failure| is_expected(&failure.to_string())) {
            return;
        }
        sleep_ms(10).await;
    }
    panic!("the last failure is {:?}", client.last_failure());
}

/// Waits until a client knows that it has lost its connection. Requests that are submitted later wait
/// for the next one.
pub async fn until_suspended(client: &Client) {
    let mut states = client.states();
    while states.current().state != SessionState::Suspended {
        soon("a change of the session", states.next()).await.expect("the client runs");
    }
}

/// Creates a znode that only one identity may read.
pub async fn private_znode(client: &Client, path: &str, scheme: &str, id: &str) {
    let id = Id { scheme: scheme.into(), id: id.into() };
    let acl = vec![Acl { perms: Permissions::ALL, id }];
    let options = CreateOptions::from(CreateMode::Persistent).acl(acl);
    match client.delete(path, None).await {
        Ok(()) => {}
        Err(error) => assert!(error.is_no_node(), "{error}"),
    }
    client.create(path, "secret", options).await.expect("the parent is open to all");
}
