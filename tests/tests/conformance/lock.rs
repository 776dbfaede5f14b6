//! The properties of the fair lock that are not properties of [every lock](super::every_lock).

use std::time::Duration;

use zk_recipes::{
    FairLock, LockError, LockState, LostReason, Multi, MultiOutcome, Naming, OpError, Outcome,
    Released, TransactionError, Version,
};
use zk_session::{CreateMode, ErrorCode, EventType};
use zk_tests::bare::{Bare as _, not_committed};
use zk_tests::case::{Case as _, LOCK};
use zk_tests::lock::{Waiter, acquire, create_directory, until_znodes};
use zk_tests::target::{Fixture, short_session};
use zk_tests::wait::{PATIENCE, event, soon};

#[tokio::test]
async fn one_client_may_stand_in_the_queue_often() {
    let fixture = Fixture::start().await;
    let lock = FairLock::of(&fixture.client().await);
    let holder = acquire(&lock).await;
    let mut next = Waiter::queue(&lock).await;
    let mut last = Waiter::queue(&lock).await;
    assert!(next.is_waiting() && last.is_waiting());
    holder.release().await.unwrap();
    next.guard().await.release().await.unwrap();
    last.guard().await.release().await.unwrap();
}

/// The transaction contains every kind of operation.
#[tokio::test]
async fn a_transaction_is_committed_while_the_lock_is_held() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let guard = acquire(&FairLock::of(&client)).await;
    let multi = Multi::new()
        .create("/paid", "17", CreateMode::Persistent)
        .create("/log-", "", CreateMode::PersistentSequential)
        .set_data("/paid", "18", Some(Version(0)))
        .check("/locks", None);
    let outcomes = guard.transaction(multi).await.unwrap();
    let [created, sequential, data_set, checked] = outcomes.as_slice() else {
        panic!("{outcomes:?}");
    };
    assert!(matches!(created, MultiOutcome::Created { path, .. } if path == "/paid"));
    assert!(matches!(sequential, MultiOutcome::Created { path, .. } if path.starts_with("/log-")));
    let (data, stat) = client.get_data("/paid").await.unwrap();
    assert_eq!((data, data_set), ("18".into(), &MultiOutcome::DataSet(stat)));
    assert_eq!(checked, &MultiOutcome::Checked);
    assert_eq!(guard.state(), LockState::Held);
    assert_eq!(guard.release().await, Ok(Released::Released));
}

#[tokio::test]
async fn a_refused_transaction_names_the_operation_and_applies_nothing() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let guard = acquire(&FairLock::of(&client)).await;
    for failing in 0..3 {
        let multi = (0..3).fold(Multi::new(), |multi, index| match index == failing {
            true => multi.delete("/missing", None),
            false => multi.create("/n-", "", CreateMode::PersistentSequential),
        });
        let refused = not_committed(failing, ErrorCode::NO_NODE);
        assert_eq!(guard.transaction(multi).await.bare(), Err(refused));
    }
    let names = client.get_children("/").await.unwrap();
    assert!(names.iter().all(|name| !name.starts_with("n-")), "{names:?}");
    assert_eq!(guard.validate().await, Ok(()));
    assert_eq!(guard.release().await, Ok(Released::Released));
}

/// The server refuses the transaction even if the event of the deletion has not arrived yet.
#[tokio::test]
async fn a_transaction_after_the_znode_is_gone_applies_nothing() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = acquire(&FairLock::of(&client)).await;
    let next = Waiter::queue(&FairLock::of(&other)).await;
    client.create("/paid", "", CreateMode::Persistent).await.unwrap();
    // Both requests are submitted at once, before the event of the deletion can arrive.
    let deleted = client.delete(guard.path(), None);
    let late = guard.transaction(Multi::new().set_data("/paid", "late", None));
    deleted.await.unwrap();
    let lost = TransactionError::Lost(LostReason::ZnodeDeleted);
    assert_eq!(late.await, Err(lost.clone()));
    assert_eq!(guard.state(), LockState::Lost(LostReason::ZnodeDeleted));
    let next = next.guard().await;
    let paid = Multi::new().set_data("/paid", "next", Some(Version(0)));
    assert_eq!(next.transaction(paid).await.map(|outcomes| outcomes.len()), Ok(1));
    assert_eq!(guard.transaction(Multi::new()).await, Err(lost));
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_lost_reply_of_a_transaction_leaves_a_doubt_that_repeating_it_resolves() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let guard = acquire(&FairLock::of(&client)).await;
    let unique = || Multi::new().create("/paid-17", "", CreateMode::Persistent);
    proxy.lose_replies();
    let unknown = guard.transaction(unique()).await.unwrap_err();
    assert_eq!(unknown.outcome(), Outcome::Unknown, "{unknown}");
    // The transaction was applied, unless the lost reply belonged to another request. Now it is
    // applied exactly once.
    let exists = not_committed(0, ErrorCode::NODE_EXISTS);
    let repeated = guard.transaction(unique()).await.bare();
    assert!(repeated.is_ok() || repeated == Err(exists), "{repeated:?}");
    assert!(client.exists("/paid-17").await.unwrap().is_some());
    assert_eq!(guard.release().await, Ok(Released::Released));
}

#[tokio::test]
async fn tokens_grow_even_when_the_directory_is_made_again() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let mut tokens = Vec::new();
    for _ in 0..5 {
        let guard = acquire(&FairLock::of(&client)).await;
        tokens.push(guard.fencing_token());
        guard.release().await.unwrap();
        // The server may have removed the empty directory already.
        let deleted = client.delete(LOCK, None).await.bare();
        assert!(matches!(deleted, Ok(()) | Err(OpError::Server { code: ErrorCode::NO_NODE, .. })));
    }
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}

#[tokio::test]
async fn a_lock_of_another_kind_in_the_directory_is_an_error() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    create_directory(&client).await;
    let path = format!("{LOCK}/a-__WRIT__0000000001");
    client.create(&path, "", CreateMode::Ephemeral).await.unwrap();
    let mixed = LockError::MixedKinds { path };
    assert_eq!(FairLock::of(&client).acquire().timeout(PATIENCE).await.unwrap_err(), mixed);
    assert_eq!(FairLock::of(&client).try_acquire().await.unwrap_err(), mixed);
    until_znodes::<FairLock>(&client, 1).await;
}

#[tokio::test]
async fn what_is_no_lock_is_ignored() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    create_directory(&client).await;
    for name in ["config", "unlock-0000000001", "lock-12"] {
        client.create(&format!("{LOCK}/{name}"), "", CreateMode::Persistent).await.unwrap();
    }
    let guard = FairLock::of(&client).try_acquire().await.unwrap().expect("the lock is free");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn contenders_of_the_same_naming_exclude_each_other() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let kazoo = FairLock::builder(&client, LOCK).unwrap().naming(Naming::kazoo()).build().unwrap();
    let guard = acquire(&kazoo).await;
    assert!(guard.path().contains("__lock__"), "{}", guard.path());
    assert!(kazoo.try_acquire().await.unwrap().is_none());
    let error = FairLock::of(&client).try_acquire().await.unwrap_err();
    assert!(matches!(error, LockError::MixedKinds { .. }), "{error}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_holder_that_is_cut_off_loses_the_lock_to_the_next() {
    let fixture = Fixture::start().await;
    let proxy = fixture.proxy().await;
    let builder = fixture.builder_at(proxy.addr()).session_timeout(short_session());
    let builder = builder.connect_timeout(Duration::from_millis(500));
    let client = builder.connect_within(PATIENCE).connect().await.unwrap();
    let guard = acquire(&FairLock::of(&client)).await;
    let next = Waiter::queue(&FairLock::of(&fixture.client().await)).await;
    proxy.pause();
    let reason = soon("the loss", guard.lost()).await;
    assert_eq!(guard.state(), LockState::Lost(reason));
    let token = guard.fencing_token();
    let successor = next.guard().await;
    assert!(successor.fencing_token() > token);
    proxy.resume();
    // The lock stays lost when a server can be reached again.
    assert_eq!(guard.validate().await, Err(LockError::Lost(reason)));
    let released = soon("the release", guard.release()).await;
    assert!(
        matches!(released, Ok(Released::EndedWithSession | Released::AlreadyGone)),
        "{released:?}"
    );
    successor.release().await.unwrap();
}

#[tokio::test]
async fn an_observer_can_watch_the_queue() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    create_directory(&client).await;
    let (names, mut watcher) = client.get_children_and_watch(LOCK).await.unwrap();
    assert_eq!(names, Vec::<&str>::new());
    let guard = acquire(&FairLock::of(&client)).await;
    assert_eq!(event(&mut watcher).await.kind, EventType::NODE_CHILDREN_CHANGED);
    guard.release().await.unwrap();
}
