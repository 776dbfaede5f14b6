//! Following the servers that the ensemble names in `/zookeeper/config`.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jute_codec::{Acl, ErrorCode, OpCode, Permissions};
use zk_session::{Client, ClientBuilder, Clock, CreateMode, Host, Member, Reconfig, SessionState};
use zk_tests::wait::status;
use zk_tests::world::{run_within, sleep_ms};
use zk_testserver::{Action, ServerConfig, ServerVersion, TestServer};

use crate::at_op;

/// Virtual time within which a test ends.
const DAY: Duration = Duration::from_secs(24 * 3600);
const CONFIG: &str = "/zookeeper/config";
/// The digest of `super:pw`.
const SUPER: &str = "super:0bX78nEegDzJM3ju0iLBEJdWzjg=";

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().expect("no thread panics while it has the lock")
}

/// A network in which all hosts are the same server, and some cannot be reached. Those whose names
/// begin with `hole` do not even refuse.
#[derive(Clone)]
struct Net {
    server: TestServer,
    dead: Arc<Mutex<BTreeSet<String>>>,
    attempts: Arc<Mutex<Vec<String>>>,
}

impl Net {
    fn new() -> Self {
        Self::with(ServerConfig::default())
    }

    fn with(config: ServerConfig) -> Self {
        let server = TestServer::start(config);
        Self { server, dead: Arc::default(), attempts: Arc::default() }
    }

    /// Nobody reaches these hosts, and connections to them end.
    fn set_dead(&self, hosts: &[&str]) {
        *locked(&self.dead) = hosts.iter().map(ToString::to_string).collect();
        self.server.disconnect_all();
    }

    /// Publishes this configuration.
    fn publish(&self, version: u64, lines: &[&str]) {
        let text = format!("{}\nversion={version:x}", lines.join("\n"));
        self.server.admin_set_data(CONFIG, text.as_bytes());
    }

    /// Publishes servers with these names.
    fn publish_names(&self, version: u64, names: &[&str]) {
        let line = |(id, name): (usize, &&str)| format!("server.{id}={name}:2888:3888;2181");
        let lines: Vec<_> = names.iter().enumerate().map(line).collect();
        self.publish(version, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    }

    fn builder(&self, hosts: &str) -> ClientBuilder {
        let (dead, attempts) = (Arc::clone(&self.dead), Arc::clone(&self.attempts));
        let connector = self.server.connector();
        let builder = Client::builder(hosts).clock(Clock::tokio()).lease(None).seed(1);
        builder.session_timeout(Duration::from_secs(30)).transport(move |host: Host| {
            locked(&attempts).push(host.name.clone());
            let connecting = connector(host.clone());
            let is_dead = locked(&dead).contains(&host.name);
            async move {
                if host.name.starts_with("hole") {
                    std::future::pending().await
                } else if is_dead {
                    Err(io::ErrorKind::ConnectionRefused.into())
                } else {
                    connecting.await
                }
            }
        })
    }

    /// Connects a client. A deposed leader may end a session with its first request, and the client
    /// cannot believe that before the session timeout has passed, which is also the usual limit of a
    /// connect.
    async fn client(&self, hosts: &str) -> Client {
        let builder = self.builder(hosts).connect_within(Duration::from_secs(60));
        builder.follow_ensemble().connect().await.expect("a server answers")
    }

    /// Returns the number of reads of the configuration.
    fn reads(&self) -> usize {
        let requests = self.server.requests();
        let is_read = |path: Option<&str>| path == Some(CONFIG);
        requests
            .iter()
            .filter(|it| it.op == OpCode::GET_DATA && is_read(it.path.as_deref()))
            .count()
    }
}

/// Returns the name of the server in use.
fn server(client: &Client) -> String {
    client.health().server.expect("the client is connected").name
}

fn version(client: &Client) -> Option<i64> {
    client.health().config.map(|version| version.0)
}

#[test]
fn a_client_follows_growth_shrinkage_and_the_replacement_of_all_members_with_its_session() {
    run_within(DAY, async {
        let net = Net::new();
        net.publish_names(1, &["a", "b", "c"]);
        let client = net.client("a:2181,b:2181,c:2181").await;
        let session = client.session_id();
        client.create("/e", "", CreateMode::Ephemeral).await.unwrap();
        sleep_ms(1_000).await;
        assert_eq!((version(&client), client.status().connection), (Some(1), 1));
        let steps: [(&[&str], &[&str]); 8] = [
            (&["a", "b", "c", "d"], &[]),
            (&["b", "c", "d"], &["a"]),
            (&["b", "c", "d", "e"], &["a"]),
            (&["c", "d", "e"], &["a", "b"]),
            (&["c", "d", "e", "f"], &["a", "b"]),
            (&["d", "e", "f"], &["a", "b", "c"]),
            (&["f"], &["a", "b", "c", "d", "e"]),
            (&["f", "g"], &["a", "b", "c", "d", "e"]),
        ];
        for (step, (names, dead)) in (2..).zip(steps) {
            net.publish_names(step, names);
            sleep_ms(1_000).await;
            // Those that have left are gone a moment later.
            net.set_dead(dead);
            sleep_ms(5_000).await;
            assert!(names.contains(&server(&client).as_str()), "{} {names:?}", server(&client));
            assert_eq!(version(&client), Some(step.cast_signed()));
        }
        assert_eq!(client.session_id(), session);
        assert!(client.exists("/e").await.unwrap().is_some());
    });
}

#[test]
fn the_configuration_is_read_once_and_after_each_change_and_by_nobody_else() {
    run_within(DAY, async {
        let net = Net::new();
        net.publish_names(1, &["a", "b"]);
        let plain = net.builder("a,b").connect().await.unwrap();
        sleep_ms(3_600_000).await;
        assert_eq!((net.reads(), version(&plain)), (0, None));
        let client = net.client("a,b/app").await;
        sleep_ms(3_600_000).await;
        assert_eq!(net.reads(), 1);
        for _ in 0..3 {
            net.server.disconnect_all();
            sleep_ms(60_000).await;
        }
        assert_eq!(net.reads(), 1, "the watch is restored");
        for change in 2..5 {
            net.publish_names(change, &["a", "b"]);
            sleep_ms(60_000).await;
            assert_eq!(net.reads(), change as usize);
        }
        let [plain, following] = [&plain, &client].map(|it| it.status().connection);
        assert_eq!((plain, following), (4, 4));
        // No server had to be asked whether it can be reached.
        let attempts = locked(&net.attempts).len();
        assert_eq!(attempts, 8);
    });
}

#[test]
fn a_configuration_that_changes_all_the_time_is_read_each_two_seconds() {
    run_within(DAY, async {
        let net = Net::new();
        net.publish_names(1, &["a"]);
        let client = net.client("a").await;
        sleep_ms(60_000).await;
        let before = net.reads();
        for change in 2..602 {
            net.publish_names(change, &["a"]);
            sleep_ms(100).await;
        }
        let reads = net.reads() - before;
        assert!((29..=31).contains(&reads), "{reads}");
        sleep_ms(2_000).await;
        assert_eq!(version(&client), Some(601));
    });
}

#[test]
fn an_older_version_and_another_list_of_the_same_version_change_nothing() {
    run_within(DAY, async {
        let net = Net::new();
        net.publish_names(0x1_0000_0005, &["a"]);
        let client = net.client("z").await;
        status(&client, "the move", |now| now.connection == 2).await;
        for (older, names) in
            [(0x1_0000_0005, "b"), (0x1_0000_0004, "c"), (0, "d"), (0xffff_ffff, "e")]
        {
            net.publish_names(older, &[names]);
            sleep_ms(120_000).await;
            net.server.disconnect_all();
            sleep_ms(120_000).await;
            assert_eq!((server(&client).as_str(), version(&client)), ("a", Some(0x1_0000_0005)));
            // The version also survives the session.
            net.server.expire(client.session_id().expect("it is connected"));
            sleep_ms(120_000).await;
            assert_eq!((server(&client).as_str(), version(&client)), ("a", Some(0x1_0000_0005)));
        }
        net.publish_names(0x1_0000_0006, &["f"]);
        sleep_ms(5_000).await;
        assert_eq!((server(&client).as_str(), version(&client)), ("f", Some(0x1_0000_0006)));
    });
}

#[test]
fn a_list_that_cannot_be_reached_is_used_when_it_can() {
    run_within(DAY, async {
        let net = Net::new();
        net.publish_names(1, &["inner1", "inner2"]);
        *locked(&net.dead) = ["inner1", "inner2"].map(str::to_owned).into();
        let client = net.client("outer").await;
        sleep_ms(3_600_000).await;
        assert_eq!((server(&client).as_str(), client.status().connection), ("outer", 1));
        assert_eq!((net.reads(), version(&client)), (1, None));
        let asked = locked(&net.attempts).len() - 1;
        assert!((100..=124).contains(&asked), "{asked} attempts in an hour at two servers");
        // An older list does not replace the one that waits, and a newer one does.
        net.publish_names(0, &["outer2"]);
        sleep_ms(120_000).await;
        assert_eq!(server(&client), "outer");
        locked(&net.dead).remove("inner2");
        sleep_ms(70_000).await;
        assert_eq!(version(&client), Some(1));
        client.exists("/").await.unwrap();
        assert_eq!(server(&client), "inner2");
    });
}

#[test]
fn the_connect_string_is_the_way_back_when_no_server_of_the_list_is_left() {
    run_within(DAY, async {
        let net = Net::new();
        net.publish_names(1, &["a", "b", "c"]);
        let client = net.client("vip").await;
        let session = client.session_id();
        status(&client, "the move", |now| now.connection == 2).await;
        assert_ne!(server(&client), "vip");
        net.set_dead(&["a", "b", "c"]);
        sleep_ms(20_000).await;
        assert_eq!((server(&client).as_str(), client.session_id()), ("vip", session));
        // It stays there, and prefers the list later.
        sleep_ms(3_600_000).await;
        assert_eq!(server(&client), "vip");
        net.set_dead(&["a", "b"]);
        sleep_ms(20_000).await;
        assert_eq!((server(&client).as_str(), client.session_id()), ("c", session));
        // Servers that are replaced while the client is away are found there too.
        net.set_dead(&["a", "b", "c"]);
        net.publish_names(2, &["d"]);
        sleep_ms(20_000).await;
        assert_eq!((server(&client).as_str(), version(&client)), ("d", Some(2)));
        assert_eq!(client.session_id(), session);
    });
}

#[test]
fn a_list_of_the_user_holds_until_the_ensemble_changes_and_is_the_way_back_then() {
    run_within(DAY, async {
        let net = Net::new();
        net.publish_names(1, &["a"]);
        let client = net.client("z").await;
        status(&client, "the move", |now| now.connection == 2).await;
        client.set_hosts("mine").unwrap();
        sleep_ms(3_600_000).await;
        assert_eq!(server(&client), "mine");
        net.publish_names(2, &["b"]);
        sleep_ms(5_000).await;
        assert_eq!(server(&client), "b");
        net.set_dead(&["b", "a", "z"]);
        sleep_ms(20_000).await;
        assert_eq!(server(&client), "mine");
    });
}

#[test]
fn configurations_without_a_server_that_can_be_used_change_nothing() {
    run_within(DAY, async {
        let net = Net::new();
        let client = net.client("z").await;
        let unusable: [&[&str]; 7] = [
            &[],
            &["server.1=a:2888:3888:participant"],
            &["server.1=0.0.0.0:2888:3888:participant;0.0.0.0:2181"],
            &["server.1=a:2888:3888:participant;127.0.0.1:2181"],
            &["server.1=localhost:2888:3888:participant;[::]:2181"],
            &["server.1=a:2888"],
            &["\u{0}garbage"],
        ];
        for (change, lines) in (1..).zip(unusable) {
            net.publish(change, lines);
            sleep_ms(120_000).await;
            client.exists("/").await.unwrap();
            assert_eq!((server(&client).as_str(), client.status().connection), ("z", 1));
            assert_eq!((version(&client), net.reads() as u64), (None, change + 1));
        }
        for text in ["", "server.1=a:2888:3888;2181", "server.1=a:2888:3888;2181\nversion=x"] {
            net.server.admin_set_data(CONFIG, text.as_bytes());
            sleep_ms(120_000).await;
            assert_eq!((server(&client).as_str(), version(&client)), ("z", None));
        }
        // Members that cannot be used do not keep the client from the others.
        net.publish(20, &["server.1=a:1:2", "server.2=x|y", "server.3=b:1:2|c:1:2:observer;2181"]);
        sleep_ms(5_000).await;
        assert!(["b", "c"].contains(&server(&client).as_str()));
        assert_eq!(version(&client), Some(20));
    });
}

#[test]
fn a_refusal_that_lasts_is_asked_less_and_less_and_its_end_is_found() {
    run_within(DAY, async {
        let net = Net::with(ServerConfig::default().super_digest(SUPER));
        net.publish_names(1, &["a"]);
        let admin = net.builder("z").auth("digest", "super:pw").connect().await.unwrap();
        let acl = |permissions| vec![Acl::new(permissions, "world", "anyone")];
        admin.set_acl(CONFIG, acl(Permissions::WRITE), None).await.unwrap();
        let client = net.client("z").await;
        sleep_ms(600_000).await;
        let first = net.reads();
        assert!((8..=12).contains(&first), "{first} reads in ten minutes");
        sleep_ms(6 * 3_600_000).await;
        let later = net.reads() - first;
        assert!((36..=72).contains(&later), "{later} reads in six hours");
        assert_eq!((server(&client).as_str(), client.status().connection), ("z", 1));
        assert_eq!(net.server.watch_count(), 0);
        admin.set_acl(CONFIG, acl(Permissions::READ), None).await.unwrap();
        sleep_ms(600_000).await;
        assert_eq!((server(&client).as_str(), version(&client)), ("a", Some(1)));
    });
}

#[test]
fn servers_without_a_configuration_are_used_as_ever() {
    for server_version in [ServerVersion::V3_4, ServerVersion::Keeper] {
        run_within(DAY, async move {
            let net = Net::with(ServerConfig::default().version(server_version));
            let client = net.client("z").await;
            sleep_ms(3_600_000).await;
            client.exists("/").await.unwrap();
            assert_eq!((server(&client).as_str(), client.status().connection), ("z", 1));
            assert!(net.reads() <= 20, "{}", net.reads());
        });
    }
    // A server that runs alone has an empty configuration.
    run_within(DAY, async {
        let net = Net::new();
        let client = net.client("z").await;
        sleep_ms(3_600_000).await;
        assert_eq!((net.reads(), version(&client), server(&client).as_str()), (1, None, "z"));
    });
}

#[test]
fn no_cut_and_no_end_of_a_session_misses_a_change() {
    let moments = [
        (OpCode::GET_DATA, Action::CutBefore),
        (OpCode::GET_DATA, Action::CutAfter),
        (OpCode::GET_DATA, Action::CutAtReplyByte(9)),
        (OpCode::GET_DATA, Action::Expire),
        (OpCode::GET_DATA, Action::Freeze),
        (OpCode::GET_DATA, Action::Error(ErrorCode::NO_AUTH)),
        (OpCode::GET_DATA, Action::Error(ErrorCode::CONNECTION_LOSS)),
        (OpCode::SET_WATCHES, Action::CutBefore),
        (OpCode::SET_WATCHES, Action::CutAfter),
    ];
    for (op, action) in moments {
        for is_expired in [false, true] {
            let action = action.clone();
            run_within(DAY, async move {
                let net = Net::new();
                net.publish_names(1, &["a"]);
                net.server.inject(at_op(op, action.clone()));
                let client = net.client("a").await;
                sleep_ms(120_000).await;
                // The change happens while the client is away.
                net.server.refuse_for(Duration::from_secs(5));
                net.server.disconnect_all();
                sleep_ms(2_000).await;
                net.publish_names(2, &["b"]);
                if is_expired {
                    net.server.expire(client.session_id().expect("it is suspended"));
                }
                net.server.inject(at_op(op, action.clone()));
                sleep_ms(180_000).await;
                assert_eq!(version(&client), Some(2), "{op:?} {action:?} {is_expired}");
                net.publish_names(3, &["c"]);
                sleep_ms(180_000).await;
                assert_eq!((server(&client).as_str(), version(&client)), ("c", Some(3)));
            });
        }
    }
}

#[test]
fn following_ends_with_the_client_and_keeps_nothing_open() {
    for is_closed in [true, false] {
        for is_pending in [true, false] {
            run_within(DAY, async move {
                let net = Net::new();
                net.publish_names(1, &["a"]);
                if is_pending {
                    locked(&net.dead).insert("a".to_owned());
                }
                let client = net.client("z").await;
                sleep_ms(10_000).await;
                if is_closed {
                    client.close().await;
                }
                drop(client);
                sleep_ms(10_000).await;
                assert_eq!(net.server.sessions(), vec![]);
                let attempts = locked(&net.attempts).len();
                sleep_ms(3_600_000).await;
                assert_eq!(locked(&net.attempts).len(), attempts);
                assert_eq!(Arc::strong_count(&net.dead), 1, "the transport is dropped");
            });
        }
    }
}

#[test]
fn a_limit_of_operations_does_not_concern_the_clients_own_read() {
    run_within(DAY, async {
        let net = Net::new();
        net.publish_names(1, &["a"]);
        let builder = net.builder("a").outstanding_limit(1).follow_ensemble();
        let client = builder.start().unwrap();
        let operation = client.exists("/");
        operation.await.expect("there is room for it");
        sleep_ms(1_000).await;
        assert_eq!((version(&client), client.health().pending), (Some(1), 0));
        // It is not refused itself either.
        net.server.inject(at_op(OpCode::EXISTS, Action::Delay(Duration::from_secs(5))));
        let operation = client.exists("/");
        net.publish_names(2, &["a", "b"]);
        operation.await.unwrap();
        sleep_ms(1_000).await;
        assert_eq!(version(&client), Some(2));
    });
}

#[test]
fn a_reconfiguration_by_a_client_is_followed_by_the_others() {
    run_within(DAY, async {
        let config = ServerConfig::default().reconfig_enabled(true).super_digest(SUPER);
        let servers = "server.1=a:2888:3888|aa:2888:3888;0.0.0.0:2181\n\
                       server.2=b:2888:3888;c2:2182\nserver.3=c:2888:3888:observer;2181";
        let net = Net::with(config.dynamic_config(servers));
        let admin = net.builder("z").auth("digest", "super:pw").connect().await.unwrap();
        let client = net.client("z").await;
        sleep_ms(5_000).await;
        assert!(["a", "aa", "c2", "c"].contains(&server(&client).as_str()));
        assert_eq!(version(&client), Some(0));
        let client_address = Host { name: "0.0.0.0".into(), port: 2181 };
        let joining = Member::new(4, "d1", 2888, 3888).address("d2", 2888, 3888);
        let change = Reconfig::incremental().join(joining.client(client_address)).leave(3);
        let changed = admin.reconfig(change).await.unwrap();
        sleep_ms(5_000).await;
        assert_eq!(client.health().config, changed.version);
        let members = ["a", "aa", "c2", "d1", "d2"];
        assert!(members.contains(&server(&client).as_str()), "{}", server(&client));
    });
}

#[test]
fn a_read_only_server_shows_what_it_knows() {
    run_within(DAY, async {
        let net = Net::with(ServerConfig::default().members(3));
        net.publish_names(1, &["a"]);
        let builder = net.builder("z").read_only().follow_ensemble();
        net.server.partition();
        let client = builder.connect().await.unwrap();
        assert_eq!(client.state(), SessionState::ConnectedReadOnly);
        sleep_ms(5_000).await;
        net.server.heal();
        net.publish_names(2, &["b"]);
        status(&client, "a server that accepts writes", |now| now.state == SessionState::Connected)
            .await;
        sleep_ms(120_000).await;
        assert_eq!((server(&client).as_str(), version(&client)), ("b", Some(2)));
    });
}

/// Each of them takes three seconds to show that it cannot be reached.
#[test]
fn a_newer_configuration_is_found_soon_behind_one_with_hundreds_of_silent_servers() {
    run_within(DAY, async {
        let net = Net::new();
        let holes: Vec<_> = (0..200).map(|number| format!("hole{number}")).collect();
        net.publish_names(1, &holes.iter().map(String::as_str).collect::<Vec<_>>());
        let client = net.client("z").await;
        sleep_ms(5_000).await;
        net.publish_names(2, &["a"]);
        sleep_ms(40_000).await;
        assert_eq!((server(&client).as_str(), version(&client)), ("a", Some(2)));
    });
}
