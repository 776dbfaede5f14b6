//! The exclusive lock: one znode with a fixed name, and no queue.

use std::future::IntoFuture as _;

use tokio::task::JoinSet;
use zk_recipes::{
    Acl, Client, CreateMode, ErrorCode, ExclusiveLock, FailedAction, FairLock, LockError,
    LockState, LostReason, Permissions, Released, Role,
};
use zk_session::{CreateOptions, OpError};
use zk_tests::bare::Bare as _;
use zk_tests::case::{Case as _, LOCK};
use zk_tests::lock::{Waiter, acquire, settle, until_znodes};
use zk_tests::target::{CREDENTIALS, Fixture};
use zk_tests::wait::{PATIENCE, catch_up, soon};

async fn owner(fixture: &Fixture) -> Client {
    fixture.builder().auth("digest", CREDENTIALS).connect().await.unwrap()
}

#[tokio::test]
async fn all_who_wait_get_the_lock_one_at_a_time() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let holder = acquire(&ExclusiveLock::of(&client)).await;
    assert_eq!(holder.path(), LOCK);
    let mut waiting = JoinSet::new();
    for _ in 0..4 {
        let other = fixture.client().await;
        waiting.spawn(ExclusiveLock::of(&other).acquire().timeout(PATIENCE).into_future());
    }
    let mut tokens = vec![holder.fencing_token()];
    let mut current = holder;
    while !waiting.is_empty() {
        settle(&client).await;
        assert!(waiting.try_join_next().is_none(), "it is held");
        assert_eq!(current.validate().await, Ok(()));
        assert_eq!(current.release().await, Ok(Released::Released));
        let next = soon("the next holder", waiting.join_next()).await;
        current = next.unwrap().unwrap().unwrap();
        tokens.push(current.fencing_token());
    }
    assert_eq!(current.release().await, Ok(Released::Released));
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
    until_znodes::<ExclusiveLock>(&client, 0).await;
}

#[tokio::test]
async fn the_holder_can_be_seen() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let lock = ExclusiveLock::builder(&client, LOCK).unwrap().identity("me, 17").build().unwrap();
    let seen = ExclusiveLock::of(&other);
    assert_eq!(seen.holder().await, Ok(None));
    let guard = acquire(&lock).await;
    catch_up(&other).await;
    let holder = seen.holder().await.unwrap().expect("the lock is held");
    assert_eq!((holder.position, holder.role, holder.path.as_str()), (0, Role::Exclusive, LOCK));
    assert_eq!((holder.identity.as_ref(), holder.session), (&b"me, 17"[..], guard.session()));
    let stat = client.exists(LOCK).await.unwrap().unwrap();
    assert_eq!(guard.fencing_token().get(), stat.czxid.0);
    guard.release().await.unwrap();
    catch_up(&other).await;
    assert_eq!(seen.holder().await, Ok(None));
}

#[tokio::test]
async fn what_does_not_go_away_is_no_lock() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/locks", "", CreateMode::Persistent).await.unwrap();
    for mode in [CreateMode::Persistent, CreateMode::Container] {
        client.create(LOCK, "", mode).await.unwrap();
        let lock = ExclusiveLock::of(&client);
        let mixed = LockError::MixedKinds { path: LOCK.to_owned() };
        assert_eq!(lock.acquire().timeout(PATIENCE).await.unwrap_err(), mixed);
        assert_eq!(lock.try_acquire().await.unwrap_err(), mixed);
        client.delete(LOCK, None).await.unwrap();
    }
    acquire(&ExclusiveLock::of(&client)).await.release().await.unwrap();
}

/// A queue is a directory, and the znode of an exclusive lock cannot have children.
#[tokio::test]
async fn a_queue_and_an_exclusive_lock_do_not_share_a_path() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let fair = acquire(&FairLock::of(&client)).await;
    let error = ExclusiveLock::of(&client).try_acquire().await.unwrap_err();
    assert!(matches!(error, LockError::MixedKinds { .. }), "{error}");
    fair.release().await.unwrap();
    client.delete(LOCK, None).await.unwrap();

    let exclusive = acquire(&ExclusiveLock::of(&client)).await;
    let error = FairLock::of(&client).acquire().timeout(PATIENCE).await.unwrap_err();
    assert_eq!(error, LockError::MixedKinds { path: LOCK.to_owned() });
    assert_eq!((exclusive.state(), exclusive.validate().await), (LockState::Held, Ok(())));
    assert_eq!(exclusive.release().await, Ok(Released::Released));
}

#[tokio::test]
async fn a_holder_whose_znode_is_changed_holds_on() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = acquire(&ExclusiveLock::of(&client)).await;
    let mut next = Waiter::queue(&ExclusiveLock::of(&other)).await;
    for data in ["revoke", ""] {
        client.set_data(LOCK, data, None).await.unwrap();
        settle(&client).await;
        settle(&other).await;
        assert!(next.is_waiting());
        assert_eq!((guard.state(), guard.validate().await), (LockState::Held, Ok(())));
    }
    assert_eq!(guard.release().await, Ok(Released::Released));
    next.guard().await.release().await.unwrap();
    until_znodes::<ExclusiveLock>(&client, 0).await;
}

/// The znode of another holder at the same path is left alone.
#[tokio::test]
async fn a_holder_that_was_replaced_knows_it_and_removes_nothing() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = acquire(&ExclusiveLock::of(&client)).await;
    let next = Waiter::queue(&ExclusiveLock::of(&other)).await;
    client.delete(LOCK, None).await.unwrap();
    let next = next.guard().await;
    assert!(next.fencing_token() > guard.fencing_token());
    let error = guard.validate().await.unwrap_err();
    assert!(matches!(error, LockError::Lost(_)), "{error}");
    assert_eq!(guard.release().await, Ok(Released::AlreadyGone));
    assert_eq!(next.validate().await, Ok(()));
    assert_eq!(next.release().await, Ok(Released::Released));
}

/// The new znode belongs to the same session, but to another guard.
#[tokio::test]
async fn a_holder_that_was_replaced_by_its_own_client_knows_it_and_removes_nothing() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let lock = ExclusiveLock::of(&client);
    acquire(&lock).await.release().await.unwrap();
    let guard = acquire(&lock).await;
    // The test deletes the znode while the holder does not watch it yet.
    client.delete(LOCK, None).await.unwrap();
    let next = acquire(&lock).await;
    assert_eq!(next.session(), guard.session());
    let error = guard.validate().await.unwrap_err();
    assert_eq!(error, LockError::Lost(LostReason::ZnodeDeleted));
    assert_eq!(guard.release().await, Ok(Released::AlreadyGone));
    assert_eq!(next.validate().await, Ok(()));
    assert_eq!(next.release().await, Ok(Released::Released));
}

#[tokio::test]
async fn who_may_not_read_the_holder_is_refused() {
    let fixture = Fixture::start().await;
    let (owner, other) = (owner(&fixture).await, fixture.client().await);
    // Otherwise the lock would protect the directory as it protects its znode.
    owner.create("/locks", "", CreateMode::Persistent).await.unwrap();
    let holder = acquire(&ExclusiveLock::with(&owner, |lock| lock.acl(Acl::creator_all()))).await;
    catch_up(&other).await;
    let lock = ExclusiveLock::of(&other);
    let refused = LockError::Refused {
        code: ErrorCode::NO_AUTH,
        action: FailedAction::Read,
        path: LOCK.to_owned(),
    };
    assert_eq!(lock.acquire().timeout(PATIENCE).await.unwrap_err(), refused);
    assert_eq!(lock.try_acquire().await.unwrap_err(), refused);
    assert_eq!(lock.holder().await.unwrap_err(), refused);
    assert_eq!(holder.validate().await, Ok(()));
    assert_eq!(holder.release().await, Ok(Released::Released));
    acquire(&lock).await.release().await.unwrap();
}

/// The lock never lists the directory, so clients need no permission to read it.
#[tokio::test]
async fn create_and_delete_are_enough_in_the_directory() {
    let fixture = Fixture::start().await;
    let (owner, other) = (owner(&fixture).await, fixture.client().await);
    let mut list = Acl::creator_all();
    list.push(Acl::new(Permissions::CREATE | Permissions::DELETE, "world", "anyone"));
    owner
        .create("/locks", "", CreateOptions::from(CreateMode::Persistent).acl(list))
        .await
        .unwrap();
    catch_up(&other).await;
    let denied = other.get_children("/locks").await.bare();
    assert_eq!(denied, Err(OpError::server(ErrorCode::NO_AUTH)));
    let holder = acquire(&ExclusiveLock::of(&other)).await;
    let next = Waiter::queue(&ExclusiveLock::of(&owner)).await;
    assert_eq!(holder.validate().await, Ok(()));
    assert_eq!(holder.release().await, Ok(Released::Released));
    assert_eq!(next.guard().await.release().await, Ok(Released::Released));
    until_znodes::<ExclusiveLock>(&owner, 0).await;
}
