//! Puts, takes and acks that are dropped after every poll, with every cut of the connection around
//! that moment.

use std::future::{Future, IntoFuture as _};
use std::time::Duration;

use zk_recipes::Client;
use zk_tests::cancel::at_every_poll;
use zk_tests::scene::{FIRST, SECOND, Trouble, poll_times};
use zk_tests::work_queue::{check_clean, children, drain, put_all, queue, take, world};
use zk_tests::world::{World, run, sleep_ms};

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
            assert!(
                children(&world, zk_tests::work_queue::ENTRIES).is_empty(),
                "late\n{}",
                world.trace()
            );
            has_ended
        })
    });
    eprintln!("a put: dropped at {points} points");
    assert!(points > 200, "{points}");
}

/// How a consumer takes.
#[derive(Clone, Copy, Debug)]
enum Way {
    Wait,
    Try,
    Batch,
}

#[test]
fn a_take_dropped_after_any_poll_leaves_no_lease() {
    for way in [Way::Wait, Way::Try, Way::Batch] {
        let points = at_every_poll(6, |polls, trouble| {
            run(async {
                let world = world();
                let (other, client) = two(&world).await;
                put_all(&queue(&other), &["a", "b"]).await;
                let queue = queue(&client);
                let take = async move {
                    match way {
                        Way::Wait => queue.take().await.map(drop),
                        Way::Try => queue.try_take().await.map(drop),
                        Way::Batch => queue.take_batch(3).await.map(drop),
                    }
                };
                let has_ended = drop_after(&world, polls, trouble, take).await;
                sleep_ms(2_000).await;
                world.server.clear_faults();
                assert_eq!(
                    drain(&zk_tests::work_queue::queue(&other)).await,
                    ["a", "b"],
                    "\n{}",
                    world.trace()
                );
                check_clean(&world, &[&client, &other]).await;
                has_ended
            })
        });
        eprintln!("a take, {way:?}: dropped at {points} points");
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
