//! Statistics of locks: each number changes with the events that it counts, and with no others.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::kind::Queued;
use zk_recipes::{Acl, LockError, LockStats};
use zk_tests::case::Case;
use zk_tests::for_each_lock;
use zk_tests::scene::{
    FIRST, SECOND, at_op, granted, hold, partition, place_of, release, session, spawn,
};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

for_each_lock! {
    #[test] locks: [
        an_acquire_without_trouble_counts_itself_and_its_times,
        a_wait_is_counted_when_it_was_worth_it,
        an_expiry_while_waiting_makes_another_attempt,
        risks_and_losses_are_counted_once_each,
        a_lost_connection_that_leaves_a_doubt_is_counted,
        a_watch_that_does_not_tell_is_counted,
        the_backlog_is_what_the_janitor_has_to_do,
    ]
    #[test] queues: [a_duplicate_is_removed_and_counted]
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn an_acquire_without_trouble_counts_itself_and_its_times<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let lock = C::of(&client);
        assert_eq!(lock.stats(), LockStats::default());
        let guard = hold(&lock).await;
        // Clones share their counts, and other locks have their own.
        let stats = lock.clone().stats();
        assert_eq!((stats.attempts, stats.acquired, stats.janitor_backlog), (1, 1, 0));
        assert_eq!(C::of(&client).stats().attempts, 0);
        sleep_ms(300).await;
        assert_eq!(lock.stats().held, Duration::ZERO, "not over yet");
        release(guard).await;
        sleep_ms(1).await;
        let stats = lock.stats();
        assert_eq!((stats.waited, stats.held), (ms(0), ms(300)));
        assert_eq!((stats.at_risk, stats.lost, stats.replays), (0, 0, 0));
        assert_eq!((stats.duplicates_removed, stats.watches_missed), (0, 0));
        assert_eq!((stats.attempts, stats.acquired, stats.janitor_backlog), (1, 1, 0));
        world.check_clean(&[&client]).await;
    });
}

fn a_wait_is_counted_when_it_was_worth_it<C: Case>() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let held = hold(&C::Rival::of(&other)).await;
        let lock = C::of(&client);
        let timed_out = lock.acquire().timeout(ms(100)).await.map(drop);
        assert!(matches!(timed_out, Err(LockError::TimedOut(_))));
        let waiter = spawn(lock.acquire().into_future());
        sleep_ms(500).await;
        assert_eq!(lock.stats().janitor_backlog, 0, "it only waits");
        drop(held);
        let guard = granted(waiter).await;
        let stats = lock.stats();
        assert_eq!((stats.attempts, stats.acquired), (2, 1));
        // A wait that timed out is not counted.
        assert_eq!(stats.waited, ms(500));
        drop(guard);
        world.check_clean(&[&client, &other]).await;
    });
}

fn an_expiry_while_waiting_makes_another_attempt<C: Case>() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let held = hold(&C::Rival::of(&other)).await;
        let lock = C::of(&client);
        let waiter = spawn(lock.acquire().into_future());
        sleep_ms(100).await;
        world.server.expire(session(&client));
        sleep_ms(3_000).await;
        drop(held);
        drop(granted(waiter).await);
        let stats = lock.stats();
        assert_eq!((stats.attempts, stats.acquired, stats.lost), (2, 1, 0));
        world.check_clean(&[&client, &other]).await;
    });
}

fn risks_and_losses_are_counted_once_each<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let lock = C::of(&client);
        let guard = hold(&lock).await;
        sleep_ms(500).await;
        for times in 1..=3 {
            partition(&world, 300);
            sleep_ms(3_000).await;
            let stats = lock.stats();
            assert_eq!((stats.at_risk, stats.lost), (times, 0));
        }
        assert!(world.server.admin_delete(guard.path()));
        sleep_ms(100).await;
        let stats = lock.stats();
        assert_eq!((stats.at_risk, stats.lost, stats.held), (3, 1, ms(9_500)));
        // A loss counts once, however many signs of it there are.
        world.server.expire(session(&client));
        sleep_ms(1_000).await;
        assert!(guard.validate().await.is_err());
        drop(guard);
        sleep_ms(1_000).await;
        assert_eq!(lock.stats().lost, 1);
        world.check_clean(&[&client]).await;
    });
}

fn a_lost_connection_that_leaves_a_doubt_is_counted<C: Case>() {
    for op in [OpCode::CREATE2, OpCode::DELETE] {
        for action in [Action::CutBefore, Action::CutAfter] {
            run(async {
                let world = World::new();
                let client = world.client(FIRST).await;
                let lock = C::of(&client);
                drop(hold(&lock).await);
                sleep_ms(100).await;
                assert_eq!(lock.stats().replays, 0);
                world.server.inject(at_op(session(&client), op, action.clone()));
                let guard = hold(&lock).await;
                release(guard).await;
                sleep_ms(100).await;
                assert!(world.server.pending_faults().is_empty());
                let replays = lock.stats().replays;
                assert!((1..=2).contains(&replays), "{op:?} {action:?}: {replays}");
                world.check_clean(&[&client]).await;
            });
        }
    }
}

/// A barrier rules out duplicates, unless a server processes an old request late. The test itself
/// creates a duplicate.
fn a_duplicate_is_removed_and_counted<C: Case<Kind: Queued>>() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let held = hold(&C::Rival::of(&other)).await;
        let lock = C::of(&client);
        let waiter = spawn(lock.acquire().into_future());
        sleep_ms(100).await;
        let id = session(&client);
        let own = place_of(&world, id);
        let prefix = &own[..own.len() - 10];
        world.server.admin_create(&format!("{prefix}0000000077"), b"", Some(id));
        // This change causes the next list, which shows the znode.
        world.server.admin_set_data(held.path(), b"");
        sleep_ms(100).await;
        assert_eq!(world.contenders().len(), 2, "{}", world.trace());
        assert!(world.server.stat(&own).is_some(), "the znode with the lowest number stays");
        assert_eq!(lock.stats().duplicates_removed, 1);
        release(held).await;
        release(granted(waiter).await).await;
        assert_eq!(lock.stats().duplicates_removed, 1);
        sleep_ms(100).await;
        assert_eq!(world.contenders(), [""; 0]);
    });
}

/// A server withholds events from clients that may not read the znode.
fn a_watch_that_does_not_tell_is_counted<C: Case>() {
    run(async {
        let world = World::new();
        let other = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
        let held = hold(&C::Rival::of(&other)).await;
        let client = world.client(FIRST).await;
        let lock = C::with(&client, |lock| lock.watch_check(Some(ms(10_000))));
        let waiter = spawn(lock.acquire().into_future());
        sleep_ms(9_000).await;
        other.set_acl(held.path(), Acl::creator_all(), None).await.expect("the znode is its own");
        release(held).await;
        sleep_ms(100).await;
        assert!(!waiter.is_finished(), "the event was withheld\n{}", world.trace());
        release(granted(waiter).await).await;
        assert_eq!(lock.stats().watches_missed, 1);
        world.check_clean(&[&client, &other]).await;
    });
}

/// The backlog belongs to the client, so every lock of the client reports it.
fn the_backlog_is_what_the_janitor_has_to_do<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let lock = C::of(&client);
        let another = C::builder(&client, "/locks/another").and_then(C::build);
        let another = another.expect("the path is valid");
        let guards = (hold(&C::Rival::of(&client)).await, hold(&another).await);
        let waiter = spawn(lock.acquire().into_future());
        sleep_ms(100).await;
        assert_eq!(another.stats().janitor_backlog, 0, "nothing is due");
        partition(&world, 1_000);
        waiter.abort();
        drop(guards);
        sleep_ms(500).await;
        // A waiter without a znode leaves nothing to remove.
        let duties = if C::MARK.is_some() { 3 } else { 2 };
        assert_eq!(lock.stats().janitor_backlog, duties, "nothing can be removed yet");
        sleep_ms(3_000).await;
        assert_eq!(lock.stats().janitor_backlog, 0);
        world.check_clean(&[&client]).await;
    });
}
