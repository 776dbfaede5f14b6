//! Paths that are created and subtrees that are deleted.

use jute_codec::ErrorCode;
use zk_recipes::{CreateMode, RecipeError, Tree};
use zk_tests::target::Fixture;

#[tokio::test]
async fn a_path_is_created_and_its_subtree_is_deleted() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let tree = Tree::of(&client);
    tree.ensure("/a/b/c").await.unwrap();
    tree.ensure("/a/b/c").await.unwrap();
    for name in 0..100 {
        client.create(&format!("/a/b/{name}"), "", CreateMode::Persistent).await.unwrap();
    }
    client.create("/ab", "", CreateMode::Persistent).await.unwrap();
    assert_eq!(tree.delete("/a").await.unwrap(), 103);
    assert_eq!(tree.delete("/a").await.unwrap(), 0);
    assert!(client.exists("/a").await.unwrap().is_none());
    assert!(client.exists("/ab").await.unwrap().is_some());
}

#[tokio::test]
async fn nothing_is_created_below_an_ephemeral_znode() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/e", "", CreateMode::Ephemeral).await.unwrap();
    let refused = Tree::of(&client).ensure("/e/a").await;
    let code = ErrorCode::NO_CHILDREN_FOR_EPHEMERALS;
    assert!(matches!(refused, Err(RecipeError::Refused { code: it, .. }) if it == code));
}
