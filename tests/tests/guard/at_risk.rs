//! A lock at risk: gone on with, or treated as lost.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::kind::Kind;
use zk_recipes::{
    AtRiskPolicy, ClientBuilder, Lease, LockError, LockState, LostReason, Released, Stopped,
};
use zk_tests::scene::{at_op, partition, session, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::{FIRST, Locks, Way, check_clean, for_every_kind, release};

const LOST: LockState = LockState::Lost(LostReason::AtRisk);

fn disconnected<K: Kind>(way: &Way<K>) {
    for is_watched in [false, true] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            let locks = Locks::with(&client, AtRiskPolicy::TreatAsLost);
            let guard = way.hold(&locks).await;
            sleep_ms(if is_watched { 500 } else { 0 }).await;
            assert_eq!(guard.state(), LockState::Held, "{}", way.name);
            let lost = spawn(guard.lost());
            let znode = guard.path().to_owned();
            let before = client.now();
            partition(&world, 2_000);
            sleep_ms(1).await;
            assert!(lost.is_finished(), "{}: nobody has asked", way.name);
            assert_eq!(lost.await.expect("it does not panic"), LostReason::AtRisk);
            assert_eq!(guard.state(), LOST);
            assert_eq!(guard.validate().await, Err(LockError::Lost(LostReason::AtRisk)));
            let stopped = guard.run(async {}).await;
            assert_eq!(stopped, Err(Stopped::Lost(LostReason::AtRisk)));
            assert!(world.server.stat(&znode).is_some());
            // As soon as a server can be reached, although the guard is still there.
            world.until("it is removed", |server| server.stat(&znode).is_none()).await;
            assert!(client.now().saturating_since(before) < Duration::from_secs(4));
            sleep_ms(5_000).await;
            assert_eq!(guard.state(), LOST, "for ever");
            assert_eq!(guard.release().await, Ok(Released::Released));
            let stats = (way.stats)(&locks);
            assert_eq!((stats.lost, stats.acquired), (1, 1), "{}", way.name);
            release(way.hold(&locks).await).await;
            check_clean(&world, &[&client]).await;
        });
    }
}

#[test]
fn a_lock_at_risk_that_is_treated_as_lost_is_lost_with_the_connection() {
    for_every_kind!(disconnected);
}

fn silent<K: Kind>(way: &Way<K>) {
    run(async {
        let world = World::new();
        // With a lease, an acknowledgement is overdue before the connection counts as dead.
        let timeout = Duration::from_secs(30);
        let by_pings = Lease::pings(5, Duration::from_secs(2));
        let options = |builder: ClientBuilder| builder.session_timeout(timeout).lease(by_pings);
        let client = world.client_with(FIRST, options).await;
        let interval = by_pings.ping_interval(timeout).expect("there is a lease");
        let locks = Locks::with(&client, AtRiskPolicy::TreatAsLost);
        let guard = way.hold(&locks).await;
        sleep_ms(1_000).await;
        guard.validate().await.expect("it is held");
        let proven = client.now();
        let slow = Action::Delay(Duration::from_secs(30));
        world.server.inject(at_op(session(&client), OpCode::PING, slow));
        // Nobody asks, and no event comes: only time passes.
        assert_eq!(guard.lost().await, LostReason::AtRisk);
        let late = client.now().saturating_since(proven + interval * 2);
        assert!(late < Duration::from_millis(201), "{}: {late:?} late", way.name);
        assert_eq!(client.status().connection, 1, "{}", way.name);
        drop(guard);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn an_acknowledgement_that_is_overdue_is_enough() {
    for_every_kind!(silent);
}

fn not_lost<K: Kind>(way: &Way<K>) {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let locks = Locks::with(&client, AtRiskPolicy::TreatAsLost);
        let guard = way.hold(&locks).await;
        sleep_ms(100_000).await;
        assert_eq!(guard.state(), LockState::Held, "{}", way.name);
        assert_eq!((way.stats)(&locks).lost, 0);
        release(guard).await;
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn without_a_risk_it_is_held_as_long_as_one_likes() {
    for_every_kind!(not_lost);
}

fn goes_on<K: Kind>(way: &Way<K>) {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let locks = Locks::new(&client);
        let guard = way.hold(&locks).await;
        sleep_ms(500).await;
        let lost = spawn(guard.lost());
        partition(&world, 2_000);
        sleep_ms(1).await;
        assert_eq!(guard.state(), LockState::AtRisk, "{}", way.name);
        sleep_ms(5_000).await;
        assert_eq!(guard.state(), LockState::Held, "{}\n{}", way.name, world.trace());
        assert!(!lost.is_finished());
        lost.abort();
        release(guard).await;
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn by_default_a_lock_at_risk_is_gone_on_with() {
    for_every_kind!(goes_on);
}

/// The next one must not come in before the holder knows: it is the holder that gives up.
fn followed<K: Kind>(way: &Way<K>) {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(crate::SECOND).await);
        let locks = Locks::with(&client, AtRiskPolicy::TreatAsLost);
        let guard = way.hold(&locks).await;
        let others = Locks::new(&other);
        let next = spawn(async move { others.fair.acquire().await.map(drop) });
        let lost = spawn(guard.lost());
        sleep_ms(500).await;
        partition(&world, 300);
        sleep_ms(5_000).await;
        assert_eq!(lost.await.expect("it does not panic"), LostReason::AtRisk);
        assert!(next.is_finished(), "{}: it is free\n{}", way.name, world.trace());
        drop(guard);
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_lock_given_up_at_risk_is_free_for_others() {
    for_every_kind!(followed);
}

fn bodies<K: Kind>(way: &Way<K>) {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = way.hold(&Locks::new(&client)).await;
        assert_eq!(guard.run(async { 17 }).await, Ok(17), "{}", way.name);
        sleep_ms(200).await;
        partition(&world, 500);
        let stopped = guard.run(std::future::pending::<()>()).stop_at_risk().await;
        assert_eq!(stopped, Err(Stopped::AtRisk), "{}", way.name);
        assert_eq!(guard.run(async { 17 }).await, Ok(17), "at risk it goes on");
        sleep_ms(3_000).await;
        assert_eq!(guard.run(async { 17 }).stop_at_risk().await, Ok(17));
        assert!(world.server.admin_delete(guard.path()));
        let stopped = guard.run(std::future::pending::<()>()).await;
        assert_eq!(stopped, Err(Stopped::Lost(LostReason::ZnodeDeleted)), "{}", way.name);
        drop(guard);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_body_runs_and_is_stopped_under_a_guard_of_every_kind() {
    for_every_kind!(bodies);
}
