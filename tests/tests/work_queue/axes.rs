//! Troubles in all combinations: containers that are removed when they are empty, items that cannot
//! be delivered, items that are given back, refusals that last, and cuts of connections. Each item is
//! acknowledged exactly once in the end, and no two consumers have one at the same time.

use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};
use tokio::task::JoinHandle;
use zk_recipes::{
    Acl, Client, Leased, Permissions, RecipeError, SessionId, WorkQueue, WorkQueueError,
};
use zk_tests::meter::Pace;
use zk_tests::random::SplitMix64;
use zk_tests::scene::{FIRST, SECOND, at_op, at_request, session, spawn};
use zk_tests::work_queue::{ENTRIES, LEASES, Ledger, QUEUE, check_clean, put_all, text};
use zk_tests::world::{World, run_within, sleep_ms};
use zk_testserver::Action;

const CONSUMERS: u64 = 3;
const PRODUCERS: u64 = 2;
/// Items of each producer.
const ITEMS: usize = 10;
/// The operations of puts, takes and acknowledgements.
const REFUSED: [OpCode; 4] =
    [OpCode::MULTI, OpCode::CREATE2, OpCode::GET_CHILDREN, OpCode::GET_DATA];

/// What happens during a run.
#[derive(Clone, Copy, Debug)]
struct Axes {
    /// Empty containers are removed at once instead of each minute.
    is_reaped: bool,
    /// Items that may not be read, and an item with a child, are in front of the others.
    has_blocked: bool,
    /// A consumer gives back each third item, or drops it.
    gives_back: bool,
    refusals: Refusals,
    /// Connections are cut.
    is_cut: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Refusals {
    None,
    /// A server refuses requests as overloaded, often in a row.
    Throttled,
    /// For a while, nobody may create leases.
    NotPermitted,
}

fn all_axes() -> impl Iterator<Item = Axes> {
    let refusals = [Refusals::None, Refusals::Throttled, Refusals::NotPermitted];
    (0..16).flat_map(move |bits| {
        refusals.map(|refusals| Axes {
            is_reaped: bits & 1 != 0,
            has_blocked: bits & 2 != 0,
            gives_back: bits & 4 != 0,
            is_cut: bits & 8 != 0,
            refusals,
        })
    })
}

fn jobs(client: &Client) -> WorkQueue {
    WorkQueue::new(client, QUEUE).expect("the path is valid")
}

fn produce(client: &Client, number: u64, mut random: SplitMix64) -> JoinHandle<()> {
    let queue = jobs(client);
    spawn(async move {
        for item in 0..ITEMS {
            sleep_ms(random.below(400)).await;
            queue.put(format!("{number}-{item}")).await.expect("it can be put");
        }
    })
}

fn consume(
    world: &World,
    ledger: &Ledger,
    axes: Axes,
    client: &Client,
    mut random: SplitMix64,
) -> JoinHandle<()> {
    let (world, ledger, queue) = (world.clone(), ledger.clone(), jobs(client));
    spawn(async move {
        loop {
            let item = match queue.take().await {
                Ok(item) => item,
                Err(WorkQueueError::Recipe(RecipeError::Refused { .. })) => {
                    assert_eq!(axes.refusals, Refusals::NotPermitted, "\n{}", world.trace());
                    sleep_ms(100).await;
                    continue;
                }
                Err(error) => panic!("{axes:?}: {error}\n{}", world.trace()),
            };
            ledger.took(&world, &item);
            sleep_ms(random.below(50)).await;
            if axes.gives_back && random.below(3) == 0 {
                ledger.left(&text(&item));
                give_back(item, random.below(2) == 0).await;
            } else {
                ledger.ack(&world, item).await;
            }
        }
    })
}

async fn give_back(item: Leased, is_dropped: bool) {
    if is_dropped {
        drop(item);
    } else {
        item.give_back().await.expect("the lease can be deleted");
    }
}

/// Refuses and cuts requests for a few seconds.
async fn trouble(
    world: &World,
    axes: Axes,
    (admin, clients): (&Client, &[Client]),
    random: &mut SplitMix64,
) {
    for round in 0..20 {
        let victim = session(choose(clients, random));
        if axes.refusals == Refusals::Throttled {
            let op = *choose(&REFUSED, random);
            for _ in 0..=random.below(12) {
                world.server.inject(at_op(victim, op, Action::Error(ErrorCode::THROTTLED_OP)));
            }
        }
        if axes.refusals == Refusals::NotPermitted && round % 8 == 3 {
            // The directory may be missing at this moment.
            let _ = admin.set_acl(LEASES, without(Permissions::CREATE), None).await;
        }
        if axes.refusals == Refusals::NotPermitted && round % 8 == 6 {
            let _ = admin.set_acl(LEASES, Acl::open(), None).await;
        }
        if axes.is_cut {
            cut(world, victim, random);
        }
        sleep_ms(random.below(400)).await;
    }
    world.server.clear_faults();
    let _ = admin.set_acl(LEASES, Acl::open(), None).await;
}

fn choose<'a, T>(choices: &'a [T], random: &mut SplitMix64) -> &'a T {
    let at = random.below(choices.len() as u64) as usize;
    choices.get(at).expect("it is below the length")
}

fn cut(world: &World, session: SessionId, random: &mut SplitMix64) {
    let nth = random.below(4) as usize;
    let action = if random.below(2) == 0 { Action::CutBefore } else { Action::CutAfter };
    let outage = Duration::from_millis(random.below(300));
    world.server.inject(at_request(session, nth, action).refuse_for(outage));
}

fn without(permission: Permissions) -> Vec<Acl> {
    vec![Acl::new(Permissions(Permissions::ALL.0 & !permission.0), "world", "anyone")]
}

fn blocked_path(number: usize) -> String {
    format!("{ENTRIES}/entry-000-{:010}", 2_000_000_000 + number)
}

/// Puts items in front of the others that cannot be delivered.
async fn add_blocked(world: &World, admin: &Client) {
    for number in 0..4 {
        let data = format!("blocked {number}");
        world.server.admin_create(&blocked_path(number), data.as_bytes(), None);
        if number == 3 {
            world.server.admin_create(&format!("{}/child", blocked_path(number)), b"", None);
        } else {
            let acl = without(Permissions::READ);
            admin.set_acl(&blocked_path(number), acl, None).await.expect("it exists");
        }
    }
}

async fn free_blocked(world: &World, admin: &Client) {
    for number in 0..3 {
        admin.set_acl(&blocked_path(number), Acl::open(), None).await.expect("it exists");
    }
    assert!(world.server.admin_delete(&format!("{}/child", blocked_path(3))));
}

fn survive(axes: Axes, seed: u64) {
    run_within(Duration::from_secs(600), async {
        let world = if axes.is_reaped { World::new() } else { World::reaped_each_minute() };
        let world = world.pace(Pace::of(400));
        let mut random = SplitMix64::new(seed);
        let admin = world.client(FIRST).await;
        let mut clients = Vec::new();
        for number in 0..CONSUMERS + PRODUCERS {
            clients.push(world.client(SECOND + number).await);
        }
        let mut expected: Vec<_> = (0..PRODUCERS)
            .flat_map(|number| (0..ITEMS).map(move |item| format!("{number}-{item}")))
            .collect();
        if axes.has_blocked {
            put_all(&jobs(&admin), &["first"]).await;
            expected.push("first".to_owned());
            add_blocked(&world, &admin).await;
        }
        let ledger = Ledger::default();
        let (consumers, producers) = clients.split_at(CONSUMERS as usize);
        let mut tasks = Vec::new();
        for client in consumers {
            let random = SplitMix64::new(random.next_u64());
            tasks.push(consume(&world, &ledger, axes, client, random));
        }
        let puts: Vec<_> = producers
            .iter()
            .zip(0..)
            .map(|(client, number)| produce(client, number, SplitMix64::new(random.next_u64())))
            .collect();
        trouble(&world, axes, (&admin, &clients), &mut random).await;
        for put in puts {
            put.await.expect("no panic");
        }
        ledger.until_acknowledged(&world, expected.len()).await;
        if axes.has_blocked {
            free_blocked(&world, &admin).await;
            expected.extend((0..4).map(|number| format!("blocked {number}")));
            ledger.until_acknowledged(&world, expected.len()).await;
        }
        // A second delivery would arrive now.
        sleep_ms(2_000).await;
        let mut acknowledged = ledger.entries().acknowledged.clone();
        acknowledged.sort_unstable();
        expected.sort_unstable();
        assert_eq!(acknowledged, expected, "{axes:?}, seed {seed}\n{}", world.trace());
        assert_eq!(jobs(&admin).length().await, Ok(0), "{axes:?}, seed {seed}");
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
        let all: Vec<_> = [&admin].into_iter().chain(&clients).collect();
        check_clean(&world, &all).await;
    });
}

#[test]
fn each_item_is_acknowledged_exactly_once_in_all_combinations_of_troubles() {
    for axes in all_axes() {
        for seed in 0..2 {
            survive(axes, seed);
        }
    }
}
