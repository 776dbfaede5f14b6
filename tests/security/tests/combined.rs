//! SASL and TLS together with lists of servers that change, with read-only servers, and with
//! hand-overs.

#[path = "support/network.rs"]
mod network;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use network::Network;
use zk_session::{
    Acl, Client, ClientBuilder, Clock, CreateMode, CreateOptions, EventType, Host, Op, OpError,
    Permissions, Sasl, SessionState, Transport,
};
use zk_tests::world::{run, sleep_ms};
use zk_testserver::{ServerConfig, TestServer};

const PASSWORD: &str = "alice-secret";

fn server() -> TestServer {
    let config = ServerConfig::default().sasl_user("alice", PASSWORD).sasl_required(true);
    TestServer::start(config)
}

fn builder(hosts: &str) -> ClientBuilder {
    Client::builder(hosts)
        .clock(Clock::tokio())
        .seed(1)
        .sasl(Sasl::digest_md5("alice", PASSWORD))
        .session_timeout(Duration::from_secs(20))
        .connect_within(Duration::from_secs(60))
}

/// Creates a znode that only the user of SASL can read.
async fn create_secret(client: &Client) {
    let acl = vec![Acl::new(Permissions::ALL, "sasl", "alice")];
    let options = CreateOptions::from(CreateMode::Ephemeral).acl(acl);
    client.create("/secret", "x", options).await.expect("it is new");
}

async fn until(client: &Client, state: SessionState) {
    let mut states = client.states();
    while states.current().state != state {
        states.next().await.expect("the client continues");
    }
}

/// Records the ports to which a client connects.
fn recorded(ports: &Arc<Mutex<Vec<u16>>>, transport: impl Transport) -> impl Transport {
    let (ports, transport) = (Arc::clone(ports), Arc::new(transport));
    move |host: Host| {
        ports.lock().expect("no thread panics").push(host.port);
        let attempt = zk_session::Attempt::new(0, Duration::from_secs(10));
        transport.connect(host, attempt)
    }
}

#[test]
fn a_client_authenticates_again_where_a_new_list_leads_it() {
    for with_tls in [false, true] {
        run(async move {
            let (server, network) = (server(), Network::default());
            let ports = Arc::default();
            let builder = builder("in-process:1");
            let builder = if with_tls {
                builder.transport(recorded(&ports, network.tls(&server)))
            } else {
                builder.transport(recorded(&ports, network.plain(&server)))
            };
            let client = builder.connect().await.expect("the password is right");
            create_secret(&client).await;
            let mut watcher = client.get_data_and_watch("/secret").await.expect("it exists").1;
            let session = client.session_id();
            for port in 2..5 {
                client.set_hosts(&format!("in-process:{port}")).expect("it is valid");
                // These wait until SASL is complete on the next connection.
                let reads: Vec<Op<_>> = (0..100).map(|_| client.get_data("/secret")).collect();
                for read in reads {
                    read.await.expect("the client is alice there too");
                }
                assert_eq!(ports.lock().expect("no thread panics").last(), Some(&port));
                assert_eq!(client.session_id(), session);
                assert_eq!(client.status().connection, u64::from(port));
            }
            // The list changes again while the client authenticates, once at each moment.
            for port in 5..60 {
                client.set_hosts(&format!("in-process:{port}")).expect("it is valid");
                for _ in 0..port % 11 {
                    tokio::task::yield_now().await;
                }
            }
            client.get_data("/secret").await.expect("it ends at the last one");
            assert_eq!(ports.lock().expect("no thread panics").last(), Some(&59));
            assert_eq!(client.session_id(), session);
            client.set_data("/secret", "y", None).await.expect("alice may");
            let event = watcher.changed().await.expect("the watch was restored");
            assert_eq!(event.kind, EventType::NODE_DATA_CHANGED);
            assert_eq!(server.sessions().len(), 1, "no other session is left");
        });
    }
}

#[test]
fn a_read_only_server_behind_tls_and_sasl_serves_reads_until_it_accepts_writes() {
    run(async {
        let (server, network) = (server(), Network::default());
        let builder = builder("in-process").transport(network.tls(&server)).read_only();
        let client = builder.connect().await.expect("the password is right");
        create_secret(&client).await;
        let session = client.session_id();
        for _ in 0..3 {
            server.partition();
            until(&client, SessionState::ConnectedReadOnly).await;
            assert_eq!(client.get_data("/secret").await.expect("alice may").0, "x");
            client.set_data("/secret", "z", None).await.expect_err("the server is read-only");
            // Meanwhile the client asks servers, behind TLS, whether they accept writes.
            sleep_ms(30_000).await;
            assert_eq!(
                (client.state(), client.session_id()),
                (SessionState::ConnectedReadOnly, session)
            );
            server.heal();
            until(&client, SessionState::Connected).await;
            assert_eq!(client.session_id(), session);
            client.set_data("/secret", "x", None).await.expect("alice may");
        }
        assert_eq!(server.sessions().len(), 1, "no other session is left");
    });
}

/// Two members behind TLS: one is partitioned, and the search finds the other.
#[test]
fn a_server_that_accepts_writes_is_found_behind_tls() {
    run(async {
        let config = ServerConfig::default().members(2).sasl_user("alice", PASSWORD);
        let server = TestServer::start(config.sasl_required(true));
        let network = Network::default();
        let ways = [network.tls(&server), network.tls(&server.member(1))];
        let is_shut = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let shut = Arc::clone(&is_shut);
        let transport = move |host: Host| {
            let way = ways[usize::from(host.port == 2)].clone();
            let is_refused = host.port == 1 && shut.load(std::sync::atomic::Ordering::Relaxed);
            async move {
                if is_refused {
                    return Err(std::io::ErrorKind::ConnectionRefused.into());
                }
                let attempt = zk_session::Attempt::new(0, Duration::from_secs(10));
                way.connect(host, attempt).await
            }
        };
        let builder = builder("in-process:1,in-process:2").transport(transport).read_only();
        let client = builder.connect().await.expect("the password is right");
        create_secret(&client).await;
        let session = client.session_id();
        server.member(1).partition();
        until(&client, SessionState::ConnectedReadOnly).await;
        is_shut.store(false, std::sync::atomic::Ordering::Relaxed);
        until(&client, SessionState::Connected).await;
        assert_eq!(client.session_id(), session);
        assert_eq!(client.health().server.expect("it is connected").port, 1);
        client.set_data("/secret", "y", None).await.expect("alice may");
    });
}

#[test]
fn a_session_that_is_handed_over_needs_the_credentials_again() {
    run(async {
        let (server, network) = (server(), Network::default());
        let connect = || builder("in-process").transport(network.tls(&server));
        let client = connect().connect().await.expect("the password is right");
        create_secret(&client).await;
        let ticket = client.hand_over().await.expect("there is a session");
        let wrong = connect().sasl(Sasl::digest_md5("alice", "wrong")).resume(ticket.clone());
        wrong.connect().await.expect_err("the ticket alone is not enough");
        let heir = connect().resume(ticket).connect().await.expect("the session lives on");
        assert_eq!(heir.get_data("/secret").await.map(|read| read.0), Ok("x".into()));
        let stat = heir.exists("/secret").await.expect("the server answers");
        assert_eq!(stat.and_then(|stat| stat.ephemeral_owner), heir.session_id());
        let closed: Result<_, OpError> = client.get_data("/secret").await;
        closed.expect_err("it was handed over");
    });
}
