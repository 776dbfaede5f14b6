//! The requests of a multi-lock are the sum of those of its locks.

use jute_codec::OpCode;
use zk_recipes::Client;
use zk_recipes::kind::Kind;
use zk_recipes::{Acquire, Released};
use zk_tests::scene::{FIRST, SECOND, requests_of, sent_since, session, settle};
use zk_tests::world::{World, run, sleep_ms};

use crate::{PATHS, all_kinds, exclusive, fair, hold, rw_lock, semaphore};

/// Creates the directories, as the first contenders do.
fn create_directories(world: &World) {
    world.server.admin_create("/locks", b"", None);
    for path in [PATHS[0], PATHS[2], PATHS[4]] {
        world.server.admin_create(path, b"", None);
    }
    world.server.admin_create(PATHS[3], b"1", None);
}

/// Returns the requests of an acquire and of a release.
async fn cost_of<K: Kind>(
    world: &World,
    client: &Client,
    acquire: Acquire<K>,
) -> (Vec<OpCode>, Vec<OpCode>) {
    let guard = acquire.await.expect("it is free");
    let acquired = sent_since(world, client);
    assert_eq!(guard.release().await, Ok(Released::Released));
    (acquired, sent_since(world, client))
}

#[test]
fn a_multi_lock_costs_the_sum_of_its_locks() {
    run(async {
        let world = World::new();
        create_directories(&world);
        let client = world.client(FIRST).await;
        let [a, b, c, d, e] = PATHS;
        let parts = [
            cost_of(&world, &client, fair(&client, a).acquire()).await,
            cost_of(&world, &client, exclusive(&client, b).acquire()).await,
            cost_of(&world, &client, rw_lock(&client, c).write()).await,
            cost_of(&world, &client, semaphore(&client, d).acquire()).await,
            cost_of(&world, &client, rw_lock(&client, e).read()).await,
        ];
        let sum: Vec<_> = parts.iter().flat_map(|(acquired, _)| acquired.clone()).collect();
        let guard = hold(&all_kinds(&client)).await;
        assert_eq!(sent_since(&world, &client), sum);
        let count = parts.iter().map(|(_, released)| released.len()).sum::<usize>();
        guard.release().await.expect("the znodes can be deleted");
        let sent = requests_of(&world, session(&client));
        assert!(sent.iter().all(|request| request.at == sent[0].at), "sent together");
        let released = sent_since(&world, &client);
        assert_eq!(released, vec![OpCode::DELETE; count]);
        crate::check_clean(&world, &[&client]).await;
    });
}

/// A try that finds the third lock taken has acquired two, and releases them.
#[test]
fn a_try_of_a_taken_lock_costs_the_locks_before_it_and_one_read() {
    run(async {
        let world = World::new();
        create_directories(&world);
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let held = rw_lock(&other, PATHS[2]).write().await.expect("it is free");
        let (list, read) = (OpCode::GET_CHILDREN, OpCode::GET_DATA);
        assert!(all_kinds(&client).try_acquire().await.expect("it can be read").is_none());
        settle().await;
        sleep_ms(10).await;
        let sent = sent_since(&world, &client);
        let expected = [
            list,
            OpCode::CREATE2,
            list,
            read,
            OpCode::CREATE2,
            read,
            list,
            OpCode::DELETE,
            OpCode::DELETE,
        ];
        assert_eq!(sent, expected);
        drop(held);
        crate::check_clean(&world, &[&client, &other]).await;
    });
}
