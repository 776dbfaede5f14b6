//! Semaphores with many permits, whose waiters count the events of a persistent watch: one event for
//! each contender that arrives or leaves, whatever removes it.

use zk_recipes::{Client, Semaphore};
use zk_tests::scene::spawn;
use zk_tests::target::Fixture;
use zk_tests::wait::soon;

/// A waiter that misses an event would wait for ever, because nothing checks for that.
fn semaphore(client: &Client) -> Semaphore {
    Semaphore::builder(client, "/services/x/permits")
        .and_then(|builder| builder.permits(20).watch_check(None).build())
        .unwrap()
}

async fn until_contenders(semaphore: &Semaphore, count: usize) {
    let all = async {
        while semaphore.contenders().await.unwrap().len() < count {
            tokio::task::yield_now().await;
        }
    };
    soon("the contenders", all).await;
}

#[tokio::test]
async fn waiters_for_many_permits_are_granted_one_when_any_holder_leaves() {
    let fixture = Fixture::start().await;
    let (one, two) = (fixture.client().await, fixture.client().await);
    let mut guards = Vec::new();
    for _ in 0..20 {
        guards.push(soon("a free permit", semaphore(&one).acquire().into_future()).await.unwrap());
    }
    let mut waiters = std::collections::VecDeque::new();
    for number in 1..=24 {
        waiters.push_back(spawn(semaphore(&two).acquire().into_future()));
        until_contenders(&semaphore(&two), 20 + number).await;
    }
    let mut held = Vec::new();
    for place in [7, 0, 15, 3] {
        guards.remove(place).release().await.unwrap();
        held.push(soon("a grant", waiters.pop_front().unwrap()).await.unwrap().unwrap());
    }
    // The end of a session removes 16 holders in one transaction.
    one.close().await;
    for _ in 0..16 {
        held.push(soon("a grant", waiters.pop_front().unwrap()).await.unwrap().unwrap());
    }
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    for (guard, waiter) in held.drain(..4).zip(waiters) {
        guard.release().await.unwrap();
        held_again(soon("a grant", waiter).await.unwrap().unwrap()).await;
    }
}

async fn held_again(guard: zk_recipes::PermitGuard) {
    guard.validate().await.unwrap();
    guard.release().await.unwrap();
}

/// Servers of these suites remove empty containers each second, or each minute.
#[tokio::test]
async fn a_number_of_permits_that_was_set_has_a_znode_that_keeps_its_directory() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let mut semaphore = semaphore(&client);
    semaphore.set_permits(2).await.unwrap();
    semaphore.set_permits(3).await.unwrap();
    let guard = semaphore.acquire().await.unwrap();
    guard.release().await.unwrap();
    let names = client.get_children("/services/x/permits").await.unwrap();
    assert_eq!(names.iter().map(ToString::to_string).collect::<Vec<_>>(), ["permits-set"]);
    assert_eq!(semaphore.stored_permits().await, Ok(Some(3)));
}
