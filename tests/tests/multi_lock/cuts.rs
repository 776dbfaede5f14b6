//! Every single cut and every pair of cuts of a client that acquires two locks, of which another
//! client holds the second, and releases them.

use std::time::Duration;

use zk_recipes::LockState;
use zk_tests::scene::spawn;
use zk_tests::world::{Enumeration, World, run, session_of_first, sleep_ms};

use crate::{check_clean, exclusive, fair, hold, znodes};

const CONTENDER: u64 = 1;
const HOLDER: u64 = 2;

fn two(client: &zk_recipes::Client) -> zk_recipes::MultiLock {
    zk_recipes::MultiLock::builder()
        .with(fair(client, "/locks/b"))
        .with(exclusive(client, "/locks/a"))
        .build()
        .expect("the paths differ")
}

fn enumerate(name: &str, has_pairs: bool, scenario: impl AsyncFn(&World, &zk_recipes::Client)) {
    let contender = Some(session_of_first(CONTENDER));
    let mut enumeration =
        Enumeration::new(name, contender).without_pairs_if(!has_pairs).without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            let other = world.client(HOLDER).await;
            let held = fair(&other, "/locks/b").acquire().await.expect("it is free");
            world.inject(faults);
            let leaving = spawn(async move {
                sleep_ms(1_500).await;
                assert_eq!(held.state(), LockState::Held);
                held.release().await.expect("its znode can be deleted");
            });
            scenario(&world, &client).await;
            leaving.await.expect("the holder was undisturbed");
            check_clean(&world, &[&client, &other]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(60, 1_000), "{enumeration:?}");
}

#[test]
fn two_locks_survive_every_pair_of_cuts() {
    enumerate("two locks", true, async |world, client| {
        let guard = hold(&two(client)).await;
        assert_eq!(znodes(world).len(), 2, "\n{}", world.trace());
        guard.validate().await.expect("both are held");
        assert!(!matches!(guard.state(), LockState::Lost(_)), "\n{}", world.trace());
        guard.release().await.expect("the znodes can be deleted");
    });
}

#[test]
fn a_timeout_behind_the_second_lock_survives_every_cut() {
    enumerate("a timeout behind the second", false, async |world, client| {
        let timed = two(client).acquire().timeout(Duration::from_millis(700)).await;
        let error = timed.map(drop).unwrap_err();
        assert!(error.error.is_timed_out(), "\n{}", world.trace());
        sleep_ms(3_000).await;
        assert_eq!(znodes(world), [] as [&str; 0], "\n{}", world.trace());
    });
}
