//! Lists of servers that change at run time.

use std::sync::{Arc, Mutex};

use zk_session::{Client, Clock, ConfigError, CreateMode, Host};
use zk_tests::world::{run, sleep_ms};
use zk_testserver::{Action, ServerConfig, TestServer};

use crate::at_op;
use jute_codec::OpCode;

/// The ports of the attempts to connect, in their order.
type Attempts = Arc<Mutex<Vec<u16>>>;

/// Connects a client to an ensemble of which every host is the same server.
async fn client(server: &TestServer, hosts: &str, seed: u64) -> (Client, Attempts) {
    let attempts = Attempts::default();
    let (seen, connector) = (Arc::clone(&attempts), server.connector());
    let builder = Client::builder(hosts).clock(Clock::tokio()).lease(None).seed(seed);
    let builder = builder.transport(move |host: Host| {
        seen.lock().expect("no thread panics").push(host.port);
        connector(host)
    });
    (builder.connect().await.expect("the server answers"), attempts)
}

fn last(attempts: &Attempts) -> u16 {
    *attempts.lock().expect("no thread panics").last().expect("it is connected")
}

#[test]
fn a_client_leaves_a_server_that_is_no_longer_in_the_list_with_its_session() {
    run(async {
        let server = TestServer::start(ServerConfig::default());
        let (client, attempts) = client(&server, "zk:1,zk:2", 1).await;
        let session = client.session_id();
        client.create("/e", "", CreateMode::Ephemeral).await.expect("it is new");
        client.set_hosts("zk:3,zk:4").expect("it is valid");
        // It waits for replies in flight, and no request is lost.
        server.inject(at_op(OpCode::EXISTS, Action::Delay(std::time::Duration::from_millis(500))));
        let (first, second) = tokio::join!(client.exists("/e"), client.exists("/e"));
        assert!(first.expect("it is not lost").is_some() && second.expect("nor this").is_some());
        sleep_ms(1_000).await;
        assert!(matches!(last(&attempts), 3 | 4), "{attempts:?}");
        assert_eq!((client.session_id(), client.status().connection), (session, 2));
        for _ in 0..3 {
            server.disconnect_all();
            sleep_ms(20_000).await;
            assert!(matches!(last(&attempts), 3 | 4), "{attempts:?}");
        }
        assert_eq!(client.session_id(), session);
    });
}

#[test]
fn requests_in_flight_complete_before_a_client_moves() {
    run(async {
        let server = TestServer::start(ServerConfig::default());
        let (client, attempts) = client(&server, "zk:1", 1).await;
        server.inject(at_op(OpCode::CREATE2, Action::Delay(std::time::Duration::from_secs(1))));
        let in_flight = client.create("/a", "", CreateMode::Persistent);
        sleep_ms(10).await;
        client.set_hosts("zk:2").expect("it is valid");
        let behind = client.create("/b", "", CreateMode::Persistent);
        assert!(in_flight.await.is_ok(), "its reply is awaited");
        behind.await.expect("it is sent to the next server");
        assert_eq!((last(&attempts), client.status().connection), (2, 2));
    });
}

#[test]
fn a_share_of_the_clients_moves_when_the_list_grows_and_none_when_it_shrinks() {
    run(async {
        let server = TestServer::start(ServerConfig::default());
        let mut clients = vec![];
        for seed in 0..200 {
            clients.push(client(&server, "zk:1,zk:2,zk:3", seed).await);
        }
        let count = |ports: &[u16]| {
            clients.iter().filter(|(_, attempts)| ports.contains(&last(attempts))).count()
        };
        for (client, _) in &clients {
            client.set_hosts("zk:1,zk:2,zk:3,zk:4").expect("it is valid");
        }
        sleep_ms(5_000).await;
        let moved = count(&[4]);
        assert!((30..=70).contains(&moved), "{moved} of 200 moved to the fourth server");
        let before: Vec<_> = clients.iter().map(|(client, _)| client.status().connection).collect();
        let staying = count(&[1, 2, 3]);
        for (client, _) in &clients {
            client.set_hosts("zk:1,zk:2,zk:3").expect("it is valid");
        }
        sleep_ms(5_000).await;
        let after: Vec<_> = clients.iter().map(|(client, _)| client.status().connection).collect();
        let stayed = before.iter().zip(&after).filter(|(before, after)| before == after).count();
        assert_eq!((stayed, count(&[4])), (staying, 0));
    });
}

#[test]
fn a_client_without_a_connection_uses_the_new_list() {
    run(async {
        let server = TestServer::start(ServerConfig::default());
        let (client, attempts) = client(&server, "zk:1", 1).await;
        let session = client.session_id();
        server.refuse_for(std::time::Duration::from_secs(3));
        server.disconnect_all();
        sleep_ms(1_000).await;
        client.set_hosts("zk:7").expect("it is valid");
        client.exists("/").await.expect("the server returns");
        assert_eq!((last(&attempts), client.session_id()), (7, session));
    });
}

#[test]
fn other_lists_are_refused() {
    run(async {
        let server = TestServer::start(ServerConfig::default());
        let (client, attempts) = client(&server, "zk:1/app", 1).await;
        for bad in ["", "a,,b", "zk:1/other", "zk:x"] {
            let error = client.set_hosts(bad).expect_err("it is invalid");
            assert!(!matches!(error, ConfigError::Thread { .. }), "{error}");
        }
        let error = client.set_hosts("zk:1/other").expect_err("it has another chroot").to_string();
        assert!(error.contains("chroot of a client cannot be changed"), "{error}");
        client.set_hosts("zk:2/app").expect("it has the same chroot");
        client.exists("/").await.expect("the server answers");
        assert_eq!(last(&attempts), 2);
    });
}
