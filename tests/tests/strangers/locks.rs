//! Locks: a stranger takes them from nobody.

use std::future::IntoFuture as _;

use zk_recipes::kind::Kind;
use zk_recipes::{
    Acquire, Client, Election, ExclusiveLock, FairLock, Holder, LockState, MultiLock, NamedLocks,
    RwLock, Semaphore,
};
use zk_tests::scene::spawn;
use zk_tests::wait::{PATIENCE, catch_up};

use crate::build;
use crate::scene::Scene;

/// One peer holds the lock, the other one waits for it, and the stranger attacks. Then the other
/// one gets the lock.
async fn contended<K: Kind>(scene: &Scene, locks: [Acquire<K>; 2], znodes: usize) {
    let [mine, theirs] = locks;
    let held = mine.timeout(PATIENCE).await.unwrap();
    let waiter = spawn(theirs.timeout(PATIENCE).into_future());
    scene.until_created(znodes).await;
    scene.attack(znodes).await;
    held.validate().await.unwrap();
    assert_eq!(held.state(), LockState::Held);
    held.release().await.unwrap();
    let held = waiter.await.unwrap().unwrap();
    scene.attack(1).await;
    assert_eq!(held.state(), LockState::Held);
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_fair_lock_is_protected() {
    Scene::each(async |scene| {
        let lock = |client| build!(scene, FairLock::builder(client, scene.base)).acquire();
        contended(&scene, scene.peers.each_ref().map(lock), 3).await;
    })
    .await;
}

#[tokio::test]
async fn both_sides_of_a_read_write_lock_are_protected() {
    Scene::each(async |scene| {
        let lock = |client: &Client| build!(scene, RwLock::builder(client, scene.base));
        contended(&scene, scene.peers.each_ref().map(|peer| lock(peer).write()), 3).await;
        contended(&scene, scene.peers.each_ref().map(|peer| lock(peer).read()), 3).await;
        let written = lock(&scene.peers[0]).write().timeout(PATIENCE).await.unwrap();
        let read = written.downgrade().await.unwrap();
        scene.attack(2).await;
        read.release().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_semaphore_and_its_permits_are_protected() {
    Scene::each(async |scene| {
        let semaphore =
            |client| build!(scene, Semaphore::builder(client, scene.base).map(|b| b.permits(1)));
        let [mut mine, theirs] = scene.peers.each_ref().map(semaphore);
        contended(&scene, [mine.acquire(), theirs.acquire()], 3).await;
        let held = theirs.acquire().timeout(PATIENCE).await.unwrap();
        mine.set_permits(2).await.unwrap();
        scene.attack(2).await;
        catch_up(&scene.peers[1]).await;
        // Servers remove the directory, and the number with it, a while after it is empty.
        assert_eq!(theirs.stored_permits().await.unwrap(), Some(2));
        held.release().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_semaphore_whose_permits_are_set_first_is_protected() {
    Scene::each(async |scene| {
        let builder = Semaphore::builder(&scene.peers[0], scene.base).map(|b| b.permits(1));
        let mut semaphore = build!(scene, builder);
        semaphore.set_permits(3).await.unwrap();
        // The directory is empty, so everyone may delete it if its parent is open.
        if scene.is_parent_protected {
            scene.attack(1).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_exclusive_lock_is_protected() {
    Scene::each(async |scene| {
        let path = scene.path("lock");
        let lock = |client| build!(scene, ExclusiveLock::builder(client, &path)).acquire();
        contended(&scene, scene.peers.each_ref().map(lock), 2).await;
    })
    .await;
}

#[tokio::test]
async fn an_election_is_protected() {
    Scene::each(async |scene| {
        let election = |client| build!(scene, Election::builder(client, scene.base)).campaign();
        contended(&scene, scene.peers.each_ref().map(election), 3).await;
    })
    .await;
}

#[tokio::test]
async fn named_locks_are_protected_with_the_directory_of_each_name() {
    Scene::each(async |scene| {
        let locks = scene.peers.each_ref().map(|client| {
            let locks = build!(scene, NamedLocks::builder(client, scene.base));
            locks.lock("orders/7").unwrap()
        });
        let acquires = locks.each_ref().map(FairLock::acquire);
        contended(&scene, acquires, 4).await;
        // The last contender has removed the directory, so this is another one.
        contended(&scene, locks.each_ref().map(FairLock::acquire), 4).await;
    })
    .await;
}

#[tokio::test]
async fn a_holder_is_protected() {
    Scene::each(async |scene| {
        let lock = build!(scene, FairLock::builder(&scene.peers[0], scene.base));
        let holder = Holder::new(&lock);
        let outer = holder.acquire().timeout(PATIENCE).await.unwrap();
        let inner = holder.acquire().timeout(PATIENCE).await.unwrap();
        scene.attack(2).await;
        assert_eq!(inner.state(), LockState::Held);
        inner.release().await.unwrap();
        outer.release().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_multi_lock_is_protected() {
    Scene::each(async |scene| {
        let (first, second) = (scene.path("a"), scene.path("b"));
        for peer in &scene.peers {
            let a = build!(scene, FairLock::builder(peer, &first));
            let b = build!(scene, FairLock::builder(peer, &second));
            let both = MultiLock::builder().with(&a).with(&b).build().unwrap();
            let guard = both.acquire().timeout(PATIENCE).await.unwrap();
            scene.attack(5).await;
            assert_eq!(guard.state(), LockState::Held);
            guard.release().await.unwrap();
        }
    })
    .await;
}
