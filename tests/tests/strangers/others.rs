//! Recipes that are not locks.

use zk_recipes::{
    Barrier, Cache, CacheError, Counter, CreateMode, CreateOptions, DoubleBarrier, Group, Presence,
    PresenceState, SettledClient, SharedValue, Tree, WorkQueue,
};
use zk_tests::wait::{PATIENCE, catch_up, soon};

use crate::build;
use crate::scene::Scene;

#[tokio::test]
async fn a_shared_value_is_protected() {
    Scene::each(async |scene| {
        let path = scene.path("value");
        let value = |client| build!(scene, SharedValue::builder(client, &path));
        let [mine, theirs] = scene.peers.each_ref().map(value);
        mine.set("1").await.unwrap();
        scene.attack(2).await;
        catch_up(&scene.peers[1]).await;
        assert_eq!(theirs.get().await.unwrap().bytes(), "1");
        theirs.update(|_| "2".into()).await.unwrap();
        scene.attack(2).await;
    })
    .await;
}

#[tokio::test]
async fn a_counter_is_protected() {
    Scene::each(async |scene| {
        let path = scene.path("counter");
        let counter = |client| build!(scene, Counter::builder(client, &path));
        let [mine, theirs] = scene.peers.each_ref().map(counter);
        assert_eq!(mine.add(1).await.unwrap(), 1);
        scene.attack(2).await;
        assert_eq!(theirs.add(1).await.unwrap(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_barrier_is_protected() {
    Scene::each(async |scene| {
        let path = scene.path("barrier");
        let barrier = |client| build!(scene, Barrier::builder(client, &path));
        let [mine, theirs] = scene.peers.each_ref().map(barrier);
        mine.close().await.unwrap();
        scene.attack(2).await;
        catch_up(&scene.peers[1]).await;
        assert!(!theirs.is_open().await.unwrap());
        theirs.open().await.unwrap();
        mine.wait().timeout(PATIENCE).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_double_barrier_is_protected() {
    Scene::each(async |scene| {
        let barrier = |client| build!(scene, DoubleBarrier::builder(client, scene.base, 2));
        let [mine, theirs] = scene.peers.each_ref().map(barrier);
        let enter = || (mine.enter().timeout(PATIENCE), theirs.enter().timeout(PATIENCE));
        let (mine, theirs) = enter();
        let (mine, theirs) = tokio::join!(mine, theirs);
        scene.attack(3).await;
        let (mine, theirs) = (mine.unwrap().leave(), theirs.unwrap().leave());
        let (mine, theirs) = tokio::join!(mine.timeout(PATIENCE), theirs.timeout(PATIENCE));
        mine.unwrap();
        theirs.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_group_is_protected() {
    Scene::each(async |scene| {
        let group = |client| build!(scene, Group::builder(client, scene.base));
        let [mine, theirs] = scene.peers.each_ref().map(group);
        let me = mine.join("me", "1").await.unwrap();
        let them = theirs.join("them", "1").await.unwrap();
        me.set_data("2").await.unwrap();
        scene.attack(3).await;
        catch_up(&scene.peers[1]).await;
        assert_eq!(theirs.members().await.unwrap().len(), 2);
        me.leave().await.unwrap();
        them.leave().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_presence_is_protected() {
    Scene::each(async |scene| {
        let builder = Presence::builder(&scene.peers[0], &scene.path("me")).unwrap();
        let builder = scene.acl.iter().fold(builder, |builder, acl| builder.acl(acl.clone()));
        let presence = builder.begin("1").await.unwrap();
        scene.attack(2).await;
        presence.set_data("2").await.unwrap();
        scene.attack(2).await;
        assert!(matches!(presence.state(), PresenceState::Present { .. }));
        presence.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_work_queue_is_protected_with_items_leases_and_markers() {
    Scene::each(async |scene| {
        let queue = |client| build!(scene, WorkQueue::builder(client, scene.base));
        let [mine, theirs] = scene.peers.each_ref().map(queue);
        mine.put_batch(["a", "b"]).await.unwrap();
        // The queue, its subdirectory for items, and two items. The subdirectory for markers is empty,
        // so the server may have removed it.
        scene.attack(4).await;
        let item = theirs.take().timeout(PATIENCE).await.unwrap();
        // The subdirectory for leases and the lease too. That for takers is empty again.
        scene.attack(6).await;
        assert_eq!(item.data(), "a");
        item.ack().await.unwrap();
        let item = mine.take().timeout(PATIENCE).await.unwrap();
        assert_eq!(item.data(), "b");
        item.give_back().await.unwrap();
        catch_up(&scene.peers[1]).await;
        theirs.take().timeout(PATIENCE).await.unwrap().ack().await.unwrap();
        theirs.put("c").await.unwrap();
        assert_eq!(theirs.length().await.unwrap(), 1);
    })
    .await;
}

#[tokio::test]
async fn settled_operations_and_their_markers_are_protected() {
    Scene::each(async |scene| {
        let [mine, theirs] = scene.peers.each_ref().map(|client| {
            let settled = SettledClient::new(client, &scene.path("markers")).unwrap();
            if let Some(acl) = &scene.acl { settled.acl(acl.clone()) } else { settled }
        });
        let mut options = CreateOptions::from(CreateMode::Persistent);
        if let Some(acl) = &scene.acl {
            options = options.acl(acl.clone()).parent_acl(acl.clone());
        }
        let path = scene.path("znode");
        mine.create_with_parents(&path, "mine", options).await.unwrap();
        // The directory, that of the markers, a marker, and the znode.
        scene.attack(4).await;
        catch_up(&scene.peers[1]).await;
        theirs.set_data(&path, "theirs", None).await.unwrap();
        scene.attack(5).await;
        catch_up(&scene.peers[0]).await;
        assert_eq!(mine.get_data(&path).await.unwrap().0, "theirs");
        mine.delete(&path, None).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_tree_is_protected_and_a_cache_shows_it_to_peers_only() {
    Scene::each(async |scene| {
        let trees = scene.peers.each_ref().map(|client| {
            let tree = Tree::of(client);
            if let Some(acl) = &scene.acl { tree.acl(acl.clone()) } else { tree }
        });
        trees[0].ensure(&scene.path("a/b")).await.unwrap();
        scene.attack(3).await;
        catch_up(&scene.peers[1]).await;
        let mut cache = Cache::tree(&scene.peers[1], scene.base).build().unwrap();
        soon("the cache", cache.complete()).await.unwrap();
        assert_eq!(cache.len(), 3);
        let mut cache = Cache::tree(&scene.stranger, scene.base).build().unwrap();
        let refused = soon("the cache", cache.complete()).await;
        assert!(matches!(refused, Err(CacheError::Unreadable { .. })), "{refused:?}");
        assert!(cache.is_empty());
        assert_eq!(trees[1].delete(scene.base).await.unwrap(), 3);
    })
    .await;
}
