//! Locks that are not obtained in time, or that share a path.

use std::future::IntoFuture as _;
use std::time::Duration;

use zk_recipes::{
    Barrier, Client, DoubleBarrier, ExclusiveLock, FairLock, Group, RwLock, Semaphore, WorkQueue,
};
use zk_tests::scene::{FIRST, SECOND, THIRD, spawn};
use zk_tests::world::{World, sleep_ms};

use crate::Report;

const TIMEOUT: Duration = Duration::from_millis(2_500);

pub(crate) async fn make(report: &mut Report) {
    queues(report).await;
    other_locks(report).await;
    mixtures(report).await;
    waits(report).await;
}

fn fair(client: &Client, identity: &str) -> FairLock {
    FairLock::builder(client, "/locks/a")
        .and_then(|lock| lock.identity(identity.to_owned()).build())
        .expect("the options are valid")
}

async fn queues(report: &mut Report) {
    let world = World::new();
    let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
    let third = world.client(THIRD).await;
    let held = fair(&other, "web-1").acquire().await.expect("the lock is free");
    let late = fair(&client, "web-2").acquire().timeout(TIMEOUT).await;
    report.add("a lock that another client holds", late);
    let waiter = spawn(fair(&third, "").acquire().into_future());
    sleep_ms(100).await;
    let late = fair(&client, "web-2").acquire().timeout(TIMEOUT).await;
    report.add("a lock that another client holds and a third awaits", late);
    waiter.abort();
    sleep_ms(100).await;
    let late = fair(&other, "web-1").acquire().timeout(TIMEOUT).await;
    report.add("a second acquire by the holder", late);
    let long = "i".repeat(100);
    drop(held);
    let held = fair(&other, &long).acquire().await.expect("the lock is free");
    let late = fair(&client, "web-2").acquire().timeout(TIMEOUT).await;
    report.add("a lock of a client with a long identity", late);
    let waiter = spawn(fair(&client, "web-2").acquire().timeout(TIMEOUT).into_future());
    sleep_ms(100).await;
    world.server.refuse_for(Duration::from_secs(5));
    world.server.disconnect_all();
    let late = waiter.await.expect("the task does not panic");
    report.add("a connection that is lost while the client waits", late);
    sleep_ms(10_000).await;
    drop(held);
    for client in [client, other, third] {
        client.close().await;
    }
}

async fn other_locks(report: &mut Report) {
    let world = World::new();
    let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
    let exclusive = |client: &Client, identity: &'static str| {
        ExclusiveLock::builder(client, "/exclusive")
            .and_then(|lock| lock.identity(identity).build())
            .expect("the options are valid")
    };
    let held = exclusive(&other, "web-1").acquire().await.expect("the lock is free");
    let late = exclusive(&client, "web-2").acquire().timeout(TIMEOUT).await;
    report.add("an exclusive lock that another client holds", late);
    let late = exclusive(&other, "web-1").acquire().timeout(TIMEOUT).await;
    report.add("a second acquire by the holder of an exclusive lock", late);
    drop(held);
    let semaphore = |client: &Client| {
        Semaphore::builder(client, "/s")
            .and_then(|semaphore| semaphore.identity("web-1").build())
            .expect("the options are valid")
    };
    let held = semaphore(&other).acquire().await.expect("a permit is free");
    let late = semaphore(&client).acquire().timeout(TIMEOUT).await;
    report.add("a semaphore without a free permit", late);
    let late = semaphore(&other).acquire().timeout(TIMEOUT).await;
    report.add("a second acquire by the holder of the only permit", late);
    let two = Semaphore::new(&client, "/s", 2).expect("it is valid");
    report.add("a semaphore with another number of permits", two.acquire().await);
    drop(held);
    let rw = |client: &Client| RwLock::new(client, "/rw").expect("it is valid");
    let held = rw(&other).write().await.expect("the lock is free");
    let late = rw(&other).read().timeout(TIMEOUT).await.map_err(|error| {
        // The default identity names the machine.
        error.to_string().contains("session of this client")
    });
    report.add("a read lock behind its own write lock", late.map_err(|is_own| format!("{is_own}")));
    drop(held);
    for client in [client, other] {
        client.close().await;
    }
}

async fn mixtures(report: &mut Report) {
    let world = World::new();
    let client = world.client(FIRST).await;
    let exclusive = ExclusiveLock::new(&client, "/locks/a").expect("the path is valid");
    let held = exclusive.acquire().await.expect("the lock is free");
    let error = fair(&client, "web-1").acquire().await;
    report.add("a fair lock at the path of an exclusive lock", error);
    let error = fair(&client, "web-1").try_acquire().await;
    report.add("a fair lock that is tried at the path of an exclusive lock", error);
    held.release().await.expect("nothing goes wrong");
    let held = fair(&client, "web-1").acquire().await.expect("the lock is free");
    report.add("an exclusive lock at the path of a fair lock", exclusive.acquire().await);
    let semaphore = Semaphore::new(&client, "/locks/a", 1).expect("it is valid");
    report.add("a semaphore at the path of a fair lock", semaphore.acquire().await);
    drop(held);
    client.close().await;
}

async fn waits(report: &mut Report) {
    let world = World::new();
    let client = world.client(FIRST).await;
    let barrier = Barrier::new(&client, "/barrier").expect("the path is valid");
    barrier.close().await.expect("nobody has closed it");
    report.add("a barrier that stays closed", barrier.wait().timeout(TIMEOUT).await);
    let barrier = DoubleBarrier::new(&client, "/rounds", 2).expect("it is valid");
    report.add("a double barrier with one participant", barrier.enter().timeout(TIMEOUT).await);
    let queue = WorkQueue::new(&client, "/queue").expect("the path is valid");
    report.add("an empty work queue", queue.take().timeout(TIMEOUT).await);
    let group = Group::new(&client, "/members").expect("the path is valid");
    let member = group.join("a", "").await.expect("the id is free");
    report.add("an id that is taken", group.join("a", "").await);
    drop(member);
    client.close().await;
}
