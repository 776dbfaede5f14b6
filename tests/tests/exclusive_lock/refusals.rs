//! Access control lists that deny clients the exclusive lock.

use zk_recipes::{
    Acl, CreateMode, CreateOptions, ErrorCode, ExclusiveLock, FailedAction, LockError,
};
use zk_tests::case::{Case as _, LOCK};
use zk_tests::scene::{FIRST, SECOND, create_directory, release};
use zk_tests::world::{World, run};

#[test]
fn a_directory_that_refuses_creates_is_reported() {
    run(async {
        let world = World::new();
        let other = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
        let options = CreateOptions::from(CreateMode::Persistent).acl(Acl::creator_all());
        other.create("/locks", "", options).await.expect("it is new");
        let client = world.client(FIRST).await;
        let refused = || LockError::Refused {
            code: ErrorCode::NO_AUTH,
            action: FailedAction::Create,
            path: LOCK.into(),
        };
        let lock = ExclusiveLock::of(&client);
        assert_eq!(lock.acquire().await.map(drop), Err(refused()));
        assert_eq!(lock.try_acquire().await.map(drop), Err(refused()));
        world.check_clean(&[&client, &other]).await;
    });
}

/// A client that may not read the holder's znode cannot wait for its deletion.
#[test]
fn a_holder_that_may_not_be_read_is_reported() {
    run(async {
        let world = World::new();
        create_directory::<ExclusiveLock>(&world);
        let other = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
        let held = ExclusiveLock::builder(&other, LOCK)
            .and_then(|lock| lock.acl(Acl::creator_all()).build())
            .expect("the options are legal")
            .acquire()
            .await
            .expect("the lock is free");
        let client = world.client(FIRST).await;
        let refused = LockError::Refused {
            code: ErrorCode::NO_AUTH,
            action: FailedAction::Read,
            path: LOCK.into(),
        };
        let lock = ExclusiveLock::of(&client);
        assert_eq!(lock.acquire().await.map(drop), Err(refused.clone()));
        assert_eq!(lock.try_acquire().await.map(drop), Err(refused.clone()));
        assert_eq!(lock.holder().await, Err(refused));
        held.validate().await.expect("its owner may");
        release(held).await;
        world.check_clean(&[&client, &other]).await;
    });
}
