//! Lists of servers that are kept elsewhere.

use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use zk_session::{Client, ClientBuilder, Clock, CreateMode, Host, SessionState};
use zk_tests::wait::{soon, status};
use zk_tests::world::{run_within, sleep_ms};
use zk_testserver::{ServerConfig, TestServer};

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().expect("no thread panics while it has the lock")
}

/// Virtual time within which a test ends.
const HOUR: Duration = Duration::from_secs(3600);

/// What look-ups do.
#[derive(Clone)]
enum Answer {
    Ports(Vec<u16>),
    Names(Vec<&'static str>),
    Fails,
    IsSilent,
}

/// A registry of servers, and the ports to which its clients have connected.
#[derive(Clone)]
struct Registry {
    answer: Arc<Mutex<Answer>>,
    look_ups: Arc<Mutex<usize>>,
    ports: Arc<Mutex<Vec<u16>>>,
}

impl Registry {
    fn new(answer: Answer) -> Self {
        let answer = Arc::new(Mutex::new(answer));
        Self { answer, look_ups: Arc::default(), ports: Arc::default() }
    }

    fn set(&self, answer: Answer) {
        *locked(&self.answer) = answer;
    }

    fn look_ups(&self) -> usize {
        *locked(&self.look_ups)
    }

    /// Returns the number of look-ups in this time.
    async fn look_ups_within(&self, millis: u64) -> usize {
        let before = self.look_ups();
        sleep_ms(millis).await;
        self.look_ups() - before
    }

    fn last_port(&self) -> u16 {
        *locked(&self.ports).last().expect("there was an attempt")
    }

    async fn look_up(self) -> io::Result<Vec<Host>> {
        *locked(&self.look_ups) += 1;
        let answer = locked(&self.answer).clone();
        let named = |name: &str, port| Host { name: name.to_owned(), port };
        match answer {
            Answer::Ports(ports) => Ok(ports.into_iter().map(|port| named("zk", port)).collect()),
            Answer::Names(names) => Ok(names.into_iter().map(|name| named(name, 1)).collect()),
            Answer::Fails => Err(io::Error::other("the registry is down")),
            Answer::IsSilent => pending().await,
        }
    }

    /// A client whose hosts are all the same server.
    fn client(&self, server: &TestServer, hosts: &str) -> ClientBuilder {
        let (registry, ports, connector) =
            (self.clone(), Arc::clone(&self.ports), server.connector());
        let builder = Client::builder(hosts).clock(Clock::tokio()).lease(None).seed(1);
        builder.host_source(move || registry.clone().look_up()).transport(move |host: Host| {
            locked(&ports).push(host.port);
            connector(host)
        })
    }
}

#[test]
fn a_client_follows_the_list_with_its_session_and_looks_it_up_each_minute() {
    run_within(HOUR, async {
        let server = TestServer::start(ServerConfig::default());
        let registry = Registry::new(Answer::Ports(vec![1, 2]));
        let client = registry.client(&server, "zk:1,zk:2").connect().await.unwrap();
        let session = client.session_id();
        let asked = registry.look_ups_within(590_000).await;
        assert_eq!(asked, 9, "one each minute");
        // The same servers in another order, or twice, are the same list.
        registry.set(Answer::Ports(vec![2, 1, 2]));
        sleep_ms(61_000).await;
        assert_eq!(client.status().connection, 1);
        registry.set(Answer::Ports(vec![3, 4]));
        sleep_ms(61_000).await;
        assert!(matches!(registry.last_port(), 3 | 4), "{:?}", registry.ports);
        assert_eq!((client.session_id(), client.status().connection), (session, 2));
        client.exists("/").await.unwrap();
    });
}

#[test]
fn the_first_list_replaces_the_connect_string() {
    run_within(HOUR, async {
        let server = TestServer::start(ServerConfig::default());
        let registry = Registry::new(Answer::Ports(vec![7]));
        let client = registry.client(&server, "zk:1").connect().await.unwrap();
        sleep_ms(1_000).await;
        assert_eq!((registry.last_port(), client.status().state), (7, SessionState::Connected));
    });
}

#[test]
fn a_client_without_a_server_finds_the_new_ones_soon_and_asks_at_a_bounded_rate() {
    run_within(HOUR, async {
        let server = TestServer::start(ServerConfig::default());
        let registry = Registry::new(Answer::Ports(vec![1]));
        let client = registry.client(&server, "zk:1").connect().await.unwrap();
        sleep_ms(1_000).await;
        server.refuse_for(Duration::from_secs(300));
        server.disconnect_all();
        let asked = registry.look_ups_within(290_000).await;
        assert!((50..=59).contains(&asked), "{asked} look-ups in 290 s");
        registry.set(Answer::Ports(vec![8]));
        sleep_ms(15_000).await;
        assert_eq!(registry.last_port(), 8, "{:?}", registry.ports);
        status(&client, "the return", |now| now.state == SessionState::Connected).await;
        assert!(registry.look_ups_within(59_000).await <= 1);
    });
}

#[test]
fn a_list_that_cannot_be_used_changes_nothing_until_there_is_one() {
    run_within(HOUR, async {
        let server = TestServer::start(ServerConfig::default());
        let registry = Registry::new(Answer::Fails);
        let client = registry.client(&server, "zk:1").connect().await.unwrap();
        let unusable = [
            Answer::Fails,
            Answer::IsSilent,
            Answer::Ports(vec![]),
            Answer::Ports(vec![0]),
            Answer::Names(vec![""]),
            Answer::Names(vec!["a,b"]),
            Answer::Names(vec!["zk", "a/b"]),
        ];
        for answer in unusable {
            registry.set(answer);
            let asked = registry.look_ups_within(240_000).await;
            // A silent look-up takes ten seconds.
            assert!((3..=5).contains(&asked), "{asked}");
            client.exists("/").await.unwrap();
            assert_eq!((registry.last_port(), client.status().connection), (1, 1));
        }
        registry.set(Answer::Ports(vec![2]));
        sleep_ms(71_000).await;
        assert_eq!(registry.last_port(), 2);
    });
}

#[test]
fn look_ups_end_with_the_client() {
    for answer in [Answer::Ports(vec![1]), Answer::Fails, Answer::IsSilent] {
        for is_closed in [true, false] {
            let answer = answer.clone();
            run_within(HOUR, async move {
                let server = TestServer::start(ServerConfig::default());
                let registry = Registry::new(answer);
                let client = registry.client(&server, "zk:1").connect().await.unwrap();
                sleep_ms(1_000).await;
                if is_closed {
                    client.close().await;
                }
                drop(client);
                sleep_ms(1_000).await;
                assert_eq!(registry.look_ups_within(600_000).await, 0);
                assert_eq!(Arc::strong_count(&registry.answer), 1, "the source is dropped");
            });
        }
    }
}

#[tokio::test]
async fn a_session_with_a_thread_of_its_own_follows_its_list_there() {
    let server = TestServer::start(ServerConfig::default());
    let address = server.listen("127.0.0.1:0").await.unwrap();
    let seen = Arc::new(Mutex::new(None));
    let looked_up = Arc::clone(&seen);
    let found = Host { name: address.ip().to_string(), port: address.port() };
    // Nobody listens on port 1, so the client connects only with the list of its source.
    let client = Client::builder("127.0.0.1:1").dedicated_thread().host_source(move || {
        *locked(&looked_up) = std::thread::current().name().map(str::to_owned);
        let found = found.clone();
        async move { Ok(vec![found]) }
    });
    let client = soon("the connection", client.connect()).await.unwrap();
    assert_eq!(locked(&seen).as_deref(), Some("zk-session"));
    client.close().await;
}

#[tokio::test]
async fn a_look_up_that_panics_ends_nothing_else() {
    let server = TestServer::start(ServerConfig::default());
    let builder = Client::builder("in-process").transport(server.connector());
    let has_begun = Arc::new(Mutex::new(false));
    let begins = Arc::clone(&has_begun);
    let source = move || {
        *locked(&begins) = true;
        async { std::panic::resume_unwind(Box::new("as planned")) }
    };
    let client = soon("the connection", builder.host_source(source).connect()).await.unwrap();
    client.create("/a", "", CreateMode::Persistent).await.unwrap();
    assert!(*locked(&has_begun));
    // The source was dropped with the task.
    let dropped = async {
        while Arc::strong_count(&has_begun) > 1 {
            sleep_ms(1).await;
        }
    };
    soon("the end of the task", dropped).await;
    client.exists("/a").await.unwrap().expect("the session lives on");
}
