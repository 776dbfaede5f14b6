//! Quotas, on a server that enforces them: `enforceQuota=true`.

use bytes::Bytes;
use zk_session::{CreateMode, ErrorCode, Multi, MultiError, Outcome};
use zk_tests::target::{Fixture, remove};

const PERSISTENT: CreateMode = CreateMode::Persistent;

#[tokio::test]
async fn writes_beyond_a_hard_limit_are_refused_and_change_nothing() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/q", "", PERSISTENT).await.unwrap();
    // The count includes `/q`.
    let limits = "count=-1,bytes=-1=;byteHardLimit=10;countHardLimit=2";
    let quota = format!("/zookeeper/quota{}", fixture.full("/q"));
    let observer = &fixture.observer;
    for (name, data) in [("zookeeper_limits", limits), ("zookeeper_stats", "count=1,bytes=0")] {
        let path = format!("{quota}/{name}");
        observer.create_with_parents(&path, data, PERSISTENT).await.unwrap();
    }
    fixture.settle().await;
    client.create("/q/a", "", PERSISTENT).await.unwrap();
    fixture.settle().await;

    let count = client.create("/q/b", "", PERSISTENT).await.unwrap_err();
    let why = "start the server with enforceQuota=true, as .ci/zookeeper does";
    assert_eq!(count.server_code(), Some(ErrorCode::QUOTA_EXCEEDED), "{why}");
    assert_eq!(count.outcome(), Outcome::NotApplied);
    let bytes = client.set_data("/q/a", "eleven byte", None).await.unwrap_err();
    assert_eq!(bytes.server_code(), Some(ErrorCode::QUOTA_EXCEEDED));
    let multi = Multi::new().set_data("/q/a", "x", None).create("/q/b", "", PERSISTENT);
    let refused = client.commit(multi).await.unwrap_err();
    let MultiError::Refused { index, code, .. } = refused else { panic!("{refused}") };
    assert_eq!((index, code), (1, ErrorCode::QUOTA_EXCEEDED));

    client.set_data("/q/a", "ten bytes.", None).await.unwrap();
    assert_eq!(client.get_data("/q/a").await.unwrap().0, Bytes::from("ten bytes."));
    assert_eq!(client.get_children("/q").await.unwrap(), ["a"]);
    client.delete("/q/a", None).await.unwrap();
    fixture.settle().await;
    client.create("/q/b", "", PERSISTENT).await.expect("there is room again");
    let first = fixture.chroot().split('/').nth(1).unwrap();
    remove(observer, &format!("/zookeeper/quota/{first}")).await.unwrap();
}
