//! Markers of puts whose clients have ended: others delete them after a day, and never earlier.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::WorkQueueError;
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, at_op, session, spawn};
use zk_tests::work_queue::{
    ENTRIES, PUTS as MARKERS, QUEUE, children, drain, put_all, queue, world,
};
use zk_tests::world::{World, run_within, sleep_ms};
use zk_testserver::Action;

const HOUR_MS: u64 = 60 * 60 * 1_000;
/// How long a test may take in virtual time.
const DAYS: Duration = Duration::from_secs(4 * 24 * 60 * 60);
/// So many puts contain several that sweep.
const PUTS: usize = 400;

/// Leaves markers, as clients do that end right after a put.
fn orphan(world: &World, numbers: std::ops::Range<u128>) {
    for number in numbers {
        world.server.admin_create(&format!("{QUEUE}/puts/{number:032x}"), b"", None);
    }
}

fn markers(world: &World) -> usize {
    children(world, &format!("{QUEUE}/puts")).len()
}

#[test]
fn markers_of_clients_that_have_ended_are_deleted_after_a_day() {
    run_within(DAYS, async {
        let world = World::reaped_each_minute().pace(Pace::of(20_000));
        let client = world.client(FIRST).await;
        put_all(&queue(&client), &["first"]).await;
        client.close().await;
        orphan(&world, 0..100);
        world.server.admin_create(&format!("{QUEUE}/puts/notes"), b"", None);
        sleep_ms(20 * HOUR_MS).await;
        orphan(&world, 100..150);
        sleep_ms(5 * HOUR_MS).await;
        let client = world.client(SECOND).await;
        for _ in 0..PUTS {
            put_all(&queue(&client), &["x"]).await;
        }
        sleep_ms(5_000).await;
        assert_eq!(markers(&world), 51, "the young ones, and what is no marker");
        assert_eq!(children(&world, ENTRIES).len(), PUTS + 1);
        client.close().await;
    });
}

/// A few markers are not worth a request for each of them, and young ones are needed.
#[test]
fn a_sweep_of_a_healthy_queue_costs_one_list() {
    run_within(DAYS, async {
        let world = World::reaped_each_minute().pace(Pace::of(20_000));
        let client = world.client(FIRST).await;
        put_all(&queue(&client), &["first"]).await;
        sleep_ms(1_000).await;
        orphan(&world, 0..10);
        world.server.clear_requests();
        for _ in 0..PUTS {
            put_all(&queue(&client), &["x"]).await;
        }
        sleep_ms(5_000).await;
        let sent = world.server.requests();
        // Some puts check the limit of the queue, which is another path.
        let is_counted = |path: &str| path.starts_with(MARKERS);
        let sent: Vec<_> =
            sent.iter().filter(|sent| sent.path.as_deref().is_some_and(is_counted)).collect();
        let count = |op| sent.iter().filter(|request| request.op == op).count();
        let (lists, looks) = (count(OpCode::GET_CHILDREN), count(OpCode::EXISTS));
        assert!((1..=PUTS / 20).contains(&lists), "{lists} sweeps");
        assert_eq!((looks, count(OpCode::DELETE)), (lists, PUTS), "{lists} sweeps");
        client.close().await;
    });
}

/// A sweep may have deleted the marker of a put that could not reach a server for days.
#[test]
fn a_put_that_is_undecided_for_half_a_day_is_not_repeated() {
    run_within(DAYS, async {
        let world = world();
        let client = world.client(FIRST).await;
        put_all(&queue(&client), &["first"]).await;
        let cut = at_op(session(&client), OpCode::MULTI, Action::CutAfter);
        world.server.inject(cut.refuse_for(Duration::from_secs(13 * 60 * 60)));
        let queue = queue(&client);
        let put = spawn({
            let queue = queue.clone();
            async move { queue.put("x").await }
        });
        sleep_ms(12 * HOUR_MS + 60_000).await;
        let result = put.await.expect("no panic");
        assert!(matches!(result, Err(WorkQueueError::Unknown { .. })), "{result:?}");
        sleep_ms(2 * HOUR_MS).await;
        let delivered = drain(&queue).await;
        assert_eq!(delivered, ["first", "x"], "it was applied once");
        assert_eq!(markers(&world), 0);
        client.close().await;
    });
}
