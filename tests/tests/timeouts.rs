//! The timeout of every call: the call ends in time, whatever the servers do, and leaves nothing that
//! is not removed.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use zk_recipes::{
    Barrier, Call, Client, Counter, CreateMode, DoubleBarrier, Election, ExclusiveLock, FairLock,
    Group, Holder, Multi, MultiLock, Presence, RwLock, Semaphore, SettledClient, SharedValue, Tree,
    WorkQueue, request_revocation,
};
use zk_session::recipe::Session;
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND};
use zk_tests::work_queue::{QUEUE, check_clean, drain, now};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault, Filter};

/// The timeout of the calls.
const TIMEOUT: Duration = Duration::from_secs(2);
/// What the errors of recipes and of operations say after a timeout.
const TIMED_OUT: [&str; 2] = ["timed out after", "the deadline of the operation has passed"];
/// What an error says of a call that has seen nothing before its timeout.
const NOTHING: &str = "what the call waits for did not happen";
/// How many requests of a call are hit, one in each run.
const REQUESTS: usize = 6;

type Ended = Pin<Box<dyn Future<Output = Result<(), String>>>>;
type Begin = Box<dyn FnOnce() -> Ended>;

fn world() -> World {
    World::new().pace(Pace::of(60))
}

/// Begins a call that borrows what it was given, and that has the timeout.
fn borrowing<T: 'static, E: Display + 'static, F>(
    name: &'static str,
    begin: impl FnOnce() -> F + 'static,
) -> (&'static str, Begin)
where
    F: Future<Output = Result<T, E>> + 'static,
{
    let begin = move || -> Ended {
        let call = begin();
        Box::pin(async move { call.await.map(drop).map_err(|error| error.to_string()) })
    };
    (name, Box::new(begin))
}

/// Gives a call the timeout, when it begins.
fn call<T: 'static, E: Display + 'static, O: Copy + Unpin + 'static>(
    name: &'static str,
    begin: impl FnOnce() -> Call<T, E, O> + 'static,
) -> (&'static str, Begin) {
    borrowing(name, move || begin().timeout(TIMEOUT))
}

/// Returns the calls that take a timeout of their own, of a client that holds what they need.
async fn calls(client: &Client) -> Vec<(&'static str, Begin)> {
    let mut calls = of_locks(client).await;
    calls.extend(of_queues_and_barriers(client).await);
    calls.extend(of_data(client).await);
    calls
}

async fn of_locks(client: &Client) -> Vec<(&'static str, Begin)> {
    let fair = |path: &str| FairLock::new(client, path).expect("legal");
    let (one, two, three) = (fair("/p/one"), fair("/p/two"), fair("/p/three"));
    let election = Election::new(client, "/p/election").expect("legal");
    let semaphore = Semaphore::new(client, "/p/semaphore", 2).expect("legal");
    let mut resized = semaphore.clone();
    let exclusive = ExclusiveLock::new(client, "/p/exclusive").expect("legal");
    let writing = RwLock::new(client, "/p/rw").expect("legal").write().await.expect("free");
    let held = fair("/p/held").acquire().await.expect("free");
    let released = fair("/p/released").acquire().await.expect("free");
    let written = fair("/p/written").acquire().await.expect("free");
    let leading = election.campaign().await.expect("free");
    let several = |paths: [&str; 2]| {
        let [one, other] = paths.map(fair);
        MultiLock::builder().with(&one).with(&other).build().expect("legal")
    };
    let together = several(["/p/several-1", "/p/several-2"]).acquire().await.expect("free");
    let apart = several(["/p/several-3", "/p/several-4"]).acquire().await.expect("free");
    let (multi, other) = (several(["/p/m-1", "/p/m-2"]), several(["/p/m-3", "/p/m-4"]));
    let level = Holder::new(&two).acquire().await.expect("free");
    let (holder, second) = (Holder::new(&three), Holder::new(&one));
    let (candidates, leader) = (election.clone(), election.clone());
    let (client, path) = (client.clone(), held.path().to_owned());
    vec![
        call("contenders", move || one.contenders()),
        call("candidates", move || candidates.candidates()),
        call("leader", move || leader.leader()),
        call("holder", move || exclusive.holder()),
        call("stored permits", move || semaphore.stored_permits()),
        borrowing("set permits", async move || resized.set_permits(3).timeout(TIMEOUT).await),
        call("validate", move || held.validate()),
        call("release", move || released.release()),
        call("resign", move || leading.resign()),
        call("downgrade", move || writing.downgrade()),
        call("transaction", move || {
            written.transaction(Multi::new().set_data("/p/written", "x", None))
        }),
        call("request a revocation", move || request_revocation(&client, &path)),
        call("acquire several", move || multi.acquire()),
        call("try several", move || other.try_acquire()),
        call("validate several", move || together.validate()),
        call("release several", move || apart.release()),
        call("acquire a level", move || holder.acquire()),
        call("try a level", move || second.try_acquire()),
        call("release a level", move || level.release()),
    ]
}

async fn of_queues_and_barriers(client: &Client) -> Vec<(&'static str, Begin)> {
    let queue = WorkQueue::new(client, QUEUE).expect("legal");
    queue.put_batch(["a", "b", "c", "d"]).await.expect("it is put");
    let acknowledged = queue.take().await.expect("an item");
    let returned = queue.take().await.expect("an item");
    let barrier = |path| Barrier::new(client, path).expect("legal");
    let double = |path| DoubleBarrier::new(client, path, 1).expect("legal");
    let (closing, opening, looking, waiting) =
        (barrier("/p/b-1"), barrier("/p/b-2"), barrier("/p/b-3"), barrier("/p/b-4"));
    opening.close().await.expect("it is closed");
    let (entering, inside) = (double("/p/double-1"), double("/p/double-2"));
    let inside = inside.enter().await.expect("alone");
    let queues: [WorkQueue; 6] = std::array::from_fn(|_| queue.clone());
    let [put, batch, take, takes, tries, length] = queues;
    vec![
        call("put", move || put.put("e")),
        call("put a batch", move || batch.put_batch(["e", "f"]).priority(7)),
        call("take", move || take.take()),
        call("take a batch", move || takes.take_batch(2)),
        call("try to take", move || tries.try_take()),
        call("length", move || length.length()),
        call("acknowledge", move || acknowledged.ack()),
        call("give back", move || returned.give_back()),
        call("close", move || closing.close()),
        call("open", move || opening.open()),
        call("is open", move || looking.is_open()),
        call("wait", move || waiting.wait()),
        call("enter", move || entering.enter()),
        call("leave", move || inside.leave()),
    ]
}

async fn of_data(client: &Client) -> Vec<(&'static str, Begin)> {
    let value = SharedValue::new(client, "/p/value").expect("legal");
    let counter = Counter::new(client, "/p/counter").expect("legal");
    let group = Group::new(client, "/p/group").expect("legal");
    let settled = SettledClient::new(client, "/p/markers").expect("legal");
    let [reading, creating, writing, removing] = std::array::from_fn(|_| settled.clone());
    let [ensuring, deleting, reporting] = std::array::from_fn(|_| Tree::of(client));
    let (old, _) = (value.get().await.expect("it is created"), counter.get().await);
    ensuring.ensure("/p/tree/a").await.expect("it is created");
    let member = group.join("leaves", "").await.expect("the id is free");
    let changed = group.join("changes", "").await.expect("the id is free");
    let begun = |path| Presence::builder(client, path).expect("legal").begin("");
    let closing = begun("/p/presence").await.expect("nothing is in the way");
    let present = begun("/p/presence-2").await.expect("nothing is in the way");
    let beginning = begun("/p/presence-3");
    let [get, set, compare, update] = std::array::from_fn(|_| value.clone());
    let [sum, add, swap] = std::array::from_fn(|_| counter.clone());
    let [members, join] = std::array::from_fn(|_| group.clone());
    vec![
        call("get", move || get.get()),
        call("set", move || set.set("x")),
        call("compare and set", move || compare.compare_and_set(&old, "x")),
        call("update", move || update.update(|_| "x".into())),
        call("sum", move || sum.get()),
        call("add", move || add.add(1)),
        call("compare and set a number", move || swap.compare_and_set(0, 1)),
        call("members", move || members.members()),
        call("join", move || join.join("joins", "")),
        call("leave the group", move || member.leave()),
        borrowing("new data", async move || changed.set_data("x").timeout(TIMEOUT).await),
        call("begin a presence", move || beginning),
        call("close a presence", move || closing.close()),
        borrowing("data of a presence", async move || present.set_data("x").timeout(TIMEOUT).await),
        call("read, settled", move || reading.behind_barrier().get_data("/p/tree")),
        call("create, settled", move || {
            creating.create_with_parents("/p/settled/a", "", CreateMode::Persistent)
        }),
        call("write, settled", move || writing.set_data("/p/tree", "x", None)),
        call("delete, settled", move || removing.delete("/p/tree/a", None)),
        call("ensure", move || ensuring.ensure("/p/paths/a/b")),
        call("delete a tree", move || deleting.delete("/p/tree")),
        call("report a deletion", move || reporting.delete_with_progress("/p/tree", |_| ())),
    ]
}

/// A server stops at a request of the call: it does not process the request, or it does and does not
/// reply. The call ends at its timeout, and says so. Afterwards, everything is removed: what the call
/// has created, and what its caller holds.
#[test]
fn every_call_ends_at_its_timeout_and_leaves_nothing() {
    let count = run(async { calls(&world().client(FIRST).await).await.len() });
    let mut late = BTreeSet::new();
    for (index, nth, action) in (0..count).flat_map(|index| {
        let faults = [Action::Freeze, Action::Delay(Duration::from_secs(60))];
        let hits = |fault: Action| (0..REQUESTS).map(move |nth| (index, nth, fault.clone()));
        faults.into_iter().flat_map(hits).collect::<Vec<_>>()
    }) {
        run(async {
            let world = world();
            let client = world.client(FIRST).await;
            let mut calls = calls(&client).await;
            sleep_ms(1_000).await;
            let at = At::Request { nth, filter: Filter::default() };
            world.server.inject(Fault::new(at, action));
            let (name, begin) = calls.swap_remove(index);
            let begun = now();
            let ended = begin().await;
            let is_hit = world.server.pending_faults().is_empty();
            match ended {
                Ok(()) => {}
                Err(error) => {
                    assert!(is_hit, "{name}: {error}\n{}", world.trace());
                    assert!(
                        TIMED_OUT.iter().any(|text| error.contains(text)),
                        "{name}: {error}\n{}",
                        world.trace()
                    );
                    assert!(!error.contains("RuntimeStopped"), "{name}: {error}");
                    let waited = now() - begun;
                    assert!(waited <= TIMEOUT + Duration::from_millis(1), "{name}: {waited:?}");
                    late.insert(name);
                }
            }
            // The others give up what the caller holds.
            drop(calls);
            world.server.clear_faults();
            world.server.disconnect_all();
            sleep_ms(30_000).await;
            let left = world.server.ephemerals();
            assert!(left.is_empty(), "{name}: {left:?}\n{}", world.trace());
            let other = world.client(SECOND).await;
            let items = drain(&WorkQueue::new(&other, QUEUE).expect("legal")).await;
            let distinct: BTreeSet<_> = items.iter().collect();
            assert_eq!(distinct.len(), items.len(), "{name}: {items:?}\n{}", world.trace());
            check_clean(&world, &[&client, &other]).await;
        });
    }
    assert_eq!(late.len(), count, "only these timed out: {late:?}");
}

/// Others use all slots of the janitor, so nobody could remove what a call creates.
#[test]
fn a_call_that_waits_for_a_slot_of_the_janitor_ends_at_its_timeout() {
    let needs_slot = [
        "acquire several",
        "try several",
        "acquire a level",
        "try a level",
        "put",
        "put a batch",
        "take",
        "take a batch",
        "try to take",
        "close",
        "open",
        "enter",
        "set",
        "update",
        "add",
        "join",
    ];
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        let calls = calls(&client).await;
        let session = Session::of(&client);
        let path = "/p/others".into();
        let mut slots = Vec::new();
        while let Ok(slot) = tokio::time::timeout(TIMEOUT, session.reserve_slot(&path)).await {
            slots.push(slot);
        }
        // The others keep their slots until the end.
        let (chosen, _others): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|(name, _)| needs_slot.contains(name));
        for (name, begin) in chosen {
            let begun = now();
            let ended = begin().await;
            assert_eq!(now() - begun, TIMEOUT, "{name}: {ended:?}");
            let error = ended.expect_err(name);
            assert!(
                error.contains("timed out after") && error.contains(NOTHING),
                "{name}: {error}"
            );
        }
    });
}
