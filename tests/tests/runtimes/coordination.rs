//! The calls of the recipes without a lock and of the work queue, on a client whose runtime ends, is
//! not driven, or is not the runtime of the caller. Each call must complete: with a result, an error,
//! or at its timeout.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::{Future, IntoFuture as _};
use std::pin::Pin;
use std::sync::mpsc;
use std::time::Duration;

use tokio::runtime::Runtime;
use zk_recipes::{
    Barrier, Client, Counter, DoubleBarrier, Group, GroupWatch, Inside, Leased, LostReason,
    Membership, MembershipState, SessionState, SharedValue, ValueChanges, Versioned, WorkQueue,
};
use zk_session::recipe::Session;
use zk_tests::meter::Pace;
use zk_tests::scene::spawn;
use zk_tests::wait::{PATIENCE, now, soon, status};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::TestServer;

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

/// A call with its name. It completes with a description of its error.
type Call = (&'static str, Pin<Box<dyn Future<Output = Result<(), String>> + Send>>);

fn call<T, E: Debug>(
    name: &'static str,
    future: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Call {
    let future = async move {
        let output = future.await;
        output.map(drop).map_err(|error| format!("{error:?}"))
    };
    (name, Box::pin(future))
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
}

impl InUse {
    /// Leases two items, enters a double barrier, joins a group, follows a value and the group, and
    /// closes the barrier. Three members have joined and have been reported.
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
        Self { items, inside, members, read, changes, watch, value }
    }

    /// Returns calls that use all of it.
    fn calls(self) -> Vec<Call> {
        let Self { items, inside, members, read, mut changes, mut watch, value } = self;
        let [acknowledged, returned] = items;
        let [written, left, mut observed] = members;
        vec![
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
        ]
    }
}

/// Returns calls that wait for somebody else.
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

/// Returns whether the calls of [`waits`] wait: each has its znode or its watch.
fn all_wait(server: &TestServer, watches_before: usize) -> bool {
    let has_children = |path| server.children(path).is_some_and(|names| !names.is_empty());
    has_children(TAKERS) && has_children(MEETING) && server.watch_count() >= watches_before + 4
}

/// Starts calls as tasks.
fn start(calls: Vec<Call>) -> Vec<Call> {
    let start = |(name, future)| {
        let task = spawn(future);
        let output = async move { task.await.expect("a call does not panic") };
        (name, Box::pin(output) as Pin<Box<_>>)
    };
    calls.into_iter().map(start).collect()
}

#[test]
fn the_end_of_the_clients_runtime_is_an_answer_to_every_call() {
    let (stage, drivers) = (Stage::start(), drivers());
    let client = stage.client(&drivers, LONG_SESSION);
    let used = stage.soon("the beginning", InUse::begin(&client));
    let lost = used.items[0].lost();
    let before = stage.server.watch_count();
    let pending = stage.runtime.block_on(async { start(waits(&client)) });
    stage.until("calls wait", |server| all_wait(server, before));
    drop(drivers);
    assert_eq!(client.state(), SessionState::Closed);
    let calls = pending.into_iter().chain(used.calls()).chain(new_calls(&client));
    let mut count = 0;
    for (name, call) in calls {
        let error = stage.soon(name, call).expect_err(name);
        let is_told = ["Closed", "ClientStopped"].iter().any(|reason| error.contains(reason));
        assert!(is_told, "{name}: {error}");
        count += 1;
    }
    assert_eq!(count, 33);
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
        let before = world.server.watch_count();
        let pending = start(waits(&client));
        world.until("calls wait", |server| all_wait(server, before)).await;
        world.server.expire(client.session_id().expect("connected"));
        status(&client, "the end", |now| now.state == SessionState::Expired).await;
        for (name, call) in pending.into_iter().chain(used.calls()).chain(new_calls(&client)) {
            let output = soon(name, call).await;
            // The end of the session has returned the item and has removed the participant and the
            // member, which is all that their callers have asked for.
            let is_done = ["give_back", "leave", "end of a membership"].contains(&name);
            assert!(output.is_err() || is_done, "{name}: {output:?}");
        }
        assert_eq!(soon("the loss", lost).await, LostReason::SessionExpired);
        assert_eq!(world.server.ephemerals(), []);
    });
}

/// Waits for a future on its own thread, so that a call that hangs does not hang the test.
#[expect(clippy::disallowed_methods, reason = "a thread that hangs must not be joined")]
fn apart<T: Send + 'static>(
    what: &str,
    caller: Caller,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(caller.wait(future)));
    let ended = ended.recv_timeout(PATIENCE);
    ended.unwrap_or_else(|_| panic!("{what} has panicked, or did not come within {PATIENCE:?}"))
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
        // These calls wait for the observer.
        let before = stage.server.watch_count();
        let (sender, ended) = mpsc::channel();
        for (name, wait) in waits(&client) {
            let sender = sender.clone();
            #[expect(
                clippy::disallowed_methods,
                reason = "a thread that hangs must not be joined"
            )]
            std::thread::spawn(move || sender.send((name, caller.wait(wait))));
        }
        stage.until("calls wait", |server| all_wait(server, before));
        stage.soon("the observer", async {
            queue(&stage.observer).put("c").await.expect("it can be put");
            barrier(&stage.observer).open().await.expect("it can be opened");
            counter(&stage.observer).add(1).await.expect("it can be added");
            let inside = meeting(&stage.observer).enter().await.expect("two have entered");
            drop(inside);
        });
        for _ in 0..4 {
            let (name, output) = ended.recv_timeout(PATIENCE).expect("the calls complete");
            assert_eq!(output, Ok(()), "{name}");
        }
        let idle = ["next value", "next member", "state of a membership"];
        for (name, call) in used.calls().into_iter().filter(|(name, _)| !idle.contains(name)) {
            assert_eq!(apart(name, caller, call), Ok(()), "{name}");
        }
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
fn drive_until_clean(still: &Runtime, client: &Client, server: &TestServer) {
    still.block_on(soon("the end of the cleanup", async {
        while Session::of(client).janitor_slots_busy() > 0 || !server.ephemerals().is_empty() {
            sleep_ms(1).await;
        }
    }));
}

/// Returns calls with a timeout that begin while the runtime of their client is not driven.
fn short_calls(client: &Client, used: InUse) -> (Vec<Call>, InUseAfterwards) {
    let InUse { items, inside, members, read, changes, mut watch, .. } = used;
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
    (calls, InUseAfterwards { items, members, changes })
}

/// What the client still uses after [`short_calls`].
struct InUseAfterwards {
    items: [Leased; 2],
    members: [Membership; 3],
    changes: ValueChanges,
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
            assert!(error.contains("TimedOut"), "{name}: {error}");
            undecided.insert(name, error.contains("Undecided"));
        }
        undecided.retain(|_, is_undecided| *is_undecided);
        // Only writes that may have been sent are undecided.
        assert!(undecided.keys().all(|name| ["set", "compare_and_set"].contains(name)));
        // The runtime is driven again, and everything works.
        let InUseAfterwards { items, members, changes } = used;
        still.block_on(soon("the end", async {
            let [acknowledged, returned] = items;
            acknowledged.ack().await.expect("the lease is held");
            returned.give_back().await.expect("the lease can be deleted");
            for member in members {
                member.leave().await.expect("it can leave");
            }
            drop(changes);
            assert_eq!(queue(&client).length().await, Ok(1));
            value(&client).set("last").await.expect("it can be written");
        }));
        drive_until_clean(&still, &client, &stage.server);
    }
}

/// Returns calls that wait for somebody else, for this long.
fn short_waits(client: &Client, mut watch: GroupWatch, timeout: Duration) -> Vec<Call> {
    vec![
        call("take", queue(client).take().timeout(timeout).into_future()),
        call("wait", barrier(client).wait().timeout(timeout).into_future()),
        call("enter", meeting(client).enter().timeout(timeout).into_future()),
        call("next member", async move { watch.next_within(timeout).await }),
    ]
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
    let used = still.block_on(soon("the beginning", InUse::begin(&client)));
    let before = stage.server.watch_count();
    let mut calls = short_waits(&client, used.watch, timeout);
    let has_children =
        |path| stage.server.children(path).is_some_and(|names: Vec<_>| !names.is_empty());
    // The taker watches the items and their leases; the barrier is one watch, and the double barrier
    // two.
    let all_wait = || {
        has_children(TAKERS) && has_children(MEETING) && stage.server.watch_count() >= before + 5
    };
    let is_in_time = still.block_on(soon("the waits", async {
        loop {
            for (_, call) in &mut calls {
                if now(call.as_mut()).is_some() {
                    return false;
                }
            }
            if all_wait() {
                return true;
            }
            sleep_ms(1).await;
        }
    }));
    if is_in_time {
        for (name, call) in calls {
            let error = apart(name, caller, call).expect_err(name);
            assert!(error.contains("TimedOut"), "{name}: {error}");
        }
    }
    drop((used.items, used.inside, used.members));
    drive_until_clean(&still, &client, &stage.server);
    is_in_time
}

/// Calls without a timeout wait for the runtime of their client. Their callers can drop them.
#[test]
fn calls_that_were_dropped_while_the_clients_runtime_was_not_driven_leave_nothing() {
    let (stage, still) = (Stage::start(), driven_by_callers());
    let client = stage.client(&still, LONG_SESSION);
    let used = still.block_on(soon("the beginning", InUse::begin(&client)));
    let calls = used.calls().into_iter().chain(waits(&client)).chain(new_calls(&client));
    stage.runtime.block_on(async {
        let calls: Vec<_> = calls.collect();
        for (name, call) in calls {
            let ended = tokio::time::timeout(Duration::from_millis(5), call).await;
            assert!(ended.is_err(), "{name} has completed without its client: {ended:?}");
        }
    });
    drive_until_clean(&still, &client, &stage.server);
}
