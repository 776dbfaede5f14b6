//! Every single cut and every pair of cuts of a client that leaves while another arrives, and of a
//! client that waits. At the end there is no directory.

use std::future::IntoFuture as _;
use std::time::Duration;

use zk_recipes::{LockError, LockState, Released};
use zk_tests::scene::{granted, release, spawn};
use zk_tests::world::{Enumeration, World, run, session_of_first, sleep_ms};

use crate::{check_gone, hold, lock};

const CONTENDER: u64 = 1;
const OTHER: u64 = 2;

fn enumerate(
    name: &str,
    has_pairs: bool,
    scenario: impl AsyncFn(&World, [&zk_recipes::Client; 2], Vec<zk_testserver::Fault>),
) {
    let contender = Some(session_of_first(CONTENDER));
    let mut enumeration =
        Enumeration::new(name, contender).without_pairs_if(!has_pairs).without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            // Otherwise the server would remove a directory that the lock has left behind.
            let world = World::reaped_each_minute();
            let (client, other) = (world.client(CONTENDER).await, world.client(OTHER).await);
            scenario(&world, [&client, &other], faults).await;
            check_gone(&world, &[&client, &other]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(36, 500), "{enumeration:?}");
}

#[test]
fn acquire_and_release_survive_every_pair_of_cuts() {
    enumerate("named, uncontended", true, async |world, [client, _], faults| {
        world.inject(faults);
        let guard = hold(&lock(client)).await;
        guard.validate().await.expect("it is held");
        assert_eq!(guard.release().await, Ok(Released::Released), "\n{}", world.trace());
    });
}

/// The client releases the lock, which may remove the directory late or twice, and the other one
/// acquires it at the same time.
#[test]
fn a_removal_beside_an_arrival_survives_every_pair_of_cuts() {
    enumerate("named, removal beside arrival", true, async |world, [client, other], faults| {
        let guard = hold(&lock(client)).await;
        sleep_ms(1_000).await;
        world.inject(faults);
        let token = guard.fencing_token();
        // This read is another request that can be cut.
        guard.validate().await.expect("it is held");
        let releasing = spawn(guard.release());
        let next = spawn(lock(other).acquire().into_future());
        let next = granted(next).await;
        assert!(next.fencing_token() > token);
        world.check_granted::<zk_recipes::FairLock>(&next);
        releasing.await.expect("no panic").expect("its znode can be deleted");
        // A late removal must not disturb the next holder.
        sleep_ms(1_000).await;
        assert_eq!(next.state(), LockState::Held, "\n{}", world.trace());
        next.validate().await.expect("it is held");
        // Nor the client itself, which arrives again.
        let again = spawn(lock(client).acquire().into_future());
        sleep_ms(1_500).await;
        assert!(!again.is_finished(), "two holders\n{}", world.trace());
        release(next).await;
        release(granted(again).await).await;
    });
}

#[test]
fn a_timeout_survives_every_cut() {
    enumerate("named, timeout", false, async |world, [client, other], faults| {
        let held = hold(&lock(other)).await;
        world.inject(faults);
        let timed = lock(client).acquire().timeout(Duration::from_millis(700)).await;
        assert!(matches!(timed.map(drop), Err(LockError::TimedOut(_))), "\n{}", world.trace());
        sleep_ms(3_000).await;
        assert_eq!(held.state(), LockState::Held);
        release(held).await;
    });
}
