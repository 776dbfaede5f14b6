//! The latch.

use zk_tests::scene::{FIRST, SECOND};
use zk_tests::world::{Enumeration, run, sleep_ms};

use crate::latch::Latch;
use crate::{check_clean, data, first_session, last_data, settled, world};

const PATH: &str = "/app/latch";

/// Two clients create the latch, count down once each, and wait. Each count is applied once, so
/// neither is let through before the other has counted, and nobody waits for a count that was lost.
#[test]
fn nobody_passes_before_all_have_counted_down_and_everybody_passes_afterwards() {
    let mut enumeration = Enumeration::new("latch", first_session()).without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            let world = world();
            let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
            let (first, second) =
                (Latch::new(&settled(&one), PATH), Latch::new(&settled(&two), PATH));
            world.inject(faults);
            let take_part = async |latch: &Latch| {
                let is_own = latch.create(2).await.expect("it can be created");
                let left = latch.count_down().await.expect("it can be counted");
                latch.wait().await.expect("it can be read");
                assert_eq!(data(&world, PATH), "0", "it is open\n{}", world.trace());
                (is_own, left)
            };
            let (mine, theirs) = tokio::join!(take_part(&first), take_part(&second));
            assert!(mine.0 != theirs.0, "it was created once\n{}", world.trace());
            let mut left = [mine.1, theirs.1];
            left.sort_unstable();
            assert_eq!(left, [0, 1], "\n{}", world.trace());
            // It stays open, and does not go below zero.
            assert_eq!(first.count_down().await.expect("it can be counted"), 0);
            first.wait().await.expect("it can be read");
            assert_eq!(last_data(&world, PATH).await, "0", "\n{}", world.trace());
            let version = world.server.stat(PATH).expect("it exists").version.0;
            assert_eq!(version, 2, "two counts\n{}", world.trace());
            drop((first, second));
            check_clean(&world, &[&one, &two]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(70, 800), "{enumeration:?}");
}

/// A waiter that came before the latch exists, whose session ends while it waits.
#[test]
fn a_waiter_outlives_its_session() {
    run(async {
        let world = world();
        let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
        let (first, second) = (Latch::new(&settled(&one), PATH), Latch::new(&settled(&two), PATH));
        let session = one.session_id();
        let waiting = async {
            first.wait().await.expect("it can be read");
            assert_eq!(data(&world, PATH), "0");
        };
        let counting = async {
            sleep_ms(100).await;
            world.server.expire(session.expect("it is connected"));
            assert!(second.create(1).await.expect("it can be created"));
            sleep_ms(5_000).await;
            assert_eq!(second.count_down().await.expect("it can be counted"), 0);
        };
        tokio::join!(waiting, counting);
        assert_ne!(one.session_id(), session);
        drop((first, second));
        check_clean(&world, &[&one, &two]).await;
    });
}
