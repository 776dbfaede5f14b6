//! Every single cut and every pair of cuts of clients that write.

use zk_recipes::ValueError;
use zk_tests::scene::{FIRST, SECOND};
use zk_tests::world::{Enumeration, World, run};

use crate::{PATH, check_clean, counter, create, first_session, flush, stored, value};

/// Both write the same data at the same version, so neither the version nor the data tells whose
/// write was applied.
#[test]
fn two_counters_that_add_at_once_survive_every_pair_of_cuts_and_count_each_addition_once() {
    let mut enumeration = Enumeration::new("two counters", None);
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
            create(&world, "5");
            world.inject(faults);
            let (first, second) = (counter(&one), counter(&two));
            let (first, second) = tokio::join!(first.add(1), second.add(1));
            let mut sums = [first.expect("no session ends"), second.expect("no session ends")];
            sums.sort_unstable();
            assert_eq!(sums, [6, 7], "\n{}", world.trace());
            flush(&world).await;
            assert_eq!(stored(&world).as_deref(), Some("7"), "\n{}", world.trace());
            check_clean(&world, &[&one, &two]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(50, 1_000), "{enumeration:?}");
}

/// Exactly one of two equal writes replaces the value that both have read.
#[test]
fn of_two_equal_writes_one_succeeds_under_every_pair_of_cuts_of_one() {
    let mut enumeration = Enumeration::new("equal writes", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
            create(&world, "old");
            let (first, second) = (value(&one), value(&two));
            let old = first.get().await.expect("it can be read");
            world.inject(faults);
            let (mine, theirs) = tokio::join!(
                first.compare_and_set(&old, "new"),
                second.compare_and_set(&old, "new")
            );
            let is_mine = match (&mine, &theirs) {
                (Ok(new), Err(ValueError::Conflict)) => {
                    assert_eq!((new.bytes().as_ref(), new.version().0), (&b"new"[..], 1));
                    true
                }
                (Err(ValueError::Conflict), Ok(_)) => false,
                both => panic!("{both:?}\n{}", world.trace()),
            };
            // A write of the client that has succeeded, and then one of the other.
            let (winner, loser) = if is_mine { (&first, &second) } else { (&second, &first) };
            loser.set("later").await.expect("it can be written");
            winner.get().await.expect("it can be read");
            flush(&world).await;
            assert_eq!(stored(&world).as_deref(), Some("later"), "\n{}", world.trace());
            assert_eq!(world.server.stat(PATH).map(|stat| stat.version.0), Some(2));
            check_clean(&world, &[&one, &two]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(20, 200), "{enumeration:?}");
}

/// The other client writes as soon as the write has returned, so a replay that came too late would
/// overwrite a newer value. Another variant writes meanwhile.
#[test]
fn a_write_of_any_version_is_applied_once_under_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("writes of any version", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
            world.inject(faults);
            let (first, second) = (value(&one), value(&two));
            let (mine, theirs) = tokio::join!(first.set("mine"), second.set("theirs"));
            mine.expect("it can be written");
            theirs.expect("it can be written");
            second.set("last").await.expect("it can be written");
            flush(&world).await;
            assert_eq!(stored(&world).as_deref(), Some("last"), "\n{}", world.trace());
            let version = world.server.stat(PATH).map(|stat| stat.version.0);
            assert_eq!(version, Some(3), "each write once\n{}", world.trace());
            check_clean(&world, &[&one, &two]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(30, 400), "{enumeration:?}");
}

#[test]
fn the_first_read_creates_the_znode_under_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("first read", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            world.inject(faults);
            let first = value(&client).get().await.expect("it can be created");
            assert_eq!((first.bytes().as_ref(), first.version().0), (&b"first"[..], 0));
            flush(&world).await;
            assert_eq!(stored(&world).as_deref(), Some("first"), "\n{}", world.trace());
            check_clean(&world, &[&client]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(30, 400), "{enumeration:?}");
}
