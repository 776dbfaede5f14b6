//! Locks that are made of other locks: their calls, for the tests of the module `coordination`, and
//! callers whose own runtime ends or is not driven.

use std::future::{IntoFuture as _, pending};
use std::sync::Arc;
use std::time::Duration;

use zk_recipes::kind::Fair;
use zk_recipes::{
    Client, ExclusiveLock, FairLock, Guard, Holder, Level, LockError, LockState, LostReason,
    MultiGuard, MultiLock, NamedLocks,
};
use zk_session::recipe::Session;
use zk_tests::wait::{PATIENCE, soon};
use zk_tests::world::sleep_ms;
use zk_testserver::TestServer;

use crate::calls::{Call, apart, call, each_apart, start};
use crate::{BLOCKED_SESSION, Blocked, Caller, LONG_SESSION, Stage, driven_by_callers, drivers};

const NAMES: &str = "/locks/names";
/// The name of a lock that the client holds, and a name that nobody uses.
const HELD: &str = "held";
const NEW: &str = "new";

/// Returns the named lock with this name.
fn named(client: &Client, name: &str) -> FairLock {
    let names = NamedLocks::new(client, NAMES).expect("the path is valid");
    names.lock(name).expect("the name is valid")
}

/// Returns a multi-lock of two locks below this name.
fn several(client: &Client, name: &str) -> MultiLock {
    let fair = FairLock::new(client, &format!("/several/{name}/a")).expect("the path is valid");
    let exclusive = ExclusiveLock::new(client, &format!("/several/{name}/b"));
    let locks = MultiLock::builder().with(&fair).with(exclusive.expect("the path is valid"));
    locks.build().expect("the paths differ")
}

/// Returns a new holder of the lock with this name.
fn holder(client: &Client, name: &str) -> Holder<Fair> {
    let lock = FairLock::new(client, &format!("/reentrant/{name}"));
    Holder::new(lock.expect("the path is valid"))
}

/// Locks that a client holds.
pub(crate) struct Held {
    name: Guard,
    several: MultiGuard,
    proved: MultiGuard,
    holder: Holder<Fair>,
    level: Level<Fair>,
}

impl Held {
    pub(crate) async fn begin(client: &Client) -> Self {
        let holder = holder(client, HELD);
        Self {
            name: named(client, HELD).acquire().await.expect("it is free"),
            several: several(client, HELD).acquire().await.expect("they are free"),
            proved: several(client, "proved").acquire().await.expect("they are free"),
            level: holder.acquire().await.expect("it is free"),
            holder,
        }
    }

    fn is_held(&self) -> bool {
        let states = [self.name.state(), self.level.state()];
        let several = [self.several.state(), self.proved.state()];
        states.into_iter().chain(several).all(|state| state == LockState::Held)
    }

    /// Returns calls that use all of it.
    pub(crate) fn calls(self) -> Vec<Call> {
        let Self { name, several, proved, holder, level } = self;
        vec![
            call("release of a name", name.release()),
            call("release of several", several.release()),
            call("proof of several", async move { proved.validate().await }),
            call("nested level", async move {
                let inner = holder.acquire().await?;
                inner.validate().await
            }),
            call("release of a level", async move { level.release().await }),
        ]
    }
}

/// Returns calls of a client that holds nothing yet.
pub(crate) fn new_calls(client: &Client) -> Vec<Call> {
    let (name, several, holder) = (named(client, NEW), several(client, NEW), holder(client, NEW));
    vec![
        call("acquire of a name", name.acquire().into_future()),
        call("try of a name", name.try_acquire().into_future()),
        call("acquire of several", several.acquire().into_future()),
        call("try of several", async move { several.try_acquire().await }),
        call("level", holder.acquire().into_future()),
        call("try of a level", holder.try_acquire().into_future()),
    ]
}

/// Returns calls that wait for what the client itself [holds](Held), because each contender excludes
/// all others. Two callers share a holder, and one of them waits for the other.
pub(crate) fn waits(client: &Client) -> Vec<Call> {
    let holder = holder(client, HELD);
    vec![
        call("pending acquire of a name", named(client, HELD).acquire().into_future()),
        call("pending acquire of several", several(client, HELD).acquire().into_future()),
        call("pending level", holder.acquire().into_future()),
        call("pending second level", holder.acquire().into_future()),
    ]
}

/// Returns the calls of [`waits`], with a timeout.
pub(crate) fn short_waits(client: &Client, timeout: Duration) -> Vec<Call> {
    let holder = holder(client, HELD);
    let (name, several) = (named(client, HELD).acquire(), several(client, HELD).acquire());
    vec![
        call("acquire of a name", name.timeout(timeout).into_future()),
        call("acquire of several", several.timeout(timeout).into_future()),
        call("level", holder.acquire().timeout(timeout).into_future()),
        call("second level", holder.acquire().timeout(timeout).into_future()),
    ]
}

/// Returns calls with a timeout of a client that holds nothing yet.
pub(crate) fn short_calls(client: &Client, timeout: Duration) -> Vec<Call> {
    let (name, holder) = (named(client, NEW), holder(client, NEW));
    vec![
        call("acquire of a name", name.acquire().timeout(timeout).into_future()),
        call("try of a name", name.try_acquire().timeout(timeout).into_future()),
        call("acquire of several", several(client, NEW).acquire().timeout(timeout).into_future()),
        call("level", holder.acquire().timeout(timeout).into_future()),
        call("try of a level", holder.try_acquire().timeout(timeout).into_future()),
    ]
}

/// Returns the number of contenders in each queue of [`waits`].
fn places(server: &TestServer) -> [usize; 3] {
    [format!("{NAMES}/{HELD}"), format!("/several/{HELD}/a"), format!("/reentrant/{HELD}")]
        .map(|queue| server.children(&queue).map_or(0, |names| names.len()))
}

/// Returns whether the calls of [`waits`] have their places behind those who hold the locks.
pub(crate) fn all_wait(server: &TestServer) -> bool {
    places(server) == [2; 3]
}

#[test]
fn locks_from_a_runtime_that_ended_are_held_and_can_be_used() {
    for caller in [Caller::Bare, Caller::Thread] {
        let (stage, drivers) = (Stage::start(), drivers());
        let client = stage.client(&drivers, LONG_SESSION);
        let held = driven_by_callers().block_on(Held::begin(&client));
        assert!(held.is_held());
        for (name, call) in held.calls() {
            assert_eq!(apart(name, caller, call), Ok(()), "{name}");
        }
        stage.check_clean(&client);
    }
}

#[test]
fn locks_from_a_runtime_that_ended_are_released_on_drop() {
    let (stage, drivers) = (Stage::start(), drivers());
    let client = stage.client(&drivers, LONG_SESSION);
    let held = driven_by_callers().block_on(Held::begin(&client));
    assert!(held.is_held());
    drop(held);
    drop(stage.soon("the locks", Held::begin(&stage.observer)));
    stage.check_clean(&client);
}

#[test]
fn waits_on_a_runtime_that_ends_leave_nothing() {
    let (stage, drivers) = (Stage::start(), drivers());
    let client = stage.client(&drivers, LONG_SESSION);
    let rival = stage.soon("the beginning", Held::begin(&stage.observer));
    let short = driven_by_callers();
    let calls = short.block_on(soon("the waits", async {
        let calls = start(waits(&client));
        while !all_wait(&stage.server) {
            sleep_ms(1).await;
        }
        calls
    }));
    drop(short);
    drop(calls);
    stage.until("the end of the cleanup", |server| {
        places(server) == [1; 3] && Session::of(&client).janitor_slots_busy() == 0
    });
    assert!(rival.is_held());
    drop(rival);
    stage.check_clean(&client);
}

/// A caller has the turn of its holder while nobody drives its runtime. The other callers wait for it
/// until their timeouts, or until it is dropped, whether or not it was granted the lock by then.
#[test]
fn a_caller_that_nobody_drives_does_not_hold_up_its_holder_forever() {
    const SHORT: Duration = Duration::from_millis(50);
    for is_granted in [false, true] {
        let (stage, drivers, still) = (Stage::start(), drivers(), driven_by_callers());
        let client = stage.client(&drivers, LONG_SESSION);
        let rival = stage.soon("the beginning", Held::begin(&stage.observer));
        let holder = holder(&client, HELD);
        still.spawn(holder.acquire().into_future());
        still.block_on(soon("a wait", async {
            while places(&stage.server) != [1, 1, 2] {
                sleep_ms(1).await;
            }
        }));
        for caller in [Caller::Bare, Caller::Thread] {
            let timed = holder.acquire().timeout(SHORT).into_future();
            let timed = apart("an acquire", caller, timed).map(drop);
            assert!(matches!(timed, Err(LockError::TimedOut(_))), "{timed:?}");
            let tried = apart("a try", caller, holder.try_acquire().into_future());
            assert!(tried.expect("it sends nothing").is_none());
        }
        let next = stage.runtime.spawn(holder.acquire().into_future());
        let rival = if is_granted {
            drop(rival);
            stage.until("the end of the rival", |server| places(server) == [0, 0, 1]);
            None
        } else {
            Some(rival)
        };
        assert!(!next.is_finished(), "the first has the turn");
        drop(still);
        drop(rival);
        let level = stage.soon("the lock", next).expect("no panic").expect("it is free");
        assert_eq!((level.state(), holder.levels()), (LockState::Held, 1));
        drop(level);
        stage.check_clean(&client);
    }
}

#[test]
fn deadlines_of_several_locks_and_of_levels_come_although_the_clients_runtime_stands_still() {
    for caller in [Caller::Bare, Caller::Thread] {
        let (stage, drivers) = (Stage::start(), drivers());
        let client = stage.client(&drivers, BLOCKED_SESSION);
        let Held { name, several: held, proved, holder, level } =
            stage.soon("the beginning", Held::begin(&client));
        let (held, watched, level) = (Arc::new(held), proved.lost(), Arc::new(level));
        let acquire = several(&client, HELD).acquire().timeout(Duration::from_millis(200));
        let blocked = Blocked::new(&drivers);
        let (body, leveled) = (Arc::clone(&held), Arc::clone(&level));
        let calls = [
            call("acquire", acquire.into_future()),
            call("body", async move { body.run(pending::<()>()).await }),
            call("body of a level", async move { leveled.run(pending::<()>()).await }),
            call("lost", async move { Err::<(), _>(watched.await) }),
        ];
        let ended = each_apart(caller, calls);
        for _ in 0..4 {
            let (name, output) = ended.recv_timeout(PATIENCE).expect("the calls complete");
            let error = output.expect_err(name);
            let passed = LostReason::DeadlinePassed.to_string();
            let reason = if name == "acquire" { "timed out after" } else { &passed };
            assert!(error.contains(reason), "{name}: {error}");
        }
        let lost = LockState::Lost(LostReason::DeadlinePassed);
        assert_eq!([held.state(), proved.state(), level.state()], [lost; 3]);
        let nested = apart("a nested level", caller, holder.acquire().into_future()).map(drop);
        assert_eq!(nested, Err(LockError::Lost(LostReason::DeadlinePassed)));
        blocked.end();
        drop((name, held, proved, level));
        stage.check_clean(&client);
    }
}
