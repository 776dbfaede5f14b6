//! Writes that are dropped after every poll, with every fault of the connection around that moment.

use std::time::Duration;

use zk_tests::scene::{FIRST, SECOND, TURNS, Trouble, poll_times};
use zk_tests::world::{World, run};

use crate::{PATH, check_clean, create_directories, first_session, flush, settled};

/// A write is a transaction; if it is dropped, its marker is deleted.
const REQUESTS: usize = 2;

#[test]
fn a_dropped_write_is_applied_once_or_not_at_all_and_leaves_no_marker() {
    let session = first_session().expect("connected");
    let mut points = 0;
    for trouble in Trouble::all(session, REQUESTS) {
        for is_first in [true, false] {
            for polls in 0..=TURNS {
                points += 1;
                let is_over = run(async {
                    let world = World::new();
                    let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
                    create_directories(&world);
                    world.server.admin_create(PATH, b"0", None);
                    let (mine, theirs) = (settled(&client), settled(&other));
                    if !is_first {
                        mine.set_data(PATH, "1", None).await.expect("it exists");
                    }
                    let before = world.server.stat(PATH).expect("it exists").version.0;
                    trouble.begin(&world);
                    let writing = mine.set_data(PATH, "mine", None);
                    let dropped = poll_times(writing, polls, || trouble.cancelling(&world));
                    let ended = tokio::time::timeout(Duration::from_secs(5), dropped).await;
                    trouble.cancelled(&world);
                    let is_over = match ended {
                        Ok(Some(written)) => {
                            written.expect("only the cancellation ends it");
                            true
                        }
                        Ok(None) => false,
                        Err(_) => panic!("it hangs: {trouble:?}\n{}", world.trace()),
                    };
                    theirs.set_data(PATH, "theirs", None).await.expect("it exists");
                    flush(&world).await;
                    world.server.clear_faults();
                    let written = world.server.stat(PATH).expect("it exists").version.0 - before;
                    let possible = if is_over { 2..=2 } else { 1..=2 };
                    assert!(
                        possible.contains(&written),
                        "{written} writes, {trouble:?}\n{}",
                        world.trace()
                    );
                    drop((mine, theirs));
                    check_clean(&world, &[&client, &other]).await;
                    is_over
                });
                if is_over {
                    break;
                }
                assert!(polls < TURNS, "it never ends: {trouble:?}");
            }
        }
    }
    eprintln!("dropped writes: {points} points");
    assert!(points >= 100, "only {points} points");
}
