//! Properties of the acquires and guards of every lock: use with threads and `select!`, and the end
//! of the client. Locks with transactions also have tests of their transactions.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::kind::Queued;
use zk_recipes::{
    CloseOutcome, Election, ErrorCode, ExclusiveLock, FairLock, Guard, LockError, LockState,
    LostReason, Multi, RwLock, Semaphore, TransactionError,
};
use zk_tests::case::{Case, Writer};
use zk_tests::for_each_lock;
use zk_tests::options::each_option_has_its_effect;
use zk_tests::scene::{FIRST, SECOND, at_op, hold, partition, release, session, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

for_each_lock! {
    #[test] locks: [
        acquires_and_guards_may_go_to_other_threads_and_guards_are_not_cloned,
        an_acquire_polled_by_reference_keeps_its_place,
        closing_the_client_loses_the_lock_first_and_a_release_says_so,
        a_guard_keeps_the_session_when_the_last_handle_is_gone,
        each_option_has_its_effect,
    ]
    #[test] queues: [
        a_transaction_is_committed_while_the_lock_is_held,
        a_transaction_after_the_end_of_the_session_changes_nothing,
    ]
}

/// The znode that a transaction writes. Its version counts the transactions that were applied.
const RESOURCE: &str = "/resource";

/// A type that is `Clone` has two implementations of this trait, so a call that names neither of
/// them does not compile.
trait NotClone<A> {
    fn check() {}
}

impl<T> NotClone<()> for T {}
impl<T: Clone> NotClone<u8> for T {}

fn acquires_and_guards_may_go_to_other_threads_and_guards_are_not_cloned<C: Case>() {
    fn movable<T: Send + 'static>(_: &T) {}
    fn shared<T: Send + Sync + 'static>(_: &T) {}
    <Guard<C::Kind> as NotClone<_>>::check();
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let acquiring = C::of(&client).acquire().into_future();
        movable(&acquiring);
        let guard = acquiring.await.expect("the lock is free");
        shared(&guard);
        shared(&guard.status());
        movable(&guard.lost());
        let text = format!("{guard:?}");
        assert!(text.contains(guard.path()) && text.contains("Held"), "{text}");
        let releasing = guard.release();
        movable(&releasing);
        releasing.await.expect("its znode can be deleted");
        world.check_clean(&[&client]).await;
    });
}

fn an_acquire_polled_by_reference_keeps_its_place<C: Case>() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let mut held = Some(hold(&C::Rival::of(&other)).await);
        let lock = C::of(&client);
        let mut acquiring = lock.acquire().into_future();
        let mut rounds = 0;
        let guard = loop {
            tokio::select! {
                biased;
                acquired = &mut acquiring => break acquired.expect("the lock becomes free"),
                () = sleep_ms(1) => rounds += 1,
            }
            if rounds == 500 {
                drop(held.take());
            }
        };
        assert!(rounds >= 500);
        assert_eq!(lock.stats().attempts, 1, "it keeps its place");
        let creates = world.server.commits().into_iter().filter(|commit| {
            let is_own = commit.session == session(&client) && commit.op == OpCode::CREATE2;
            is_own && commit.error == ErrorCode::OK
        });
        assert_eq!(creates.count(), 1, "{}", world.trace());
        release(guard).await;
        world.check_clean(&[&client, &other]).await;
    });
}

fn closing_the_client_loses_the_lock_first_and_a_release_says_so<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = hold(&C::of(&client)).await;
        let slow = Action::Delay(Duration::from_millis(100));
        world.server.inject(at_op(session(&client), OpCode::CLOSE_SESSION, slow));
        let lost = spawn(guard.lost());
        let closer = client.clone();
        let closing = spawn(async move { closer.close().await });
        world.until("it is being closed", |server| server.pending_faults().is_empty()).await;
        assert!(!closing.is_finished());
        assert!(lost.is_finished(), "the guard is lost before the server gets the close");
        let reason = LostReason::Closed;
        assert_eq!(lost.await.expect("the task does not panic"), reason);
        assert_eq!(guard.state(), LockState::Lost(reason));
        assert_eq!(guard.validate().await, Err(LockError::Lost(reason)));
        assert_eq!(closing.await.expect("the task does not panic"), CloseOutcome::Closed);
        assert_eq!(world.server.ephemerals(), []);
        assert_eq!(guard.release().await, Err(LockError::Closed));
    });
}

fn a_guard_keeps_the_session_when_the_last_handle_is_gone<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = hold(&C::of(&client)).await;
        drop(client);
        sleep_ms(50_000).await;
        assert_eq!(guard.state(), LockState::Held);
        guard.validate().await.expect("the lock is held");
        partition(&world, 500);
        sleep_ms(3_000).await;
        assert_eq!(guard.state(), LockState::Held);
        release(guard).await;
        world.until("the session is closed", |server| server.sessions().is_empty()).await;
    });
}

fn applied(world: &World) -> i32 {
    world.server.stat(RESOURCE).expect("no test deletes it").version.0
}

fn write() -> Multi {
    Multi::new().set_data(RESOURCE, "x", None)
}

fn a_transaction_is_committed_while_the_lock_is_held<C: Case<Kind: Queued>>() {
    run(async {
        let world = World::new();
        world.server.admin_create(RESOURCE, b"", None);
        let client = world.client(FIRST).await;
        let guard = hold(&C::of(&client)).await;
        world.server.clear_requests();
        let outcomes = guard.transaction(write()).await.expect("the lock is held");
        assert_eq!((outcomes.len(), applied(&world)), (1, 1));
        assert_eq!(world.server.requests().len(), 1, "one request\n{}", world.trace());
        // The guard has not received the event, but the ensemble knows of the deletion.
        assert!(world.server.admin_delete(guard.path()));
        let lost = LostReason::ZnodeDeleted;
        assert_eq!(guard.transaction(write()).await, Err(TransactionError::Lost(lost)));
        assert_eq!((guard.state(), applied(&world)), (LockState::Lost(lost), 1));
        drop(guard);
        world.check_clean(&[&client]).await;
    });
}

/// The holder may learn of the end of its session late, or not at all.
fn a_transaction_after_the_end_of_the_session_changes_nothing<C: Case<Kind: Queued>>() {
    let ways = [
        None,
        Some(Action::Delay(Duration::from_secs(3))),
        Some(Action::Freeze),
        Some(Action::Expire),
    ];
    for way in ways {
        run(async {
            let world = World::new();
            world.server.admin_create(RESOURCE, b"", None);
            let client = world.client(FIRST).await;
            let guard = hold(&C::of(&client)).await;
            let dead = session(&client);
            if let Some(action) = &way {
                world.server.inject(at_op(dead, OpCode::MULTI, action.clone()));
            }
            if way != Some(Action::Expire) {
                world.server.expire(dead);
            }
            let ended = guard.transaction(write()).await;
            assert!(ended.is_err(), "{way:?}: {ended:?}");
            sleep_ms(20_000).await;
            assert_eq!(applied(&world), 0, "{way:?}\n{}", world.trace());
            assert!(matches!(guard.state(), LockState::Lost(_)), "{way:?}");
            assert!(matches!(guard.transaction(write()).await, Err(TransactionError::Lost(_))));
            assert_eq!(applied(&world), 0);
            drop(guard);
            world.check_clean(&[&client]).await;
        });
    }
}

/// The transaction checks the znode that is in the queue now.
#[test]
fn a_transaction_goes_on_after_a_downgrade() {
    run(async {
        let world = World::new();
        world.server.admin_create(RESOURCE, b"", None);
        let client = world.client(FIRST).await;
        let writing = hold(&Writer::of(&client)).await;
        writing.transaction(write()).await.expect("the lock is held");
        let reading = writing.downgrade().await.expect("the lock is held");
        reading.transaction(write()).await.expect("the lock is held");
        assert_eq!(applied(&world), 2);
        assert!(world.server.admin_delete(reading.path()));
        let lost = TransactionError::Lost(LostReason::ZnodeDeleted);
        assert_eq!(reading.transaction(write()).await, Err(lost));
        assert_eq!(applied(&world), 2);
        drop(reading);
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_lock_shows_its_name_and_what_identifies_it() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let rw = RwLock::new(&client, "/a").expect("the path is valid");
        let shown = [
            FairLock::new(&client, "/a").map(|lock| format!("{lock:?}")),
            Semaphore::new(&client, "/a", 3).map(|lock| format!("{lock:?}")),
            ExclusiveLock::new(&client, "/a").map(|lock| format!("{lock:?}")),
            Election::new(&client, "/a").map(|lock| format!("{lock:?}")),
            Ok(format!("{rw:?}")),
            Ok(format!("{:?}", rw.read_side())),
            Ok(format!("{:?}", rw.write_side())),
        ];
        let expected = [
            r#"FairLock { directory: "/a", .. }"#,
            r#"Semaphore { directory: "/a", permits: 3, .. }"#,
            r#"ExclusiveLock { path: "/a", .. }"#,
            r#"Election { path: "/a", .. }"#,
            r#"RwLock { directory: "/a", .. }"#,
            r#"Lock<Read> { directory: "/a", .. }"#,
            r#"Lock<Write> { directory: "/a", .. }"#,
        ];
        assert_eq!(shown.map(|shown| shown.expect("the options are legal")), expected);
    });
}
