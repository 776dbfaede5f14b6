//! The recipes that are built from locks: holders, multi-locks and named locks.

use std::collections::BTreeSet;

use tokio::task::JoinSet;
use zk_recipes::{
    Acl, ErrorCode, ExclusiveLock, FairLock, Holder, LockError, LockState, LostReason, MultiLock,
    NamedLocks, Permissions, Released, RwLock,
};
use zk_session::{CreateMode, CreateOptions};
use zk_tests::case::{Case, LOCK};
use zk_tests::for_each_lock;
use zk_tests::lock::{Waiter, settle, until_znodes};
use zk_tests::target::{CREDENTIALS, Fixture};
use zk_tests::wait::{PATIENCE, catch_up, names_in, soon};

for_each_lock! {
    #[tokio::test] pairs: [a_holder_keeps_the_other_out_until_its_last_level_ends]
    #[tokio::test] locks: [a_holder_that_lost_its_lock_nests_no_more]
}

async fn a_holder_keeps_the_other_out_until_its_last_level_ends<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let holder = Holder::new(H::of(&client).lock());
    let outer = holder.acquire().timeout(PATIENCE).await.unwrap();
    let inner = holder.acquire().await.unwrap();
    let mut next = Waiter::queue(&W::of(&other)).await;
    assert_eq!(outer.release().await, Ok(None));
    settle(&client).await;
    settle(&other).await;
    assert!(next.is_waiting());
    assert_eq!(inner.validate().await, Ok(()));
    assert_eq!(inner.release().await, Ok(Some(Released::Released)));
    next.guard().await.release().await.unwrap();
    until_znodes::<H>(&client, 0).await;
}

async fn a_holder_that_lost_its_lock_nests_no_more<C: Case>() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let holder = Holder::new(C::of(&client).lock());
    let outer = holder.acquire().timeout(PATIENCE).await.unwrap();
    client.delete(outer.path(), None).await.unwrap();
    assert_eq!(soon("the loss", outer.lost()).await, LostReason::ZnodeDeleted);
    let lost = LockError::Lost(LostReason::ZnodeDeleted);
    assert_eq!(holder.acquire().await.unwrap_err(), lost);
    assert_eq!(outer.release().await, Ok(Some(Released::AlreadyGone)));
    let again = holder.acquire().timeout(PATIENCE).await.unwrap();
    assert_eq!(again.release().await, Ok(Some(Released::Released)));
}

#[tokio::test]
async fn multi_locks_in_opposite_orders_take_turns() {
    let fixture = Fixture::start().await;
    let mut tasks = JoinSet::new();
    for order in 0..4 {
        let client = fixture.client().await;
        let fair = FairLock::new(&client, "/locks/a").unwrap();
        let exclusive = ExclusiveLock::new(&client, "/locks/b").unwrap();
        let sides = RwLock::new(&client, "/locks/c").unwrap();
        let builder = MultiLock::builder();
        let builder = if order % 2 == 0 {
            builder.with(&fair).with(&exclusive).with(sides.write_side())
        } else {
            builder.with(sides.write_side()).with(&exclusive).with(&fair)
        };
        let lock = builder.build().unwrap();
        tasks.spawn(async move {
            for _ in 0..3 {
                let guard = lock.acquire().timeout(PATIENCE).await.unwrap();
                assert_eq!(guard.validate().await, Ok(()));
                assert_eq!(guard.run(async { order }).await, Ok(order));
                let released = guard.release().await.unwrap();
                assert!(released.iter().all(|(_, how)| *how == Released::Released));
            }
            client.close().await;
        });
    }
    soon("all turns", tasks.join_all()).await;
}

#[tokio::test]
async fn a_multi_lock_whose_last_lock_is_refused_leaves_nothing() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let read_only = Acl::new(Permissions::READ, "world", "anyone");
    let owned = fixture.builder().auth("digest", CREDENTIALS).connect().await.unwrap();
    let mut list = Acl::creator_all();
    list.push(read_only);
    for (path, list) in [("/locks", Acl::open()), ("/locks/b", list)] {
        let options = CreateOptions::from(CreateMode::Persistent).acl(list);
        owned.create(path, "", options).await.unwrap();
    }
    catch_up(&client).await;
    let lock = MultiLock::builder()
        .with(FairLock::new(&client, "/locks/b").unwrap())
        .with(FairLock::new(&client, "/locks/a").unwrap())
        .build()
        .unwrap();
    let error = lock.acquire().timeout(PATIENCE).await.unwrap_err();
    assert_eq!(error.path, "/locks/b");
    assert!(matches!(error.error, LockError::Refused { code: ErrorCode::NO_AUTH, .. }), "{error}");
    // The first lock is free again, or will be soon.
    let first = FairLock::new(&client, "/locks/a").unwrap();
    let guard = first.acquire().timeout(PATIENCE).await.unwrap();
    assert_eq!(first.contenders().await.unwrap().len(), 1);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_multi_lock_is_lost_when_one_lock_is_lost() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let fair = FairLock::new(&client, "/locks/b").unwrap();
    let exclusive = ExclusiveLock::new(&client, "/locks/a").unwrap();
    let lock = MultiLock::builder().with(&fair).with(&exclusive).build().unwrap();
    let guard = lock.acquire().timeout(PATIENCE).await.unwrap();
    let contenders = fair.contenders().await.unwrap();
    client.delete(&contenders[0].path, None).await.unwrap();
    let lost = soon("the loss", guard.lost()).await;
    assert_eq!(lost.path, "/locks/b");
    assert_eq!(guard.state(), LockState::Lost(LostReason::ZnodeDeleted));
    let released = guard.release().await.unwrap();
    let expected = [
        ("/locks/b".to_owned(), Released::AlreadyGone),
        ("/locks/a".to_owned(), Released::Released),
    ];
    assert_eq!(released, expected);
}

#[tokio::test]
async fn a_named_lock_removes_its_directory_unless_somebody_waits() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let of = |client| NamedLocks::new(client, "/locks").unwrap().lock("x").unwrap();
    let guard = of(&client).acquire().timeout(PATIENCE).await.unwrap();
    let next = Waiter::start(of(&other).acquire()).await;
    assert_eq!(guard.release().await, Ok(Released::Released));
    let guard = next.guard().await;
    catch_up(&other).await;
    assert!(other.exists(LOCK).await.unwrap().is_some());
    assert_eq!(guard.validate().await, Ok(()));
    assert_eq!(guard.release().await, Ok(Released::Released));
    assert!(other.exists(LOCK).await.unwrap().is_none());
}

/// Servers refuse `.` and `..` as components, and control characters.
#[tokio::test]
async fn any_name_is_accepted_by_the_server() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let locks = NamedLocks::new(&client, "/locks").unwrap();
    let names = [".", "..", "../x", "a/b", "/", "%", "\0\u{1}\u{7f}", "é\u{e000}\u{fff0}", " "];
    let mut guards = Vec::new();
    for name in names {
        guards.push(locks.lock(name).unwrap().acquire().timeout(PATIENCE).await.unwrap());
    }
    let children = client.get_children("/locks").await.unwrap();
    let decoded: BTreeSet<_> =
        children.iter().filter_map(|name| locks.name_of(&format!("/locks/{name}"))).collect();
    assert_eq!(decoded, names.map(str::to_owned).into());
    for guard in guards {
        assert_eq!(guard.release().await, Ok(Released::Released));
    }
    assert_eq!(names_in(&client, "/locks").await, [""; 0]);
}

/// In most rounds, one client removes the directory while others create it.
#[tokio::test]
async fn a_crowd_of_a_named_lock_never_fails_and_leaves_no_directory() {
    // Where followers lag, a round takes half a second.
    const ROUNDS: usize = 10;
    let fixture = Fixture::start().await;
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let client = fixture.client().await;
        let lock = NamedLocks::new(&client, "/locks").unwrap().lock("x").unwrap();
        for _ in 0..2 {
            let lock = lock.clone();
            tasks.spawn(async move {
                let mut tokens = Vec::new();
                for _ in 0..ROUNDS {
                    let guard = lock.acquire().timeout(PATIENCE).await.unwrap();
                    tokens.push(guard.fencing_token());
                    assert_eq!(guard.release().await, Ok(Released::Released));
                }
                tokens
            });
        }
    }
    let tokens: BTreeSet<_> =
        soon("all turns", tasks.join_all()).await.into_iter().flatten().collect();
    assert_eq!(tokens.len(), 4 * 2 * ROUNDS, "each hold has its own token");
    let client = fixture.client().await;
    catch_up(&client).await;
    assert!(client.exists(LOCK).await.unwrap().is_none());
}
