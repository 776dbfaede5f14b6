//! Puts of the work queue.

use std::future::Future;

use zk_recipes::{Client, WorkQueue};
use zk_tests::work_queue::{
    ENTRIES, Entries, Ledger, QUEUE, check_clean, children, put_all, queue, world,
};
use zk_tests::world::{Enumeration, run, sleep_ms};

use crate::{CONTENDER, OTHER, contender};

/// Puts items while another client takes and acknowledges each at once. So an item whose create had
/// an unknown outcome is gone before its producer looks.
fn put_with_every_cut<F: Future<Output = ()>>(
    name: &str,
    expected: &[&str],
    (singles, pairs): (usize, usize),
    put: impl Fn(Client) -> F,
) {
    let mut enumeration = Enumeration::new(name, contender());
    enumeration.run(&|faults| {
        run(async {
            let world = world();
            let (producer, consumer) = (world.client(CONTENDER).await, world.client(OTHER).await);
            let ledger = Ledger::default();
            // The directories exist.
            put_all(&queue(&consumer), &["first"]).await;
            let consuming = ledger.consume(&world, &queue(&consumer));
            ledger.until_acknowledged(&world, 1).await;
            *ledger.entries() = Entries::default();
            world.inject(faults);
            put(producer.clone()).await;
            ledger.until_acknowledged(&world, expected.len()).await;
            // A second copy would arrive now.
            sleep_ms(2_000).await;
            assert_eq!(ledger.entries().taken, expected, "\n{}", world.trace());
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
