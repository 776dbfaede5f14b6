//! Writes that are dropped after every poll, with every fault of the connection around that moment.

use std::time::Duration;

use zk_tests::scene::{FIRST, SECOND, TURNS, Trouble, poll_times};
use zk_tests::world::{World, run};

use crate::{check_clean, create, first_session, flush, stored, value};

/// An update is a read, a write, and the delete of the marker.
const REQUESTS: usize = 3;

#[test]
fn a_dropped_update_is_written_once_or_not_at_all_and_leaves_no_marker() {
    let session = first_session().expect("connected");
    let mut points = 0;
    for trouble in Trouble::all(session, REQUESTS) {
        for polls in 0..=TURNS {
            points += 1;
            let is_over = run(async {
                let world = World::new();
                let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
                create(&world, "0");
                trouble.begin(&world);
                let updating = {
                    let value = value(&client);
                    async move { value.update(|old| [old, &b"+"[..]].concat().into()).await }
                };
                let cut = || trouble.cancelling(&world);
                let dropped = poll_times(updating, polls, cut);
                let ended = tokio::time::timeout(Duration::from_secs(5), dropped).await;
                trouble.cancelled(&world);
                let is_over = match ended {
                    Ok(Some(updated)) => {
                        updated.expect("only the cancellation ends it");
                        true
                    }
                    Ok(None) => false,
                    Err(_) => panic!("it hangs: {trouble:?}\n{}", world.trace()),
                };
                value(&other).update(|old| [old, &b"-"[..]].concat().into()).await.expect("free");
                flush(&world).await;
                world.server.clear_faults();
                let found = stored(&world).expect("it exists");
                let expected: &[_] = if is_over { &["0+-"] } else { &["0+-", "0-+", "0-"] };
                assert!(expected.contains(&&*found), "{found} {trouble:?}\n{}", world.trace());
                check_clean(&world, &[&client, &other]).await;
                is_over
            });
            if is_over {
                break;
            }
            assert!(polls < TURNS, "it never ends: {trouble:?}");
        }
    }
    eprintln!("dropped updates: {points} points");
    assert!(points >= 150, "only {points} points");
}
