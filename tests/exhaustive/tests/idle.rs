//! Sessions that were idle before a lock is acquired, for every length of time within one lease.

use std::time::Duration;

use zk_recipes::kind::Queued;
use zk_recipes::{AtRiskPolicy, Client, LockState};
use zk_tests::case::Case;
use zk_tests::for_each_lock;
use zk_tests::lock::Waiter;
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, THIRD, hold, release};
use zk_tests::world::{World, run_within, sleep_ms};

for_each_lock! {
    #[test] locks: [
        a_guard_that_gives_up_at_risk_is_held_after_any_idle_time,
        a_body_that_stops_at_risk_is_not_stopped_after_any_idle_time,
        a_lock_is_not_held_before_its_lease_is_certain,
    ]
    #[test] queues: [
        a_waiter_behind_two_others_keeps_the_lock_whenever_it_gets_it,
    ]
}

const TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than any lease of this timeout, which is at most 0.95 of it.
const IDLE_MAX_MS: u64 = 10_500;
const STEP_MS: u64 = 150;
/// Virtual time of a test.
const LONG: Duration = Duration::from_secs(40_000);

/// Runs a scenario after each idle time: coarse steps over more than a lease, and fine steps around
/// each end of a lease. The idle time follows the connect, or the release of a lock that was held
/// for as long as a lease takes to reach its usual length.
fn after_each_idle_time<C: Case>(scenario: impl AsyncFn(&Client)) {
    let coarse = (0..IDLE_MAX_MS).step_by(STEP_MS as usize);
    let fine = (3_400..3_700).chain(5_800..6_000).chain(9_400..9_600).step_by(7);
    for idle_ms in coarse.chain(fine) {
        for was_held in [false, true] {
            run_within(LONG, async {
                let world = World::new().leased().session_timeout(TIMEOUT);
                let world = world.pace(Pace { per_minute: 400, ..Pace::CALM });
                let client = world.client(FIRST).await;
                if was_held {
                    let guard = hold(&C::of(&client)).await;
                    sleep_ms(10_000).await;
                    release(guard).await;
                }
                sleep_ms(idle_ms).await;

                scenario(&client).await;
            });
        }
    }
}

fn a_guard_that_gives_up_at_risk_is_held_after_any_idle_time<C: Case>() {
    after_each_idle_time::<C>(async |client| {
        let lock = C::with(client, |lock| lock.at_risk(AtRiskPolicy::TreatAsLost));
        let guard = hold(&lock).await;
        assert_eq!(guard.state(), LockState::Held);
        assert!(guard.remaining().is_some_and(|left| left > Duration::from_secs(1)));
        for _ in 0..60 {
            sleep_ms(100).await;
            assert_eq!(guard.state(), LockState::Held, "{:?}", client.status());
        }
        assert_eq!(lock.stats().lost, 0);
        release(guard).await;
    });
}

fn a_body_that_stops_at_risk_is_not_stopped_after_any_idle_time<C: Case>() {
    after_each_idle_time::<C>(async |client| {
        let lock = C::of(client);
        let guard = hold(&lock).await;
        let ran = guard.run(sleep_ms(6_000)).stop_at_risk().await;
        assert_eq!(ran, Ok(()));
        let stats = lock.stats();
        assert_eq!((stats.at_risk, stats.lost), (0, 0));
        release(guard).await;
    });
}

/// A guard may become held late, but is not held and then at risk while nothing goes wrong.
fn a_lock_is_not_held_before_its_lease_is_certain<C: Case>() {
    after_each_idle_time::<C>(async |client| {
        let guard = hold(&C::of(client)).await;
        let mut was_held = false;
        for _ in 0..6_000 {
            match guard.state() {
                LockState::Held => was_held = true,
                state @ (LockState::AtRisk | LockState::Lost(_)) => {
                    assert!(!was_held, "{state:?} after it was held");
                }
            }
            if was_held && client.status().lease_deadline().is_some() {
                // Enough turns for the session's task to handle the commands of the guard.
                zk_tests::scene::settle().await;
                assert_eq!(guard.state(), LockState::Held);
                break;
            }
            sleep_ms(1).await;
        }
        assert!(was_held, "there is a lease within six seconds");
        release(guard).await;
    });
}

/// A waiter with two others ahead commits no writes, so the deadline of its session comes nearer. If
/// both of the others leave shortly before it, the lock must still last.
fn a_waiter_behind_two_others_keeps_the_lock_whenever_it_gets_it<C: Case<Kind: Queued>>() {
    for wait_ms in (7_000..9_700).step_by(30) {
        run_within(LONG, async {
            let world = World::new().leased().session_timeout(TIMEOUT);
            let world = world.pace(Pace { per_minute: 400, ..Pace::CALM });
            let client = world.client(FIRST).await;
            let (second, third) = (world.client(SECOND).await, world.client(THIRD).await);
            let held = hold(&C::Rival::of(&second)).await;
            let next = Waiter::queue(&C::Rival::of(&third)).await;
            let lock = C::of(&client);
            let waiter = Waiter::queue(&lock).await;
            sleep_ms(wait_ms).await;
            release(held).await;
            release(next.guard().await).await;
            let guard = waiter.guard().await;
            for _ in 0..600 {
                sleep_ms(10).await;
                assert!(!matches!(guard.state(), LockState::Lost(_)), "after {wait_ms} ms");
            }
            release(guard).await;
            assert_eq!(lock.stats().lost, 0);
        });
    }
}
