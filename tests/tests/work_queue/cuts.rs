//! Every single cut and every pair of cuts of a producer and of the end of a lease, and every single
//! cut of a taker.

use std::future::Future;

use zk_recipes::{Client, SessionId, WorkQueue};
use zk_tests::scene::spawn;
use zk_tests::world::{Enumeration, run, session_of_first, sleep_ms};

use crate::{
    ENTRIES, Entries, Ledger, QUEUE, check_clean, children, put_all, queue, take, text, world,
};

/// The client whose connections are cut.
const CUT: u64 = 1;
const OTHER: u64 = 2;

/// The session of the client whose connections are cut, which is the same in every world.
fn cut_session() -> Option<SessionId> {
    Some(session_of_first(CUT))
}

/// Puts items while another client takes and acknowledges each at once. So an item whose create had
/// an unknown outcome is gone before its producer looks.
fn put_with_every_cut<F: Future<Output = ()>>(
    name: &str,
    expected: &[&str],
    (singles, pairs): (usize, usize),
    put: impl Fn(Client) -> F,
) {
    let mut enumeration = Enumeration::new(name, cut_session());
    enumeration.run(&|faults| {
        run(async {
            let world = world();
            let (producer, consumer) = (world.client(CUT).await, world.client(OTHER).await);
            let ledger = Ledger::default();
            // The directories exist.
            put_all(&queue(&consumer), &["first"]).await;
            let consuming = ledger.consume(&world, &queue(&consumer));
            ledger.until_acknowledged(&world, 1).await;
            *ledger.lock() = Entries::default();
            world.inject(faults);
            put(producer.clone()).await;
            ledger.until_acknowledged(&world, expected.len()).await;
            // A second copy would arrive now.
            sleep_ms(2_000).await;
            assert_eq!(ledger.lock().taken, expected, "\n{}", world.trace());
            assert!(children(&world, ENTRIES).is_empty(), "\n{}", world.trace());
            consuming.abort();
            let _ = consuming.await;
            check_clean(&world, &[&producer, &consumer]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(singles, pairs), "{enumeration:?}");
}

#[test]
fn puts_survive_every_pair_of_cuts_exactly_once_and_in_order() {
    put_with_every_cut("two puts", &["a", "b"], (40, 1_000), async |client| {
        put_all(&queue(&client), &["a", "b"]).await;
    });
}

#[test]
fn a_batch_survives_every_pair_of_cuts_exactly_once_and_complete() {
    put_with_every_cut("a batch", &["a", "b", "c"], (20, 300), async |client| {
        queue(&client).put_batch(["a", "b", "c"]).await.expect("it can be put");
    });
}

#[test]
fn a_put_with_a_limit_survives_every_pair_of_cuts_exactly_once() {
    put_with_every_cut("a limited put", &["a"], (20, 300), async |client| {
        let limited = WorkQueue::builder(&client, QUEUE);
        let limited = limited.and_then(|builder| builder.limit(1).build());
        limited.expect("the options are legal").put("a").await.expect("it can be put");
    });
}

/// One client takes two items, acknowledges one and gives the other back, while its connections are
/// cut. Another client takes all it can get. The pairs of cuts take half a minute: replace
/// `run_singles` by `run` for them.
#[test]
fn two_consumers_survive_every_cut_of_one() {
    let mut enumeration =
        Enumeration::new("take, acknowledge, give back", cut_session()).without_refusals_in_pairs();
    enumeration.run_singles(&|faults| {
        run(async {
            let world = world();
            let (client, other) = (world.client(CUT).await, world.client(OTHER).await);
            let ledger = Ledger::default();
            put_all(&queue(&other), &["a", "b"]).await;
            sleep_ms(10).await;
            world.inject(faults);
            let one = take(&queue(&client)).await;
            ledger.took(&world, &one);
            let two = take(&queue(&client)).await;
            ledger.took(&world, &two);
            assert_eq!((text(&one).as_str(), text(&two).as_str()), ("a", "b"));
            let consuming = ledger.consume(&world, &queue(&other));
            sleep_ms(500).await;
            assert!(ledger.ack(&world, one).await, "the lease is held\n{}", world.trace());
            let give_back = two.give_back();
            ledger.left("b");
            give_back.await.expect("the lease can be deleted");
            ledger.until_acknowledged(&world, 2).await;
            sleep_ms(1_000).await;
            assert_eq!(ledger.lock().acknowledged, ["a", "b"], "\n{}", world.trace());
            assert_eq!(ledger.lock().taken, ["a", "b", "b"], "\n{}", world.trace());
            consuming.abort();
            let _ = consuming.await;
            check_clean(&world, &[&client, &other]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(300, 0), "{enumeration:?}");
}

/// A taker waits, an item arrives, and its connections are cut around that moment. For all pairs of
/// cuts, see above.
#[test]
fn a_taker_that_waits_survives_every_cut() {
    let mut enumeration =
        Enumeration::new("waiting for an item", cut_session()).without_refusals_in_pairs();
    enumeration.run_singles(&|faults| {
        run(async {
            let world = world();
            let (client, other) = (world.client(CUT).await, world.client(OTHER).await);
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
    assert!(enumeration.is_complete(300, 0), "{enumeration:?}");
}

/// Two items are leased when the cuts begin. One is acknowledged, and the other given back.
#[test]
fn an_ack_and_a_return_survive_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("acknowledge and give back", cut_session());
    enumeration.run(&|faults| {
        run(async {
            let world = world();
            let (client, other) = (world.client(CUT).await, world.client(OTHER).await);
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
