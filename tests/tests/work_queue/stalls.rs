//! Takers that wait behind a head that does not take anything.

use std::future::IntoFuture as _;
use std::time::Duration;

use jute_codec::OpCode;
use tokio::time::Instant;
use zk_recipes::WorkQueue;
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, at_op, session};
use zk_tests::work_queue::{Ledger, QUEUE, check_clean, put_all, queue, start_taking};
use zk_tests::world::{World, run_within, sleep_ms};
use zk_testserver::Action;

/// The taker at the head of the queue of takers stops polling its future, and many items arrive.
#[test]
fn a_taker_that_is_not_polled_delays_the_items_behind_it_once_and_not_each() {
    for consumers in [1, 4] {
        run_within(Duration::from_secs(3_600), async {
            let world = World::new().pace(Pace::of(50));
            let (stalled, client) = (world.client(FIRST).await, world.client(SECOND).await);
            let producer = world.client(SECOND + 1).await;
            let jobs = |client| WorkQueue::new(client, QUEUE).expect("the path is valid");
            let mut head = jobs(&stalled).take().into_future();
            let polled = tokio::time::timeout(Duration::from_millis(100), &mut head).await;
            assert!(polled.is_err(), "the queue is empty");
            let ledger = Ledger::default();
            let queue = jobs(&client);
            let tasks: Vec<_> = (0..consumers).map(|_| ledger.consume(&world, &queue)).collect();
            sleep_ms(5_000).await;
            let begun = Instant::now();
            for number in 0..40 {
                jobs(&producer).put(format!("{number}")).await.expect("it can be put");
            }
            ledger.until_acknowledged(&world, 40).await;
            let took = begun.elapsed();
            eprintln!("{consumers} consumers behind a stalled head: 40 items in {took:?}");
            // One interval with its spread, and a moment for the check of the head.
            assert!(took <= Duration::from_secs(40), "{consumers} consumers: {took:?}");
            // Items that arrive later are not delayed by an interval each.
            for number in 41..=44 {
                sleep_ms(60_000).await;
                let begun = Instant::now();
                jobs(&producer).put(format!("{number}")).await.expect("it can be put");
                ledger.until_acknowledged(&world, number).await;
                let took = begun.elapsed();
                assert!(took <= Duration::from_secs(2), "{consumers} consumers: {took:?}");
            }
            // The head goes on.
            put_all(&jobs(&producer), &["for the head"]).await;
            drop(head);
            ledger.until_acknowledged(&world, 45).await;
            for task in tasks {
                task.abort();
                let _ = task.await;
            }
            check_clean(&world, &[&stalled, &client, &producer]).await;
        });
    }
}

/// The head reads its list again after a short outage. The next taker may look meanwhile.
#[test]
fn a_head_that_takes_its_items_late_is_not_overtaken() {
    run_within(Duration::from_secs(7_200), async {
        let world = World::new().pace(Pace::of(50));
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let producer = world.client(SECOND + 1).await;
        let jobs = |client| WorkQueue::new(client, QUEUE).expect("the path is valid");
        for round in 0..100 {
            let head = start_taking(&world, &jobs(&client)).await;
            let next = start_taking(&world, &jobs(&other)).await;
            // The item arrives around the moment at which the next taker looks.
            sleep_ms(29_000 + 100 * round).await;
            let cut = at_op(session(&client), OpCode::GET_CHILDREN, Action::CutBefore);
            world.server.inject(cut.refuse_for(Duration::from_millis(400)));
            put_all(&queue(&producer), &["a"]).await;
            sleep_ms(2_000).await;
            assert!(head.is_finished() && !next.is_finished(), "\n{}", world.trace());
            for taker in [head, next] {
                if taker.is_finished() {
                    let item = taker.await.expect("no panic").expect("there is an item");
                    item.ack().await.expect("the lease is held");
                } else {
                    taker.abort();
                    let _ = taker.await;
                }
            }
        }
        check_clean(&world, &[&client, &other, &producer]).await;
    });
}
