//! Multis: writes that are applied together or not at all.

use zk_session::{
    Client, CreateMode, ErrorCode, Multi, MultiError, MultiOutcome, OpError, Version,
};
use zk_tests::bare::{self, Bare as _};
use zk_tests::target::Fixture;

const PERSISTENT: CreateMode = CreateMode::Persistent;

fn refused<T>(index: usize, code: ErrorCode) -> Result<T, MultiError> {
    Err(bare::refused(index, code))
}

async fn exists(client: &Client, path: &str) -> bool {
    client.exists(path).await.unwrap().is_some()
}

#[tokio::test]
async fn every_operation_has_its_outcome() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/p", "", PERSISTENT).await.unwrap();
    let multi = Multi::new()
        .check("/p", Some(Version(0)))
        .create("/p/a", "one", PERSISTENT)
        .set_data("/p/a", "three", Some(Version(0)))
        .create("/p/s-", "", CreateMode::EphemeralSequential)
        .delete("/p/s-0000000001", None)
        .check("/p/a", None);
    assert_eq!(multi.len(), 6);
    let outcomes = client.commit(multi).await.unwrap();
    let (data, now) = client.get_data("/p/a").await.unwrap();
    assert_eq!((data, now.version), ("three".into(), Version(1)));
    assert!(!exists(&client, "/p/s-0000000001").await);
    let [checked, created, data_set, sequential, deleted, checked_too] = outcomes.as_slice() else {
        panic!("{outcomes:?}");
    };
    assert_eq!(
        (checked, deleted, checked_too),
        (&MultiOutcome::Checked, &MultiOutcome::Deleted, &MultiOutcome::Checked)
    );
    // The stat describes the znode after the operation. Not every server returns it.
    let MultiOutcome::Created { path, stat } = created else { panic!("{created:?}") };
    assert_eq!(path, "/p/a");
    assert!(stat.is_none_or(|stat| stat.czxid == now.czxid && stat.version == Version(0)));
    let MultiOutcome::Created { path, stat } = sequential else { panic!("{sequential:?}") };
    assert_eq!(path, "/p/s-0000000001");
    assert!(stat.is_none_or(|stat| stat.ephemeral_owner == client.session_id()));
    assert_eq!(data_set, &MultiOutcome::DataSet(now));
}

#[tokio::test]
async fn all_operations_share_one_transaction() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let multi = Multi::new()
        .create("/a", "", PERSISTENT)
        .create("/a/b", "", CreateMode::Container)
        .create("/a/c", "", CreateMode::Ephemeral)
        .set_data("/a", "x", None);
    let outcomes = client.commit(multi).await.unwrap();
    let parent = client.exists("/a").await.unwrap().unwrap();
    assert_eq!((parent.mzxid, parent.pzxid), (parent.czxid, parent.czxid));
    assert_eq!((parent.mtime, parent.cversion), (parent.ctime, Version(2)));
    for path in ["/a/b", "/a/c"] {
        assert_eq!(client.exists(path).await.unwrap().unwrap().czxid, parent.czxid);
    }
    // Every server returns the stat of a container.
    let container = outcomes.get(1);
    assert!(
        matches!(container, Some(MultiOutcome::Created { stat: Some(stat), .. }) if stat.czxid == parent.czxid),
        "{container:?}"
    );
}

#[tokio::test]
async fn a_refusal_at_any_index_undoes_everything() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/q", "", PERSISTENT).await.unwrap();
    for failing in 0..5 {
        let mut multi = Multi::new();
        for index in 0..5 {
            multi = match index == failing {
                true => multi.check("/q", Some(Version(99))),
                false => multi.create("/q/n-", "", CreateMode::PersistentSequential),
            };
        }
        assert_eq!(client.commit(multi).await.bare(), refused(failing, ErrorCode::BAD_VERSION));
    }
    let stat = client.exists("/q").await.unwrap().unwrap();
    assert_eq!((stat.cversion, stat.num_children, stat.pzxid), (Version(0), 0, stat.czxid));
    // Not even sequence numbers were used up.
    let created = client.create("/q/n-", "", CreateMode::PersistentSequential).await.unwrap();
    assert_eq!(created.path, "/q/n-0000000000");
}

#[tokio::test]
async fn every_refusal_has_its_code() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    client.create("/a/b", "", PERSISTENT).await.unwrap();
    client.create("/e", "", CreateMode::Ephemeral).await.unwrap();
    let wrong = Some(Version(9));
    for (multi, code) in [
        (Multi::new().check("/missing", None), ErrorCode::NO_NODE),
        (Multi::new().check("/a", wrong), ErrorCode::BAD_VERSION),
        (Multi::new().create("/a", "", PERSISTENT), ErrorCode::NODE_EXISTS),
        (Multi::new().create("/x/y", "", PERSISTENT), ErrorCode::NO_NODE),
        (Multi::new().create("/e/x", "", PERSISTENT), ErrorCode::NO_CHILDREN_FOR_EPHEMERALS),
        (Multi::new().delete("/a", None), ErrorCode::NOT_EMPTY),
        (Multi::new().delete("/a", wrong), ErrorCode::BAD_VERSION),
        (Multi::new().delete("/missing", None), ErrorCode::NO_NODE),
        (Multi::new().set_data("/missing", "", None), ErrorCode::NO_NODE),
        (Multi::new().set_data("/a", "", wrong), ErrorCode::BAD_VERSION),
    ] {
        let description = format!("{multi:?}");
        assert_eq!(client.commit(multi).await.bare(), refused(0, code), "{description}");
    }
}

#[tokio::test]
async fn the_first_of_several_refusals_is_reported() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let multi = Multi::new()
        .create("/a", "", PERSISTENT)
        .delete("/missing", None)
        .check("/a", Some(Version(7)));
    assert_eq!(client.commit(multi).await.bare(), refused(1, ErrorCode::NO_NODE));
    assert!(!exists(&client, "/a").await);
}

#[tokio::test]
async fn operations_see_the_effect_of_earlier_ones() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/q", "", PERSISTENT).await.unwrap();
    let sequential = CreateMode::PersistentSequential;
    let multi = Multi::new()
        .create("/q/a-", "", sequential)
        .create("/q/a-", "", sequential)
        .delete("/q/a-0000000000", Some(Version(0)))
        .create("/q/a-", "", sequential)
        .set_data("/q", "1", Some(Version(0)))
        .set_data("/q", "2", Some(Version(1)));
    client.commit(multi).await.unwrap();
    let mut names = client.get_children("/q").await.unwrap();
    names.sort();
    assert_eq!(names, ["a-0000000001", "a-0000000002"]);
    let (data, stat) = client.get_data("/q").await.unwrap();
    assert_eq!((data, stat.version, stat.cversion), ("2".into(), Version(2), Version(4)));

    // Later operations see the effects of earlier ones: deletes as well as creates.
    let multi = Multi::new().create("/x", "", PERSISTENT).create("/x", "", PERSISTENT);
    assert_eq!(client.commit(multi).await.bare(), refused(1, ErrorCode::NODE_EXISTS));
    let multi = Multi::new().delete("/q/a-0000000001", None).check("/q/a-0000000001", None);
    assert_eq!(client.commit(multi).await.bare(), refused(1, ErrorCode::NO_NODE));
    assert!(exists(&client, "/q/a-0000000001").await);
}

#[tokio::test]
async fn a_swap_of_two_ephemerals_leaves_no_gap() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/old", "", CreateMode::Ephemeral).await.unwrap();
    let multi = Multi::new().create("/new", "", CreateMode::Ephemeral).delete("/old", None);
    client.commit(multi).await.unwrap();
    let new = client.exists("/new").await.unwrap().unwrap();
    assert_eq!(new.ephemeral_owner, client.session_id());
    assert!(!exists(&client, "/old").await);
}

#[tokio::test]
async fn an_impossible_path_fails_the_commit_unsent() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    for bad in ["", "a", "/a/"] {
        let multi = Multi::new().create("/ok", "", PERSISTENT).delete(bad, None).check(bad, None);
        let error = client.commit(multi).await.unwrap_err();
        let expected = |path: &String| path == bad;
        assert!(
            matches!(&error, MultiError::Op(OpError::InvalidPath { path, .. }) if expected(path)),
            "{error}"
        );
    }
    assert!(!exists(&client, "/ok").await);
}

#[tokio::test]
async fn an_empty_multi_succeeds() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    assert!(Multi::new().is_empty());
    assert_eq!(client.commit(Multi::new()).await, Ok(vec![]));
    assert_eq!(client.status().connection, 1);
}

/// Locks use this as a write barrier: a check that is committed whether it succeeds or fails.
#[tokio::test]
async fn a_lone_check_takes_a_zxid_whether_it_holds_or_not() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let before = client.create("/a", "", PERSISTENT).await.unwrap().stat.czxid;
    let holds = Multi::new().check("/a", None);
    assert_eq!(client.commit(holds).await, Ok(vec![MultiOutcome::Checked]));
    let fails = Multi::new().check("/missing", None);
    assert_eq!(client.commit(fails).await.bare(), refused(0, ErrorCode::NO_NODE));
    let after = client.create("/b", "", PERSISTENT).await.unwrap().stat.czxid;
    if fixture.target.is_external() {
        assert!(after.0 >= before.0 + 3, "{before} then {after}");
    } else {
        assert_eq!(after.0, before.0 + 3);
    }
}
