//! Operations that servers refuse, and clients without a server.

use std::time::Duration;

use zk_recipes::{
    Barrier, Client, Clock, CreateMode, FairLock, Group, Multi, SharedValue, Version, WorkQueue,
};
use zk_tests::scene::{FIRST, SECOND};
use zk_tests::world::{World, sleep_ms};

use crate::Report;

pub(crate) async fn make(report: &mut Report) {
    let world = World::new();
    let client = world.client(FIRST).await;
    client.create("/a", "", CreateMode::Persistent).await.expect("the server is empty");
    client.create("/a/e", "", CreateMode::Ephemeral).await.expect("its parent exists");
    report.add("create \"a\"", client.create("a", "", CreateMode::Persistent).await);
    report.add("create /x/y", client.create("/x/y", "", CreateMode::Persistent).await);
    report.add("create /a again", client.create("/a", "", CreateMode::Persistent).await);
    report.add("create /a/e/x", client.create("/a/e/x", "", CreateMode::Persistent).await);
    report.add("read /x", client.get_data("/x").await);
    report.add("watch /x", client.get_data_and_watch("/x").await);
    report.add("list /x", client.get_children("/x").await);
    report.add("write an old version", client.set_data("/a", "", Some(Version(7))).await);
    report.add("delete /a", client.delete("/a", None).await);
    report.add("an empty list of permissions", client.set_acl("/a", vec![], None).await);
    let multi = Multi::new().check("/a", None).delete("/x", None);
    report.add("a multi with a missing znode", client.commit(multi).await);
    report.add("2 MB of data", client.set_data("/a", vec![0; 2_000_000], None).await);
    client.close().await;
    report.add("read with a closed client", client.get_data("/a").await);
    chroots(report, &world).await;
    outages(report).await;
}

/// A chroot that is missing, and one that cannot be created.
async fn chroots(report: &mut Report, world: &World) {
    let connect = |chroot: &str, create| {
        Client::builder(format!("in-process{chroot}"))
            .transport(world.server.connector())
            .clock(Clock::tokio())
            .seed(SECOND)
            .create_chroot(create)
            .connect()
    };
    let client = connect("/app", false).await.expect("the chroot is not needed");
    let create = client.create("/l", "", CreateMode::Persistent).await;
    report.add("create /l in a missing chroot", create);
    let multi = Multi::new().create("/l", "", OPEN);
    report.add("create /l by a multi in a missing chroot", client.commit(multi).await);
    let lock = FairLock::new(&client, "/l").expect("the path is valid");
    report.add("lock /l in a missing chroot", lock.acquire().await);
    let lock = FairLock::new(&client, "/locks/l").expect("the path is valid");
    report.add("lock /locks/l in a missing chroot", lock.try_acquire().await);
    let barrier = Barrier::new(&client, "/b").expect("the path is valid");
    report.add("close the barrier /b in a missing chroot", barrier.close().await);
    let value = SharedValue::new(&client, "/v").expect("the path is valid");
    report.add("write the value /v in a missing chroot", value.set("x").await);
    let group = Group::new(&client, "/members").expect("the path is valid");
    report.add("join the group /members in a missing chroot", group.join("a", "").await);
    let queue = WorkQueue::new(&client, "/queue").expect("the path is valid");
    report.add("put into the queue /queue in a missing chroot", queue.put("x").await);
    client.close().await;
    inside(report, world, connect("/inside", true).await.expect("it can be created")).await;
    let client = connect("/deleted", true).await.expect("the chroot can be created");
    world.server.admin_delete("/deleted");
    let lock = FairLock::new(&client, "/l").expect("the path is valid");
    report.add("lock /l in a chroot that was deleted", lock.acquire().await);
    client.close().await;
    let owner = world.client(FIRST).await;
    owner.create("/e", "", CreateMode::Ephemeral).await.expect("nobody has created it");
    report.add("a chroot below an ephemeral znode", connect("/e/app", true).await);
    owner.close().await;
}

/// Errors of a client with a chroot, which show paths as the client knows them.
async fn inside(report: &mut Report, world: &World, client: Client) {
    let missing = Multi::new().create("/a", "", OPEN).create("/x/y", "", OPEN);
    report.add("a multi without a parent in a chroot", client.commit(missing).await);
    report.add("2 MB of data in a chroot", client.create("/b", vec![0; 2_000_000], OPEN).await);
    let unanswered = client.create("/c", "", OPEN);
    let multi = client.commit(Multi::new().check("/c", None).delete("/c", None));
    world.server.disconnect_all();
    report.add("create without a reply in a chroot", unanswered.await);
    report.add("a multi without a reply in a chroot", multi.await);
    client.close().await;
    report.add("list with a closed client in a chroot", client.get_children("/").await);
}

/// Servers that cannot be reached.
async fn outages(report: &mut Report) {
    let world = World::new();
    world.server.refuse_for(Duration::from_secs(600));
    let builder = || {
        Client::builder("zk1:2181")
            .transport(world.server.connector())
            .clock(Clock::tokio())
            .seed(FIRST)
            .session_timeout(Duration::from_secs(10))
    };
    report.add("connect without a server", builder().connect().await);
    let client = builder().start().expect("the options are valid");
    sleep_ms(100).await;
    let lock = FairLock::new(&client, "/l").expect("the path is valid");
    let timeout = Duration::from_secs(5);
    report.add("lock without a server", lock.acquire().timeout(timeout).await);
    report.add("try a lock without a server", lock.try_acquire().timeout(timeout).await);
    client.close().await;
}

const OPEN: CreateMode = CreateMode::Persistent;
