//! Sessions with a thread of their own.

use std::time::Duration;

use zk_recipes::{FairLock, LockState};
use zk_session::{Client, CloseOutcome, ConfigError, CreateMode, FailureCause, SessionState};
use zk_tests::wait::now;
use zk_testserver::{ServerConfig, TestServer};

/// Shorter than the runtime is blocked.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Blocks the runtime of the caller, which has one thread.
#[expect(clippy::disallowed_methods, reason = "the runtime is blocked on purpose")]
fn block(length: Duration) {
    std::thread::sleep(length);
}

fn server() -> (tokio::runtime::Runtime, TestServer, String) {
    // The server has a runtime of its own, because the test blocks that of the client.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime can be built");
    let (server, address) = runtime.block_on(async {
        let server = TestServer::start(ServerConfig::default().tick(Duration::from_millis(250)));
        let address = server.listen("127.0.0.1:0").await.expect("a free loopback port");
        (server, address.to_string())
    });
    (runtime, server, address)
}

fn current_thread() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be built")
}

#[test]
fn a_blocked_runtime_does_not_cost_the_session() {
    let (_runtime, server, address) = server();
    current_thread().block_on(async {
        let builder = Client::builder(&address).session_timeout(TIMEOUT);
        let client = builder.dedicated_thread().connect().await.expect("the server answers");
        let session = client.session_id().expect("it is connected");
        let lock = FairLock::new(&client, "/lock").expect("the path is valid");
        let guard = lock.acquire().await.expect("nobody else wants it");
        block(3 * TIMEOUT);
        assert_eq!(client.session_id(), Some(session));
        assert_eq!((client.state(), client.status().connection), (SessionState::Connected, 1));
        assert_eq!(guard.state(), LockState::Held);
        assert!(server.sessions().contains(&session));
        guard.release().await.expect("it is held");
        assert_eq!(client.close().await, CloseOutcome::Closed);
    });
}

/// The same without the thread, to show that the test above tests something.
#[test]
fn a_blocked_runtime_costs_the_session_of_a_client_that_shares_it() {
    let (_runtime, server, address) = server();
    current_thread().block_on(async {
        let builder = Client::builder(&address).session_timeout(TIMEOUT);
        let client = builder.connect().await.expect("the server answers");
        let session = client.session_id().expect("it is connected");
        block(3 * TIMEOUT);
        assert!(!server.sessions().contains(&session), "it has expired");
    });
}

#[test]
fn a_blocked_runtime_is_not_taken_for_a_silent_server() {
    let (_runtime, server, address) = server();
    current_thread().block_on(async {
        let builder = Client::builder(&address).session_timeout(TIMEOUT);
        let client = builder.connect().await.expect("the server answers");
        assert_eq!(client.last_failure(), None);
        // The task must send a ping after a third of the timeout.
        block(TIMEOUT + TIMEOUT / 2);
        let failure = client.last_failure().expect("the task should have run");
        assert!(matches!(failure.cause, FailureCause::NotRun(_)), "{failure}");
        assert_eq!(client.health().last_failure.map(|it| it.host), Some(failure.host));
        drop(server);
    });
}

#[test]
fn a_client_outside_of_a_runtime_is_refused() {
    let builder = || Client::builder("127.0.0.1:2181");
    assert_eq!(builder().start().expect_err("nothing runs it"), ConfigError::NoRuntime);
    for builder in [builder(), builder().dedicated_thread()] {
        let connected = now(builder.connect()).expect("it fails at once");
        assert_eq!(connected.expect_err("nothing runs it"), ConfigError::NoRuntime.into());
    }
}

#[test]
fn a_client_that_nothing_drives_says_so() {
    let (_runtime, _server, address) = server();
    let undriven = current_thread();
    let client = {
        let _entered = undriven.enter();
        Client::builder(&address).start().expect("the options are valid")
    };
    block(TIMEOUT + TIMEOUT / 10);
    let failure = client.last_failure().expect("the task should have run");
    assert!(matches!(failure.cause, FailureCause::NotRun(_)), "{failure}");
    assert_eq!(failure.host.to_string(), address);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "another thread has another runtime")]
fn handles_work_on_any_runtime_and_without_one() {
    let (_runtime, server, address) = server();
    // There is no runtime here.
    let client =
        Client::builder(&address).dedicated_thread().start().expect("the options are valid");
    let other = client.clone();
    current_thread().block_on(async {
        client.create("/a", "1", CreateMode::Persistent).await.expect("it is new");
    });
    let read = std::thread::spawn(move || {
        current_thread().block_on(async { other.get_data("/a").await.expect("it exists").0 })
    });
    assert_eq!(read.join().expect("the thread does not panic"), "1");
    // The thread ends with the last handle, and closes the session.
    let session = client.session_id().expect("it is connected");
    drop(client);
    let mut patience = 500;
    while server.sessions().contains(&session) {
        patience -= 1;
        assert!(patience > 0, "the session is not closed");
        block(Duration::from_millis(10));
    }
}
