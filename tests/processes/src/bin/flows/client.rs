//! The client and the lock of this project.

use std::time::Duration;

use zk_recipes::FairLock;
use zk_session::{Client, CreateMode, Multi, SessionState, Version};

use crate::peer::Stage;

const PATIENCE: Duration = Duration::from_secs(20);

fn run(flow: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be built");
    let flow = async { tokio::time::timeout(PATIENCE, flow).await };
    runtime.block_on(flow).expect("the flow comes to an end");
}

async fn connect(stage: &Stage) -> Client {
    let builder = Client::builder(&stage.server).session_timeout(Duration::from_secs(8));
    builder.connect().await.expect("the server accepts")
}

/// Tells the recorder to end all connections, and waits until the client has a new one.
async fn cut(stage: &Stage, client: &Client) {
    let mut states = client.states();
    states.current();
    std::fs::write(&stage.control, "cut\n").expect("the recorder listens");
    let mut was_cut = false;
    while let Some(status) = states.next().await {
        if was_cut && status.state == SessionState::Connected {
            return;
        }
        was_cut |= status.state == SessionState::Suspended;
    }
    unreachable!("the session lives");
}

/// Runs the operations of the client, several at a time, and uses its watches after a cut.
pub(crate) fn client(stage: &Stage) {
    run(async {
        let (one, two) = (connect(stage).await, connect(stage).await);
        let any = None::<Version>;
        let _ = tokio::join!(
            one.create("/c", "1", CreateMode::Persistent),
            one.create("/c/s-", "", CreateMode::EphemeralSequential),
            one.create("/c", "again", CreateMode::Persistent),
            one.get_data("/c"),
            one.get_children_with_stat("/c"),
            one.sync("/c"),
        );
        let (_, mut data) = one.get_data_and_watch("/c").await.expect("it exists");
        let (_, mut children) = one.get_children_and_watch("/c").await.expect("it exists");
        let (_, mut missing) = one.exists_and_watch("/c/missing").await.expect("no error");
        let (_, mut later) = one.exists_and_watch("/c/later").await.expect("no error");
        let (_, mut never) = one.get_data_and_watch("/c").await.expect("it exists");
        two.set_data("/c", "2", any).await.expect("it exists");
        let _ = (data.changed().await, never.changed().await);
        let (_, mut data) = one.get_data_and_watch("/c").await.expect("it exists");
        cut(stage, &one).await;
        let _ = one.exists("/c").await;
        two.create("/c/missing", "", CreateMode::Persistent).await.expect("it is missing");
        let _ = (missing.changed().await, children.changed().await);
        two.set_data("/c", "3", any).await.expect("it exists");
        let _ = data.changed().await;
        let multi = Multi::new()
            .create("/c/later", "", CreateMode::Persistent)
            .set_data("/c", "4", any)
            .delete("/c/missing", any);
        let _ = two.commit(multi.clone()).await;
        let _ = later.changed().await;
        let _ = two.commit(multi).await;
        let _ = tokio::join!(one.get_acl("/c"), one.delete("/c", any), one.exists("/c/none"));
        one.close().await;
        two.close().await;
    });
}

/// Lets three contenders queue for the fair lock, and cuts one of them off while it holds the lock.
pub(crate) fn fair_lock(stage: &Stage) {
    run(async {
        let (one, two, three) = (connect(stage).await, connect(stage).await, connect(stage).await);
        let lock = |client| FairLock::new(client, "/locks/one").expect("the path is valid");
        let (a, b, c) = (lock(&one), lock(&two), lock(&three));
        tokio::join!(contend(&a), contend(&b), contend(&c));
        let guard = a.acquire().await.expect("the lock is free");
        let _ = b.try_acquire().await;
        let waiting = b.acquire().timeout(Duration::from_secs(1)).await;
        assert!(waiting.is_err(), "two holders");
        cut(stage, &one).await;
        guard.validate().await.expect("the session lives on");
        // The holder closes without a release.
        let (_, won) = tokio::join!(one.close(), b.acquire());
        drop((guard, won));
        contend(&c).await;
        two.close().await;
        three.close().await;
    });
}

async fn contend(lock: &FairLock) {
    let guard = lock.acquire().await.expect("it is handed over");
    guard.validate().await.expect("the lock is held");
    guard.release().await.expect("it is released");
}
