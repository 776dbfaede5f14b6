//! Takes, acknowledgements and returns of the work queue.

use zk_recipes::{Client, Leased};
use zk_tests::scene::spawn;
use zk_tests::work_queue::{Ledger, check_clean, put_all, queue, take, text, world};
use zk_tests::world::{Enumeration, World, run, sleep_ms};

use crate::{CONTENDER, OTHER, contender};

/// One client takes two items, acknowledges one and gives the other back, while its connections are
/// cut. Another client takes all it can get.
#[test]
fn two_consumers_survive_every_pair_of_cuts_of_one() {
    let mut enumeration =
        Enumeration::new("take, acknowledge, give back", contender()).without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            let world = world();
            let (client, other) = (world.client(CONTENDER).await, world.client(OTHER).await);
            let ledger = Ledger::default();
            put_all(&queue(&other), &["a", "b"]).await;
            sleep_ms(10).await;
            world.inject(faults);
            let one = take(&queue(&client)).await;
            ledger.took(&world, &one);
            let two = take(&queue(&client)).await;
            ledger.took(&world, &two);
            assert_eq!((text(&one).as_str(), text(&two).as_str()), ("a", "b"));
            end(&world, [&client, &other], &ledger, one, async || {
                let give_back = two.give_back();
                ledger.left("b");
                give_back.await.expect("the lease can be deleted");
            })
            .await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(240, 8_000), "{enumeration:?}");
}

/// Acknowledges the item "a" and returns the item "b", which the other client then takes.
async fn end(
    world: &World,
    [client, other]: [&Client; 2],
    ledger: &Ledger,
    a: Leased,
    return_b: impl AsyncFnOnce(),
) {
    let consuming = ledger.consume(world, &queue(other));
    sleep_ms(500).await;
    assert!(ledger.ack(world, a).await, "the lease is held\n{}", world.trace());
    return_b().await;
    ledger.until_acknowledged(world, 2).await;
    sleep_ms(1_000).await;
    assert_eq!(ledger.entries().acknowledged, ["a", "b"], "\n{}", world.trace());
    assert_eq!(ledger.entries().taken, ["a", "b", "b"], "\n{}", world.trace());
    consuming.abort();
    let _ = consuming.await;
    check_clean(world, &[client, other]).await;
}

/// One client takes a batch of two items, acknowledges one and drops the other, while its
/// connections are cut. Another client takes what returns.
#[test]
fn a_batch_survives_every_pair_of_cuts_of_its_taker() {
    let mut enumeration =
        Enumeration::new("a batch of two", contender()).without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            let world = world();
            let (client, other) = (world.client(CONTENDER).await, world.client(OTHER).await);
            let ledger = Ledger::default();
            put_all(&queue(&other), &["a", "b"]).await;
            sleep_ms(10).await;
            world.inject(faults);
            let mut items = queue(&client).take_batch(3).await.expect("there are items");
            items.iter().for_each(|item| ledger.took(&world, item));
            let texts: Vec<_> = items.iter().map(text).collect();
            assert_eq!(texts, ["a", "b"], "\n{}", world.trace());
            let one = items.remove(0);
            end(&world, [&client, &other], &ledger, one, async || {
                ledger.left("b");
                drop(items);
            })
            .await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(240, 8_000), "{enumeration:?}");
}

/// A taker waits, an item arrives, and its connections are cut around that moment.
#[test]
fn a_taker_that_waits_survives_every_pair_of_cuts() {
    let mut enumeration =
        Enumeration::new("waiting for an item", contender()).without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            let world = world();
            let (client, other) = (world.client(CONTENDER).await, world.client(OTHER).await);
            world.inject(faults);
            let taker = {
                let queue = queue(&client);
                spawn(async move { queue.take().await })
            };
            sleep_ms(1_500).await;
            put_all(&queue(&other), &["a"]).await;
            let item = taker.await.expect("no panic").expect("an item arrives");
            item.ack().await.expect("the lease is held");
            assert_eq!(queue(&other).length().await, Ok(0));
            check_clean(&world, &[&client, &other]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(240, 8_000), "{enumeration:?}");
}

/// Two items are leased when the cuts begin. One is acknowledged, and the other given back.
#[test]
fn an_ack_and_a_return_survive_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("acknowledge and give back", contender());
    enumeration.run(&|faults| {
        run(async {
            let world = world();
            let (client, other) = (world.client(CONTENDER).await, world.client(OTHER).await);
            put_all(&queue(&other), &["a", "b"]).await;
            let (one, two) = (take(&queue(&client)).await, take(&queue(&client)).await);
            sleep_ms(10).await;
            world.inject(faults);
            one.ack().await.expect("the lease is held");
            two.give_back().await.expect("the lease can be deleted");
            let item = take(&queue(&other)).await;
            assert_eq!(text(&item), "b", "\n{}", world.trace());
            item.ack().await.expect("the lease is held");
            assert_eq!(queue(&other).length().await, Ok(0), "\n{}", world.trace());
            check_clean(&world, &[&client, &other]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(30, 200), "{enumeration:?}");
}
