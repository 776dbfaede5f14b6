//! The options that all locks have, as the suites need them: a value for worlds that are drawn at
//! random, an invalid one if there is any, and a scene that fails without the option. To add an
//! option, change this file only; the tidy test misses an option without a scene.

use std::time::Duration;

use zk_recipes::{Acl, AtRiskPolicy, FairLock, LockBuilder, LockState, LostReason, Naming};

use crate::case::Case;
use crate::draw::Draw;
use crate::scene::{FIRST, SECOND, granted, hold, partition, release, spawn};
use crate::world::{World, run, sleep_ms};

/// Values of the options.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    watch_check: Option<Duration>,
    /// What the holder does at risk, which a judge has to know.
    pub at_risk: AtRiskPolicy,
}

impl Drawn {
    /// Draws a value for each option. Draw those of a new one from [`Draw::aside`], at the end.
    pub fn new(draw: &mut Draw) -> Self {
        let check = draw.pick(&[Some(Duration::from_secs(30)), None]);
        let watch_check =
            if draw.aside().chance(30) { Some(Duration::from_secs(7)) } else { check };
        let policies = [AtRiskPolicy::GoOn, AtRiskPolicy::GoOn, AtRiskPolicy::TreatAsLost];
        let at_risk = draw.pick(&policies);
        Self { watch_check, at_risk }
    }

    /// Checks for missed watches with this interval if no other was drawn.
    pub fn or_check(mut self, interval: Option<Duration>) -> Self {
        self.watch_check = self.watch_check.or(interval);
        self
    }

    /// Sets the options.
    pub fn set<L, N>(self, lock: LockBuilder<L, N>) -> LockBuilder<L, N> {
        lock.watch_check(self.watch_check).at_risk(self.at_risk)
    }
}

/// A setter with an invalid value.
type Mistake = fn(LockBuilder<FairLock, Naming>) -> LockBuilder<FairLock, Naming>;

/// The invalid values, with their names.
pub const MISTAKES: [(&str, Mistake); 2] = [
    ("watch_check(1 ms)", |lock| lock.watch_check(Some(Duration::from_millis(1)))),
    ("a lock without an access control list", |lock| lock.acl(vec![])),
];

/// Plays the scene of each option.
pub fn each_option_has_its_effect<C: Case>() {
    acl::<C>();
    at_risk::<C>();
    identity::<C>();
    watch_check::<C>();
}

fn acl<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let lock = C::with(&client, |lock| lock.acl(Acl::read()));
        let guard = hold(&lock).await;
        let (list, _) = client.get_acl(guard.path()).await.expect("it can be read");
        assert_eq!(list, Acl::read());
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

fn at_risk<C: Case>() {
    for (policy, after) in [
        (AtRiskPolicy::GoOn, LockState::AtRisk),
        (AtRiskPolicy::TreatAsLost, LockState::Lost(LostReason::AtRisk)),
    ] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            let guard = hold(&C::with(&client, |lock| lock.at_risk(policy))).await;
            sleep_ms(500).await;
            partition(&world, 2_000);
            sleep_ms(1).await;
            assert_eq!(guard.state(), after);
            drop(guard);
            world.check_clean(&[&client]).await;
        });
    }
}

fn identity<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = hold(&C::with(&client, |lock| lock.identity("worker 7"))).await;
        let (data, _) = client.get_data(guard.path()).await.expect("it can be read");
        assert!(data.ends_with(b"worker 7"), "{data:?}");
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

/// A server withholds events from clients that may not read the znode, so only the check finds that
/// the lock is free.
fn watch_check<C: Case>() {
    for (interval, is_found) in [(Some(Duration::from_secs(10)), true), (None, false)] {
        run(async {
            let world = World::new();
            let other = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
            let held = hold(&C::Rival::of(&other)).await;
            let client = world.client(FIRST).await;
            let lock = C::with(&client, |lock| lock.watch_check(interval));
            let waiter = spawn(lock.acquire().into_future());
            sleep_ms(500).await;
            other.set_acl(held.path(), Acl::creator_all(), None).await.expect("it is its own");
            release(held).await;
            // An interval is up to a quarter longer.
            sleep_ms(12_500).await;
            assert_eq!(waiter.is_finished(), is_found, "{interval:?}\n{}", world.trace());
            if is_found {
                release(granted(waiter).await).await;
            } else {
                waiter.abort();
            }
            world.check_clean(&[&client, &other]).await;
        });
    }
}
