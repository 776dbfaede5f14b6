//! Callers and clients on runtimes that end, that no thread drives, that are blocked, or that do
//! not belong to tokio.
//!
//! The servers and the observer, which is an ordinary client, share one runtime. These tests run in
//! real time, but do not depend on the speed of the machine: only failures wait for a timeout.
//!
//! The tests of this file are those of single locks. The module `recipes` tests the calls that each
//! recipe declares, `coordination` calls that wait for others or use what other calls have returned,
//! and `compound` the locks that are made of other locks.

mod calls;
mod compound;
mod coordination;
mod counters;
mod recipes;

use std::collections::BTreeMap;
use std::future::{Future, IntoFuture as _};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;
use zk_session::CloseOutcome;
use zk_session::recipe::Session;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use zk_recipes::{
    Client, CreateMode, FairLock, Guard, LockError, LockState, LostReason, Multi, Released,
    SessionState, Stopped, TransactionError,
};
use zk_tests::case::Case;
use zk_tests::for_each_lock;
use zk_tests::lock::Waiter;
use zk_tests::scene::spawn;
use zk_tests::wait::{PATIENCE, now, soon, status};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{ServerConfig, TestServer};

/// Timeout of sessions that must not expire, however slow the machine is.
const LONG_SESSION: Duration = Duration::from_secs(60);
/// Timeout of sessions that are meant to expire.
const SHORT_SESSION: Duration = Duration::from_secs(1);
/// Timeout of sessions that expire while a test waits for the expiry. There are 2 s between the
/// last deadline of a guard and the end of its session.
const BLOCKED_SESSION: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_millis(100);
/// A time longer than any test takes.
const AGES: Duration = Duration::from_secs(3600);

for_each_lock! {
    #[test] locks: [
        a_guard_can_be_released_by_any_task_thread_or_runtime,
        a_guard_from_a_runtime_that_ended_can_be_released,
        a_guard_from_a_runtime_that_nobody_drives_is_watched,
        the_end_of_the_clients_runtime_is_an_answer_to_every_call,
        a_client_that_has_expired_and_does_not_renew_answers_every_call,
    ]
    #[test] pairs: [
        a_guard_from_a_runtime_that_ended_is_held_and_released_on_drop,
        a_guard_from_a_runtime_that_ended_is_watched,
        a_guard_from_a_runtime_that_nobody_drives_is_released_on_drop,
        a_guard_from_a_runtime_that_nobody_drives_is_not_held_beside_another,
        an_acquire_on_a_runtime_that_ends_leaves_nothing,
        an_acquire_outside_of_tokio_waits_for_its_turn,
        an_acquire_outside_of_tokio_times_out,
        the_end_of_the_clients_runtime_is_the_end_of_its_guards,
        a_body_is_stopped_in_time_although_the_clients_runtime_stands_still,
        deadlines_come_on_a_runtime_without_timers,
        deadlines_come_outside_of_tokio,
    ]
}

/// The servers, and a client that observes the lock.
struct Stage {
    runtime: Runtime,
    server: TestServer,
    hosts: String,
    observer: Client,
}

impl Stage {
    fn start() -> Self {
        let runtime = drivers();
        let (server, hosts, observer) = runtime.block_on(async {
            let config = ServerConfig::default().tick(TICK).max_session_timeout(LONG_SESSION);
            let server = TestServer::start(config);
            let hosts = server.listen("127.0.0.1:0").await.expect("a free port").to_string();
            let observer = Client::builder(&hosts).session_timeout(LONG_SESSION).connect().await;
            (server, hosts, observer.expect("it listens"))
        });
        Self { runtime, server, hosts, observer }
    }

    /// Connects a client whose task runs on this runtime.
    fn client(&self, runtime: &Runtime, timeout: Duration) -> Client {
        let builder = Client::builder(&self.hosts).session_timeout(timeout);
        runtime.block_on(builder.connect()).expect("it listens")
    }

    /// Waits for a future that should complete soon, on the runtime of the observer.
    fn soon<T>(&self, what: &str, future: impl Future<Output = T>) -> T {
        // Without its type, so that not each call has its own copy of the runtime.
        let future: Pin<&mut dyn Future<Output = T>> = pin!(future);
        self.runtime.block_on(soon(what, future))
    }

    /// Waits until a condition holds.
    fn until(&self, what: &str, condition: impl Fn(&TestServer) -> bool) {
        self.soon(what, async {
            while !condition(&self.server) {
                sleep_ms(1).await;
            }
        });
    }

    /// Acquires the lock for the observer. The lock must be free, or become free soon.
    fn rival<C: Case>(&self) -> Guard<C::Kind> {
        let acquire = C::of(&self.observer).acquire().timeout(PATIENCE);
        self.soon("the lock", acquire.into_future()).expect("the lock is free")
    }

    /// Checks that no contender and no duty of the janitor is left.
    fn check_clean(&self, client: &Client) {
        self.until("the end of the cleanup", |server| {
            server.ephemerals().is_empty() && Session::of(client).janitor_slots_busy() == 0
        });
    }
}

/// Creates a runtime with its own thread.
fn drivers() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// Creates a runtime that runs only while a caller blocks on it.
fn driven_by_callers() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn acquire_in<C: Case>(runtime: &Runtime, client: &Client) -> Guard<C::Kind> {
    let acquire = C::of(client).acquire().timeout(PATIENCE);
    runtime.block_on(acquire.into_future()).expect("the lock is free")
}

fn a_guard_from_a_runtime_that_ended_is_held_and_released_on_drop<H: Case, W: Case>() {
    let (stage, drivers) = (Stage::start(), drivers());
    let client = stage.client(&drivers, LONG_SESSION);
    let guard = acquire_in::<W>(&driven_by_callers(), &client);
    assert_eq!(guard.state(), LockState::Held);
    let lost = guard.lost();
    drop(guard);
    assert_eq!(stage.soon("the release", lost), LostReason::Released);
    drop(stage.rival::<H>());
    stage.check_clean(&client);
}

fn a_guard_from_a_runtime_that_ended_can_be_released<C: Case>() {
    let (stage, drivers) = (Stage::start(), drivers());
    let client = stage.client(&drivers, LONG_SESSION);
    let guard = acquire_in::<C>(&driven_by_callers(), &client);
    assert_eq!(stage.soon("a release", guard.release()), Ok(Released::Released));
    // The guard is acquired on another runtime, which also ends.
    let guard = acquire_in::<C>(&driven_by_callers(), &client);
    assert_eq!(driven_by_callers().block_on(guard.release()), Ok(Released::Released));
    stage.check_clean(&client);
}

/// The lock does not belong to the task or thread that has acquired it.
fn a_guard_can_be_released_by_any_task_thread_or_runtime<C: Case>() {
    let (stage, drivers) = (Stage::start(), drivers());
    let client = stage.client(&drivers, LONG_SESSION);
    // Another task of the client's runtime.
    let guard = acquire_in::<C>(&drivers, &client);
    let releasing = drivers.spawn(guard.release());
    let released = stage.soon("a release", releasing);
    assert_eq!(released.expect("the task does not panic"), Ok(Released::Released));
    // A thread without a runtime, which waits for the result or does not.
    for is_dropped in [false, true] {
        let guard = acquire_in::<C>(&drivers, &client);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                if is_dropped {
                    drop(guard);
                } else {
                    assert_eq!(block_on(guard.release()), Ok(Released::Released));
                }
            });
        });
    }
    // Another runtime.
    let guard = acquire_in::<C>(&drivers, &client);
    assert_eq!(driven_by_callers().block_on(guard.release()), Ok(Released::Released));
    stage.check_clean(&client);
}

fn a_guard_from_a_runtime_that_ended_is_watched<H: Case, W: Case>() {
    let (stage, drivers) = (Stage::start(), drivers());
    let client = stage.client(&drivers, LONG_SESSION);
    let guard = acquire_in::<W>(&driven_by_callers(), &client);
    // The test deletes the znode, as an administrator might.
    assert!(stage.server.admin_delete(guard.path()));
    assert_eq!(stage.soon("the loss", guard.lost()), LostReason::ZnodeDeleted);
    drop(stage.rival::<H>());
    drop(guard);
    stage.check_clean(&client);
}

fn a_guard_from_a_runtime_that_nobody_drives_is_released_on_drop<H: Case, W: Case>() {
    let (stage, drivers, still) = (Stage::start(), drivers(), driven_by_callers());
    let client = stage.client(&drivers, LONG_SESSION);
    let guard = acquire_in::<W>(&still, &client);
    assert_eq!(guard.state(), LockState::Held);
    drop(guard);
    drop(stage.rival::<H>());
    stage.check_clean(&client);
}

fn a_guard_from_a_runtime_that_nobody_drives_is_watched<C: Case>() {
    let (stage, drivers, still) = (Stage::start(), drivers(), driven_by_callers());
    let client = stage.client(&drivers, LONG_SESSION);
    let guard = acquire_in::<C>(&still, &client);
    assert!(stage.server.admin_delete(guard.path()));
    assert_eq!(stage.soon("the loss", guard.lost()), LostReason::ZnodeDeleted);
    assert_eq!(guard.state(), LockState::Lost(LostReason::ZnodeDeleted));
    drop(guard);
    stage.check_clean(&client);
}

/// The client's task keeps running, but can no longer reach a server.
fn a_guard_from_a_runtime_that_nobody_drives_is_not_held_beside_another<H: Case, W: Case>() {
    let (stage, drivers, still) = (Stage::start(), drivers(), driven_by_callers());
    let is_cut_off = Arc::new(AtomicBool::new(false));
    let (cut_off, hosts) = (Arc::clone(&is_cut_off), stage.hosts.clone());
    let transport = move |_host| {
        let (cut_off, hosts) = (Arc::clone(&cut_off), hosts.clone());
        async move {
            if cut_off.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            TcpStream::connect(hosts).await
        }
    };
    let builder = Client::builder(&stage.hosts).session_timeout(SHORT_SESSION);
    let client = drivers.block_on(builder.transport(transport).connect()).expect("it listens");
    let guard = acquire_in::<W>(&still, &client);
    is_cut_off.store(true, Ordering::Relaxed);
    stage.server.pause_connection(guard.session(), AGES);
    let rival = stage.rival::<H>();
    assert_eq!(rival.state(), LockState::Held);
    assert_ne!(guard.state(), LockState::Held, "beside another");
}

fn an_acquire_on_a_runtime_that_ends_leaves_nothing<H: Case, W: Case>() {
    let (stage, drivers) = (Stage::start(), drivers());
    let client = stage.client(&drivers, LONG_SESSION);
    let rival = stage.rival::<H>();
    let short = driven_by_callers();
    short.block_on(async {
        let waiting = spawn(W::of(&client).acquire().into_future());
        // The wait has begun when the waiter has its place, and its watch in addition to the
        // rival's watch.
        soon("a wait", async {
            while Session::of(&client).janitor_slots_busy() == 0 || stage.server.watch_count() < 2 {
                sleep_ms(1).await;
            }
        })
        .await;
        assert!(!waiting.is_finished());
    });
    drop(short);
    stage.soon("the end of the cleanup", async {
        while Session::of(&client).janitor_slots_busy() > 0 || stage.server.ephemerals().len() > 1 {
            sleep_ms(1).await;
        }
    });
    assert_eq!(rival.state(), LockState::Held);
    assert_eq!(stage.soon("a release", rival.release()), Ok(Released::Released));
    stage.check_clean(&client);
}

/// Runs a future on the smallest possible executor: one future, one thread, no timers.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn an_acquire_outside_of_tokio_waits_for_its_turn<H: Case, W: Case>() {
    let (stage, drivers) = (Stage::start(), drivers());
    let client = stage.client(&drivers, LONG_SESSION);
    let rival = stage.rival::<H>();
    let (acquire, mut phases) = W::shipped(&client).acquire().timeout(PATIENCE).phases();
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| block_on(acquire.into_future()));
        let queued = async {
            while !matches!(phases.current(), zk_recipes::Phase::Queued { .. }) {
                phases.next().await.expect("it waits");
            }
        };
        stage.soon("a place in the queue", queued);
        assert_eq!(stage.soon("a release", rival.release()), Ok(Released::Released));
        let guard = waiting.join().expect("the task does not panic").expect("the lock is free");
        assert_eq!(block_on(guard.release()), Ok(Released::Released));
    });
    stage.check_clean(&client);
}

fn an_acquire_outside_of_tokio_times_out<H: Case, W: Case>() {
    let (stage, drivers) = (Stage::start(), drivers());
    let client = stage.client(&drivers, LONG_SESSION);
    let rival = stage.rival::<H>();
    let acquire = W::shipped(&client).acquire().timeout(Duration::from_millis(200));
    let (sender, ended) = mpsc::channel();
    std::thread::scope(|threads| {
        threads.spawn(|| sender.send(block_on(acquire.into_future()).map(drop)));
        let ended = ended.recv_timeout(PATIENCE).expect("an end in time");
        assert!(matches!(ended, Err(LockError::TimedOut(_))));
    });
    drop(rival);
    stage.check_clean(&client);
}

fn the_end_of_the_clients_runtime_is_the_end_of_its_guards<H: Case, W: Case>() {
    let (stage, drivers) = (Stage::start(), drivers());
    let client = stage.client(&drivers, LONG_SESSION);
    let guard = acquire_in::<W>(&drivers, &client);
    stage.runtime.block_on(async {
        let lost = spawn(guard.lost());
        let stopped = guard.run(std::future::pending::<()>());
        let ending = std::thread::scope(|threads| threads.spawn(|| drop(drivers)).join());
        ending.expect("a runtime ends");
        let stopped = soon("the end of the body", stopped).await;
        assert_eq!(stopped, Err(Stopped::Lost(LostReason::Closed)));
        let lost = soon("the loss", lost).await;
        assert_eq!(lost.expect("the task does not panic"), LostReason::Closed);
    });
    assert_eq!(guard.state(), LockState::Lost(LostReason::Closed));
    // No task is left to remove the znode, so it lives as long as the session.
    stage.server.expire(guard.session());
    drop(stage.rival::<H>());
}

fn the_end_of_the_clients_runtime_is_an_answer_to_every_call<C: Case>() {
    let (stage, drivers) = (Stage::start(), drivers());
    let client = stage.client(&drivers, LONG_SESSION);
    let side = C::shipped(&client);
    let guard = acquire_in::<C>(&drivers, &client);
    drop(drivers);
    assert_eq!(client.state(), SessionState::Closed);
    assert_eq!(
        stage.soon("a validation", guard.validate()),
        Err(LockError::Lost(LostReason::Closed))
    );
    assert_eq!(stage.soon("a release", guard.release()), Err(LockError::Closed));
    let acquired = stage.soon("an acquire", side.acquire().into_future());
    assert_eq!(acquired.map(drop), Err(LockError::Closed));
    let read = stage.soon("a read", client.exists("/").into_future());
    let read = read.expect_err("nothing sends it");
    for message in [LockError::Closed.to_string(), read.to_string()] {
        assert!(message.contains("the runtime in which it was built has ended"), "{message}");
    }
    let tried = stage.soon("a try", side.try_acquire().into_future());
    assert_eq!(tried.map(drop), Err(LockError::Closed));
    assert_eq!(stage.soon("a look", side.inspect()), Err(LockError::Closed));
    let mut states = client.states();
    stage.soon("the last state", async { while states.next().await.is_some() {} });
    stage.soon("a close", client.close());
}

/// A runtime of one thread that has been blocked.
struct Blocked {
    go_on: mpsc::Sender<()>,
}

impl Blocked {
    fn new(runtime: &Runtime) -> Self {
        let (go_on, blocked) = mpsc::channel();
        let (sender, is_blocked) = mpsc::channel();
        runtime.handle().spawn(async move {
            sender.send(()).expect("the test waits");
            let _ = blocked.recv();
        });
        is_blocked.recv_timeout(PATIENCE).expect("the runtime runs");
        Self { go_on }
    }

    fn end(self) {
        self.go_on.send(()).expect("it is blocked until now");
    }
}

fn a_body_is_stopped_in_time_although_the_clients_runtime_stands_still<H: Case, W: Case>() {
    let (stage, drivers) = (Stage::start(), drivers());
    let client = stage.client(&drivers, BLOCKED_SESSION);
    let guard = acquire_in::<W>(&drivers, &client);
    let mut rival = stage.soon("a wait", Waiter::queue(&H::of(&stage.observer)));
    let blocked = Blocked::new(&drivers);
    let stopped =
        stage.soon("the end of the body", async { guard.run(std::future::pending::<()>()).await });
    assert!(rival.is_waiting(), "another client got the lock before the body was stopped");
    assert_eq!(stopped, Err(Stopped::Lost(LostReason::DeadlinePassed)));
    drop(stage.soon("the lock", rival.guard()));
    blocked.end();
    drop(guard);
    stage.check_clean(&client);
}

/// How the caller awaits the end of a call.
#[derive(Clone, Copy)]
enum Caller {
    /// On a tokio runtime without timers and I/O.
    Bare,
    /// On a thread without any runtime.
    Thread,
}

impl Caller {
    fn wait<T>(self, future: impl Future<Output = T>) -> T {
        let future: Pin<&mut dyn Future<Output = T>> = pin!(future);
        match self {
            Self::Bare => {
                let runtime = Builder::new_current_thread().build().expect("a runtime");
                runtime.block_on(future)
            }
            Self::Thread => block_on(future),
        }
    }
}

fn deadlines_come_without_timers_on_either_side<H: Case, W: Case>(caller: Caller) {
    let (stage, drivers) = (Stage::start(), drivers());
    let client = stage.client(&drivers, BLOCKED_SESSION);
    let guard = acquire_in::<W>(&drivers, &client);
    let rival = H::shipped(&client).acquire().timeout(Duration::from_millis(200));
    let blocked = Blocked::new(&drivers);
    let (sender, ended) = mpsc::channel();
    let tell = |call: &'static str, how: String| sender.send((call, how)).expect("it is counted");
    let told = std::thread::scope(|threads| {
        threads.spawn(|| tell("lost", format!("{:?}", caller.wait(guard.lost()))));
        threads.spawn(|| {
            let stopped = caller.wait(guard.run(std::future::pending::<()>()));
            tell("run", format!("{stopped:?}"));
        });
        threads.spawn(|| {
            let stopped = caller.wait(guard.run(std::future::pending::<()>()).stop_at_risk());
            tell("wary", format!("{stopped:?}"));
        });
        threads.spawn(|| {
            let acquired = caller.wait(rival.into_future()).map(drop);
            let is_late = matches!(&acquired, Err(error) if error.is_timed_out());
            tell("acquire", if is_late { "TimedOut".into() } else { format!("{acquired:?}") });
        });
        let told: BTreeMap<_, _> =
            (0..4).map_while(|_| ended.recv_timeout(PATIENCE).ok()).collect();
        // Calls that have not ended yet end now, so that a failure does not hang the test.
        blocked.end();
        told
    });
    let expected = [
        ("acquire", "TimedOut"),
        ("lost", "DeadlinePassed"),
        ("run", "Err(the lock is lost: no server has confirmed the session in time)"),
        ("wary", "Err(the lock is at risk)"),
    ];
    assert_eq!(told, expected.map(|(call, how)| (call, how.to_owned())).into());
    drop(guard);
    stage.check_clean(&client);
}

fn deadlines_come_on_a_runtime_without_timers<H: Case, W: Case>() {
    deadlines_come_without_timers_on_either_side::<H, W>(Caller::Bare);
}

fn deadlines_come_outside_of_tokio<H: Case, W: Case>() {
    deadlines_come_without_timers_on_either_side::<H, W>(Caller::Thread);
}

#[test]
fn a_close_with_a_limit_ends_although_the_clients_runtime_stands_still() {
    let (stage, still) = (Stage::start(), driven_by_callers());
    let client = stage.client(&still, LONG_SESSION);
    let (sender, ended) = mpsc::channel();
    std::thread::scope(|threads| {
        threads.spawn(|| sender.send(block_on(client.close_within(Duration::from_millis(200)))));
        let ended = ended.recv_timeout(PATIENCE).expect("an end in time");
        assert_eq!(ended, CloseOutcome::Abandoned);
    });
    // The runtime continues, and so does the close.
    assert_eq!(still.block_on(client.close()), CloseOutcome::Closed);
}

/// Only the client's task knows whether it has sent a transaction, so the call waits for that task.
#[test]
fn a_transaction_without_timers_on_either_side_is_not_sent_too_late() {
    for caller in [Caller::Bare, Caller::Thread] {
        let (stage, drivers) = (Stage::start(), drivers());
        let client = stage.client(&drivers, BLOCKED_SESSION);
        let guard = acquire_in::<FairLock>(&drivers, &client);
        let blocked = Blocked::new(&drivers);
        let write = Multi::new().create("/written", "", CreateMode::Persistent);
        let written = std::thread::scope(|threads| {
            let writing = threads.spawn(|| caller.wait(guard.transaction(write)));
            assert_eq!(stage.soon("the loss", guard.lost()), LostReason::DeadlinePassed);
            blocked.end();
            writing.join().expect("the task does not panic")
        });
        assert_eq!(written, Err(TransactionError::Lost(LostReason::DeadlinePassed)));
        assert_eq!(stage.server.stat("/written"), None);
        drop(guard);
        stage.check_clean(&client);
    }
}

/// This test runs in virtual time.
fn a_client_that_has_expired_and_does_not_renew_answers_every_call<C: Case>() {
    run(async {
        let world = World::shipped();
        let client = world.client_with(1, |builder| builder.renew_after_expiry(false)).await;
        let side = C::shipped(&client);
        let guard = side.acquire().await.expect("the lock is free");
        // These calls begin before the session expires, and end after the expiry.
        let (mut validated, mut looked) = (Box::pin(guard.validate()), Box::pin(side.inspect()));
        assert!(now(validated.as_mut()).is_none(), "the server has not run yet");
        assert!(now(looked.as_mut()).is_none(), "the server has not run yet");
        world.server.expire(guard.session());
        status(&client, "the end", |now| now.state == SessionState::Expired).await;
        assert!(soon("a validation", validated).await.is_err());
        assert!(soon("a look", looked).await.is_err());
        assert!(soon("a validation", guard.validate()).await.is_err());
        assert!(soon("a look", side.inspect()).await.is_err());
        assert!(soon("a try", side.try_acquire().into_future()).await.is_err());
        assert!(soon("an acquire", side.acquire().into_future()).await.is_err());
        assert_eq!(soon("a loss", guard.lost()).await, LostReason::SessionExpired);
        let released = soon("a release", guard.release()).await;
        let is_told = matches!(released, Ok(Released::EndedWithSession) | Err(LockError::Closed));
        assert!(is_told, "{released:?}");
        soon("a close", client.close()).await;
    });
}
