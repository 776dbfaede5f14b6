//! The fair lock, as far as it depends on its servers.

use std::time::Duration;

use zk_recipes::{
    FairLock, LockError, LockState, LostReason, Multi, MultiOutcome, Naming, Outcome, Released,
    TransactionError, Version,
};
use zk_session::{CreateMode, ErrorCode, EventType};
use zk_tests::lock::{LOCK, Waiter, acquire, contenders, lock, until_contenders};
use zk_tests::target::{Fixture, SHORT_SESSION};
use zk_tests::wait::{PATIENCE, event, reconnected, soon};

#[tokio::test]
async fn a_free_lock_is_acquired_and_released() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let guard = acquire(&lock(&client)).await;
    assert_eq!((guard.state(), guard.session()), (LockState::Held, client.session_id().unwrap()));
    let stat = client.exists(guard.path()).await.unwrap().expect("the guard's znode exists");
    assert_eq!(stat.ephemeral_owner, Some(guard.session()));
    assert_eq!(guard.fencing_token().as_i64(), stat.czxid.0);
    assert_eq!(contenders(&client).await, 1);
    assert_eq!(guard.release().await, Ok(Released::Released));
    assert_eq!(contenders(&client).await, 0);
}

#[tokio::test]
async fn a_missing_directory_is_made_with_its_ancestors() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    assert_eq!(client.exists("/locks").await, Ok(None));
    acquire(&lock(&client)).await.release().await.unwrap();
    for path in ["/locks", LOCK] {
        let stat = client.exists(path).await.unwrap().unwrap();
        assert_eq!((stat.ephemeral_owner, stat.data_length), (None, 0), "{path}");
    }
}

#[tokio::test]
async fn contenders_are_served_in_order() {
    let fixture = Fixture::start().await;
    let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
    let [first, second, third] = clients.each_ref().map(lock);
    let holder = acquire(&first).await;
    let mut next = Waiter::queue(&second).await;
    let mut last = Waiter::queue(&third).await;
    assert!(next.is_waiting() && last.is_waiting());

    let mut token = holder.fencing_token();
    holder.release().await.unwrap();
    let holder = next.guard().await;
    assert!(holder.fencing_token() > token && last.is_waiting());
    assert_eq!(holder.state(), LockState::Held);
    token = holder.fencing_token();
    holder.release().await.unwrap();
    let holder = last.guard().await;
    assert!(holder.fencing_token() > token);
    holder.release().await.unwrap();
    assert_eq!(contenders(&clients[0]).await, 0);
}

#[tokio::test]
async fn one_client_may_stand_in_the_queue_often() {
    let fixture = Fixture::start().await;
    let lock = lock(&fixture.client().await);
    let holder = acquire(&lock).await;
    let mut next = Waiter::queue(&lock).await;
    let mut last = Waiter::queue(&lock).await;
    assert!(next.is_waiting() && last.is_waiting());
    holder.release().await.unwrap();
    next.guard().await.release().await.unwrap();
    last.guard().await.release().await.unwrap();
}

#[tokio::test]
async fn a_contender_that_gives_up_is_passed_over() {
    let fixture = Fixture::start().await;
    let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
    let [first, second, third] = clients.each_ref().map(lock);
    let holder = acquire(&first).await;
    let middle = Waiter::queue(&second).await;
    let mut last = Waiter::queue(&third).await;
    assert_eq!(contenders(&clients[0]).await, 3);
    drop(middle);
    until_contenders(&clients[0], 2).await;
    assert!(last.is_waiting(), "the holder holds it still");
    holder.release().await.unwrap();
    last.guard().await.release().await.unwrap();
    assert_eq!(contenders(&clients[0]).await, 0);
}

#[tokio::test]
async fn a_try_takes_a_free_lock_and_leaves_a_busy_one() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = lock(&client).try_acquire().await.unwrap().expect("nobody holds it");
    assert!(lock(&other).try_acquire().await.unwrap().is_none());
    assert!(lock(&client).try_acquire().await.unwrap().is_none(), "it is not reentrant");
    assert_eq!(contenders(&client).await, 1);
    // Reads only: the directory has seen one create.
    assert_eq!(client.exists(LOCK).await.unwrap().unwrap().cversion, 1);
    guard.release().await.unwrap();
    other.sync(LOCK).await.unwrap();
    let guard = lock(&other).try_acquire().await.unwrap().expect("it is free again");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_wait_ends_at_its_timeout_and_leaves_nothing() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = acquire(&lock(&client)).await;
    for timeout in [Duration::ZERO, Duration::from_millis(50)] {
        let error = lock(&other).acquire().timeout(timeout).await.unwrap_err();
        assert_eq!(error, LockError::TimedOut);
    }
    until_contenders(&client, 1).await;
    assert_eq!(guard.validate().await, Ok(()));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn dropping_a_guard_releases() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = acquire(&lock(&client)).await;
    let next = Waiter::queue(&lock(&other)).await;
    drop(guard);
    next.guard().await.release().await.unwrap();
}

#[tokio::test]
async fn closing_the_holder_passes_the_lock_on() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = acquire(&lock(&client)).await;
    let next = Waiter::queue(&lock(&other)).await;
    let lost = guard.lost();
    client.close().await;
    assert_eq!(soon("the loss", lost).await, LostReason::Closed);
    assert_eq!(guard.state(), LockState::Lost(LostReason::Closed));
    next.guard().await.release().await.unwrap();
}

#[tokio::test]
async fn a_guard_can_prove_that_it_holds() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let guard = acquire(&lock(&client)).await;
    for _ in 0..3 {
        assert_eq!(guard.validate().await, Ok(()));
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_guard_is_lost_when_somebody_deletes_its_znode() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = acquire(&lock(&client)).await;
    let next = Waiter::queue(&lock(&other)).await;
    let lost = guard.lost();
    fixture.observer.delete(&fixture.full(guard.path()), None).await.unwrap();
    assert_eq!(soon("the loss", lost).await, LostReason::ZnodeDeleted);
    assert_eq!(guard.state(), LockState::Lost(LostReason::ZnodeDeleted));
    let error = guard.validate().await.unwrap_err();
    assert_eq!(error, LockError::Lost(LostReason::ZnodeDeleted));
    assert_eq!(guard.release().await, Ok(Released::AlreadyGone));
    next.guard().await.release().await.unwrap();
}

/// Whether or not its event has come yet.
#[tokio::test]
async fn a_validation_notices_that_the_znode_is_gone() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let guard = acquire(&lock(&client)).await;
    client.delete(guard.path(), None).await.unwrap();
    let error = guard.validate().await.unwrap_err();
    assert_eq!(error, LockError::Lost(LostReason::ZnodeDeleted));
}

#[tokio::test]
async fn a_transaction_is_committed_while_the_lock_is_held() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let guard = acquire(&lock(&client)).await;
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
    let guard = acquire(&lock(&client)).await;
    for failing in 0..3 {
        let multi = (0..3).fold(Multi::new(), |multi, index| match index == failing {
            true => multi.delete("/missing", None),
            false => multi.create("/n-", "", CreateMode::PersistentSequential),
        });
        let refused = TransactionError::Refused { index: failing, code: ErrorCode::NO_NODE };
        assert_eq!(guard.transaction(multi).await, Err(refused));
    }
    let names = client.get_children("/").await.unwrap();
    assert!(names.iter().all(|name| !name.starts_with("n-")), "{names:?}");
    assert_eq!(guard.validate().await, Ok(()));
    assert_eq!(guard.release().await, Ok(Released::Released));
}

/// Whether or not its event has come yet.
#[tokio::test]
async fn a_transaction_after_the_znode_is_gone_applies_nothing() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = acquire(&lock(&client)).await;
    let next = Waiter::queue(&lock(&other)).await;
    client.create("/paid", "", CreateMode::Persistent).await.unwrap();
    // Queued at once, before anybody can tell of the deletion.
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
    let guard = acquire(&lock(&client)).await;
    let unique = || Multi::new().create("/paid-17", "", CreateMode::Persistent);
    proxy.lose_replies();
    let unknown = guard.transaction(unique()).await.unwrap_err();
    assert_eq!(unknown.outcome(), Outcome::Unknown, "{unknown}");
    // Applied, or not, if another reply was the first to be lost. Now it is, once.
    let exists = TransactionError::Refused { index: 0, code: ErrorCode::NODE_EXISTS };
    let repeated = guard.transaction(unique()).await;
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
        let guard = acquire(&lock(&client)).await;
        tokens.push(guard.fencing_token());
        guard.release().await.unwrap();
        client.delete(LOCK, None).await.unwrap();
    }
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}

#[tokio::test]
async fn a_lock_of_another_kind_in_the_directory_is_an_error() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    acquire(&lock(&client)).await.release().await.unwrap();
    let other = "a-__WRIT__0000000001";
    client.create(&format!("{LOCK}/{other}"), "", CreateMode::Ephemeral).await.unwrap();
    let mixed = LockError::MixedKinds { name: other.to_owned() };
    assert_eq!(lock(&client).acquire().timeout(PATIENCE).await.unwrap_err(), mixed);
    assert_eq!(lock(&client).try_acquire().await.unwrap_err(), mixed);
    until_contenders(&client, 1).await;
}

#[tokio::test]
async fn what_is_no_lock_is_ignored() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    acquire(&lock(&client)).await.release().await.unwrap();
    for name in ["config", "unlock-0000000001", "lock-12"] {
        client.create(&format!("{LOCK}/{name}"), "", CreateMode::Persistent).await.unwrap();
    }
    let guard = lock(&client).try_acquire().await.unwrap().expect("nobody holds it");
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
    let error = lock(&client).try_acquire().await.unwrap_err();
    assert!(matches!(error, LockError::MixedKinds { .. }), "{error}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_directory_that_cannot_be_is_refused_with_the_reason() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/e", "", CreateMode::Ephemeral).await.unwrap();
    let lock = FairLock::new(&client, "/e/lock").unwrap();
    let error = lock.acquire().timeout(PATIENCE).await.unwrap_err();
    let LockError::Refused { code, .. } = &error else { panic!("{error}") };
    assert_eq!(*code, ErrorCode::NO_CHILDREN_FOR_EPHEMERALS);
    // The clean-up finds nothing to do, and ends.
    soon("the end of the clean-up", async {
        while client.janitor_slots_busy() > 0 {
            client.sync("/").await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_lock_is_held_over_the_loss_of_a_connection() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let guard = acquire(&lock(&client)).await;
    for _ in 0..3 {
        let before = client.status();
        proxy.cut_all();
        reconnected(&client, before).await;
        assert_eq!(guard.validate().await, Ok(()));
    }
    assert_eq!(contenders(&client).await, 1);
    assert_eq!(guard.release().await, Ok(Released::Released));
}

#[tokio::test]
async fn a_waiter_keeps_its_place_over_the_loss_of_a_connection() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let others = [fixture.client().await, fixture.client().await];
    let holder = acquire(&lock(&others[0])).await;
    let mut waiter = Waiter::queue(&lock(&client)).await;
    let mut behind = Waiter::queue(&lock(&others[1])).await;
    let before = client.status();
    proxy.cut_all();
    reconnected(&client, before).await;
    assert!(waiter.is_waiting());
    assert_eq!(contenders(&others[0]).await, 3);
    holder.release().await.unwrap();
    let guard = waiter.guard().await;
    assert!(behind.is_waiting());
    guard.release().await.unwrap();
    behind.guard().await.release().await.unwrap();
}

#[tokio::test]
async fn a_lost_reply_leaves_no_ghost_in_the_queue() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    acquire(&lock(&client)).await.release().await.unwrap();
    for _ in 0..3 {
        proxy.lose_replies();
        let guard = acquire(&lock(&client)).await;
        assert_eq!(contenders(&client).await, 1);
        assert_eq!(guard.validate().await, Ok(()));
        proxy.lose_replies();
        guard.release().await.unwrap();
        assert_eq!(contenders(&client).await, 0);
    }
}

#[tokio::test]
async fn a_holder_that_is_cut_off_loses_the_lock_to_the_next() {
    let fixture = Fixture::start().await;
    let proxy = fixture.proxy().await;
    let builder = fixture.builder_at(proxy.addr()).session_timeout(SHORT_SESSION);
    let builder = builder.connect_timeout(Duration::from_millis(500));
    let client = builder.connect_within(PATIENCE).connect().await.unwrap();
    let guard = acquire(&lock(&client)).await;
    let next = Waiter::queue(&lock(&fixture.client().await)).await;
    proxy.pause();
    let reason = soon("the loss", guard.lost()).await;
    assert_eq!(guard.state(), LockState::Lost(reason));
    let token = guard.fencing_token();
    let successor = next.guard().await;
    assert!(successor.fencing_token() > token);
    proxy.resume();
    // Lost is lost, also when a server can be reached again.
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
    acquire(&lock(&client)).await.release().await.unwrap();
    let (names, mut watcher) = client.get_children_and_watch(LOCK).await.unwrap();
    assert_eq!(names, Vec::<&str>::new());
    let guard = acquire(&lock(&client)).await;
    assert_eq!(event(&mut watcher).await.kind, EventType::NODE_CHILDREN_CHANGED);
    guard.release().await.unwrap();
}
