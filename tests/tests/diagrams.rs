//! The sequence diagrams of the documentation, drawn from runs with the in-process server. A change
//! of the requests of a recipe fails here until its page is updated.

use std::future::{IntoFuture as _, Ready, ready};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::kind::Kind;
use zk_recipes::{
    Acquire, Client, ClientBuilder, Clock, CreateMode, DoubleBarrier, Election, ExclusiveLock,
    FairLock, Group, GroupChange, LockState, MultiLock, NamedLocks, Outcome, Presence, RwLock,
    Semaphore, SessionId, SharedValue, WorkQueue,
};
use zk_session::{CloseOutcome, Host, SessionState};
use zk_tests::diagram::{self, Note};
use zk_tests::page;
use zk_tests::picture::{self, Change, Lane};
use zk_tests::scene::{FIRST, SECOND, at_op, session, spawn};
use zk_tests::tap::{Ends, Tap, Tapped};
use zk_tests::world::{SESSION_TIMEOUT, World, run, sleep_ms};
use zk_testserver::{Action, ServerConfig, ServerVersion, TestServer, Until};

/// A run with two clients, from the moment at which they are connected.
struct Run {
    world: World,
    one: Client,
    two: Client,
}

/// Longer than a lease, and shorter than the session timeout.
const OUTAGE: Duration = Duration::from_millis(9_000);
/// When a run begins, after the clients have connected.
const BEGIN: Duration = Duration::from_millis(1_000);

impl Run {
    /// Connects the clients. The directories of the recipe exist.
    async fn start(directories: &[&str]) -> Self {
        Self::start_in(World::new(), directories).await
    }

    async fn start_in(world: World, directories: &[&str]) -> Self {
        let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
        for directory in directories {
            world.server.admin_create(directory, b"", None);
        }
        sleep_ms(1_000).await;
        world.server.clear_requests();
        Self { world, one, two }
    }

    /// Compares the diagram of both clients with the page. The paths are below the directory.
    fn draw(&self, page: &str, name: &str, directory: &str) {
        let clients = [("one", session(&self.one)), ("two", session(&self.two))];
        self.draw_of(&clients, page, name, directory);
    }

    fn draw_of(&self, clients: &[(&str, SessionId)], page: &str, name: &str, directory: &str) {
        self.draw_with(clients, &[], page, name, directory);
    }

    fn draw_with(
        &self,
        clients: &[(&str, SessionId)],
        notes: &[Note],
        page: &str,
        name: &str,
        directory: &str,
    ) {
        let diagram = diagram::draw(&self.world.server, clients, directory, BEGIN, notes);
        page::check(page, name, &diagram);
    }
}

/// The second client waits while the first one holds the lock.
async fn hand_off<K: Kind>(one: Acquire<K>, two: Acquire<K>) {
    let guard = one.await.expect("it is free");
    sleep_ms(200).await;
    let waiter = spawn(two.into_future());
    sleep_ms(300).await;
    guard.release().await.expect("the server is there");
    let guard = waiter.await.expect("no panic").expect("it is free");
    sleep_ms(200).await;
    guard.release().await.expect("the server is there");
}

#[test]
fn a_hand_off_of_a_fair_lock() {
    run(async {
        let run = Run::start(&["/locks", "/locks/x"]).await;
        let lock = |client| FairLock::new(client, "/locks/x").expect("the path is valid");
        hand_off(lock(&run.one).acquire(), lock(&run.two).acquire()).await;
        run.draw("internals/recipes/fair.md", "a hand-off", "/locks/x");
    });
}

#[test]
fn a_create_whose_reply_is_lost() {
    run(async {
        let run = Run::start(&["/locks", "/locks/x"]).await;
        let lost = at_op(session(&run.one), OpCode::CREATE2, Action::CutAfter);
        run.world.server.inject(lost.refuse_for(Duration::from_millis(100)));
        let lock = FairLock::new(&run.one, "/locks/x").expect("the path is valid");
        let guard = lock.acquire().await.expect("it is free");
        guard.release().await.expect("the server is there");
        let clients = [("client", session(&run.one))];
        run.draw_of(&clients, "internals/recipes/fair.md", "a lost reply", "/locks/x");
    });
}

#[test]
fn a_round_of_a_double_barrier() {
    run(async {
        let run = Run::start(&["/barriers", "/barriers/x"]).await;
        let barrier = |client| DoubleBarrier::new(client, "/barriers/x", 2).expect("it is valid");
        let entering = spawn(barrier(&run.one).enter().into_future());
        sleep_ms(200).await;
        let two = barrier(&run.two).enter().await.expect("both have entered");
        let one = entering.await.expect("no panic").expect("both have entered");
        sleep_ms(200).await;
        let leaving = spawn(one.leave().into_future());
        sleep_ms(200).await;
        two.leave().await.expect("both have left");
        leaving.await.expect("no panic").expect("both have left");
        sleep_ms(100).await;
        run.draw("internals/recipes/barrier.md", "a round", "/barriers/x");
    });
}

#[test]
fn an_item_of_a_work_queue() {
    run(async {
        let directories = ["/jobs", "/jobs/entries", "/jobs/taken", "/jobs/puts", "/jobs/takers"];
        let run = Run::start(&directories).await;
        let queue = |client| WorkQueue::new(client, "/jobs").expect("the path is valid");
        let taker = spawn(queue(&run.two).take().into_future());
        sleep_ms(200).await;
        queue(&run.one).put("a").await.expect("the server is there");
        let item = taker.await.expect("no panic").expect("there is an item");
        sleep_ms(300).await;
        item.ack().await.expect("it is leased");
        sleep_ms(100).await;
        run.draw("internals/recipes/work_queue.md", "an item", "/jobs");
    });
}

#[test]
fn a_hand_off_of_an_exclusive_lock() {
    run(async {
        let run = Run::start(&["/locks"]).await;
        let lock = |client| ExclusiveLock::new(client, "/locks/x").expect("the path is valid");
        hand_off(lock(&run.one).acquire(), lock(&run.two).acquire()).await;
        run.draw("internals/recipes/exclusive.md", "a hand-off", "/locks");
    });
}

#[test]
fn a_downgrade_of_a_writer() {
    run(async {
        let run = Run::start(&["/locks", "/locks/x"]).await;
        let lock = |client| RwLock::new(client, "/locks/x").expect("the path is valid");
        let writer = lock(&run.one).write().await.expect("it is free");
        sleep_ms(200).await;
        let waiting = spawn(lock(&run.two).read().into_future());
        sleep_ms(300).await;
        let reader = writer.downgrade().await.expect("the lock is held");
        let other = waiting.await.expect("no panic").expect("readers share it");
        sleep_ms(200).await;
        run.draw("internals/recipes/rwlock.md", "a downgrade", "/locks/x");
        drop((reader, other));
    });
}

#[test]
fn a_write_of_a_shared_value_whose_reply_is_lost() {
    run(async {
        let run = Run::start(&["/values"]).await;
        run.world.server.admin_create("/values/x", b"old", None);
        let lost = at_op(session(&run.one), OpCode::MULTI, Action::CutAfter);
        run.world.server.inject(lost.refuse_for(Duration::from_millis(100)));
        let value = SharedValue::new(&run.one, "/values/x").expect("the path is valid");
        value.set("new").await.expect("the server returns");
        sleep_ms(100).await;
        let clients = [("client", session(&run.one))];
        run.draw_of(&clients, "internals/recipes/shared_value.md", "a lost reply", "/values");
    });
}

#[test]
fn a_change_of_the_leader() {
    run(async {
        let run = Run::start(&["/leader"]).await;
        let election = |client| Election::new(client, "/leader").expect("the path is valid");
        let leadership = election(&run.one).campaign().await.expect("there is no leader");
        sleep_ms(200).await;
        let candidate = spawn(election(&run.two).campaign().into_future());
        sleep_ms(300).await;
        // The name of a client belongs to its first session.
        let clients = [("one", session(&run.one)), ("two", session(&run.two))];
        run.world.server.expire(session(&run.one));
        let next = candidate.await.expect("no panic").expect("the leader is gone");
        sleep_ms(200).await;
        run.draw_of(&clients, "internals/recipes/election.md", "a change of the leader", "/leader");
        drop((leadership, next));
    });
}

#[test]
fn a_directory_of_a_named_lock() {
    run(async {
        let run = Run::start(&["/orders"]).await;
        let locks = |client| NamedLocks::new(client, "/orders").expect("the path is valid");
        let lock = |client| locks(client).lock("7").expect("the name is valid");
        let guard = lock(&run.one).acquire().await.expect("it is free");
        sleep_ms(50).await;
        let waiter = spawn(lock(&run.two).acquire().into_future());
        sleep_ms(50).await;
        guard.release().await.expect("the server is there");
        let guard = waiter.await.expect("no panic").expect("it is free");
        guard.release().await.expect("the server is there");
        sleep_ms(200).await;
        run.draw("internals/recipes/named_locks.md", "a directory", "/orders");
    });
}

#[test]
fn a_permit_that_becomes_free() {
    run(async {
        let run = Run::start(&["/permits", "/permits/x"]).await;
        run.world.server.admin_set_data("/permits/x", b"2");
        let semaphore = |client| Semaphore::new(client, "/permits/x", 2).expect("it is valid");
        let first = semaphore(&run.one).acquire().await.expect("a permit is free");
        sleep_ms(100).await;
        let second = semaphore(&run.one).acquire().await.expect("a permit is free");
        sleep_ms(100).await;
        let waiter = spawn(semaphore(&run.two).acquire().into_future());
        sleep_ms(300).await;
        first.release().await.expect("the server is there");
        let third = waiter.await.expect("no panic").expect("a permit is free");
        sleep_ms(200).await;
        run.draw("internals/recipes/semaphore.md", "a permit", "/permits/x");
        drop((second, third));
    });
}

#[test]
fn a_member_that_leaves() {
    run(async {
        let run = Run::start(&["/members"]).await;
        let group = |client| Group::new(client, "/members").expect("the path is valid");
        let membership = group(&run.one).join("a", "10.0.0.7").await.expect("the id is free");
        sleep_ms(200).await;
        let mut watch = group(&run.two).watch();
        let joined = watch.next().await.expect("it can be listed");
        assert!(matches!(joined, GroupChange::Joined(_)), "{joined:?}");
        sleep_ms(200).await;
        membership.leave().await.expect("the server is there");
        let left = watch.next().await.expect("it can be listed");
        assert!(matches!(left, GroupChange::Left(_)), "{left:?}");
        sleep_ms(200).await;
        run.draw("internals/recipes/group.md", "a member", "/members");
    });
}

#[test]
fn a_presence_that_comes_back() {
    run(async {
        let run = Run::start(&["/services"]).await;
        let builder = Presence::builder(&run.one, "/services/a").expect("the path is valid");
        let presence = builder.begin("10.0.0.7").await.expect("nothing is in the way");
        sleep_ms(200).await;
        run.two.delete("/services/a", None).await.expect("it exists");
        sleep_ms(200).await;
        presence.close().await.expect("the server is there");
        sleep_ms(200).await;
        run.draw("internals/recipes/presence.md", "a presence", "/services");
    });
}

/// Both clients want the same two locks, and name them in opposite orders.
#[test]
fn two_locks_that_are_taken_in_one_order() {
    run(async {
        let run = Run::start(&["/a", "/b"]).await;
        let lock = |client, path| FairLock::new(client, path).expect("the path is valid");
        let both = |client, first, second| {
            let locks = MultiLock::builder().with(lock(client, first)).with(lock(client, second));
            locks.build().expect("the paths differ")
        };
        let guard = both(&run.one, "/a", "/b").acquire().await.expect("they are free");
        sleep_ms(200).await;
        let waiter = spawn(both(&run.two, "/b", "/a").acquire().into_future());
        sleep_ms(300).await;
        guard.release().await.expect("the server is there");
        let guard = waiter.await.expect("no panic").expect("they are free");
        sleep_ms(200).await;
        run.draw("internals/recipes/multi_lock.md", "two locks", "/");
        drop(guard);
    });
}

/// The outage is longer than the lease, and shorter than the session timeout.
#[test]
fn a_lease_that_ends_in_an_outage() {
    run(async {
        let run = Run::start_in(World::new().leased(), &["/locks", "/locks/x"]).await;
        let lock = |client| FairLock::new(client, "/locks/x").expect("the path is valid");
        let guard = lock(&run.one).acquire().await.expect("it is free");
        sleep_ms(200).await;
        let waiter = spawn(lock(&run.two).acquire().into_future());
        sleep_ms(300).await;
        let mut notes = vec![];
        let mut note = |at_ms: u64, client, text: String| {
            notes.push(Note { at: BEGIN + Duration::from_millis(at_ms), client, text });
        };
        note(500, 0, "the servers fail".to_owned());
        run.world.server.refuse_for(OUTAGE);
        run.world.server.disconnect_all();
        let mut state = LockState::Held;
        for tenths in 5..130 {
            if guard.state() != state {
                state = guard.state();
                note(tenths * 100, 0, format!("{state:?}"));
            }
            if waiter.is_finished() {
                note(tenths * 100, 1, "holds the lock".to_owned());
                break;
            }
            sleep_ms(100).await;
        }
        assert!(matches!(guard.state(), LockState::Lost(_)), "{notes:?}");
        let next = waiter.await.expect("no panic").expect("the first one has lost it");
        let clients = [("one", session(&run.one)), ("two", session(&run.two))];
        run.draw_with(&clients, &notes, "internals/lease.md", "a lost lease", "/locks/x");
        drop((guard, next));
    });
}

/// What an instance of a service says about itself.
type Said = Arc<Mutex<(picture::Kind, String)>>;

fn say(said: &Said, kind: picture::Kind, text: impl Into<String>) {
    *said.lock().expect("no test panics while it has the lock") = (kind, text.into());
}

/// An instance that works whenever it holds the lock.
async fn serve(client: Client, said: Said) {
    let lock = FairLock::new(&client, "/locks/x").expect("the path is valid");
    loop {
        say(&said, picture::Kind::Idle, "waits");
        let guard = lock.acquire().await.expect("the client is not closed");
        loop {
            match guard.state() {
                LockState::Held => {
                    say(
                        &said,
                        picture::Kind::Good,
                        format!("holds, token {}", guard.fencing_token()),
                    );
                }
                LockState::AtRisk => say(&said, picture::Kind::Doubtful, "at risk"),
                LockState::Lost(_) => break,
            }
            sleep_ms(10).await;
        }
        say(&said, picture::Kind::Bad, "lost, stops working");
        let mut states = client.states();
        while states.current().state != SessionState::Connected {
            states.next().await.expect("the client is not closed");
        }
    }
}

/// The picture of the README. The server of the holder is cut off from the other two for longer than
/// a session lives without it.
#[test]
fn a_failover() {
    const CUT_OFF: u64 = 6_000;
    const BACK: u64 = 18_000;
    const END: u64 = 25_000;
    run(async {
        let world = World::with(ServerConfig::default().members(3)).leased();
        for directory in ["/locks", "/locks/x"] {
            world.server.admin_create(directory, b"", None);
        }
        let zk1 = world.server.member(0);
        let mut said: Vec<Said> = vec![];
        let mut first = None;
        for (seed, member) in [(FIRST, zk1.clone()), (SECOND, world.server.member(1))] {
            let transport = member.connector();
            let client = world.client_with(seed, |builder| builder.transport(transport)).await;
            first = first.or_else(|| Some(session(&client)));
            said.push(Arc::new(Mutex::new((picture::Kind::Idle, String::new()))));
            spawn(serve(client, Arc::clone(said.last().expect("it was just pushed"))));
            sleep_ms(500).await;
        }
        let first = first.expect("there are two");
        let names =
            ["instance 1", "instance 2", "zk1, the server of instance 1", "session of instance 1"];
        let mut lanes = names.map(|name| Lane { name: name.to_owned(), changes: vec![] });
        for ms in (0..END).step_by(10) {
            match ms {
                CUT_OFF => zk1.partition(),
                BACK => zk1.heal(),
                _ => {}
            }
            let server = match zk1.is_partitioned() {
                true => (picture::Kind::Bad, "cut off from zk2 and zk3".to_owned()),
                false => (picture::Kind::Good, "serves".to_owned()),
            };
            let session = match world.server.sessions().contains(&first) {
                true => (picture::Kind::Good, "lives".to_owned()),
                false => (picture::Kind::Idle, "has expired".to_owned()),
            };
            let said = said.iter().map(|said| said.lock().expect("nobody panics").clone());
            for (lane, (kind, text)) in lanes.iter_mut().zip(said.chain([server, session])) {
                if lane.changes.last().is_none_or(|last| last.text != text) {
                    lane.changes.push(Change { at: Duration::from_millis(ms), kind, text });
                }
            }
            sleep_ms(10).await;
        }
        let at = |lane: usize, text: &str| {
            let found = lanes[lane].changes.iter().find(|change| change.text.starts_with(text));
            found.unwrap_or_else(|| panic!("no {text:?} in {lanes:?}")).at
        };
        let (lost, held) = (at(0, "lost"), at(1, "holds"));
        assert!(lost < held, "{lanes:?}");
        let ahead = (held - lost).as_secs_f64();
        let below = format!(
            "Instance 1 knows of its loss {ahead:.1} s before instance 2 can hold the lock."
        );
        let title = "A failover of a lock between two instances, over 25 seconds";
        let end = Duration::from_millis(END);
        page::check_file("failover.svg", &picture::draw(title, &lanes, end, &[below]));
    });
}

#[test]
fn a_watch_that_is_restored() {
    run(async {
        let run = Run::start(&["/config"]).await;
        let (_, mut watcher) = run.one.get_data_and_watch("/config").await.expect("it exists");
        sleep_ms(100).await;
        // The connection is lost with the next request.
        let lost = at_op(session(&run.one), OpCode::EXISTS, Action::CutAfter);
        run.world.server.inject(lost.refuse_for(Duration::from_millis(200)));
        run.one.exists("/config").await.expect_err("the connection is lost");
        sleep_ms(100).await;
        run.two.set_data("/config", "new", None).await.expect("it exists");
        watcher.changed().await.expect("the session lives");
        run.draw("internals/session.md", "a watch", "/");
    });
}

/// A client with these options whose frames are recorded, from its first handshake on.
async fn tapped(
    world: &World,
    tap: &Tap,
    options: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> Client {
    let transport = through(tap, 0, vec![("in-process", world.server.clone())]);
    world.client_with(FIRST, |builder| options(builder.transport(transport))).await
}

/// A transport to servers with these names, which records the frames of a client.
fn through(
    tap: &Tap,
    client: usize,
    servers: Vec<(&'static str, TestServer)>,
) -> impl Fn(Host) -> Ready<io::Result<Tapped>> + Send + Sync + 'static {
    let tap = tap.clone();
    move |host: Host| {
        let mut numbered = servers.iter().enumerate();
        let found = numbered.find(|(_, (name, _))| *name == host.name);
        let (server, (_, target)) = found.expect("the client's list names these servers");
        ready(tap.connect(Ends { client, server }, target))
    }
}

/// Checks a diagram of the frames of one client since the last diagram.
fn draw_frames(tap: &Tap, page: &str, name: &str) {
    draw_frames_of(tap, &["client"], &["server"], page, name);
}

/// Checks a diagram of the frames of these clients and servers since the last diagram.
fn draw_frames_of(tap: &Tap, clients: &[&str], servers: &[&str], page: &str, name: &str) {
    let records = tap.take();
    let begin = records.first().expect("the client has connected").at;
    page::check(page, name, &diagram::draw_frames(clients, servers, &records, begin));
}

#[test]
fn handshakes_of_a_new_and_of_a_resumed_session() {
    run(async {
        let world = World::new();
        world.server.admin_create("/config", b"old", None);
        let tap = Tap::new();
        let credentials = |builder: ClientBuilder| builder.auth("digest", "user:secret");
        let client = tapped(&world, &tap, credentials).await;
        let (_, mut watcher) = client.get_data_and_watch("/config").await.expect("it exists");
        draw_frames(&tap, "internals/session.md", "a new session");

        world.server.refuse_for(Duration::from_millis(100));
        world.server.disconnect_all();
        world.server.admin_set_data("/config", b"new");
        watcher.changed().await.expect("the session lives");
        client.exists("/config").await.expect("the client is connected");
        draw_frames(&tap, "internals/session.md", "a resumed session");
    });
}

#[test]
fn a_handshake_after_the_session_has_expired() {
    run(async {
        let world = World::new();
        let tap = Tap::new();
        let client = tapped(&world, &tap, |builder| builder).await;
        let first = session(&client);
        client.exists("/").await.expect("the client is connected");
        tap.take();
        world.server.expire(first);
        while client.session_id().is_none_or(|now| now == first) {
            sleep_ms(10).await;
        }
        draw_frames(&tap, "internals/protocol.md", "an expired session");
    });
}

/// The create is still on its way inside the ensemble when the client lists the directory.
#[test]
fn a_create_that_is_committed_late() {
    run(async {
        let world = World::new();
        world.server.admin_create("/locks", b"", None);
        let tap = Tap::new();
        let client = tapped(&world, &tap, |builder| builder).await;
        tap.take();
        let late = Action::LateCommit(Until::Reads(1));
        world.server.inject(at_op(session(&client), OpCode::CREATE2, late));
        let created = client.create("/locks/a", "", CreateMode::Ephemeral).await;
        let error = created.expect_err("the connection is lost");
        assert_eq!(error.outcome(), Outcome::Unknown);
        for _ in 0..2 {
            client.get_children("/locks").await.expect("the client is connected");
            sleep_ms(100).await;
        }
        draw_frames(&tap, "internals/connection-loss.md", "a late create");
    });
}

/// A reply that takes this long is still awaited when the client stops.
const DELAY: Duration = Duration::from_millis(100);

#[test]
fn a_session_that_is_handed_over() {
    run(async {
        let world = World::new();
        let tap = Tap::new();
        let one = tapped(&world, &tap, |builder| builder).await;
        tap.take();
        world.server.inject(at_op(session(&one), OpCode::CREATE2, Action::Delay(DELAY)));
        let created = one.create("/e", "", CreateMode::Ephemeral);
        sleep_ms(50).await;
        tap.note(0, "hand_over()");
        let (created, ticket) = tokio::join!(created, one.hand_over());
        created.expect("its reply is awaited");
        tap.note(0, "gets a ticket");
        sleep_ms(100).await;
        let ticket = ticket.expect("there is a session").to_secret_text();
        let servers = vec![("server", world.server.clone())];
        let two = Client::builder("server").transport(through(&tap, 1, servers));
        let two = two.session_timeout(SESSION_TIMEOUT).lease(None);
        let two = two.clock(Clock::tokio()).seed(SECOND);
        let ticket = ticket.parse().expect("it was just written");
        let two = two.resume(ticket).connect().await.expect("the session lives");
        let ephemerals = two.get_ephemerals("/").await.expect("the server answers");
        assert_eq!(ephemerals, ["/e"]);
        let clients = ["one", "two"];
        draw_frames_of(
            &tap,
            &clients,
            &["server"],
            "internals/session.md",
            "a session is handed over",
        );
    });
}

#[test]
fn a_session_that_outlives_a_read_only_server() {
    run(async {
        let world = World::with(ServerConfig::default().version(ServerVersion::V3_8).members(3));
        world.server.admin_create("/config", b"old", None);
        let tap = Tap::new();
        let members = ["zk1", "zk2"].into_iter().enumerate();
        let servers = members.map(|(number, name)| (name, world.server.member(number))).collect();
        let client = Client::builder("zk1,zk2").transport(through(&tap, 0, servers));
        let client = client.session_timeout(SESSION_TIMEOUT).lease(None).clock(Clock::tokio());
        let client = client.read_only().seed(FIRST).connect().await.expect("it is there");
        let first = session(&client);
        client.exists("/config").await.expect("the server answers");
        tap.take();
        let until = async |state| {
            let mut states = client.states();
            while states.current().state != state {
                states.next().await.expect("the client continues");
            }
        };
        // The third server, which is not in the client's list, makes a majority with another one.
        for member in 0..3 {
            world.server.member(member).partition();
        }
        until(SessionState::ConnectedReadOnly).await;
        client.get_data("/config").await.expect("reads continue");
        client.set_data("/config", "new", None).await.expect_err("the server is read-only");
        sleep_ms(200).await;
        for member in 1..3 {
            world.server.member(member).heal();
        }
        until(SessionState::Connected).await;
        client.set_data("/config", "new", None).await.expect("the server accepts writes");
        assert_eq!(session(&client), first);
        let servers = ["zk1", "zk2"];
        draw_frames_of(&tap, &["client"], &servers, "internals/session.md", "a read-only server");
    });
}

#[test]
fn a_close_with_a_pending_request() {
    run(async {
        let world = World::new();
        world.server.admin_create("/config", b"old", None);
        let tap = Tap::new();
        let client = tapped(&world, &tap, |builder| builder).await;
        tap.take();
        world.server.inject(at_op(session(&client), OpCode::SET_DATA, Action::Delay(DELAY)));
        let written = client.set_data("/config", "new", None);
        sleep_ms(50).await;
        tap.note(0, "close()");
        let (written, closed) = tokio::join!(written, client.close());
        written.expect("its reply is awaited");
        tap.note(0, format!("{closed:?}"));
        draw_frames(&tap, "internals/session.md", "a close");
    });
}

#[test]
fn closes_while_no_server_can_be_reached() {
    let cases = [
        (200, CloseOutcome::Closed, "a close without a connection"),
        (20_000, CloseOutcome::Abandoned, "a close without a server"),
    ];
    for (outage_ms, expected, name) in cases {
        run(async {
            let world = World::new();
            let tap = Tap::new();
            let client = tapped(&world, &tap, |builder| builder).await;
            tap.take();
            world.server.refuse_for(Duration::from_millis(outage_ms));
            world.server.disconnect_all();
            sleep_ms(50).await;
            tap.note(0, "close()");
            let closed = client.close().await;
            tap.note(0, format!("{closed:?}"));
            assert_eq!(closed, expected);
            draw_frames(&tap, "internals/session.md", name);
        });
    }
}
