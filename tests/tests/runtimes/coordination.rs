//! The calls of the recipes without a lock, of the work queue, and of locks that are made of other
//! locks, on a client whose runtime ends, is not driven, or is not the runtime of the caller. Each
//! call must complete: with a result, an error, or at its timeout.

use std::collections::BTreeMap;
use std::future::IntoFuture as _;
use std::time::Duration;

use tokio::runtime::Runtime;
use zk_recipes::{
    Barrier, Cache, Client, Counter, CreateMode, DoubleBarrier, Group, GroupWatch, Inside, Leased,
    LostReason, Membership, MembershipState, Presence, SessionState, SettledClient, SharedValue,
    Tree, ValueChanges, Versioned, WorkQueue,
};
use zk_session::recipe::Session;
use zk_tests::meter::Pace;
use zk_tests::wait::{PATIENCE, now, soon, status};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::TestServer;

use crate::calls::{Call, apart, call, each_apart, names_the_end, start};
use crate::compound::{self, Held};
use crate::{Caller, LONG_SESSION, Stage, driven_by_callers, drivers};

const QUEUE: &str = "/queues/x";
const TAKERS: &str = "/queues/x/takers";
const VALUE: &str = "/values/text";
const COUNT: &str = "/values/count";
const BARRIER: &str = "/barriers/x";
/// The double barrier that the client has entered, and one that it waits to enter.
const ENTERED: &str = "/barriers/entered";
const MEETING: &str = "/barriers/meeting";
const GROUP: &str = "/groups/x";
/// Number of watches of the recipes in use: two leases, three memberships, a value, a group with its
/// members, and locks.
const WATCHES: usize = 15;
/// Number of watches of the calls that wait for an item, for the barrier, for the double barrier, for
/// the sum, and for three locks.
const WAIT_WATCHES: usize = 10;
/// The same without the sum.
const SHORT_WAIT_WATCHES: usize = WAIT_WATCHES - 1;
/// Timeout of calls that can end in no other way.
const SHORT: Duration = Duration::from_millis(50);

fn queue(client: &Client) -> WorkQueue {
    WorkQueue::new(client, QUEUE).expect("the path is valid")
}

fn value(client: &Client) -> SharedValue {
    SharedValue::new(client, VALUE).expect("the path is valid")
}

fn counter(client: &Client) -> Counter {
    Counter::new(client, COUNT).expect("the path is valid")
}

fn barrier(client: &Client) -> Barrier {
    Barrier::new(client, BARRIER).expect("the path is valid")
}

fn meeting(client: &Client) -> DoubleBarrier {
    DoubleBarrier::new(client, MEETING, 2).expect("the options are legal")
}

fn group(client: &Client) -> Group {
    Group::new(client, GROUP).expect("the path is valid")
}

/// Returns calls of a client that uses nothing yet.
fn new_calls(client: &Client) -> Vec<Call> {
    let (queue, value, counter) = (queue(client), value(client), counter(client));
    let (barrier, group) = (barrier(client), group(client));
    let (mut changes, mut sums, mut watch) = (value.changes(), counter.changes(), group.watch());
    let mut calls = vec![
        call("put", queue.put("x").into_future()),
        call("put of a batch", queue.put_batch(["x", "y"]).into_future()),
        call("take", queue.take().into_future()),
        call("enter", meeting(client).enter().into_future()),
        call("members", group.members()),
        call("first value", async move { changes.next().await }),
        call("first sum", async move { sums.next().await }),
        call("first member", async move { watch.next().await }),
        call("wait", barrier.wait().into_future()),
        call("join", async move { group.join("new", "x").await }),
    ];
    let other = queue.clone();
    calls.push(call("try_take", async move { other.try_take().await }));
    calls.push(call("length", async move { queue.length().await }));
    let other = value.clone();
    calls.push(call("get", async move { other.get().await }));
    let other = value.clone();
    calls.push(call("set", async move { other.set("x").await }));
    calls.push(call("update", async move { value.update(Clone::clone).await }));
    let other = counter.clone();
    calls.push(call("sum", async move { other.get().await }));
    calls.push(call("add", async move { counter.add(1).await }));
    let other = barrier.clone();
    calls.push(call("close", async move { other.close().await }));
    let other = barrier.clone();
    calls.push(call("open", async move { other.open().await }));
    calls.push(call("is_open", async move { barrier.is_open().await }));
    let presence = Presence::builder(client, "/presence").expect("the path is valid");
    calls.push(call("begin", async move { presence.begin("x").await }));
    let (tree, other) = (Tree::of(client), Tree::of(client));
    calls.push(call("ensure", async move { tree.ensure("/paths/a").await }));
    calls.push(call("delete a subtree", async move { other.delete("/paths").await }));
    let settled = SettledClient::new(client, "/markers").expect("the path is valid");
    let other = settled.clone();
    calls.push(call("settled read", async move { other.get_children("/").await }));
    calls.push(call("settled create", async move {
        settled.create("/settled", "", CreateMode::PersistentSequential).await
    }));
    let mut cache = Cache::tree(client, VALUE).build().expect("the path is valid");
    calls.push(call("complete", async move { cache.complete().await }));
    calls.extend(compound::new_calls(client));
    calls
}

/// What a client uses.
struct InUse {
    items: [Leased; 2],
    inside: Inside,
    members: [Membership; 3],
    read: Versioned,
    changes: ValueChanges,
    watch: GroupWatch,
    value: SharedValue,
    locks: Held,
}

impl InUse {
    /// Leases two items, enters a double barrier, joins a group, follows a value and the group, and
    /// closes the barrier. Three members have joined and have been reported. Holds locks.
    async fn begin(client: &Client) -> Self {
        let queue = queue(client);
        queue.put_batch(["a", "b"]).await.expect("they can be put");
        let take = || async { queue.take().await.expect("there is an item") };
        let items = [take().await, take().await];
        let entered = DoubleBarrier::new(client, ENTERED, 1).expect("the options are legal");
        let inside = entered.enter().await.expect("nobody is missing");
        let group = group(client);
        let mut watch = group.watch();
        let mut members = Vec::new();
        for id in ["a", "b", "c"] {
            members.push(group.join(id, "x").await.expect("the id is free"));
            watch.next().await.expect("the group can be read");
        }
        let members = members.try_into().expect("three have joined");
        let value = value(client);
        let read = value.get().await.expect("it can be read");
        let mut changes = value.changes();
        changes.next().await.expect("it can be read");
        barrier(client).close().await.expect("it can be closed");
        let locks = Held::begin(client).await;
        Self { items, inside, members, read, changes, watch, value, locks }
    }

    /// Returns calls that use all of it.
    fn calls(self) -> Vec<Call> {
        let Self { items, inside, members, read, mut changes, mut watch, value, locks } = self;
        let [acknowledged, returned] = items;
        let [written, left, mut observed] = members;
        let mut calls = vec![
            call("ack", acknowledged.ack()),
            call("give_back", returned.give_back()),
            call("leave", inside.leave().into_future()),
            call("compare_and_set", async move { value.compare_and_set(&read, "x").await }),
            call("next value", async move { changes.next().await }),
            call("next member", async move { watch.next().await }),
            call("new data", async move { written.set_data("y").await }),
            call("end of a membership", left.leave()),
            call("state of a membership", async move {
                let state = observed.changed().await;
                if let MembershipState::Ended(ending) = state { Err(ending) } else { Ok(state) }
            }),
        ];
        calls.extend(locks.calls());
        calls
    }
}

/// Returns calls that wait for somebody else. A client that uses something already waits for itself
/// in [`compound::waits`].
fn waits(client: &Client) -> Vec<Call> {
    let mut sums = counter(client).changes();
    vec![
        call("pending take", queue(client).take().into_future()),
        call("pending wait", barrier(client).wait().into_future()),
        call("pending enter", meeting(client).enter().into_future()),
        call("pending sum", async move {
            sums.next().await?;
            sums.next().await
        }),
    ]
}

/// Returns all calls that wait.
fn all_waits(client: &Client) -> Vec<Call> {
    waits(client).into_iter().chain(compound::waits(client)).collect()
}

/// Returns whether each guard and each membership has its watch.
fn is_watched(server: &TestServer) -> bool {
    server.watch_count() >= WATCHES
}

/// Returns whether all calls of [`waits`] and [`compound::waits`] wait, because each has its znode or
/// its watches, of which there are this many.
fn all_wait(server: &TestServer, watches: usize) -> bool {
    let has_children = |path| server.children(path).is_some_and(|names| !names.is_empty());
    let is_watched = server.watch_count() >= WATCHES + watches;
    has_children(TAKERS) && has_children(MEETING) && compound::all_wait(server) && is_watched
}

#[test]
fn the_end_of_the_clients_runtime_is_an_answer_to_every_call() {
    let (stage, drivers) = (Stage::start(), drivers());
    let client = stage.client(&drivers, LONG_SESSION);
    let used = stage.soon("the beginning", InUse::begin(&client));
    let lost = used.items[0].lost();
    stage.until("watches", is_watched);
    let pending = stage.runtime.block_on(async { start(all_waits(&client)) });
    stage.until("calls wait", |server| all_wait(server, WAIT_WATCHES));
    drop(drivers);
    assert_eq!(client.state(), SessionState::Closed);
    let calls = pending.into_iter().chain(used.calls()).chain(new_calls(&client));
    let mut count = 0;
    for (name, call) in calls {
        let error = stage.soon(name, call).expect_err(name);
        assert!(names_the_end(&error), "{name}: {error}");
        count += 1;
    }
    assert_eq!(count, 54);
    assert_eq!(stage.soon("the loss", lost), LostReason::Closed);
}

/// This test runs in virtual time.
#[test]
fn a_client_that_has_expired_and_does_not_renew_answers_every_call() {
    run(async {
        let world = World::shipped().pace(Pace::of(8));
        let client = world.client_with(1, |builder| builder.renew_after_expiry(false)).await;
        let used = InUse::begin(&client).await;
        let lost = used.items[0].lost();
        world.until("watches", is_watched).await;
        let pending = start(all_waits(&client));
        world.until("calls wait", |server| all_wait(server, WAIT_WATCHES)).await;
        world.server.expire(client.session_id().expect("connected"));
        status(&client, "the end", |now| now.state == SessionState::Expired).await;
        for (name, call) in pending.into_iter().chain(used.calls()).chain(new_calls(&client)) {
            let output = soon(name, call).await;
            // The end of the session has returned the item and has removed the participant, the
            // member and the locks, which is all that their callers have asked for.
            let is_done = ["give_back", "leave", "end of a membership"].contains(&name)
                || name.starts_with("release of");
            assert!(output.is_err() || is_done, "{name}: {output:?}");
        }
        assert_eq!(soon("the loss", lost).await, LostReason::SessionExpired);
        assert_eq!(world.server.ephemerals(), []);
    });
}

#[test]
fn every_call_completes_outside_of_tokio() {
    for caller in [Caller::Bare, Caller::Thread] {
        let (stage, drivers) = (Stage::start(), drivers());
        let client = stage.client(&drivers, LONG_SESSION);
        let used = {
            let client = client.clone();
            apart("the beginning", caller, async move { InUse::begin(&client).await })
        };
        stage.until("watches", is_watched);
        let ended = each_apart(caller, all_waits(&client));
        stage.until("calls wait", |server| all_wait(server, WAIT_WATCHES));
        stage.soon("the observer", async {
            queue(&stage.observer).put("c").await.expect("it can be put");
            barrier(&stage.observer).open().await.expect("it can be opened");
            counter(&stage.observer).add(1).await.expect("it can be added");
            let inside = meeting(&stage.observer).enter().await.expect("two have entered");
            drop(inside);
        });
        let complete = |count: usize| {
            for _ in 0..count {
                let (name, output) = ended.recv_timeout(PATIENCE).expect("the calls complete");
                assert_eq!(output, Ok(()), "{name}");
            }
        };
        complete(waits(&client).len());
        let idle = ["next value", "next member", "state of a membership"];
        for (name, call) in used.calls().into_iter().filter(|(name, _)| !idle.contains(name)) {
            assert_eq!(apart(name, caller, call), Ok(()), "{name}");
        }
        // The locks are free now.
        complete(compound::waits(&client).len());
        // The items that puts add are for the takes, and the group has a member while it is read.
        let member = stage.soon("a join", group(&stage.observer).join("last", "x"));
        for (name, call) in new_calls(&client).into_iter().filter(|(name, _)| *name != "enter") {
            assert_eq!(apart(name, caller, call), Ok(()), "{name}");
        }
        let left = stage.soon("a leave", member.expect("the id is free").leave());
        left.expect("it can leave");
        stage.check_clean(&client);
    }
}

/// Drives a runtime until its client has removed everything.
pub(crate) fn drive_until_clean(still: &Runtime, client: &Client, server: &TestServer) {
    still.block_on(soon("the end of the cleanup", async {
        while Session::of(client).janitor_slots_busy() > 0 || !server.ephemerals().is_empty() {
            sleep_ms(1).await;
        }
    }));
}

/// Returns calls with a timeout that begin while the runtime of their client is not driven.
fn short_calls(client: &Client, used: InUse) -> (Vec<Call>, InUseAfterwards) {
    let InUse { items, inside, members, read, changes, mut watch, locks, .. } = used;
    let value = SharedValue::builder(client, VALUE).expect("the path is valid");
    let value = value.timeout(SHORT).build().expect("the options are legal");
    let counter = Counter::builder(client, COUNT).expect("the path is valid");
    let counter = counter.timeout(SHORT).build().expect("the options are legal");
    let group = Group::builder(client, GROUP).expect("the path is valid");
    let group = group.timeout(SHORT).build().expect("the options are legal");
    let mut calls = vec![
        call("take", queue(client).take().timeout(SHORT).into_future()),
        call("wait", barrier(client).wait().timeout(SHORT).into_future()),
        call("enter", meeting(client).enter().timeout(SHORT).into_future()),
        call("leave", inside.leave().timeout(SHORT).into_future()),
        call("next member", async move { watch.next_within(SHORT).await }),
        call("members", group.members()),
        call("join", async move { group.join("new", "x").await }),
    ];
    let other = value.clone();
    calls.push(call("get", async move { other.get().await }));
    let other = value.clone();
    calls.push(call("set", async move { other.set("x").await }));
    let other = value.clone();
    calls.push(call("compare_and_set", async move { other.compare_and_set(&read, "x").await }));
    calls.push(call("update", async move { value.update(Clone::clone).await }));
    let other = counter.clone();
    calls.push(call("sum", async move { other.get().await }));
    calls.push(call("add", async move { counter.add(1).await }));
    let tree = Tree::of(client).timeout(SHORT);
    let other = tree.clone();
    calls.push(call("ensure", async move { other.ensure("/paths/a").await }));
    calls.push(call("delete a subtree", async move { tree.delete("/paths").await }));
    let settled = SettledClient::new(client, "/markers").expect("the path is valid").timeout(SHORT);
    let other = settled.clone();
    calls.push(call("settled read", async move { other.get_children("/").await }));
    calls.push(call("settled create", async move {
        settled.create("/settled", "", CreateMode::PersistentSequential).await
    }));
    calls.extend(compound::short_calls(client, SHORT));
    (calls, InUseAfterwards { items, members, changes, locks })
}

/// What the client still uses after [`short_calls`].
struct InUseAfterwards {
    items: [Leased; 2],
    members: [Membership; 3],
    changes: ValueChanges,
    locks: Held,
}

#[test]
fn every_timeout_comes_although_the_clients_runtime_is_not_driven() {
    for caller in [Caller::Bare, Caller::Thread] {
        let (stage, still) = (Stage::start(), driven_by_callers());
        let client = stage.client(&still, LONG_SESSION);
        let used = still.block_on(soon("the beginning", InUse::begin(&client)));
        let (calls, used) = short_calls(&client, used);
        let mut undecided = BTreeMap::new();
        for (name, call) in calls {
            let error = apart(name, caller, call).expect_err(name);
            assert!(error.contains("timed out after"), "{name}: {error}");
            undecided.insert(name, error.contains("Undecided"));
        }
        undecided.retain(|_, is_undecided| *is_undecided);
        // Only writes that may have been sent are undecided.
        assert!(undecided.keys().all(|name| ["set", "compare_and_set"].contains(name)));
        // The runtime is driven again, and everything works.
        let InUseAfterwards { items, members, changes, locks } = used;
        still.block_on(soon("the end", async {
            let [acknowledged, returned] = items;
            acknowledged.ack().await.expect("the lease is held");
            returned.give_back().await.expect("the lease can be deleted");
            for member in members {
                member.leave().await.expect("it can leave");
            }
            drop(changes);
            for (name, call) in locks.calls() {
                assert_eq!(call.await, Ok(()), "{name}");
            }
            assert_eq!(queue(&client).length().await, Ok(1));
            value(&client).set("last").await.expect("it can be written");
        }));
        drive_until_clean(&still, &client, &stage.server);
    }
}

/// Returns calls that wait for this long.
fn short_waits(client: &Client, mut watch: GroupWatch, timeout: Duration) -> Vec<Call> {
    let mut calls = vec![
        call("take", queue(client).take().timeout(timeout).into_future()),
        call("wait", barrier(client).wait().timeout(timeout).into_future()),
        call("enter", meeting(client).enter().timeout(timeout).into_future()),
        call("next member", async move { watch.next_within(timeout).await }),
    ];
    calls.extend(compound::short_waits(client, timeout));
    calls
}

/// The runtime of the client is driven until the calls wait for an event.
#[test]
fn a_wait_that_has_begun_times_out_although_the_clients_runtime_is_no_longer_driven() {
    for caller in [Caller::Bare, Caller::Thread] {
        let mut timeout = SHORT;
        // On a slow machine, the calls may time out before all of them wait.
        while !stops_while_all_wait(caller, timeout) {
            timeout *= 2;
        }
    }
}

fn stops_while_all_wait(caller: Caller, timeout: Duration) -> bool {
    let (stage, still) = (Stage::start(), driven_by_callers());
    let client = stage.client(&still, LONG_SESSION);
    let used = still.block_on(soon("the beginning", async {
        let used = InUse::begin(&client).await;
        while !is_watched(&stage.server) {
            sleep_ms(1).await;
        }
        used
    }));
    let mut calls = short_waits(&client, used.watch, timeout);
    let is_in_time = still.block_on(soon("the waits", async {
        loop {
            for (_, call) in &mut calls {
                if now(call.as_mut()).is_some() {
                    return false;
                }
            }
            if all_wait(&stage.server, SHORT_WAIT_WATCHES) {
                return true;
            }
            sleep_ms(1).await;
        }
    }));
    if is_in_time {
        for (name, call) in calls {
            let error = apart(name, caller, call).expect_err(name);
            assert!(error.contains("timed out after"), "{name}: {error}");
        }
    } else {
        // Calls that nobody polls would keep their znodes.
        drop(calls);
    }
    drop((used.items, used.inside, used.members, used.locks));
    drive_until_clean(&still, &client, &stage.server);
    is_in_time
}

/// Calls without a timeout wait for the runtime of their client. Their callers can drop them.
#[test]
fn calls_that_were_dropped_while_the_clients_runtime_was_not_driven_leave_nothing() {
    let (stage, still) = (Stage::start(), driven_by_callers());
    let client = stage.client(&still, LONG_SESSION);
    let used = still.block_on(soon("the beginning", InUse::begin(&client)));
    let calls = used.calls().into_iter().chain(all_waits(&client)).chain(new_calls(&client));
    stage.runtime.block_on(async {
        let calls: Vec<_> = calls.collect();
        for (name, call) in calls {
            let ended = tokio::time::timeout(Duration::from_millis(5), call).await;
            assert!(ended.is_err(), "{name} has completed without its client: {ended:?}");
        }
    });
    drive_until_clean(&still, &client, &stage.server);
}
