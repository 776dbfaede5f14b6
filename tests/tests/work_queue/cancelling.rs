//! Puts, takes and acks that are dropped after every poll, with every cut of the connection around
//! that moment.

use std::future::{Future, IntoFuture as _};
use std::time::Duration;

use zk_recipes::Client;
use zk_tests::cancel::at_every_poll;
use zk_tests::scene::{FIRST, SECOND, Trouble, poll_times};
use zk_tests::world::{World, run, sleep_ms};

use crate::{check_clean, children, drain, put_all, queue, take, world};

/// How long a call may take before it counts as a wait that nothing will end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Drops a call of the second client after this many polls. Returns the number of times that the
/// items were delivered afterwards, and whether the call had ended before.
async fn drop_after<T, F: Future<Output = T>>(
    world: &World,
    polls: usize,
    trouble: &Trouble,
    call: F,
) -> bool {
    trouble.begin(world);
    let dropped = poll_times(call, polls, || trouble.cancelling(world));
    let ended = tokio::time::timeout(PATIENCE, dropped).await;
    trouble.cancelled(world);
    !matches!(ended, Ok(None))
}

async fn two(world: &World) -> (Client, Client) {
    (world.client(FIRST).await, world.client(SECOND).await)
}

#[test]
fn a_put_dropped_after_any_poll_puts_once_or_not_at_all_and_leaves_no_marker() {
    let points = at_every_poll(6, |polls, trouble| {
        run(async {
            let world = world();
            let (other, client) = two(&world).await;
            let put = queue(&client).put("a").into_future();
            let has_ended = drop_after(&world, polls, trouble, put).await;
            sleep_ms(2_000).await;
            world.server.clear_faults();
            let taken = drain(&queue(&other)).await;
            assert!(taken.len() <= 1, "{taken:?}\n{}", world.trace());
            assert!(!has_ended || taken == ["a"], "it was put\n{}", world.trace());
            check_clean(&world, &[&client, &other]).await;
            assert!(children(&world, crate::ENTRIES).is_empty(), "late\n{}", world.trace());
            has_ended
        })
    });
    eprintln!("a put: dropped at {points} points");
    assert!(points > 200, "{points}");
}

#[test]
fn a_take_dropped_after_any_poll_leaves_no_lease() {
    for is_try in [false, true] {
        let points = at_every_poll(6, |polls, trouble| {
            run(async {
                let world = world();
                let (other, client) = two(&world).await;
                put_all(&queue(&other), &["a"]).await;
                let queue = queue(&client);
                let take = async move {
                    if is_try {
                        queue.try_take().await.map(drop)
                    } else {
                        queue.take().await.map(drop)
                    }
                };
                let has_ended = drop_after(&world, polls, trouble, take).await;
                sleep_ms(2_000).await;
                world.server.clear_faults();
                assert_eq!(drain(&crate::queue(&other)).await, ["a"], "\n{}", world.trace());
                check_clean(&world, &[&client, &other]).await;
                has_ended
            })
        });
        eprintln!("a take: dropped at {points} points");
        assert!(points > 200, "{points}");
    }
}

#[test]
fn an_ack_dropped_after_any_poll_deletes_the_item_or_returns_it() {
    let points = at_every_poll(3, |polls, trouble| {
        run(async {
            let world = world();
            let (other, client) = two(&world).await;
            put_all(&queue(&other), &["a", "b"]).await;
            let item = take(&queue(&client)).await;
            sleep_ms(100).await;
            let has_ended = drop_after(&world, polls, trouble, item.ack()).await;
            sleep_ms(2_000).await;
            world.server.clear_faults();
            let taken = drain(&queue(&other)).await;
            assert!(taken == ["b"] || (!has_ended && taken == ["a", "b"]), "{taken:?}");
            check_clean(&world, &[&client, &other]).await;
            has_ended
        })
    });
    eprintln!("an ack: dropped at {points} points");
    assert!(points > 50, "{points}");
}
