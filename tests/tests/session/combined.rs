//! Features that meet: lists of servers and read-only servers, hand-overs and watches or waiting
//! requests.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use zk_session::{
    Client, Clock, CreateMode, EventType, GapCause, Host, OpError, Outcome, SessionState,
    SessionTicket, WatchEnded, WatchItem, WatchMode,
};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{ServerConfig, TestServer};

use crate::queued;

const PERSISTENT: CreateMode = CreateMode::Persistent;
const EPHEMERAL: CreateMode = CreateMode::Ephemeral;

/// An ensemble whose members are reached at ports: 1 and 4 lead to the member 1, 2 to the leader, 3
/// to nobody.
#[derive(Clone)]
struct Ensemble {
    server: TestServer,
    /// Whether the leader can be reached. This takes a while.
    is_open: Arc<AtomicBool>,
    /// The ports of the attempts to connect and of the searches, in their order.
    attempts: Arc<Mutex<Vec<u16>>>,
}

impl Ensemble {
    fn start() -> Self {
        let server = TestServer::start(ServerConfig::default().members(2));
        Self { server, is_open: Arc::default(), attempts: Arc::default() }
    }

    /// Connects a client to the member 1.
    async fn client(&self, hosts: &str) -> Client {
        let this = self.clone();
        let transport = move |host: Host| {
            let this = this.clone();
            async move {
                this.attempts.lock().expect("no thread panics").push(host.port);
                match host.port {
                    1 | 4 => this.server.member(1).connect(),
                    2 if this.is_open.load(Relaxed) => {
                        sleep_ms(500).await;
                        this.server.connect()
                    }
                    _ => Err(std::io::ErrorKind::ConnectionRefused.into()),
                }
            }
        };
        let builder = Client::builder(hosts).clock(Clock::tokio()).lease(None).seed(1);
        let builder = builder.transport(transport).read_only();
        builder.connect().await.expect("a member answers")
    }

    fn attempts(&self) -> Vec<u16> {
        self.attempts.lock().expect("no thread panics").clone()
    }
}

async fn until(client: &Client, state: SessionState) {
    let mut states = client.states();
    while states.current().state != state {
        states.next().await.expect("the client continues");
    }
}

#[test]
fn a_client_leaves_a_read_only_server_for_one_of_the_new_list_and_keeps_its_session() {
    run(async {
        let ensemble = Ensemble::start();
        let client = ensemble.client("zk:1").await;
        client.create("/e", "", EPHEMERAL).await.expect("it is new");
        let mut watcher = client.get_data_and_watch("/e").await.expect("it exists").1;
        let session = client.session_id();
        ensemble.server.member(1).partition();
        until(&client, SessionState::ConnectedReadOnly).await;
        ensemble.is_open.store(true, Relaxed);
        client.set_hosts("zk:2").expect("it is valid");
        until(&client, SessionState::Connected).await;
        assert_eq!((client.session_id(), ensemble.attempts().last()), (session, Some(&2)));
        client.set_data("/e", "x", None).await.expect("the server accepts writes");
        let event = watcher.changed().await.expect("the watch was restored");
        assert_eq!(event.kind, EventType::NODE_DATA_CHANGED);
        assert_eq!(ensemble.server.sessions().len(), 1, "no other session is left");
    });
}

#[test]
fn a_client_may_move_from_one_read_only_server_to_another_and_back_to_its_session() {
    run(async {
        let ensemble = Ensemble::start();
        let client = ensemble.client("zk:1").await;
        client.create("/e", "x", EPHEMERAL).await.expect("it is new");
        let session = client.session_id();
        ensemble.server.member(1).partition();
        until(&client, SessionState::ConnectedReadOnly).await;
        let reads: Vec<_> = (0..10).map(|_| client.get_data("/e")).collect();
        client.set_hosts("zk:4,zk:3").expect("it is valid");
        for read in reads {
            assert_eq!(read.await.expect("its reply is awaited").0, "x");
        }
        assert_eq!(client.get_data("/e").await.expect("it moves").0, "x");
        assert_eq!(client.health().server.expect("it is connected").port, 4);
        ensemble.server.member(1).heal();
        until(&client, SessionState::Connected).await;
        assert_eq!(client.session_id(), session);
        client.set_data("/e", "y", None).await.expect("the server accepts writes");
        assert!(!ensemble.attempts().contains(&2));
    });
}

/// A search for a server that accepts writes has begun with a server of the old list.
#[test]
fn a_server_that_has_left_the_list_is_not_used_because_it_accepts_writes() {
    for list in ["zk:1,zk:3", "zk:4,zk:3"] {
        run(async {
            let ensemble = Ensemble::start();
            let client = ensemble.client("zk:1,zk:2").await;
            ensemble.server.member(1).partition();
            until(&client, SessionState::ConnectedReadOnly).await;
            ensemble.is_open.store(true, Relaxed);
            let before = ensemble.attempts().len();
            while !ensemble.attempts()[before..].contains(&2) {
                sleep_ms(1).await;
            }
            assert_eq!(client.state(), SessionState::ConnectedReadOnly);
            client.set_hosts(list).expect("it is valid");
            let before = ensemble.attempts().len();
            sleep_ms(10_000).await;
            let after = &ensemble.attempts()[before..];
            assert!(!after.contains(&2), "{list}: {after:?}");
            assert_eq!(client.state(), SessionState::ConnectedReadOnly, "{list}");
        });
    }
}

async fn resume(world: &World, ticket: SessionTicket) -> Client {
    let client = world.client_with(2, |builder| builder.resume(ticket)).await;
    assert_eq!(client.state(), SessionState::Connected);
    client
}

#[test]
fn watches_end_with_a_hand_over_and_the_heir_has_its_own() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(1).await, world.client(3).await);
        client.create("/a", "", PERSISTENT).await.expect("it is new");
        let mut data = client.get_data_and_watch("/a").await.expect("it exists").1;
        let mut list = client.get_children_and_watch("/a").await.expect("it exists").1;
        let mut missing = client.exists_and_watch("/missing").await.expect("a watch").1;
        let mut node = client.watch("/a", WatchMode::Persistent).await.expect("a watch");
        let mut tree = client.watch("/a", WatchMode::Recursive).await.expect("a watch");
        let ticket = client.hand_over().await.expect("there is a session");
        for watcher in [&mut data, &mut list, &mut missing] {
            assert_eq!(watcher.changed().await, Err(WatchEnded::Closed));
        }
        for stream in [&mut node, &mut tree] {
            assert_eq!(stream.next().await, Err(WatchEnded::Closed));
        }
        // A change while nobody has the session.
        other.set_data("/a", "1", None).await.expect("it exists");

        let heir = resume(&world, ticket).await;
        assert_eq!(world.server.watch_count(), 0, "the server has no watch of the old connection");
        let (read, mut data) = heir.get_data_and_watch("/a").await.expect("it exists");
        assert_eq!(read.0, "1");
        let mut missing = heir.exists_and_watch("/missing").await.expect("a watch").1;
        let mut tree = heir.watch("/a", WatchMode::Recursive).await.expect("a watch");
        // Watches of the heir, and no others, are restored, with the heir's zxid.
        world.server.refuse_for(Duration::from_secs(1));
        world.server.disconnect_all();
        until(&heir, SessionState::Suspended).await;
        world.server.admin_create("/missing", b"", None);
        until(&heir, SessionState::Connected).await;
        assert_eq!(tree.next().await, Ok(WatchItem::Gap(GapCause::Reconnected)));
        assert_eq!(missing.changed().await.expect("it fires").kind, EventType::NODE_CREATED);
        other.set_data("/a", "2", None).await.expect("it exists");
        assert_eq!(data.changed().await.expect("it fires").kind, EventType::NODE_DATA_CHANGED);
        let WatchItem::Event(event) = tree.next().await.expect("the session lives") else {
            panic!("a gap")
        };
        assert_eq!((event.kind, event.path.as_ref()), (EventType::NODE_DATA_CHANGED, "/a"));
        assert_eq!(world.server.watch_count(), 1, "the stream");
    });
}

/// Some of a thousand requests are in flight, some wait because the connection is busy.
#[test]
fn a_hand_over_of_a_thousand_requests_tells_what_became_of_each() {
    for delay_ms in [0, 1, 10, 20, 30] {
        run(async {
            let world = World::new().pace(queued::PACE);
            let client = queued::client(&world).await;
            world.server.admin_create("/q", b"", None);
            let requests = queued::issue(&client, 0);
            sleep_ms(delay_ms).await;
            let ticket = client.hand_over().await.expect("there is a session");
            let results = queued::results(requests).await;
            let applied = queued::applied(&world);
            assert_eq!(applied, (0..applied.len()).collect::<Vec<_>>(), "without a gap");
            for (index, result) in results.iter().enumerate() {
                match result {
                    Ok(_) => assert!(index < applied.len(), "{index} was applied"),
                    Err(OpError::Closed { outcome: Outcome::NotApplied, .. }) => {
                        assert!(index >= applied.len(), "{index} was not applied");
                    }
                    Err(error) => panic!("{index} failed with {error}"),
                }
            }
            assert!(applied.len() < results.len(), "after {delay_ms} ms: some were waiting");
            assert!(delay_ms == 0 || !applied.is_empty(), "after {delay_ms} ms: some were sent");
            let heir = resume(&world, ticket).await;
            let next = heir.create("/q/next-", "", CreateMode::PersistentSequential).await;
            let next = next.expect("the directory exists").path;
            assert_eq!(
                next,
                format!("/q/next-{:010}", applied.len()),
                "nothing is still on its way"
            );
        });
    }
}
