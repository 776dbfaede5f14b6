//! What holds for the acquires and guards of every kind: threads, `select!`, the end of the
//! client; and what only some kinds have.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::kind::{self, Kind, Queued};
use zk_recipes::{CloseOutcome, Guard, LockError, LockState, LostReason, Multi, TransactionError};
use zk_tests::scene::{at_op, partition, session, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::{FIRST, Locks, SECOND, Way, check_clean, for_every_kind, release};

/// What a transaction changes. Its version counts the transactions that were applied.
const RESOURCE: &str = "/resource";

/// Two implementations for whatever is `Clone`, so that naming none of them is an error then.
trait NotClone<A> {
    fn check() {}
}

impl<T> NotClone<()> for T {}
impl<T: Clone> NotClone<u8> for T {}

fn sound<K: Kind>(way: &Way<K>) {
    fn movable<T: Send + 'static>(_: &T) {}
    fn shared<T: Send + Sync + 'static>(_: &T) {}
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let locks = Locks::new(&client);
        let acquiring = (way.acquire)(&locks).into_future();
        movable(&acquiring);
        let guard = acquiring.await.expect("nobody else wants it");
        shared(&guard);
        shared(&guard.status());
        movable(&guard.lost());
        let text = format!("{guard:?}");
        assert!(text.contains(guard.path()) && text.contains("Held"), "{text}");
        let releasing = guard.release();
        movable(&releasing);
        releasing.await.expect("it can be deleted");
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn acquires_and_guards_may_go_to_other_threads_and_guards_are_not_cloned() {
    for_every_kind!(sound);
    <Guard<kind::Fair> as NotClone<_>>::check();
    <Guard<kind::Read> as NotClone<_>>::check();
    <Guard<kind::Write> as NotClone<_>>::check();
    <Guard<kind::Exclusive> as NotClone<_>>::check();
}

fn selected<K: Kind>(way: &Way<K>) {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let others = Locks::new(&other);
        let mut held = Some((
            others.fair.acquire().await,
            others.rw.write().await,
            others.exclusive.acquire().await,
        ));
        let locks = Locks::new(&client);
        let mut acquiring = (way.acquire)(&locks).into_future();
        let mut rounds = 0;
        let guard = loop {
            tokio::select! {
                biased;
                acquired = &mut acquiring => break acquired.expect("it becomes free"),
                () = sleep_ms(1) => rounds += 1,
            }
            if rounds == 500 {
                drop(held.take());
            }
        };
        assert!(rounds >= 500, "{}", way.name);
        assert_eq!((way.stats)(&locks).attempts, 1, "{}: it keeps its place", way.name);
        let creates = world.server.requests().into_iter();
        let own = session(&client);
        let creates = creates.filter(|one| one.session == own && one.op == OpCode::CREATE2).count();
        assert!(creates <= 2, "{}\n{}", way.name, world.trace());
        release(guard).await;
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn an_acquire_polled_by_reference_keeps_its_place() {
    for_every_kind!(selected);
}

fn closed<K: Kind>(way: &Way<K>) {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = way.hold(&Locks::new(&client)).await;
        let slow = Action::Delay(Duration::from_millis(100));
        world.server.inject(at_op(session(&client), OpCode::CLOSE_SESSION, slow));
        let lost = spawn(guard.lost());
        let closer = client.clone();
        let closing = spawn(async move { closer.close().await });
        world.until("it is being closed", |server| server.pending_faults().is_empty()).await;
        assert!(!closing.is_finished());
        assert!(lost.is_finished(), "{}: the guard is told before the server", way.name);
        let reason = LostReason::Closed;
        assert_eq!(lost.await.expect("it does not panic"), reason);
        assert_eq!(guard.state(), LockState::Lost(reason));
        assert_eq!(guard.validate().await, Err(LockError::Lost(reason)));
        assert_eq!(closing.await.expect("it does not panic"), CloseOutcome::Closed);
        assert_eq!(world.server.ephemerals(), [], "{}", way.name);
        assert_eq!(guard.release().await, Err(LockError::Closed), "{}", way.name);
    });
}

#[test]
fn closing_the_client_loses_the_lock_first_and_a_release_says_so() {
    for_every_kind!(closed);
}

fn outlives<K: Kind>(way: &Way<K>) {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = way.hold(&Locks::new(&client)).await;
        drop(client);
        sleep_ms(50_000).await;
        assert_eq!(guard.state(), LockState::Held, "{}", way.name);
        guard.validate().await.expect("it is held");
        partition(&world, 500);
        sleep_ms(3_000).await;
        assert_eq!(guard.state(), LockState::Held, "{}", way.name);
        release(guard).await;
        world.until("the session is closed", |server| server.sessions().is_empty()).await;
    });
}

#[test]
fn a_guard_keeps_the_session_when_the_last_handle_is_gone() {
    for_every_kind!(outlives);
}

/// Checks something for every kind that has transactions.
macro_rules! for_every_queue {
    ($check:ident) => {
        $check("fair", |locks| Box::pin(locks.fair.acquire().into_future()));
        $check("read", |locks| Box::pin(locks.rw.read().into_future()));
        $check("write", |locks| Box::pin(locks.rw.write().into_future()));
    };
}

type Held<K> = std::pin::Pin<Box<zk_recipes::Acquiring<Guard<K>>>>;

fn applied(world: &World) -> i32 {
    world.server.stat(RESOURCE).expect("nobody deletes it").version
}

fn write() -> Multi {
    Multi::new().set_data(RESOURCE, "x", None)
}

fn committed<K: Queued>(name: &str, acquire: fn(&Locks) -> Held<K>) {
    run(async {
        let world = World::new();
        world.server.admin_create(RESOURCE, b"", None);
        let client = world.client(FIRST).await;
        let guard = acquire(&Locks::new(&client)).await.expect("nobody else wants it");
        world.server.clear_requests();
        let outcomes = guard.transaction(write()).await.expect("it is held");
        assert_eq!((outcomes.len(), applied(&world)), (1, 1), "{name}");
        assert_eq!(world.server.requests().len(), 1, "one request\n{}", world.trace());
        // Nobody has told the guard, but the ensemble knows.
        assert!(world.server.admin_delete(guard.path()));
        let lost = LostReason::ZnodeDeleted;
        assert_eq!(guard.transaction(write()).await, Err(TransactionError::Lost(lost)));
        assert_eq!((guard.state(), applied(&world)), (LockState::Lost(lost), 1), "{name}");
        drop(guard);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_transaction_is_committed_while_the_lock_is_held() {
    for_every_queue!(committed);
}

/// However late the holder learns of the end of its session, if at all.
fn expired<K: Queued>(name: &str, acquire: fn(&Locks) -> Held<K>) {
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
            let guard = acquire(&Locks::new(&client)).await.expect("nobody else wants it");
            let dead = session(&client);
            if let Some(action) = &way {
                world.server.inject(at_op(dead, OpCode::MULTI, action.clone()));
            }
            if way != Some(Action::Expire) {
                world.server.expire(dead);
            }
            let ended = guard.transaction(write()).await;
            assert!(ended.is_err(), "{name} {way:?}: {ended:?}");
            sleep_ms(20_000).await;
            assert_eq!(applied(&world), 0, "{name} {way:?}\n{}", world.trace());
            assert!(matches!(guard.state(), LockState::Lost(_)), "{name} {way:?}");
            assert!(matches!(guard.transaction(write()).await, Err(TransactionError::Lost(_))));
            assert_eq!(applied(&world), 0);
            drop(guard);
            check_clean(&world, &[&client]).await;
        });
    }
}

#[test]
fn a_transaction_after_the_end_of_the_session_changes_nothing() {
    for_every_queue!(expired);
}

/// The check is of the znode that stands in the queue now.
#[test]
fn a_transaction_goes_on_after_a_downgrade() {
    run(async {
        let world = World::new();
        world.server.admin_create(RESOURCE, b"", None);
        let client = world.client(FIRST).await;
        let writing = Locks::new(&client).rw.write().await.expect("nobody else wants it");
        writing.transaction(write()).await.expect("it is held");
        let reading = writing.downgrade().await.expect("it is held");
        reading.transaction(write()).await.expect("it is held");
        assert_eq!(applied(&world), 2);
        assert!(world.server.admin_delete(reading.path()));
        let lost = TransactionError::Lost(LostReason::ZnodeDeleted);
        assert_eq!(reading.transaction(write()).await, Err(lost));
        assert_eq!(applied(&world), 2);
        drop(reading);
        check_clean(&world, &[&client]).await;
    });
}
