//! What locks count: each number moves by what it is about, and by nothing else.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::kind::Kind;
use zk_recipes::{Acl, FairLock, LockError, LockStats};
use zk_tests::scene::{at_op, partition, session, spawn};
use zk_tests::world::{DIRECTORY, World, run, sleep_ms};
use zk_testserver::Action;

use crate::{FIRST, Locks, SECOND, Way, check_clean, for_every_kind, release};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn quiet<K: Kind>(way: &Way<K>) {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let locks = Locks::new(&client);
        assert_eq!((way.stats)(&locks), LockStats::default(), "{}", way.name);
        let guard = way.hold(&locks).await;
        // Clones count together, and others by themselves.
        let stats = (way.stats)(&locks.clone());
        assert_eq!((stats.attempts, stats.acquired, stats.janitor_backlog), (1, 1, 1));
        assert_eq!((way.stats)(&Locks::new(&client)).attempts, 0);
        sleep_ms(300).await;
        assert_eq!((way.stats)(&locks).held, Duration::ZERO, "not over yet");
        release(guard).await;
        sleep_ms(1).await;
        let stats = (way.stats)(&locks);
        assert_eq!((stats.waited, stats.held), (ms(0), ms(300)), "{}", way.name);
        assert_eq!((stats.at_risk, stats.lost, stats.replays), (0, 0, 0));
        assert_eq!((stats.duplicates_removed, stats.watches_missed), (0, 0));
        assert_eq!((stats.attempts, stats.acquired, stats.janitor_backlog), (1, 1, 0));
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn an_acquire_without_trouble_counts_itself_and_its_times() {
    for_every_kind!(quiet);
}

fn waits<K: Kind>(way: &Way<K>) {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let others = Locks::new(&other);
        let held = (others.fair.acquire().await, others.rw.write().await);
        let exclusive = others.exclusive.acquire().await;
        let locks = Locks::new(&client);
        let timed_out = (way.acquire)(&locks).timeout(ms(100)).await.map(drop);
        assert_eq!(timed_out, Err(LockError::TimedOut));
        let waiter = spawn((way.acquire)(&locks).into_future());
        sleep_ms(500).await;
        assert_eq!((way.stats)(&locks).janitor_backlog, 1, "{}", way.name);
        drop((held, exclusive));
        let guard = waiter.await.expect("it does not panic").expect("it becomes free");
        let stats = (way.stats)(&locks);
        assert_eq!((stats.attempts, stats.acquired), (2, 1), "{}", way.name);
        // What was waited for in vain is not counted.
        assert_eq!(stats.waited, ms(500), "{}", way.name);
        drop(guard);
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_wait_is_counted_when_it_was_worth_it() {
    for_every_kind!(waits);
}

fn new_attempt<K: Kind>(way: &Way<K>) {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let others = Locks::new(&other);
        let held = (others.fair.acquire().await, others.rw.write().await);
        let exclusive = others.exclusive.acquire().await;
        let locks = Locks::new(&client);
        let waiter = spawn((way.acquire)(&locks).into_future());
        sleep_ms(100).await;
        world.server.expire(session(&client));
        sleep_ms(3_000).await;
        drop((held, exclusive));
        drop(waiter.await.expect("it does not panic").expect("it becomes free"));
        let stats = (way.stats)(&locks);
        assert_eq!((stats.attempts, stats.acquired, stats.lost), (2, 1, 0), "{}", way.name);
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn an_expiry_while_waiting_makes_another_attempt() {
    for_every_kind!(new_attempt);
}

fn risks<K: Kind>(way: &Way<K>) {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let locks = Locks::new(&client);
        let guard = way.hold(&locks).await;
        sleep_ms(500).await;
        for times in 1..=3 {
            partition(&world, 300);
            sleep_ms(3_000).await;
            let stats = (way.stats)(&locks);
            assert_eq!((stats.at_risk, stats.lost), (times, 0), "{}", way.name);
        }
        assert!(world.server.admin_delete(guard.path()));
        sleep_ms(100).await;
        let stats = (way.stats)(&locks);
        assert_eq!((stats.at_risk, stats.lost, stats.held), (3, 1, ms(9_500)), "{}", way.name);
        // Once, however often it is lost and whoever finds it out.
        world.server.expire(session(&client));
        sleep_ms(1_000).await;
        assert!(guard.validate().await.is_err());
        drop(guard);
        sleep_ms(1_000).await;
        assert_eq!((way.stats)(&locks).lost, 1, "{}", way.name);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn risks_and_losses_are_counted_once_each() {
    for_every_kind!(risks);
}

fn replays<K: Kind>(way: &Way<K>) {
    for op in [OpCode::CREATE2, OpCode::DELETE] {
        for action in [Action::CutBefore, Action::CutAfter] {
            run(async {
                let world = World::new();
                let client = world.client(FIRST).await;
                let locks = Locks::new(&client);
                drop(way.hold(&locks).await);
                sleep_ms(100).await;
                assert_eq!((way.stats)(&locks).replays, 0);
                world.server.inject(at_op(session(&client), op, action.clone()));
                let guard = way.hold(&locks).await;
                release(guard).await;
                sleep_ms(100).await;
                assert!(world.server.pending_faults().is_empty());
                let replays = (way.stats)(&locks).replays;
                assert!((1..=2).contains(&replays), "{} {op:?} {action:?}: {replays}", way.name);
                check_clean(&world, &[&client]).await;
            });
        }
    }
}

#[test]
fn a_lost_connection_that_leaves_a_doubt_is_counted() {
    for_every_kind!(replays);
}

/// A duplicate cannot come into being behind a barrier, unless a server hands in an old request
/// late. Here, somebody makes one.
#[test]
fn a_duplicate_is_removed_and_counted() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let held = Locks::new(&other).fair.acquire().await.expect("nobody else wants it");
        let locks = Locks::new(&client);
        let waiter = spawn(locks.fair.acquire().into_future());
        sleep_ms(100).await;
        let id = session(&client);
        let own = world.server.ephemerals().into_iter().find(|(_, owner)| *owner == id);
        let (own, _) = own.expect("it waits");
        let (prefix, _) = own.rsplit_once('-').expect("it has a number");
        world.server.admin_create(&format!("{prefix}-0000000077"), b"", Some(id));
        // The next list shows it.
        world.server.admin_set_data(held.path(), b"");
        sleep_ms(100).await;
        assert_eq!(world.contenders().len(), 2, "{}", world.trace());
        assert!(world.server.stat(&own).is_some(), "the lowest stays");
        assert_eq!(locks.fair.stats().duplicates_removed, 1);
        release(held).await;
        release(waiter.await.expect("it does not panic").expect("it becomes free")).await;
        assert_eq!(locks.fair.stats().duplicates_removed, 1);
        sleep_ms(100).await;
        assert_eq!(world.contenders(), [""; 0]);
    });
}

/// A server keeps an event from those who may not read the znode.
#[test]
fn a_watch_that_does_not_tell_is_counted() {
    run(async {
        let world = World::new();
        let other = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
        let held = Locks::new(&other).fair.acquire().await.expect("nobody else wants it");
        let client = world.client(FIRST).await;
        let lock = FairLock::builder(&client, DIRECTORY)
            .and_then(|lock| lock.safety_relist(Some(ms(10_000))).build())
            .expect("the options are legal");
        let waiter = spawn(lock.acquire().into_future());
        sleep_ms(9_000).await;
        other.set_acl(held.path(), Acl::creator_all(), None).await.expect("it is its own");
        release(held).await;
        sleep_ms(100).await;
        assert!(!waiter.is_finished(), "the event was withheld\n{}", world.trace());
        release(waiter.await.expect("it does not panic").expect("it is free")).await;
        assert_eq!(lock.stats().watches_missed, 1);
        check_clean(&world, &[&client, &other]).await;
    });
}

/// Of the client, whatever the lock.
#[test]
fn the_backlog_is_what_the_janitor_has_to_do() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let locks = Locks::new(&client);
        let (one, two) = (locks.fair.acquire().await, locks.exclusive.acquire().await);
        let waiter = spawn(locks.fair.acquire().into_future());
        sleep_ms(100).await;
        assert_eq!(locks.rw.stats().janitor_backlog, 3);
        partition(&world, 1_000);
        waiter.abort();
        drop((one, two));
        sleep_ms(500).await;
        assert_eq!(locks.fair.stats().janitor_backlog, 3, "nothing can be removed yet");
        sleep_ms(3_000).await;
        assert_eq!(locks.fair.stats().janitor_backlog, 0);
        check_clean(&world, &[&client]).await;
    });
}
