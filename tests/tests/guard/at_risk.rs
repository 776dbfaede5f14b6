//! A lock at risk: the holder continues, or treats the lock as lost.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{
    AtRiskPolicy, ClientBuilder, FairLock, LastSeen, Lease, LockError, LockState, LostReason,
    Released, Stopped,
};
use zk_tests::case::{Case, LOCK};
use zk_tests::for_each_lock;
use zk_tests::scene::{
    FIRST, SECOND, at_op, granted_now, hold, partition, release, session, spawn,
};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

for_each_lock! {
    #[test] locks: [
        a_lock_at_risk_that_is_treated_as_lost_is_lost_with_the_connection,
        an_acknowledgement_that_is_overdue_is_enough,
        a_slow_commit_before_the_grant_hides_no_risk,
        an_acquire_that_is_given_up_before_its_lease_says_nothing_about_commits,
        without_a_risk_it_is_held_as_long_as_one_likes,
        by_default_a_lock_at_risk_is_gone_on_with,
        a_lock_given_up_at_risk_is_free_for_others,
        a_body_runs_and_is_stopped_under_a_guard_of_every_kind,
    ]
}

/// The options of a client with this session timeout and a lease.
fn leased(timeout: Duration) -> impl FnOnce(ClientBuilder) -> ClientBuilder {
    move |builder| builder.session_timeout(timeout).lease(Lease::default())
}

const LOST: LockState = LockState::Lost(LostReason::AtRisk);

fn a_lock_at_risk_that_is_treated_as_lost_is_lost_with_the_connection<C: Case>() {
    for is_watched in [false, true] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            let lock = C::with(&client, |lock| lock.at_risk(AtRiskPolicy::TreatAsLost));
            let guard = hold(&lock).await;
            sleep_ms(if is_watched { 500 } else { 0 }).await;
            assert_eq!(guard.state(), LockState::Held);
            let lost = spawn(guard.lost());
            let znode = guard.path().to_owned();
            let before = client.now();
            partition(&world, 2_000);
            sleep_ms(1).await;
            assert!(lost.is_finished(), "the loss was not reported");
            assert_eq!(lost.await.expect("the task does not panic"), LostReason::AtRisk);
            assert_eq!(guard.state(), LOST);
            assert_eq!(guard.validate().await, Err(LockError::Lost(LostReason::AtRisk)));
            let stopped = guard.run(async {}).await;
            assert_eq!(stopped, Err(Stopped::Lost(LostReason::AtRisk)));
            assert!(world.server.stat(&znode).is_some());
            // The client removes the znode as soon as it reaches a server, although the guard still
            // exists.
            world.until("it is removed", |server| server.stat(&znode).is_none()).await;
            assert!(client.now().saturating_since(before) < Duration::from_secs(4));
            sleep_ms(5_000).await;
            assert_eq!(guard.state(), LOST, "the lock stays lost");
            assert_eq!(guard.release().await, Ok(Released::Released));
            let stats = lock.stats();
            assert_eq!((stats.lost, stats.acquired), (1, 1));
            release(hold(&lock).await).await;
            world.check_clean(&[&client]).await;
        });
    }
}

fn an_acknowledgement_that_is_overdue_is_enough<C: Case>() {
    run(async {
        let world = World::new();
        // With a lease, an acknowledgement is overdue before the connection counts as dead.
        let timeout = Duration::from_secs(30);
        let by_pings = Lease::pings(5, Duration::from_secs(2));
        let options = |builder: ClientBuilder| builder.session_timeout(timeout).lease(by_pings);
        let client = world.client_with(FIRST, options).await;
        let interval = by_pings.ping_interval(timeout).expect("there is a lease");
        let lock = C::with(&client, |lock| lock.at_risk(AtRiskPolicy::TreatAsLost));
        let guard = hold(&lock).await;
        sleep_ms(1_000).await;
        guard.validate().await.expect("the lock is held");
        let proven = client.now();
        let slow = Action::Delay(Duration::from_secs(30));
        world.server.inject(at_op(session(&client), OpCode::PING, slow));
        // No call reads the state, and no event arrives. Only time passes.
        assert_eq!(guard.lost().await, LostReason::AtRisk);
        let late = client.now().saturating_since(proven + interval * 2);
        assert!(late < Duration::from_millis(201), "{late:?} late");
        assert_eq!(client.status().connection, 1);
        drop(guard);
        world.check_clean(&[&client]).await;
    });
}

/// After a slow commit, an acknowledgement is overdue later. Prompt commits move that time back, and
/// nobody asks for the state.
fn a_slow_commit_before_the_grant_hides_no_risk<C: Case>() {
    run(async {
        let world = World::new();
        let timeout = Duration::from_secs(30);
        let client = world.client_with(FIRST, leased(timeout)).await;
        let lock = C::with(&client, |lock| lock.at_risk(AtRiskPolicy::TreatAsLost));
        let delayed =
            |op, ms| at_op(session(&client), op, Action::Delay(Duration::from_millis(ms)));
        let other = FairLock::new(&client, "/locks/other").expect("the path is legal");
        let other = hold(&other).await;
        sleep_ms(5_000).await;
        world.server.inject(delayed(OpCode::MULTI, 7_000));
        sleep_ms(2_000).await;
        let guard = hold(&lock).await;
        sleep_ms(8_000).await;
        assert_eq!(guard.state(), LockState::Held);
        world.server.inject(delayed(OpCode::MULTI, 30_000));
        let begun = client.now();
        assert_eq!(guard.lost().await, LostReason::AtRisk);
        let late = client.now().saturating_since(begun);
        assert!(late < Duration::from_secs(5), "{late:?} late");
        drop((guard, other));
        world.check_clean(&[&client]).await;
    });
}

/// Its writes are committed, and no lease follows, because nobody needs one any more.
fn an_acquire_that_is_given_up_before_its_lease_says_nothing_about_commits<C: Case>() {
    run(async {
        let world = World::new();
        let timeout = Duration::from_secs(10);
        let client = world.client_with(FIRST, leased(timeout)).await;
        let lock = C::with(&client, |lock| lock.at_risk(AtRiskPolicy::TreatAsLost));
        // A session that was idle for longer than its timeout has no lease.
        sleep_ms(20_000).await;
        let given_up = lock.acquire().timeout(Duration::from_secs(1)).await;
        let Err(LockError::TimedOut(timed_out)) = given_up else { panic!("{given_up:?}") };
        assert_eq!(timed_out.seen, LastSeen::Unleased, "{timed_out}");
        sleep_ms(20_000).await;
        assert_eq!(client.status().slow_commits(), None);
        let guard = hold(&lock).await;
        assert_eq!(guard.state(), LockState::Held);
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

fn without_a_risk_it_is_held_as_long_as_one_likes<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let lock = C::with(&client, |lock| lock.at_risk(AtRiskPolicy::TreatAsLost));
        let guard = hold(&lock).await;
        sleep_ms(100_000).await;
        assert_eq!(guard.state(), LockState::Held);
        assert_eq!(lock.stats().lost, 0);
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

fn by_default_a_lock_at_risk_is_gone_on_with<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let lock = C::of(&client);
        let guard = hold(&lock).await;
        sleep_ms(500).await;
        let lost = spawn(guard.lost());
        partition(&world, 2_000);
        sleep_ms(1).await;
        assert_eq!(guard.state(), LockState::AtRisk);
        sleep_ms(5_000).await;
        assert_eq!(guard.state(), LockState::Held, "\n{}", world.trace());
        assert!(!lost.is_finished());
        lost.abort();
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

/// The next contender must not get the lock before the holder knows of its loss.
fn a_lock_given_up_at_risk_is_free_for_others<C: Case>() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let lock = C::with(&client, |lock| lock.at_risk(AtRiskPolicy::TreatAsLost));
        let guard = hold(&lock).await;
        let next = spawn(C::Rival::of(&other).acquire().into_future());
        let lost = spawn(guard.lost());
        sleep_ms(500).await;
        partition(&world, 300);
        sleep_ms(5_000).await;
        assert_eq!(lost.await.expect("the task does not panic"), LostReason::AtRisk);
        drop(granted_now(&world, next).await);
        drop(guard);
        world.check_clean(&[&client, &other]).await;
    });
}

fn a_body_runs_and_is_stopped_under_a_guard_of_every_kind<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = hold(&C::of(&client)).await;
        assert_eq!(guard.run(async { 17 }).await, Ok(17));
        sleep_ms(200).await;
        partition(&world, 500);
        let stopped = guard.run(std::future::pending::<()>()).stop_at_risk().await;
        assert_eq!(stopped, Err(Stopped::AtRisk));
        assert_eq!(guard.run(async { 17 }).await, Ok(17), "it continues while the lock is at risk");
        sleep_ms(3_000).await;
        assert_eq!(guard.run(async { 17 }).stop_at_risk().await, Ok(17));
        assert!(world.server.admin_delete(guard.path()));
        let stopped = guard.run(std::future::pending::<()>()).await;
        assert_eq!(stopped, Err(Stopped::Lost(LostReason::ZnodeDeleted)));
        drop(guard);
        world.check_clean(&[&client]).await;
    });
}

/// The pauses between the attempts to connect count, too.
#[test]
fn an_outage_that_ends_before_the_lease_costs_no_lock() {
    for (timeout, seed) in [6, 10, 30].into_iter().flat_map(|it| (1..4).map(move |seed| (it, seed)))
    {
        for percent in (5..100).step_by(5) {
            run(async {
                let world = World::new();
                let timeout = Duration::from_secs(timeout);
                let client = world.client_with(seed, leased(timeout)).await;
                let lock = FairLock::new(&client, LOCK).expect("the path is legal");
                let guard = hold(&lock).await;
                sleep_ms(3_000).await;
                let left = guard.remaining().expect("there is a lease");
                let outage = left * percent / 100;
                if left - outage < Duration::from_millis(300) {
                    return;
                }
                world.server.refuse_for(outage);
                world.server.disconnect_all();
                sleep_ms(40_000).await;
                let case = format!("{outage:?} of {left:?}, session {timeout:?}, seed {seed}");
                assert_eq!(guard.state(), LockState::Held, "{case}");
                release(guard).await;
            });
        }
    }
}
