//! Calls that are dropped after any number of polls.

use std::time::Duration;

use zk_tests::scene::{FIRST, Trouble, poll_times, session};
use zk_tests::world::{World, run, sleep_ms};

use crate::{begin, builder, check_clean, create_parent};

/// Drops what `call` starts after any number of polls, with every fault of its first requests.
fn drop_at_any_poll(at_least: usize, closes: bool) {
    let own = run(async { session(&World::new().client(FIRST).await) });
    let mut points = 0;
    for trouble in Trouble::all(own, 2) {
        for polls in 0..60 {
            points += 1;
            let is_over = run(async {
                let world = World::new();
                create_parent(&world);
                let client = world.client(FIRST).await;
                let presence = if closes { Some(begin(&client, "one").await) } else { None };
                trouble.begin(&world);
                let call = async {
                    match presence {
                        Some(presence) => presence.close().await.map(drop),
                        None => builder(&client).begin("one").await.map(drop),
                    }
                };
                let calling = poll_times(call, polls, || trouble.cancelling(&world));
                let ended = tokio::time::timeout(Duration::from_secs(3), calling).await;
                trouble.cancelled(&world);
                let is_over = !matches!(ended, Ok(None));
                drop(ended);
                sleep_ms(100).await;
                check_clean(&world, &[&client]).await;
                is_over
            });
            if is_over {
                break;
            }
        }
    }
    assert!(points >= at_least, "{points}");
}

#[test]
fn a_begin_that_is_dropped_at_any_poll_leaves_nothing() {
    drop_at_any_poll(30, false);
}

#[test]
fn a_close_that_is_dropped_at_any_poll_removes_the_znode() {
    drop_at_any_poll(20, true);
}
