//! Operations that settle.

use jute_codec::ErrorCode;
use zk_recipes::{CreateMode, Multi, MultiOutcome, SettledClient, Version};
use zk_tests::target::Fixture;

#[tokio::test]
async fn markers_are_used_again_and_nothing_else_is_changed() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let settled = SettledClient::new(&client, "/settled/markers").unwrap();
    for version in 0..3 {
        let created = settled.create_with_parents("/a/b", "1", CreateMode::Persistent).await;
        assert_eq!(created.unwrap().path.as_deref(), Some("/a/b"));
        let exists = settled.create("/a/b", "2", CreateMode::Ephemeral).await.unwrap_err();
        assert_eq!(exists.server_code(), Some(ErrorCode::NODE_EXISTS));
        let stat = settled.set_data("/a/b", "3", Some(Version(0))).await.unwrap().unwrap();
        assert_eq!(stat.version, Version(1));
        let multi = Multi::new().check("/a", None).set_data("/a/b", "4", None);
        let outcomes = settled.commit(multi).await.unwrap().unwrap();
        assert!(matches!(outcomes.as_slice(), [MultiOutcome::Checked, MultiOutcome::DataSet(_)]));
        let (data, _) = settled.clone().behind_barrier().get_data("/a/b").await.unwrap();
        assert_eq!(data, "4");
        let late = settled.delete("/a/b", Some(Version(1))).await.unwrap_err();
        assert_eq!(late.server_code(), Some(ErrorCode::BAD_VERSION));
        settled.delete("/a/b", Some(Version(2))).await.unwrap();
        let job = settled.create("/a/job-", "", CreateMode::EphemeralSequential).await.unwrap();
        assert!(job.path.unwrap().starts_with("/a/job-000000000"));
        assert_eq!(settled.get_children("/a").await.unwrap().len(), version + 1);
        assert_eq!(settled.exists("/a/b").await.unwrap(), None);
    }
    other.catch_up().await.unwrap();
    assert_eq!(other.get_children("/settled/markers").await.unwrap().len(), 1);
    drop(settled);
    zk_tests::wait::soon("the janitor", async {
        while !other.get_children("/settled/markers").await.unwrap().is_empty() {
            other.catch_up().await.unwrap();
        }
    })
    .await;
}
