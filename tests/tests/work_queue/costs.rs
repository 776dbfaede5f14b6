//! The requests of each call, counted at the server, as the page of the recipe lists them, and the
//! requests of a crowd of takers.

use std::collections::BTreeMap;
use std::future::IntoFuture as _;
use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::WorkQueue;
use zk_tests::meter::Pace;
use zk_tests::page;
use zk_tests::scene::{FIRST, SECOND, all_sent_since, session, spawn};
use zk_tests::work_queue::{
    Ledger, QUEUE, check_clean, children, drain, put_all, queue, take, world,
};
use zk_tests::world::{World, run, run_within, sleep_ms};

const LIST: OpCode = OpCode::GET_CHILDREN;
const READ: OpCode = OpCode::GET_DATA;

const PAGE: &str = "recipes/work_queue.md";

#[test]
fn a_put_is_a_multi_and_a_delete_of_its_marker() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        let queue = queue(&client);
        put_all(&queue, &["a"]).await;
        all_sent_since(&world, &client).await;
        let limited = WorkQueue::builder(&client, QUEUE).and_then(|it| it.limit(10).build());
        let limited = limited.expect("the options are legal");
        put_all(&queue, &["a"]).await;
        let sent = all_sent_since(&world, &client).await;
        assert_eq!(sent, [OpCode::MULTI, OpCode::DELETE]);
        limited.put("a").await.expect("it can be put");
        let more = all_sent_since(&world, &client).await;
        assert_eq!(more, [OpCode::EXISTS, OpCode::MULTI, OpCode::DELETE]);
        let row = "| put, one item or a batch | {} round trip, {} writes; {} read more if you set";
        page::check_text(PAGE, row, &[1, sent.len(), more.len() - sent.len()]);
        queue.put_batch(["a", "b", "c"]).await.expect("it can be put");
        assert_eq!(all_sent_since(&world, &client).await, [OpCode::MULTI, OpCode::DELETE]);
        drain(&queue).await;
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_take_is_a_turn_a_list_a_lease_and_a_read() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        let queue = queue(&client);
        put_all(&queue, &["a", "b", "c"]).await;
        take(&queue).await.ack().await.expect("the lease is held");
        all_sent_since(&world, &client).await;
        let item = take(&queue).await;
        let turn = [OpCode::CREATE2, LIST];
        // The list of the first take is still good: nothing was put since.
        let look = [OpCode::EXISTS, LIST];
        let lease = [OpCode::CREATE2, READ];
        // The turn ends without a wait for the lease.
        let rest = [OpCode::DELETE, READ];
        let taken = [&turn[..], &look, &lease, &rest].concat();
        assert_eq!(all_sent_since(&world, &client).await, taken);
        item.ack().await.expect("the lease is held");
        // The pin proves that the item is the one that was leased.
        let pin = [OpCode::CREATE2, OpCode::EXISTS, OpCode::EXISTS];
        let acked = [&pin[..], &[OpCode::MULTI, OpCode::DELETE]].concat();
        assert_eq!(all_sent_since(&world, &client).await, acked);
        page::check_text(PAGE, "round trips, {} to", &[taken.len() + acked.len()]);
        let writes = [OpCode::CREATE2, OpCode::DELETE, OpCode::MULTI];
        let writes = [taken, acked].concat().iter().filter(|op| writes.contains(op)).count();
        page::check_text(PAGE, "requests, {} writes, however many consumers wait |", &[writes]);
        put_all(&queue, &["d"]).await;
        all_sent_since(&world, &client).await;
        let item = take(&queue).await;
        let relisted = [&turn[..], &look, &[OpCode::EXISTS, LIST, LIST], &lease, &rest].concat();
        assert_eq!(all_sent_since(&world, &client).await, relisted);
        drop(item);
        drain(&queue).await;
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_take_and_an_ack_take_as_many_round_trips_as_the_page_says() {
    const DELAY: Duration = Duration::from_millis(1);
    run(async {
        let world = world();
        let (near, far) = (world.client(FIRST).await, world.far_client(SECOND, DELAY).await);
        put_all(&queue(&near), &["a", "b"]).await;
        let queue = queue(&far);
        take(&queue).await.ack().await.expect("the lease is held");
        sleep_ms(100).await;
        let begun = far.now();
        take(&queue).await.ack().await.expect("the lease is held");
        let round_trips = far.now().saturating_since(begun).as_millis() / (2 * DELAY).as_millis();
        page::check_text(PAGE, "| take and ack | {} round trips,", &[round_trips as usize]);
        check_clean(&world, &[&near, &far]).await;
    });
}

/// Items are put one at a time into an empty queue for which consumers wait. Returns the requests
/// of all consumers for each item.
fn requests_per_item(consumers: usize) -> f64 {
    const ITEMS: usize = 40;
    run_within(Duration::from_secs(600), async {
        let world = World::reaped_each_minute().pace(Pace::of(200));
        let producer = world.client(FIRST).await;
        let ledger = Ledger::default();
        let mut clients = Vec::new();
        let mut tasks = Vec::new();
        for number in 0..consumers {
            let client = world.client(SECOND + number as u64).await;
            tasks.push(ledger.consume(&world, &queue(&client)));
            clients.push(client);
        }
        sleep_ms(1_000).await;
        put_all(&queue(&producer), &["first"]).await;
        ledger.until_acknowledged(&world, 1).await;
        sleep_ms(500).await;
        world.server.clear_requests();
        for number in 1..=ITEMS {
            let item = format!("{number}");
            queue(&producer).put(item).await.expect("it can be put");
            ledger.until_acknowledged(&world, 1 + number).await;
            sleep_ms(100).await;
        }
        let producer_session = session(&producer);
        let mut by_op: BTreeMap<String, usize> = BTreeMap::new();
        for request in world.server.requests() {
            if request.session != producer_session && request.op != OpCode::PING {
                *by_op.entry(format!("{:?}", request.op)).or_default() += 1;
            }
        }
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
        let clients: Vec<_> = clients.iter().chain([&producer]).collect();
        check_clean(&world, &clients).await;
        assert!(children(&world, zk_tests::work_queue::ENTRIES).is_empty());
        let requests: usize = by_op.values().sum();
        let each = requests as f64 / ITEMS as f64;
        eprintln!("{consumers} consumers that wait: {each:.1} requests per item, {by_op:?}");
        each
    })
}

#[test]
fn the_requests_for_an_item_do_not_grow_with_the_number_of_consumers_that_wait() {
    let one = requests_per_item(1);
    let mut most = one;
    for consumers in [10, 100] {
        let many = requests_per_item(consumers);
        // A taker that is not alone waits for its turn, and looks again when the item is deleted.
        assert!(many <= one + 10.0, "{consumers} consumers: {many} instead of {one}");
        most = most.max(many);
    }
    page::check_text(PAGE, "to {} requests,", &[most.round() as usize]);
}

/// Requests and replies take a millisecond each.
#[test]
fn eight_consumers_take_as_many_items_per_second_as_the_page_says() {
    const CONSUMERS: usize = 8;
    const DELAY: Duration = Duration::from_millis(1);
    const ITEMS: usize = 3_200;
    let per_second = |batch: usize| {
        run_within(Duration::from_secs(600), async {
            let world = World::new().pace(Pace::of(200));
            let producer = world.client(FIRST).await;
            for _ in 0..ITEMS / 128 {
                queue(&producer).put_batch(vec!["x"; 128]).await.expect("it can be put");
            }
            let mut tasks = Vec::new();
            let begun = producer.now();
            for number in 0..CONSUMERS {
                let client = world.far_client(SECOND + number as u64, DELAY).await;
                tasks.push(spawn(async move {
                    let queue = queue(&client);
                    let mut items = 0;
                    while items < ITEMS / CONSUMERS / 10 {
                        let taken = queue.take_batch(batch).await.expect("there are items");
                        items += taken.len();
                        let acks = taken.into_iter().map(|item| spawn(item.ack().into_future()));
                        for ack in acks.collect::<Vec<_>>() {
                            ack.await.expect("no panic").expect("the lease is held");
                        }
                    }
                    items
                }));
            }
            let mut items = 0;
            for task in tasks {
                items += task.await.expect("no panic");
            }
            items as f64 / producer.now().saturating_since(begun).as_secs_f64()
        })
    };
    let (single, batches) = (per_second(1), per_second(16));
    eprintln!("{single:.1} items per second, {batches:.1} in batches");
    let rounded = (single / 10.0).floor() as usize * 10;
    let row = "| rate | {} consumers take {} items per second at a round trip of {} ms; ten times";
    page::check_text(PAGE, row, &[CONSUMERS, rounded, 2 * DELAY.as_millis() as usize]);
    assert!(batches > 10.0 * single, "{single} and {batches} items per second");
}

/// All consumers start on a queue that is full.
#[test]
fn the_requests_for_an_item_do_not_grow_with_the_number_of_consumers_of_a_full_queue() {
    let each = |consumers: usize| {
        const ITEMS: usize = 600;
        run(async {
            let world = World::new().pace(Pace::of(200));
            let producer = world.client(FIRST).await;
            let items: Vec<_> = (0..ITEMS).map(|number| format!("{number:03}")).collect();
            // All directories exist.
            put_all(&queue(&producer), &["first"]).await;
            drain(&queue(&producer)).await;
            let first = zk_tests::work_queue::start_taking(&world, &queue(&producer)).await;
            first.abort();
            let _ = first.await;
            for batch in items.chunks(100) {
                queue(&producer).put_batch(batch.to_vec()).await.expect("it can be put");
            }
            let mut clients = Vec::new();
            for number in 0..consumers {
                clients.push(world.client(SECOND + number as u64).await);
            }
            sleep_ms(100).await;
            world.server.clear_requests();
            let ledger = Ledger::default();
            let tasks: Vec<_> =
                clients.iter().map(|client| ledger.consume(&world, &queue(client))).collect();
            ledger.until_acknowledged(&world, ITEMS).await;
            let requests = world.server.requests();
            let requests = requests.iter().filter(|request| request.op != OpCode::PING).count();
            assert_eq!(ledger.entries().taken, items, "in order");
            for task in tasks {
                task.abort();
                let _ = task.await;
            }
            let clients: Vec<_> = clients.iter().chain([&producer]).collect();
            check_clean(&world, &clients).await;
            let each = requests as f64 / ITEMS as f64;
            eprintln!("{consumers} consumers of a full queue: {each:.1} requests per item");
            each
        })
    };
    let one = each(1);
    for consumers in [10, 100] {
        let many = each(consumers);
        assert!(many <= one + 10.0, "{consumers} consumers: {many} instead of {one}");
    }
}

/// A taker dies right after an item has woken it.
#[test]
fn a_consumer_that_dies_after_it_was_woken_strands_no_item() {
    for turns in 0..40 {
        run(async {
            let world = World::new().pace(Pace::of(20));
            let (producer, dying) = (world.client(FIRST).await, world.client(SECOND).await);
            let other = world.client(SECOND + 1).await;
            let head = zk_tests::work_queue::start_taking(&world, &queue(&dying)).await;
            let next = zk_tests::work_queue::start_taking(&world, &queue(&other)).await;
            put_all(&queue(&producer), &["a"]).await;
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            // The process dies: its session ends without a word, and its tasks stop.
            world.server.expire(session(&dying));
            head.abort();
            drop(head);
            sleep_ms(100).await;
            assert!(next.is_finished(), "stranded after {turns} turns\n{}", world.trace());
            let item = next.await.expect("no panic").expect("there is an item");
            item.ack().await.expect("the lease is held");
            drain(&queue(&other)).await;
            check_clean(&world, &[&producer, &dying, &other]).await;
        });
    }
}

/// Returns the requests in a minute, pings included or not, while takers wait and nothing happens.
fn requests_of_idle_takers(clients: usize, takers: usize, leased: usize) -> f64 {
    const MINUTES: usize = 5;
    run_within(Duration::from_secs(3_600), async {
        let world = World::new().pace(Pace::of(2_000));
        let holder = world.client(FIRST).await;
        let jobs = WorkQueue::new(&holder, QUEUE).expect("the path is valid");
        let mut held = Vec::new();
        for _ in 0..leased / 100 {
            jobs.put_batch(vec!["x"; 100]).await.expect("they can be put");
            held.extend(jobs.take_batch(100).await.expect("there are items"));
        }
        let (mut waiting, mut tasks) = (Vec::new(), Vec::new());
        for number in 0..clients {
            let client = world.client(SECOND + number as u64).await;
            let queue = WorkQueue::new(&client, QUEUE).expect("the path is valid");
            for _ in 0..takers / clients {
                tasks.push(spawn(queue.take().into_future()));
            }
            waiting.push(client);
        }
        sleep_ms(120_000).await;
        world.server.clear_requests();
        sleep_ms(MINUTES as u64 * 60_000).await;
        let requests = world.server.requests();
        let holder_session = session(&holder);
        // The holder of the leases sends what keeps them, as any holder of locks does.
        let of_takers = requests.iter().filter(|request| request.session != holder_session);
        let mut by_op: BTreeMap<String, usize> = BTreeMap::new();
        for request in of_takers.filter(|request| request.op != OpCode::PING) {
            *by_op.entry(format!("{:?}", request.op)).or_default() += 1;
        }
        let each = by_op.values().sum::<usize>() as f64 / MINUTES as f64;
        eprintln!(
            "{takers} takers of {clients} clients wait, {leased} items are leased: {each:.0} \
             requests per minute, {by_op:?} in {MINUTES}"
        );
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
        drop(held);
        let clients: Vec<_> = waiting.iter().chain([&holder]).collect();
        check_clean(&world, &clients).await;
        each
    })
}

#[test]
fn takers_that_wait_cost_few_requests_when_nothing_happens() {
    let cases = [(1, 1_000, 0, 520.0), (1, 1_000, 200, 520.0), (100, 100, 0, 260.0)];
    for (clients, takers, leased, most) in cases.into_iter().chain([(100, 100, 200, 460.0)]) {
        let each = requests_of_idle_takers(clients, takers, leased);
        assert!(each <= most, "{takers} takers of {clients} clients: {each}");
    }
}
