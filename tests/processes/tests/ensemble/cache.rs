//! Caches whose sessions move to a follower that lags.
//!
//! `CACHE_ROUNDS` sets how often the sessions move.
//!
//! A deletion is the dangerous change: its event does not advance the zxid that a client reports
//! when it connects again, so a server that has not applied the deletion accepts the client.

use std::collections::BTreeMap;
use std::env;
use std::sync::{Arc, Mutex};

use bytestring::ByteString;
use tokio::task::JoinHandle;
use zk_recipes::{Cache, CacheEvent};
use zk_session::{Client, Zxid};
use zk_tests::ensemble::{Ensemble, Server};
use zk_tests::proxy::Proxy;
use zk_tests::wait::{PATIENCE, soon};

use crate::{PERSISTENT, Roamer};

const TREE: &str = "/caches";
/// A cache that read this znode would learn the zxids of the burst.
const BUSY: &str = "/busy";
const READERS: usize = 20;
const ROUNDS: usize = 3;
/// Writes that the follower has received, but not applied, when the clients arrive.
const BURST: usize = 1_500;
const IN_FLIGHT: usize = 300;

#[tokio::test]
async fn a_cache_never_goes_back_when_its_session_moves_to_a_follower_that_lags() {
    let rounds = env::var("CACHE_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let ensemble = Ensemble::take().await;
    let fixture = crate::fixture().await;
    let (leader, lagging) = (ensemble.leader().await, ensemble.follower().await);
    let writing = Roamer::at(&fixture, &ensemble, &leader).await;
    let writer = &writing.client;
    writer.create(TREE, "", PERSISTENT).await.unwrap();
    writer.create(BUSY, "", PERSISTENT).await.unwrap();
    let mut readers = Vec::new();
    for _ in 0..READERS {
        readers.push(Reader::start(Roamer::at(&fixture, &ensemble, &leader).await).await);
    }

    let mut moves = 0;
    for round in 0..rounds {
        let doomed = format!("{TREE}/doomed-{round}");
        writer.create(&doomed, "", PERSISTENT).await.unwrap();
        for reader in &readers {
            reader.until("the new znode", |view| view.nodes.contains_key(&*doomed)).await;
        }

        let fault = ensemble.pause(&lagging).await;
        write_burst(writer, round).await;
        writer.delete(&doomed, None).await.unwrap();
        for reader in &readers {
            reader.until("the deletion", |view| !view.nodes.contains_key(&*doomed)).await;
            reader.send_to(&ensemble, &lagging);
        }
        // The handshakes wait in the paused server, beside the writes that it has to apply.
        for reader in &readers {
            let way = reader.roamer.way(&lagging);
            soon("an attempt", way.until(|seen| seen.open > 0)).await;
        }
        fault.heal().await;
        for reader in &readers {
            reader.until("a complete cache", |view| view.is_complete && view.was_moved).await;
            moves += usize::from(reader.roamer.is_at(&lagging));
            let view = reader.view.lock().unwrap();
            assert!(view.wrong.is_empty(), "in round {round} of {rounds}: {:#?}", view.wrong);
        }
        // The clients return, so that the next round begins like this one.
        for reader in &readers {
            reader.send_to(&ensemble, &leader);
            reader.until("a complete cache", |view| view.is_complete && view.was_moved).await;
        }
        ensemble.whole().await;
    }
    let truth = names(writer).await;
    for reader in &readers {
        let shows_the_truth = |view: &View| view.nodes.keys().eq(truth.iter());
        reader.until("the last state", shows_the_truth).await;
        let view = reader.view.lock().unwrap();
        assert!(view.wrong.is_empty(), "{:#?}", view.wrong);
    }
    eprintln!("{rounds} rounds: {moves} sessions of caches moved to the lagging follower");
    assert!(moves > rounds * READERS / 2, "only {moves} sessions moved");
}

/// Writes that need no room: the follower has to apply them before it shows the deletion.
async fn write_burst(writer: &Client, round: usize) {
    let mut pending = std::collections::VecDeque::new();
    for number in 0..BURST {
        pending.push_back(writer.set_data(BUSY, format!("{round}-{number}"), None));
        if pending.len() >= IN_FLIGHT {
            pending.pop_front().unwrap().await.unwrap();
        }
    }
    for write in pending {
        write.await.unwrap();
    }
}

async fn names(client: &Client) -> Vec<ByteString> {
    let names = client.get_children(TREE).await.unwrap();
    let children = names.iter().map(|name| ByteString::from(format!("{TREE}/{name}")));
    let mut names: Vec<_> = children.chain([ByteString::from_static(TREE)]).collect();
    names.sort();
    names
}

/// A client with a cache, whose events are compared with everything that it has shown before.
struct Reader {
    roamer: Roamer,
    view: Arc<Mutex<View>>,
    changed: Arc<tokio::sync::Notify>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct View {
    /// The zxids of the creation and of the last write.
    nodes: BTreeMap<ByteString, (Zxid, Zxid)>,
    /// The last zxid of each znode that was shown and removed.
    removed: BTreeMap<ByteString, Zxid>,
    is_complete: bool,
    /// Whether there was a gap since the last move.
    was_moved: bool,
    wrong: Vec<String>,
}

impl Reader {
    async fn start(roamer: Roamer) -> Self {
        let mut cache = Cache::tree(&roamer.client, TREE).build().unwrap();
        let view = Arc::<Mutex<View>>::default();
        let changed = Arc::new(tokio::sync::Notify::new());
        let task = tokio::spawn({
            let (view, changed) = (Arc::clone(&view), Arc::clone(&changed));
            async move {
                loop {
                    let event = cache.next().await.unwrap();
                    view.lock().unwrap().take(event);
                    changed.notify_one();
                }
            }
        });
        let reader = Self { roamer, view, changed, task };
        reader.until("a complete cache", |view| view.is_complete).await;
        reader
    }

    async fn until(&self, what: &str, mut condition: impl FnMut(&View) -> bool) {
        let seen = async {
            while !condition(&self.view.lock().unwrap()) {
                self.changed.notified().await;
            }
        };
        soon(what, seen).await;
    }

    /// Cuts the connection, and admits the next one to this server only.
    fn send_to(&self, ensemble: &Ensemble, server: &Server) {
        {
            let mut view = self.view.lock().unwrap();
            (view.was_moved, view.is_complete) = (false, false);
        }
        self.roamer.ways.iter().for_each(|way| way.refuse_for(4 * PATIENCE));
        self.roamer.way(server).admit_all();
        let others = ensemble.servers().iter().filter(|other| *other != server);
        others.map(|other| self.roamer.way(other)).for_each(Proxy::cut_all);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl View {
    fn take(&mut self, event: CacheEvent) {
        match event {
            CacheEvent::Added { path, node } | CacheEvent::Changed { path, node, .. } => {
                let state = (node.stat.czxid, node.stat.mzxid);
                let before = self.nodes.insert(path.clone(), state);
                let (shown, is_back) = match (before, self.removed.get(&path)) {
                    (Some(before), _) => (Some(before.1), state.1 < before.1),
                    // A deletion has a zxid of its own, which is above all zxids of the znode.
                    (None, Some(removed)) => (Some(*removed), state.0 <= *removed),
                    (None, None) => (None, false),
                };
                if is_back {
                    self.wrong.push(format!("{path}: {state:?} behind {shown:?}"));
                }
            }
            CacheEvent::Removed { path, .. } => {
                let state = self.nodes.remove(&path).expect("it was shown");
                self.removed.insert(path, state.1);
            }
            CacheEvent::Gap => {
                self.was_moved = true;
                self.is_complete = false;
            }
            CacheEvent::Complete => self.is_complete = true,
            CacheEvent::Unreadable { .. } | _ => {}
        }
    }
}
