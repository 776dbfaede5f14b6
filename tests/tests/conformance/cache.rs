//! Caches of a znode, its children and a tree, with connections that are lost.

use std::collections::BTreeMap;

use zk_recipes::{Acl, Cache, CacheError, CacheEvent, Permissions, SharedValue};
use zk_session::{CreateMode, ErrorCode};
use zk_tests::target::Fixture;
use zk_tests::wait::soon;

use crate::restore::Outage;

const PERSISTENT: CreateMode = CreateMode::Persistent;

/// Follows until the cache contains exactly these znodes.
async fn until(cache: &mut Cache, expected: &[(&str, &str)]) {
    let expected: BTreeMap<_, _> =
        expected.iter().map(|(path, data)| (path.to_string(), data.to_string())).collect();
    soon("the last state", async {
        loop {
            let text = |data: &[u8]| String::from_utf8_lossy(data).into_owned();
            let shown: BTreeMap<_, _> =
                cache.iter().map(|(path, node)| (path.to_string(), text(&node.data))).collect();
            if cache.is_complete() && shown == expected {
                return;
            }
            cache.next().await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_cache_follows_a_tree_through_lost_connections() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let other = fixture.client().await;
    other.create("/t", "1", PERSISTENT).await.unwrap();
    other.create("/t/a", "2", PERSISTENT).await.unwrap();
    let mut tree = Cache::tree(&client, "/t").build().unwrap();
    let mut children = Cache::children(&client, "/t").build().unwrap();
    let mut node = Cache::node(&client, "/t").build().unwrap();
    until(&mut tree, &[("/t", "1"), ("/t/a", "2")]).await;
    until(&mut children, &[("/t", "1"), ("/t/a", "2")]).await;
    until(&mut node, &[("/t", "1")]).await;
    for _ in 0..2 {
        let outage = Outage::begin(&proxy, &client).await;
        other.create("/t/b", "3", PERSISTENT).await.unwrap();
        other.create("/t/b/deep", "4", PERSISTENT).await.unwrap();
        other.delete("/t/a", None).await.unwrap();
        other.set_data("/t", "5", None).await.unwrap();
        outage.end().await;
        until(&mut tree, &[("/t", "5"), ("/t/b", "3"), ("/t/b/deep", "4")]).await;
        until(&mut children, &[("/t", "5"), ("/t/b", "3")]).await;
        until(&mut node, &[("/t", "5")]).await;
        // The same without an outage.
        other.delete("/t/b/deep", None).await.unwrap();
        other.delete("/t/b", None).await.unwrap();
        other.create("/t/a", "2", PERSISTENT).await.unwrap();
        other.set_data("/t", "1", None).await.unwrap();
        until(&mut tree, &[("/t", "1"), ("/t/a", "2")]).await;
        until(&mut children, &[("/t", "1"), ("/t/a", "2")]).await;
        until(&mut node, &[("/t", "1")]).await;
    }
    assert_eq!((tree.stats().gaps, tree.stats().overflows), (2, 0));
}

#[tokio::test]
async fn a_cache_follows_its_root_when_it_is_deleted_and_created_again() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let mut cache = Cache::tree(&client, "/t").build().unwrap();
    until(&mut cache, &[]).await;
    for round in 0..2 {
        let data = round.to_string();
        client.create("/t", data.clone(), PERSISTENT).await.unwrap();
        client.create("/t/a", "", PERSISTENT).await.unwrap();
        until(&mut cache, &[("/t", &data), ("/t/a", "")]).await;
        client.delete("/t/a", None).await.unwrap();
        client.delete("/t", None).await.unwrap();
        until(&mut cache, &[]).await;
    }
}

#[tokio::test]
async fn caches_and_one_shot_watches_share_a_path() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/t", "1", PERSISTENT).await.unwrap();
    let mut cache = Cache::tree(&client, "/t").build().unwrap();
    until(&mut cache, &[("/t", "1")]).await;
    let mut watcher = client.get_data_and_watch("/t").await.unwrap().1;
    client.set_data("/t", "2", None).await.unwrap();
    client.set_data("/t", "3", None).await.unwrap();
    assert_eq!(watcher.changed().await.unwrap().path, "/t");
    let mut shown = Vec::new();
    while shown.last().map(String::as_str) != Some("3") {
        if let CacheEvent::Changed { node, .. } = soon("a change", cache.next()).await.unwrap() {
            shown.push(String::from_utf8_lossy(&node.data).into_owned());
        }
    }
    client.set_data("/t", "4", None).await.unwrap();
    until(&mut cache, &[("/t", "4")]).await;
}

#[tokio::test]
async fn a_path_that_may_not_be_read_is_an_error_and_is_read_as_soon_as_it_may_be() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/t", "1", PERSISTENT).await.unwrap();
    let mut acl = Acl::open();
    acl.iter_mut().for_each(|entry| entry.perms = Permissions::ADMIN);
    client.set_acl("/t", acl, None).await.unwrap();
    let mut cache = Cache::tree(&client, "/t").build().unwrap();
    let result = soon("an answer", cache.complete()).await;
    let Err(CacheError::Unreadable { path, error, .. }) = result else { panic!("{result:?}") };
    assert_eq!((&*path, error.server_code()), ("/t", Some(ErrorCode::NO_AUTH)));
    assert!(!cache.is_complete() && !cache.is_missing());
    client.set_acl("/t", Acl::open(), None).await.unwrap();
    until(&mut cache, &[("/t", "1")]).await;
}

#[tokio::test]
async fn writes_of_a_shared_value_leave_no_marker_in_a_cache() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/t", "", PERSISTENT).await.unwrap();
    let mut cache = Cache::tree(&client, "/t").build().unwrap();
    until(&mut cache, &[("/t", "")]).await;
    let value = SharedValue::new(&client, "/t/value").unwrap();
    for number in 0..5 {
        value.set(number.to_string()).await.unwrap();
    }
    let mut paths = Vec::new();
    while cache.get("/t/value").is_none_or(|node| node.data != "4") {
        match soon("a change", cache.next()).await.unwrap() {
            CacheEvent::Added { path, .. }
            | CacheEvent::Changed { path, .. }
            | CacheEvent::Removed { path, .. } => paths.push(path),
            CacheEvent::Complete | CacheEvent::Gap | CacheEvent::Unreadable { .. } | _ => {}
        }
    }
    assert!(paths.iter().all(|path| path == "/t/value"), "{paths:?}");
}
