//! Whoever waits loses the permission to read what it waits for, without a word: servers tell nobody
//! that permissions have changed, and from 3.8.4 and 3.9.2 on they report no change to those who may
//! not read. For each call that waits and each stream, the wait goes on within a bound: it is refused,
//! or it finds what it has waited for, at the latest when it may read again. A cache checks one znode
//! after the other, and if it has missed something there, it reads all of them again.

use std::fmt::Debug;
use std::future::{Future, IntoFuture as _};
use std::pin::Pin;
use std::time::Duration;

use zk_recipes::{
    Acl, Barrier, Cache, CacheEvent, Client, Counter, DoubleBarrier, Election, ExclusiveLock,
    FairLock, Group, MultiLock, NamedLocks, OpError, Permissions, Presence, RwLock, Semaphore,
    SettledClient, SharedValue, Tree, WorkQueue,
};
use zk_tests::scene::{FIRST, SECOND, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{ServerConfig, ServerVersion};

/// What everybody may read at first.
const ROOT: &str = "/p";
/// Longer than the interval of the checks, and than a pause behind it.
const BOUND: Duration = Duration::from_secs(46);

type Ended = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// What waits, and what ends its wait.
struct Wait {
    waiting: Ended,
    ending: Ended,
}

fn boxed<T, E: Debug>(future: impl Future<Output = Result<T, E>> + Send + 'static) -> Ended {
    Box::pin(async move { future.await.map(drop).map_err(|error| format!("{error:?}")) })
}

impl Wait {
    fn new<T, E: Debug, U, F: Debug>(
        waiting: impl Future<Output = Result<T, E>> + Send + 'static,
        ending: impl Future<Output = Result<U, F>> + Send + 'static,
    ) -> Self {
        Self { waiting: boxed(waiting), ending: boxed(ending) }
    }
}

const LEGAL: &str = "the options are legal";
const FREE: &str = "nobody else is there";

/// The waits of a client for what the owner does.
const WAITS: &[&str] = &[
    "fair lock",
    "exclusive lock",
    "reader",
    "writer",
    "permit",
    "election",
    "named lock",
    "multi-lock",
    "item",
    "barrier",
    "entering",
    "leaving",
    "group",
    "value",
    "counter",
    "znode",
    "leaders",
    "presence",
    "cached znode",
    "cached tree",
];

async fn wait(name: &str, client: &Client, owner: &Client) -> Wait {
    let path = "/p/x";
    match name {
        "fair lock" => {
            let lock = |client| FairLock::new(client, path).expect(LEGAL);
            let held = lock(owner).acquire().await.expect(FREE);
            Wait::new(lock(client).acquire().into_future(), async move { held.release().await })
        }
        "exclusive lock" => {
            let lock = |client| ExclusiveLock::new(client, path).expect(LEGAL);
            let held = lock(owner).acquire().await.expect(FREE);
            Wait::new(lock(client).acquire().into_future(), async move { held.release().await })
        }
        "reader" => {
            let lock = |client| RwLock::new(client, path).expect(LEGAL);
            let held = lock(owner).write().await.expect(FREE);
            Wait::new(lock(client).read().into_future(), async move { held.release().await })
        }
        "writer" => {
            let lock = |client| RwLock::new(client, path).expect(LEGAL);
            let held = lock(owner).read().await.expect(FREE);
            Wait::new(lock(client).write().into_future(), async move { held.release().await })
        }
        "permit" => {
            let semaphore = |client| Semaphore::new(client, path, 1).expect(LEGAL);
            let held = semaphore(owner).acquire().await.expect(FREE);
            Wait::new(
                semaphore(client).acquire().into_future(),
                async move { held.release().await },
            )
        }
        "election" => {
            let election = |client| Election::new(client, path).expect(LEGAL);
            let leading = election(owner).campaign().await.expect(FREE);
            Wait::new(
                election(client).campaign().into_future(),
                async move { leading.resign().await },
            )
        }
        "named lock" => {
            let locks = |client| NamedLocks::builder(client, path).expect(LEGAL).build();
            let lock = |client| locks(client).expect(LEGAL).lock("a").expect(LEGAL);
            let held = lock(owner).acquire().await.expect(FREE);
            Wait::new(lock(client).acquire().into_future(), async move { held.release().await })
        }
        "multi-lock" => {
            let lock = |client| FairLock::new(client, path).expect(LEGAL);
            let both = MultiLock::builder().with(lock(client));
            let both = both.with(FairLock::new(client, "/p/y").expect(LEGAL)).build();
            let held = lock(owner).acquire().await.expect(FREE);
            let waiting = both.expect(LEGAL).acquire().into_future();
            Wait::new(waiting, async move { held.release().await })
        }
        "item" => {
            let queue = |client| WorkQueue::new(client, path).expect(LEGAL);
            queue(owner).put("first").await.expect("it may");
            queue(owner).take().await.expect("an item").ack().await.expect("it may");
            Wait::new(queue(client).take().into_future(), queue(owner).put("a").into_future())
        }
        "barrier" => {
            let barrier = |client| Barrier::new(client, path).expect(LEGAL);
            barrier(owner).close().await.expect("it may");
            Wait::new(barrier(client).wait().into_future(), barrier(owner).open().into_future())
        }
        "entering" => {
            let barrier = |client| DoubleBarrier::new(client, path, 2).expect(LEGAL);
            Wait::new(barrier(client).enter().into_future(), barrier(owner).enter().into_future())
        }
        "leaving" => {
            let barrier = |client| DoubleBarrier::new(client, path, 2).expect(LEGAL);
            let other = spawn(barrier(owner).enter().into_future());
            let inside = barrier(client).enter().await.expect("two are there");
            let other = other.await.expect("no panic").expect("two are there");
            Wait::new(inside.leave().into_future(), async move { other.leave().await })
        }
        "group" => {
            let group = |client| Group::new(client, path).expect(LEGAL);
            let first = group(owner).join("a", "").await.expect(FREE);
            let mut watch = group(client).watch();
            let _joined = watch.next().await.expect("it may read");
            let joining = group(owner).join("b", "");
            let joining = async move {
                let joined = joining.await;
                // A member that leaves at once may be missed.
                sleep_ms(2 * BOUND.as_millis() as u64).await;
                drop(first);
                joined
            };
            Wait::new(async move { watch.next().await }, joining)
        }
        "value" => {
            let value = |client| SharedValue::new(client, path).expect(LEGAL);
            value(owner).set("a").await.expect("it may");
            let mut changes = value(client).changes();
            let _a = changes.next().await.expect("it may read");
            Wait::new(async move { changes.next().await }, value(owner).set("b").into_future())
        }
        "counter" => {
            let counter = |client| Counter::new(client, path).expect(LEGAL);
            counter(owner).add(1).await.expect("it may");
            let mut changes = counter(client).changes();
            let _one = changes.next().await.expect("it may read");
            Wait::new(async move { changes.next().await }, counter(owner).add(1).into_future())
        }
        "znode" => {
            let settled = SettledClient::new(client, "/p/markers").expect(LEGAL);
            Tree::of(owner).ensure(path).await.expect("it may");
            let mut changes = settled.changes(path).expect(LEGAL);
            let _now = changes.next().await.expect("it may read");
            let owner = owner.clone();
            let writing = async move { owner.set_data(path, "b", None).await };
            Wait::new(async move { changes.next().await }, writing)
        }
        "leaders" => {
            let election = |client| Election::new(client, path).expect(LEGAL);
            let leading = election(owner).campaign().await.expect(FREE);
            let mut leaders = election(client).observe();
            let _leader = leaders.next().await.expect("it may read");
            Wait::new(async move { leaders.next().await }, async move { leading.resign().await })
        }
        "presence" => {
            let presence = |client| Presence::builder(client, path).expect(LEGAL).keep_trying();
            let present = presence(owner).begin("").await.expect(FREE);
            Wait::new(
                presence(client).begin("").into_future(),
                async move { present.close().await },
            )
        }
        "cached znode" => {
            Tree::of(owner).ensure(path).await.expect("it may");
            let mut cache = Cache::node(client, path).build().expect(LEGAL);
            cache.complete().await.expect("it may read");
            let owner = owner.clone();
            let writing = async move { owner.set_data(path, "b", None).await };
            Wait::new(async move { cache_told(cache).await }, writing)
        }
        "cached tree" => {
            Tree::of(owner).ensure("/p/x/y").await.expect("it may");
            let mut cache = Cache::tree(client, path).build().expect(LEGAL);
            cache.complete().await.expect("it may read");
            let owner = owner.clone();
            let deleting = async move { owner.delete("/p/x/y", None).await };
            Wait::new(async move { cache_told(cache).await }, deleting)
        }
        _ => panic!("{name} has no scene"),
    }
}

/// Waits until the cache shows another state, or says that it cannot.
async fn cache_told(mut cache: Cache) -> Result<(), OpError> {
    loop {
        match cache.next().await.expect("the client lives") {
            CacheEvent::Unreadable { error, .. } => return Err(error),
            CacheEvent::Changed { .. } | CacheEvent::Removed { .. } => return Ok(()),
            CacheEvent::Added { .. } | CacheEvent::Complete | CacheEvent::Gap | _ => {}
        }
    }
}

/// What permits everybody everything but to read.
fn hidden() -> Vec<Acl> {
    let changes = Permissions::WRITE | Permissions::CREATE | Permissions::DELETE;
    Acl::creator_all().into_iter().chain([Acl::new(changes, "world", "anyone")]).collect()
}

/// Gives each znode below the root this list.
async fn protect(world: &World, owner: &Client, acl: &[Acl]) {
    let mut paths = vec![ROOT.to_owned()];
    while let Some(path) = paths.pop() {
        let names = world.server.children(&path).unwrap_or_default();
        paths.extend(names.iter().map(|name| format!("{path}/{name}")));
        // What is gone needs no list.
        let _ = owner.set_acl(&path, acl.to_vec(), None).await;
    }
}

#[test]
fn whoever_waits_for_what_it_may_no_longer_read_goes_on() {
    for version in [ServerVersion::V3_5, ServerVersion::V3_8, ServerVersion::V3_9] {
        for (name, is_back) in WAITS.iter().flat_map(|name| [(name, true), (name, false)]) {
            run(async {
                let world = World::with(ServerConfig::default().version(version));
                let identity = |builder: zk_recipes::ClientBuilder| builder.auth("digest", "a:b");
                let owner = world.client_with(SECOND, identity).await;
                let client = world.client(FIRST).await;
                Tree::of(&owner).ensure(ROOT).await.expect("it may");
                let Wait { waiting, ending } = wait(name, &client, &owner).await;
                let waiting = spawn(waiting);
                sleep_ms(2_000).await;
                let case = format!("{name}, {version:?}, may read again: {is_back}");
                assert!(!waiting.is_finished(), "{case}: nothing to wait for");
                protect(&world, &owner, &hidden()).await;
                let ending = spawn(ending);
                sleep_ms(2_000).await;
                // Before 3.8.4, servers report the change, but refuse to tell which one.
                let may_be_refused = !is_back || waiting.is_finished();
                if is_back {
                    protect(&world, &owner, &Acl::open()).await;
                }
                sleep_ms(BOUND.as_millis() as u64).await;
                assert!(waiting.is_finished(), "{case}: waits for ever\n{}", world.trace());
                let ended = waiting.await.expect("no panic");
                let is_refused = ended.as_ref().is_err_and(|error| error.contains("NO_AUTH"));
                let is_right = ended.is_ok() || (may_be_refused && is_refused);
                assert!(is_right, "{case}: {ended:?}\n{}", world.trace());
                drop(ending);
            });
        }
    }
}

/// What somebody holds, without an event.
struct Kept {
    lost: Pin<Box<dyn Future<Output = ()> + Send>>,
}

fn kept(lost: impl Future<Output: Send> + Send + 'static) -> Kept {
    Kept { lost: Box::pin(async move { drop(lost.await) }) }
}

/// Everything that lasts as long as a znode of its own.
const HELD: &[&str] = &[
    "fair lock",
    "exclusive lock",
    "reader",
    "permit",
    "leader",
    "named lock",
    "item",
    "presence",
    "member",
];

async fn hold(name: &str, client: &Client) -> Kept {
    let path = "/p/x";
    match name {
        "fair lock" => {
            let held = FairLock::new(client, path).expect(LEGAL).acquire().await.expect(FREE);
            kept(async move { held.lost().await })
        }
        "exclusive lock" => {
            let held = ExclusiveLock::new(client, path).expect(LEGAL).acquire().await.expect(FREE);
            kept(async move { held.lost().await })
        }
        "reader" => {
            let held = RwLock::new(client, path).expect(LEGAL).read().await.expect(FREE);
            kept(async move { held.lost().await })
        }
        "permit" => {
            let held = Semaphore::new(client, path, 2).expect(LEGAL).acquire().await.expect(FREE);
            kept(async move { held.lost().await })
        }
        "leader" => {
            let held = Election::new(client, path).expect(LEGAL).campaign().await.expect(FREE);
            kept(async move { held.lost().await })
        }
        "named lock" => {
            let locks = NamedLocks::builder(client, path).expect(LEGAL).build().expect(LEGAL);
            let held = locks.lock("a").expect(LEGAL).acquire().await.expect(FREE);
            kept(async move { held.lost().await })
        }
        "item" => {
            let queue = WorkQueue::new(client, path).expect(LEGAL);
            queue.put("a").await.expect("it may");
            let held = queue.take().await.expect("an item");
            kept(async move { held.lost().await })
        }
        "presence" => {
            let presence = Presence::builder(client, path).expect(LEGAL);
            let mut present = presence.begin("").await.expect(FREE);
            let first = present.state();
            kept(async move { while present.changed().await == first {} })
        }
        "member" => {
            let group = Group::new(client, path).expect(LEGAL);
            let mut member = group.join("a", "").await.expect(FREE);
            let first = member.state();
            kept(async move { while member.changed().await == first {} })
        }
        _ => panic!("{name} has no scene"),
    }
}

/// Somebody takes the permission to read the own znode of whoever holds something, and deletes it.
#[test]
fn whoever_holds_what_it_may_no_longer_read_hears_of_its_loss() {
    for version in [ServerVersion::V3_5, ServerVersion::V3_8, ServerVersion::V3_9] {
        for name in HELD {
            run(async {
                let world = World::with(ServerConfig::default().version(version));
                let identity = |builder: zk_recipes::ClientBuilder| builder.auth("digest", "a:b");
                let owner = world.client_with(SECOND, identity).await;
                let client = world.client(FIRST).await;
                Tree::of(&owner).ensure(ROOT).await.expect("it may");
                let Kept { lost } = hold(name, &client).await;
                let lost = spawn(lost);
                sleep_ms(2_000).await;
                protect(&world, &owner, &hidden()).await;
                sleep_ms(1_000).await;
                let own = world.server.ephemerals().into_iter();
                let own: Vec<_> =
                    own.filter(|(_, session)| Some(*session) == client.session_id()).collect();
                assert!(!own.is_empty(), "{name}: nothing is held");
                assert!(!lost.is_finished(), "{name}: nothing was deleted");
                for (path, _) in own {
                    assert!(world.server.admin_delete(&path), "{name}: {path}");
                }
                sleep_ms(BOUND.as_millis() as u64).await;
                assert!(lost.is_finished(), "{name}, {version:?}: it hears of nothing");
            });
        }
    }
}
