//! A function that returns the error of the recipe that it uses needs nothing but `?`: not for the
//! constructors, the options, the calls, the guards or the streams. It is enough that this file
//! compiles; the test runs it, so that the calls are those of a program.

use std::time::Duration;

use zk_recipes::{
    Barrier, Cache, CacheError, Client, ConfigError, Counter, CreateMode, DoubleBarrier, Election,
    ElectionNaming, ExclusiveLock, FairLock, Group, GroupError, Holder, LockError, LostReason,
    Multi, MultiLock, MultiLockError, NamedLocks, Naming, Outcome, Presence, PresenceError,
    RecipeError, RwLock, RwNaming, Semaphore, SettledClient, SettledError, SharedValue, Stopped,
    TransactionError, Tree, ValueError, WorkQueue, WorkQueueError, request_revocation,
};
use zk_tests::meter::Pace;
use zk_tests::scene::FIRST;
use zk_tests::world::{World, run};

const SECOND: Duration = Duration::from_secs(1);

async fn barrier(client: &Client) -> Result<(), RecipeError> {
    let barrier = Barrier::builder(client, "/c/barrier")?.build()?;
    barrier.close().await?;
    barrier.open().await?;
    barrier.wait().timeout(SECOND).await?;
    Ok(())
}

async fn cache(client: &Client) -> Result<(), CacheError> {
    let mut cache = Cache::tree(client, "/c").max_nodes(100).build()?;
    cache.next().await?;
    cache.complete().await?;
    Ok(())
}

async fn counter(client: &Client) -> Result<(), ValueError> {
    let counter = Counter::builder(client, "/c/counter")?.build()?;
    counter.add(1).await?;
    counter.compare_and_set(1, 2).await?;
    counter.changes().next().await?;
    Ok(())
}

async fn double_barrier(client: &Client) -> Result<(), RecipeError> {
    let barrier = DoubleBarrier::builder(client, "/c/double", 1)?.build()?;
    let inside = barrier.enter().timeout(SECOND).await?;
    inside.leave().await?;
    Ok(())
}

async fn election(client: &Client) -> Result<(), LockError> {
    let naming = ElectionNaming::custom("vote-{id}-{sequence}")?;
    let election = Election::builder(client, "/c/election")?.naming(naming).build()?;
    let leadership = election.campaign().timeout(SECOND).await?;
    leadership.run(async {}).stop_at_risk().await?;
    election.observe().next().await?;
    election.leader().await?;
    leadership.resign().await?;
    election.run_while_leader(async |_| ()).await?;
    Ok(())
}

async fn exclusive_lock(client: &Client) -> Result<(), LockError> {
    let lock = ExclusiveLock::builder(client, "/c/exclusive")?.identity("me").build()?;
    let guard = lock.acquire().await?;
    lock.holder().await?;
    guard.release().await?;
    Ok(())
}

async fn fair_lock(client: &Client) -> Result<(), LockError> {
    let naming = Naming::custom("lock-{id}-{sequence}")?;
    let lock = FairLock::builder(client, "/c/fair")?.naming(naming).build()?;
    let guard = lock.acquire().timeout(SECOND).await?;
    guard.validate().await?;
    guard.run(async {}).await?;
    request_revocation(client, guard.path()).await?;
    lock.contenders().await?;
    guard.release().await?;
    Ok(())
}

async fn group(client: &Client) -> Result<(), GroupError> {
    let group = Group::builder(client, "/c/group")?.timeout(SECOND).build()?;
    let membership = group.join("id", "data").await?;
    membership.set_data("more").await?;
    group.members().await?;
    group.watch().next().await?;
    membership.leave().await?;
    Ok(())
}

async fn presence(client: &Client) -> Result<(), PresenceError> {
    let builder = Presence::builder(client, "/c/presence")?.timeout(SECOND);
    let presence = builder.begin("data").await?;
    presence.set_data("more").await?;
    presence.close().await?;
    Ok(())
}

async fn holder(client: &Client) -> Result<(), LockError> {
    let holder = Holder::new(&FairLock::new(client, "/c/held")?);
    let level = holder.acquire().timeout(SECOND).await?;
    level.validate().await?;
    level.release().await?;
    Ok(())
}

async fn multi_lock(client: &Client) -> Result<(), MultiLockError> {
    let fair = FairLock::builder(client, "/c/first")?.build()?;
    let both = MultiLock::builder().with(&fair).with(&ExclusiveLock::new(client, "/c/second")?);
    let guard = both.build()?.acquire().timeout(SECOND).await?;
    guard.validate().await?;
    guard.run(async {}).await?;
    guard.release().await?;
    Ok(())
}

async fn named_locks(client: &Client) -> Result<(), LockError> {
    let locks = NamedLocks::builder(client, "/c/named")?.build()?;
    let guard = locks.lock("a name")?.acquire().await?;
    guard.release().await?;
    Ok(())
}

async fn rw_lock(client: &Client) -> Result<(), LockError> {
    let naming = RwNaming::custom("read-{id}-{sequence}", "write-{id}-{sequence}")?;
    let lock = RwLock::builder(client, "/c/rw")?.naming(naming).build()?;
    let writing = lock.write().await?;
    let reading = writing.downgrade().await?;
    reading.release().await?;
    Ok(())
}

async fn semaphore(client: &Client) -> Result<(), LockError> {
    let mut semaphore = Semaphore::builder(client, "/c/semaphore")?.permits(2).build()?;
    semaphore.set_permits(3).await?;
    semaphore.stored_permits().await?;
    semaphore.acquire().await?.release().await?;
    Ok(())
}

async fn shared_value(client: &Client) -> Result<(), ValueError> {
    let value = SharedValue::builder(client, "/c/value")?.build()?;
    value.set("a").await?;
    let read = value.get().await?;
    value.compare_and_set(&read, "b").await?;
    value.changes().next().await?;
    Ok(())
}

async fn settled(client: &Client) -> Result<(), SettledError> {
    let settled = SettledClient::new(client, "/c/markers")?.timeout(SECOND);
    settled.create_with_parents("/c/settled/a", "1", CreateMode::Persistent).await?;
    let (_, stat) = settled.get_data("/c/settled/a").await?;
    settled.set_data("/c/settled/a", "2", Some(stat.version)).await?;
    settled.changes("/c/settled/a")?.next().await?;
    settled.commit(Multi::new().delete("/c/settled/a", None)).timeout(SECOND).await?;
    Ok(())
}

async fn tree(client: &Client) -> Result<(), RecipeError> {
    let tree = Tree::of(client).timeout(SECOND);
    tree.ensure("/c/tree/a").await?;
    tree.delete("/c/tree").await?;
    Ok(())
}

async fn work_queue(client: &Client) -> Result<(), WorkQueueError> {
    let queue = WorkQueue::builder(client, "/c/queue")?.limit(10).build()?;
    queue.put_batch(["a", "b", "c"]).await?;
    queue.length().await?;
    for leased in queue.take_batch(2).timeout(SECOND).await? {
        leased.validate().await?;
        leased.run(async {}).stop_at_risk().await?;
        leased.ack().await?;
    }
    queue.take().timeout(SECOND).await?.give_back().await?;
    Ok(())
}

/// A function that commits under a lock has two kinds of errors.
async fn transactions(client: &Client) -> Result<(), TransactionError> {
    let multi = || Multi::new().create("/c/znode", "", CreateMode::Ephemeral);
    let lock = FairLock::builder(client, "/c/committing")?.build()?;
    let guard = lock.acquire().timeout(SECOND).await?;
    guard.validate().await?;
    guard.run(guard.transaction(multi())).await??;
    guard.release().await?;
    let election = Election::new(client, "/c/leading")?;
    let multi = Multi::new().delete("/c/znode", None);
    election.run_while_leader(async |leader| leader.transaction(multi.clone()).await).await??;
    Ok(())
}

#[test]
fn a_function_that_returns_the_error_of_its_recipe_needs_no_conversions() {
    run(async {
        // All calls follow each other within a second.
        let client = World::new().pace(Pace::CALM.beside(300)).client(FIRST).await;
        let done = async {
            Tree::of(&client).ensure("/c").await?;
            barrier(&client).await?;
            cache(&client).await?;
            counter(&client).await?;
            double_barrier(&client).await?;
            election(&client).await?;
            exclusive_lock(&client).await?;
            fair_lock(&client).await?;
            group(&client).await?;
            holder(&client).await?;
            multi_lock(&client).await?;
            named_locks(&client).await?;
            presence(&client).await?;
            rw_lock(&client).await?;
            semaphore(&client).await?;
            shared_value(&client).await?;
            settled(&client).await?;
            tree(&client).await?;
            work_queue(&client).await?;
            transactions(&client).await?;
            Ok::<_, Box<dyn std::error::Error>>(())
        };
        done.await.expect("all calls succeed");
        client.close().await;
    });
}

/// The error of a constructor is found in the error that a function has returned, even if `main`
/// returns it, which prints it in debug format.
#[test]
fn an_invalid_option_is_found_in_each_error() {
    fn invalid<E: From<ConfigError>>(client: &Client) -> E {
        FairLock::new(client, "relative").expect_err("the path is invalid").into()
    }
    fn shown<E: std::error::Error>(error: &E) -> String {
        assert_eq!(format!("{error:?}"), error.to_string());
        error.to_string()
    }
    run(async {
        let client = World::new().client(FIRST).await;
        let expected = ConfigError::to_string(&invalid(&client));
        for error in [
            shown(&invalid::<CacheError>(&client)),
            shown(&invalid::<GroupError>(&client)),
            shown(&invalid::<LockError>(&client)),
            shown(&invalid::<MultiLockError>(&client)),
            shown(&invalid::<PresenceError>(&client)),
            shown(&invalid::<RecipeError>(&client)),
            shown(&invalid::<TransactionError>(&client)),
            shown(&invalid::<ValueError>(&client)),
            shown(&invalid::<SettledError>(&client)),
            shown(&invalid::<WorkQueueError>(&client)),
        ] {
            assert_eq!(error, expected);
        }
        client.close().await;
    });
}

/// A caller that repeats what was not applied would commit twice after a release that has failed.
#[test]
fn a_lock_that_fails_leaves_open_whether_a_transaction_was_committed() {
    assert_eq!(TransactionError::from(LockError::Closed).outcome(), Outcome::Unknown);
    let stopped = Stopped::Lost(LostReason::SessionExpired);
    assert_eq!(TransactionError::from(stopped).outcome(), Outcome::Unknown);
}
