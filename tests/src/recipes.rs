//! What the suites that test every recipe must know about each. A recipe has a line or a function in
//! each module; the tidy test misses it where it is not imported.

/// Functions that return the error of the recipe that they use, with nothing but `?`: for the
/// constructors, the options, the calls, the guards and the streams.
pub mod conversions {
    use std::time::Duration;

    use zk_recipes::{
        Barrier, Cache, CacheError, Client, Counter, CreateMode, DoubleBarrier, Election,
        ElectionNaming, ExclusiveLock, FairLock, Group, GroupError, Holder, LockError, Multi,
        MultiLock, MultiLockError, NamedLocks, Naming, Presence, PresenceError, RecipeError,
        RwLock, RwNaming, Semaphore, SettledClient, SettledError, SharedValue, TransactionError,
        Tree, ValueError, WorkQueue, WorkQueueError, request_revocation,
    };

    const SECOND: Duration = Duration::from_secs(1);

    /// Calls each of the functions.
    ///
    /// # Errors
    ///
    /// The error of a function.
    pub async fn all(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
        Tree::of(client).ensure("/c").await?;
        barrier(client).await?;
        cache(client).await?;
        counter(client).await?;
        double_barrier(client).await?;
        election(client).await?;
        exclusive_lock(client).await?;
        fair_lock(client).await?;
        group(client).await?;
        holder(client).await?;
        multi_lock(client).await?;
        named_locks(client).await?;
        presence(client).await?;
        rw_lock(client).await?;
        semaphore(client).await?;
        shared_value(client).await?;
        settled(client).await?;
        tree(client).await?;
        work_queue(client).await?;
        transactions(client).await?;
        Ok(())
    }

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
}

/// Recipes with an invalid path.
pub mod invalid {
    use std::fmt::Display;

    use zk_recipes::{
        Barrier, Cache, Client, Counter, DoubleBarrier, Election, ExclusiveLock, FairLock, Group,
        NamedLocks, Presence, RwLock, Semaphore, SettledClient, SharedValue, Tree, WorkQueue,
    };

    /// An invalid path.
    pub const PATH: &str = "/a/";

    /// Returns what the recipes say of the path.
    pub async fn paths(client: &Client) -> Vec<(&'static str, Result<(), String>)> {
        fn shown<T, E: Display>(made: Result<T, E>) -> Result<(), String> {
            made.map(drop).map_err(|error| error.to_string())
        }
        let path = PATH;
        vec![
            ("fair lock", shown(FairLock::new(client, path))),
            ("read/write lock", shown(RwLock::new(client, path))),
            ("exclusive lock", shown(ExclusiveLock::new(client, path))),
            ("semaphore", shown(Semaphore::new(client, path, 1))),
            ("named locks", shown(NamedLocks::builder(client, path).map(drop))),
            ("barrier", shown(Barrier::new(client, path))),
            ("double barrier", shown(DoubleBarrier::new(client, path, 2))),
            ("shared value", shown(SharedValue::new(client, path))),
            ("counter", shown(Counter::new(client, path))),
            ("group", shown(Group::builder(client, path).map(drop))),
            ("presence", shown(Presence::builder(client, path).map(drop))),
            ("work queue", shown(WorkQueue::new(client, path))),
            ("election", shown(Election::new(client, path))),
            ("cache", shown(Cache::tree(client, path).build())),
            ("markers", shown(SettledClient::new(client, path))),
            ("path to create", shown(Tree::of(client).ensure(path).await)),
            ("subtree", shown(Tree::of(client).delete(path).await)),
        ]
    }
}

/// Calls that pause when servers refuse their requests.
pub mod pauses {
    use std::fmt::Debug;
    use std::future::{Future, IntoFuture as _};
    use std::pin::Pin;

    use zk_recipes::{
        Barrier, Client, Counter, CreateMode, DoubleBarrier, ExclusiveLock, FairLock, Group,
        NamedLocks, Presence, RwLock, Semaphore, SettledClient, SharedValue, Tree, WorkQueue,
    };

    /// A call, with a description of its error.
    pub type Call = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

    /// Calls whose requests the machines of all recipes send, on an idle client. Each completes without
    /// another client.
    ///
    /// # Panics
    ///
    /// If it cannot get what they need.
    pub async fn calls(client: &Client) -> Vec<(&'static str, Call)> {
        fn call<T, E: Debug>(
            name: &'static str,
            future: impl Future<Output = Result<T, E>> + Send + 'static,
        ) -> (&'static str, Call) {
            (
                name,
                Box::pin(
                    async move { future.await.map(drop).map_err(|error| format!("{error:?}")) },
                ),
            )
        }
        let fair = FairLock::new(client, "/p/fair").expect("legal");
        let exclusive = ExclusiveLock::new(client, "/p/exclusive").expect("legal");
        let rw = RwLock::new(client, "/p/rw").expect("legal");
        let semaphore = Semaphore::new(client, "/p/semaphore", 2).expect("legal");
        let held_fair =
            FairLock::new(client, "/p/fair-2").expect("legal").acquire().await.expect("free");
        let held_exclusive = ExclusiveLock::new(client, "/p/exclusive-2")
            .expect("legal")
            .acquire()
            .await
            .expect("free");
        let held_write = rw.write().await.expect("free");
        let mut resized = Semaphore::new(client, "/p/semaphore-2", 2).expect("legal");
        let queue = WorkQueue::new(client, "/p/queue").expect("legal");
        queue.put("one").await.expect("it is put");
        queue.put("two").await.expect("it is put");
        let leased = queue.take().await.expect("an item");
        let barrier = Barrier::new(client, "/p/barrier").expect("legal");
        let other = Barrier::new(client, "/p/barrier-2").expect("legal");
        let double = DoubleBarrier::new(client, "/p/double", 1).expect("legal");
        let inside = DoubleBarrier::new(client, "/p/double-2", 1).expect("legal").enter().await;
        let group = Group::new(client, "/p/group").expect("legal");
        let members = group.members();
        let joining = group.clone();
        let present = Presence::builder(client, "/p/presence").expect("legal");
        let closing = present.begin("").await.expect("nothing is in the way");
        let beginning = Presence::builder(client, "/p/presence-2").expect("legal");
        let named = NamedLocks::builder(client, "/p/named").expect("legal").build().expect("legal");
        let named = named.lock("a").expect("legal");
        let value = SharedValue::new(client, "/p/value").expect("legal");
        let counter = Counter::new(client, "/p/counter").expect("legal");
        counter.add(1).await.expect("it is created");
        let settled = SettledClient::new(client, "/p/markers").expect("legal");
        let (writing, reading) = (settled.clone(), settled.behind_barrier());
        let tree = Tree::of(client);
        tree.ensure("/p/tree/a/b").await.expect("it is created");
        let (ensuring, contended) = (tree.clone(), fair.clone());
        vec![
            call("acquire a fair lock", fair.acquire().into_future()),
            call("acquire an exclusive lock", exclusive.acquire().into_future()),
            call("acquire a permit", semaphore.acquire().into_future()),
            call("acquire a named lock", named.acquire().into_future()),
            call("release a fair lock", async move { held_fair.release().await }),
            call("release an exclusive lock", async move { held_exclusive.release().await }),
            call("downgrade", async move { held_write.downgrade().await }),
            call("list contenders", async move { contended.contenders().await }),
            call("set permits", async move { resized.set_permits(1).await }),
            call("put", queue.put("three").into_future()),
            call("take", queue.take().into_future()),
            call("acknowledge", async move { leased.ack().await }),
            call("close a barrier", async move { barrier.close().await }),
            call("wait at a barrier", other.wait().into_future()),
            call("enter", double.enter().into_future()),
            call("leave", inside.expect("alone").leave().into_future()),
            call("members", members),
            call("begin a presence", async move { beginning.begin("").await }),
            call("close a presence", async move { closing.close().await }),
            call("get a value", async move { value.get().await }),
            call("add", async move { counter.add(1).await }),
            call("join", async move { joining.join("a", "").await }),
            call("create, settled", async move {
                let write = writing.create_with_parents("/p/s/a", "", CreateMode::Persistent);
                let written = write.await.map(drop);
                drop(writing);
                written
            }),
            call("read, settled", async move { reading.exists("/p/s").await }),
            call("delete a tree", async move { tree.delete("/p/tree").await }),
            call("create a path", async move { ensuring.ensure("/p/x/y/z").await }),
        ]
    }
}

/// Calls that take a timeout of their own.
pub mod timeouts {
    use std::fmt::Display;
    use std::future::Future;
    use std::pin::Pin;
    use std::time::Duration;

    use zk_recipes::{
        Barrier, Call, Client, Counter, CreateMode, DoubleBarrier, Election, ExclusiveLock,
        FairLock, Group, Holder, Multi, MultiLock, Presence, RwLock, Semaphore, SettledClient,
        SharedValue, Tree, WorkQueue, request_revocation,
    };

    use crate::work_queue::QUEUE;

    /// The timeout of the calls.
    pub const TIMEOUT: Duration = Duration::from_secs(2);

    /// A call that has begun.
    pub type Ended = Pin<Box<dyn Future<Output = Result<(), String>>>>;
    /// Begins a call.
    pub type Begin = Box<dyn FnOnce() -> Ended>;

    /// Begins a call that borrows what it was given, and that has the timeout.
    fn borrowing<T: 'static, E: Display + 'static, F>(
        name: &'static str,
        begin: impl FnOnce() -> F + 'static,
    ) -> (&'static str, Begin)
    where
        F: Future<Output = Result<T, E>> + 'static,
    {
        let begin = move || -> Ended {
            let call = begin();
            Box::pin(async move { call.await.map(drop).map_err(|error| error.to_string()) })
        };
        (name, Box::new(begin))
    }

    /// Gives a call the timeout, when it begins.
    fn call<T: 'static, E: Display + 'static, O: Copy + Unpin + 'static>(
        name: &'static str,
        begin: impl FnOnce() -> Call<T, E, O> + 'static,
    ) -> (&'static str, Begin) {
        borrowing(name, move || begin().timeout(TIMEOUT))
    }

    /// Returns the calls that take a timeout of their own, of a client that holds what they need.
    ///
    /// # Panics
    ///
    /// If it cannot get what they need.
    pub async fn calls(client: &Client) -> Vec<(&'static str, Begin)> {
        let mut calls = of_locks(client).await;
        calls.extend(of_queues_and_barriers(client).await);
        calls.extend(of_data(client).await);
        calls.extend(of_operations(client).await);
        calls
    }

    async fn of_operations(client: &Client) -> Vec<(&'static str, Begin)> {
        let plain = CreateMode::Persistent;
        client.create("/p/plain", "", plain).await.expect("it is new");
        let limited = client.with_timeout(TIMEOUT);
        let clients: [Client; 6] = std::array::from_fn(|_| client.clone());
        let [creating, reading, committing, syncing, watching, adding] = clients;
        let two = Multi::new().create("/p/plain/b", "", plain).create("/p/plain/c", "", plain);
        vec![
            borrowing("create", move || creating.create("/p/plain/a", "", plain).timeout(TIMEOUT)),
            borrowing("read", move || reading.get_data("/p/plain").timeout(TIMEOUT)),
            borrowing("commit", move || committing.commit(two).timeout(TIMEOUT)),
            borrowing("sync", move || syncing.sync("/p").timeout(TIMEOUT)),
            borrowing("watch", move || watching.exists_and_watch("/p/plain").timeout(TIMEOUT)),
            borrowing("add credentials", move || adding.add_auth("digest", "a:b").timeout(TIMEOUT)),
            borrowing("write of a handle with a timeout", move || {
                limited.set_data("/p/plain", "x", None)
            }),
        ]
    }

    async fn of_locks(client: &Client) -> Vec<(&'static str, Begin)> {
        let fair = |path: &str| FairLock::new(client, path).expect("legal");
        let (one, two, three) = (fair("/p/one"), fair("/p/two"), fair("/p/three"));
        let election = Election::new(client, "/p/election").expect("legal");
        let semaphore = Semaphore::new(client, "/p/semaphore", 2).expect("legal");
        let mut resized = semaphore.clone();
        let exclusive = ExclusiveLock::new(client, "/p/exclusive").expect("legal");
        let writing = RwLock::new(client, "/p/rw").expect("legal").write().await.expect("free");
        let held = fair("/p/held").acquire().await.expect("free");
        let released = fair("/p/released").acquire().await.expect("free");
        let written = fair("/p/written").acquire().await.expect("free");
        let leading = election.campaign().await.expect("free");
        let several = |paths: [&str; 2]| {
            let [one, other] = paths.map(fair);
            MultiLock::builder().with(&one).with(&other).build().expect("legal")
        };
        let together = several(["/p/several-1", "/p/several-2"]).acquire().await.expect("free");
        let apart = several(["/p/several-3", "/p/several-4"]).acquire().await.expect("free");
        let (multi, other) = (several(["/p/m-1", "/p/m-2"]), several(["/p/m-3", "/p/m-4"]));
        let level = Holder::new(&two).acquire().await.expect("free");
        let (holder, second) = (Holder::new(&three), Holder::new(&one));
        let (candidates, leader) = (election.clone(), election.clone());
        let (client, path) = (client.clone(), held.path().to_owned());
        vec![
            call("contenders", move || one.contenders()),
            call("candidates", move || candidates.candidates()),
            call("leader", move || leader.leader()),
            call("holder", move || exclusive.holder()),
            call("stored permits", move || semaphore.stored_permits()),
            borrowing("set permits", async move || resized.set_permits(3).timeout(TIMEOUT).await),
            call("validate", move || held.validate()),
            call("release", move || released.release()),
            call("resign", move || leading.resign()),
            call("downgrade", move || writing.downgrade()),
            call("transaction", move || {
                written.transaction(Multi::new().set_data("/p/written", "x", None))
            }),
            call("request a revocation", move || request_revocation(&client, &path)),
            call("acquire several", move || multi.acquire()),
            call("try several", move || other.try_acquire()),
            call("validate several", move || together.validate()),
            call("release several", move || apart.release()),
            call("acquire a level", move || holder.acquire()),
            call("try a level", move || second.try_acquire()),
            call("release a level", move || level.release()),
        ]
    }

    async fn of_queues_and_barriers(client: &Client) -> Vec<(&'static str, Begin)> {
        let queue = WorkQueue::new(client, QUEUE).expect("legal");
        queue.put_batch(["a", "b", "c", "d"]).await.expect("it is put");
        let acknowledged = queue.take().await.expect("an item");
        let returned = queue.take().await.expect("an item");
        let barrier = |path| Barrier::new(client, path).expect("legal");
        let double = |path| DoubleBarrier::new(client, path, 1).expect("legal");
        let (closing, opening, looking, waiting) =
            (barrier("/p/b-1"), barrier("/p/b-2"), barrier("/p/b-3"), barrier("/p/b-4"));
        opening.close().await.expect("it is closed");
        let (entering, inside) = (double("/p/double-1"), double("/p/double-2"));
        let inside = inside.enter().await.expect("alone");
        let queues: [WorkQueue; 6] = std::array::from_fn(|_| queue.clone());
        let [put, batch, take, takes, tries, length] = queues;
        vec![
            call("put", move || put.put("e")),
            call("put a batch", move || batch.put_batch(["e", "f"]).priority(7)),
            call("take", move || take.take()),
            call("take a batch", move || takes.take_batch(2)),
            call("try to take", move || tries.try_take()),
            call("length", move || length.length()),
            call("acknowledge", move || acknowledged.ack()),
            call("give back", move || returned.give_back()),
            call("close", move || closing.close()),
            call("open", move || opening.open()),
            call("is open", move || looking.is_open()),
            call("wait", move || waiting.wait()),
            call("enter", move || entering.enter()),
            call("leave", move || inside.leave()),
        ]
    }

    async fn of_data(client: &Client) -> Vec<(&'static str, Begin)> {
        let value = SharedValue::new(client, "/p/value").expect("legal");
        let counter = Counter::new(client, "/p/counter").expect("legal");
        let group = Group::new(client, "/p/group").expect("legal");
        let settled = SettledClient::new(client, "/p/markers").expect("legal");
        let [reading, creating, writing, removing] = std::array::from_fn(|_| settled.clone());
        let [ensuring, deleting, reporting] = std::array::from_fn(|_| Tree::of(client));
        let (old, _) = (value.get().await.expect("it is created"), counter.get().await);
        ensuring.ensure("/p/tree/a").await.expect("it is created");
        let member = group.join("leaves", "").await.expect("the id is free");
        let changed = group.join("changes", "").await.expect("the id is free");
        let begun = |path| Presence::builder(client, path).expect("legal").begin("");
        let closing = begun("/p/presence").await.expect("nothing is in the way");
        let present = begun("/p/presence-2").await.expect("nothing is in the way");
        let beginning = begun("/p/presence-3");
        let [get, set, compare, update] = std::array::from_fn(|_| value.clone());
        let [sum, add, swap] = std::array::from_fn(|_| counter.clone());
        let [members, join] = std::array::from_fn(|_| group.clone());
        vec![
            call("get", move || get.get()),
            call("set", move || set.set("x")),
            call("compare and set", move || compare.compare_and_set(&old, "x")),
            call("update", move || update.update(|_| "x".into())),
            call("sum", move || sum.get()),
            call("add", move || add.add(1)),
            call("compare and set a number", move || swap.compare_and_set(0, 1)),
            call("members", move || members.members()),
            call("join", move || join.join("joins", "")),
            call("leave the group", move || member.leave()),
            borrowing("new data", async move || changed.set_data("x").timeout(TIMEOUT).await),
            call("begin a presence", move || beginning),
            call("close a presence", move || closing.close()),
            borrowing("data of a presence", async move || {
                present.set_data("x").timeout(TIMEOUT).await
            }),
            call("read, settled", move || reading.behind_barrier().get_data("/p/tree")),
            call("create, settled", move || {
                creating.create_with_parents("/p/settled/a", "", CreateMode::Persistent)
            }),
            call("write, settled", move || writing.set_data("/p/tree", "x", None)),
            call("delete, settled", move || removing.delete("/p/tree/a", None)),
            call("ensure", move || ensuring.ensure("/p/paths/a/b")),
            call("delete a tree", move || deleting.delete("/p/tree")),
            call("report a deletion", move || reporting.delete_with_progress("/p/tree", |_| ())),
        ]
    }
}
