//! What must survive a cut: the session, its identities, watches of all kinds, and each request,
//! which ends with a result or an error.

#![allow(dead_code, unreachable_pub, reason = "each suite uses a part")]

use zk_session::{
    Client, ClientBuilder, CreateMode, EventType, Identity, Op, Outcome, SessionId, SessionState,
    Stat, WatchItem, WatchMode, WatchStream, Watcher,
};
use zk_tests::scene::spawn;
use zk_tests::wait::{kind, soon};
use zk_tests::world::sleep_ms;

use crate::network::{Cut, Network};

/// More chunks than a connection has while a session begins or is resumed.
const CHUNKS_MAX: usize = 100;
/// Chunks at which connections of different clients are cut at the same time. Each cut costs a
/// pause, so this saves time.
const CHUNKS_AT_ONCE: usize = 8;
/// Writes that are submitted at once after the cut, and writes that follow one by one.
const WRITES: [u32; 2] = [5, 3];
/// Time between two of the latter.
const WRITE_INTERVAL_MS: u64 = 200;

/// Watches of all kinds on znodes below a root.
pub struct Watches {
    data: Watcher,
    absent: Watcher,
    children: Watcher,
    persistent: WatchStream,
    recursive: WatchStream,
}

impl Watches {
    /// Creates the znodes, and watches them.
    pub async fn set(client: &Client, root: &str) -> Self {
        let znode = |name: &str| format!("{root}/{name}");
        for path in [root.to_owned(), znode("data"), znode("parent")] {
            client.create(&path, "", CreateMode::Persistent).await.expect("it is free");
        }
        let watched = "the connection holds";
        Self {
            data: client.get_data_and_watch(&znode("data")).await.expect(watched).1,
            absent: client.exists_and_watch(&znode("absent")).await.expect(watched).1,
            children: client.get_children_and_watch(&znode("parent")).await.expect(watched).1,
            persistent: client.watch(&znode("one"), WatchMode::Persistent).await.expect(watched),
            recursive: client.watch(&znode("tree"), WatchMode::Recursive).await.expect(watched),
        }
    }

    /// Changes what is watched, once for each watch.
    pub async fn change(client: &Client, root: &str) {
        client.set_data(&format!("{root}/data"), "x", None).await.expect("it exists");
        for path in ["absent", "parent/child", "one", "tree"] {
            let path = format!("{root}/{path}");
            client.create(&path, "", CreateMode::Persistent).await.expect("it is free");
        }
    }

    /// Waits until each watch has reported its change. Those of a stream may have happened while
    /// there was no connection, unless `is_connected`: then it reports a gap.
    pub async fn expect_reports(mut self, is_connected: bool) {
        assert_eq!(kind(&mut self.data).await, EventType::NODE_DATA_CHANGED);
        assert_eq!(kind(&mut self.absent).await, EventType::NODE_CREATED);
        assert_eq!(kind(&mut self.children).await, EventType::NODE_CHILDREN_CHANGED);
        for mut stream in [self.persistent, self.recursive] {
            let path = stream.path().to_owned();
            loop {
                match soon("an item", stream.next()).await.expect("the session lives on") {
                    WatchItem::Event(event) => {
                        assert_eq!((event.kind, &*event.path), (EventType::NODE_CREATED, &*path));
                        break;
                    }
                    WatchItem::Gap(_) if !is_connected => break,
                    WatchItem::Gap(_) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

/// Writes to one znode that were submitted one after the other.
pub struct Writes {
    path: String,
    submitted: Vec<Op<Stat>>,
}

impl Writes {
    /// Creates the znode.
    pub async fn new(client: &Client, path: String) -> Self {
        client.create(&path, "", CreateMode::Persistent).await.expect("it is free");
        Self { path, submitted: Vec::new() }
    }

    /// Submits writes while the client reconnects.
    pub async fn submit(&mut self, client: &Client) {
        let [at_once, one_by_one] = WRITES;
        for number in 0..at_once + one_by_one {
            if number >= at_once {
                sleep_ms(WRITE_INTERVAL_MS).await;
            }
            self.submitted.push(client.set_data(&self.path, "", None));
        }
    }

    /// Waits until each write has succeeded or failed. Those that succeeded are applied, in their
    /// order, and those that were not applied are not.
    pub async fn expect_ends(self, client: &Client) {
        let (mut applied, mut unknown, mut version) = (0, 0, 0);
        for write in self.submitted {
            match soon("the end of a write", write).await {
                Ok(stat) => {
                    applied += 1;
                    assert!(stat.version.0 > version, "out of order: {version}, {stat:?}");
                    version = stat.version.0;
                }
                Err(error) => {
                    assert!(error.is_connection_loss(), "{error}");
                    unknown += i32::from(error.outcome() == Outcome::Unknown);
                }
            }
        }
        assert!(applied > 0, "only one connection is cut");
        let (_, stat) = until_done(|| client.get_data(&self.path)).await;
        assert!((applied..=applied + unknown).contains(&stat.version.0), "{applied}, {stat:?}");
    }
}

/// Repeats a request while connections are lost.
pub async fn until_done<T>(request: impl Fn() -> Op<T>) -> T {
    loop {
        match soon("a reply", request()).await {
            Ok(value) => return value,
            Err(error) => assert!(error.is_connection_loss(), "{error}"),
        }
        sleep_ms(10).await;
    }
}

/// Cuts connections to a real server while a session begins and while it is resumed. `client`
/// returns a new client. The znodes are below `root` with a number appended. Returns how many cuts
/// there were of new sessions and of resumed ones.
pub async fn survive_cuts<C>(client: C, root: &str) -> (usize, usize)
where
    C: Fn(&Network) -> ClientBuilder,
{
    let observer = client(&Network::default()).connect().await.expect("a connection");
    // The server may have been used before.
    let root = &format!("{root}-{}", std::process::id());
    observer.create(root, "", CreateMode::Persistent).await.expect("it is free");
    let path = |kind: &str, cut: Cut| format!("{root}/{kind}-{}-{}", cut.chunks, cut.is_torn);
    let new = in_batches(|cut| {
        let network = Network::default();
        begin(client(&network), network, cut, observer.clone(), path("new", cut))
    });
    let new = new.await;
    let resumed = in_batches(|cut| {
        let network = Network::default();
        resume(client(&network), network, cut, observer.clone(), path("resumed", cut))
    });
    let resumed = resumed.await;
    observer.close().await;
    (new, resumed)
}

/// Runs scenes with cuts at each chunk, until they are over before they are cut. Returns how many
/// were cut.
pub async fn in_batches<F>(scene: impl Fn(Cut) -> F) -> usize
where
    F: Future<Output = bool> + Send + 'static,
{
    let mut count = 0;
    for first in (0..CHUNKS_MAX).step_by(CHUNKS_AT_ONCE) {
        let cuts = (first..first + CHUNKS_AT_ONCE).flat_map(Cut::at);
        let scenes: Vec<_> = cuts.map(|cut| (cut, spawn(scene(cut)))).collect();
        let mut is_over = false;
        for (cut, scene) in scenes {
            let was_cut = scene.await.unwrap_or_else(|error| panic!("{cut:?}: {error}"));
            count += usize::from(was_cut);
            is_over |= !was_cut;
        }
        if is_over {
            return count;
        }
    }
    panic!("there are more than {CHUNKS_MAX} chunks");
}

/// Cuts the first connection of a client. Returns whether the cut has happened.
pub async fn begin(
    client: ClientBuilder,
    network: Network,
    cut: Cut,
    observer: Client,
    path: String,
) -> bool {
    network.cut(0, cut);
    let client = client.connect().await.expect("the second connection is whole");
    // It may be cut during the create, which then may or may not be applied.
    let created = soon("a reply", client.create(&path, "", CreateMode::Ephemeral)).await;
    if let Err(error) = created {
        assert!(error.is_connection_loss(), "{error}");
    }
    let identities = until_done(|| client.who_am_i()).await;
    assert_eq!(identities, until_done(|| observer.who_am_i()).await);
    let was_cut = network.stop_cutting();
    client.close().await;
    was_cut
}

/// Cuts the second connection of a client, which resumes its session with watches of all kinds while
/// requests wait. Returns whether the cut has happened.
pub async fn resume(
    client: ClientBuilder,
    network: Network,
    cut: Cut,
    observer: Client,
    root: String,
) -> bool {
    let client = client.connect().await.expect("a connection");
    let before = mark(&client).await;
    let missed = Watches::set(&client, &root).await;
    let later = format!("{root}/later");
    let watches = Watches::set(&client, &later).await;
    let mut writes = Writes::new(&client, format!("{root}/written")).await;
    network.cut(network.connections(), cut);
    network.cut_all();
    let lost = client.exists("/").await.expect_err("the connection is cut");
    assert!(lost.is_connection_loss(), "{lost}");
    tokio::join!(writes.submit(&client), Watches::change(&observer, &root));
    writes.expect_ends(&client).await;
    let was_cut = network.stop_cutting();
    Watches::change(&observer, &later).await;
    missed.expect_reports(false).await;
    watches.expect_reports(true).await;
    assert_eq!(mark(&client).await, before, "the session and its identities survive");
    assert_eq!(client.state(), SessionState::Connected);
    client.close().await;
    was_cut
}

/// Returns the session and the identities that the server knows.
async fn mark(client: &Client) -> (Option<SessionId>, Vec<Identity>) {
    (client.session_id(), until_done(|| client.who_am_i()).await)
}
