//! Invalid connect strings, options, paths and names.

use std::time::Duration;

use zk_recipes::{
    Client, ClientBuilder, CreateMode, DoubleBarrier, FairLock, Group, Lease, MultiLock,
    NamedLocks, Naming, Presence, Semaphore, SettledClient, WorkQueue,
};
use zk_tests::options::MISTAKES;
use zk_tests::recipes::invalid;
use zk_tests::scene::FIRST;
use zk_tests::world::World;

use crate::Report;

/// A setter of the builder with an invalid value.
type Set = fn(ClientBuilder) -> ClientBuilder;

pub(crate) async fn make(report: &mut Report) {
    for text in [
        "",
        " ",
        "/app",
        ",",
        "h1,,h2",
        "h1;h2",
        "h1 h2",
        "h1:p/app,h2:p/app",
        "h1:2181/app,h2:2181/app",
        "h1:port",
        "h1:0",
        ":2181",
        "::1:2181",
        "[::1",
        "[::1]x",
        "zk://h1:2181",
        "h1/app/",
        "h1/a//b",
        "h1/a/../b",
    ] {
        report.add(&format!("connect string {text:?}"), Client::builder(text).start());
    }
    let options: [(&str, Set); 14] = [
        ("session_timeout(0)", |it| it.session_timeout(Duration::ZERO)),
        ("session_timeout(MAX)", |it| it.session_timeout(Duration::MAX)),
        ("connect_timeout(0)", |it| it.connect_timeout(Duration::ZERO)),
        ("connect_within(0)", |it| it.connect_within(Duration::ZERO)),
        ("give_up_after(1 s)", |it| it.give_up_after(Duration::from_secs(1))),
        ("request_limit(5)", |it| it.request_limit(5)),
        ("response_limit(5)", |it| it.response_limit(5)),
        ("outstanding_limit(0)", |it| it.outstanding_limit(0)),
        ("lease every 1 ms", |it| it.lease(Lease::writes(Duration::from_millis(1)))),
        ("lease by 0 ticks", |it| it.lease(Lease::pings(0, Duration::from_secs(2)))),
        ("digest without a colon", |it| it.auth("digest", "hunter2")),
        ("digest without anything", |it| it.auth("digest", "")),
        ("credentials without a scheme", |it| it.auth("", "user:hunter2")),
        ("follow_ensemble with host_source", |it| {
            it.follow_ensemble().host_source(|| async { Ok(Vec::new()) })
        }),
    ];
    for (mistake, set) in options {
        report.add(mistake, set(Client::builder("in-process")).start());
    }
    let world = World::new();
    let client = world.client(FIRST).await;
    paths(report, &client).await;
    values(report, &client).await;
    client.close().await;
}

async fn paths(report: &mut Report, client: &Client) {
    for path in ["", "/", "locks", "/locks/", "/a//b", "/a/./b", "/a/../b", "/a\n", "/\u{1f512}"] {
        report.add(&format!("lock at {path:?}"), FairLock::new(client, path));
    }
    for (recipe, made) in invalid::paths(client).await {
        report.add(&format!("{recipe} at {:?}", invalid::PATH), made);
    }
    let path = invalid::PATH;
    let settled = SettledClient::new(client, "/markers").expect("the path is valid");
    report.add("a settled read at \"/a/\"", settled.get_data(path).await);
    report
        .add("a settled create at \"/a/\"", settled.create(path, "", CreateMode::Persistent).await);
    let deleted = settled.acl(vec![]).delete("/a", None).await;
    report.add("markers without an access control list", deleted);
}

async fn values(report: &mut Report, client: &Client) {
    let lock = || FairLock::builder(client, "/locks/a").expect("the path is valid");
    for (mistake, set) in MISTAKES {
        report.add(mistake, set(lock()).build());
    }
    report.add("a semaphore without permits", Semaphore::new(client, "/s", 0));
    report.add("a double barrier without participants", DoubleBarrier::new(client, "/b", 0));
    report.add("a multi-lock without locks", MultiLock::builder().build());
    let fair = lock().build().expect("the options are valid");
    let twice = MultiLock::builder().with(&fair).with(&fair).build();
    report.add("a multi-lock with the same lock twice", twice);
    for form in ["x-{sequence}", "{id}", "{id}{sequence}", "a/{id}-{sequence}"] {
        report.add(&format!("naming {form:?}"), Naming::custom(form));
    }
    let named = NamedLocks::builder(client, "/named").and_then(|locks| locks.build());
    report.add("a named lock without a name", named.and_then(|locks| locks.lock("")));
    let group = Group::builder(client, "/members").and_then(|group| group.build());
    let group = group.expect("the options are valid");
    report.add("a member with the id \"a/b\"", group.join("a/b", "").await);
    let members = Group::builder(client, "/members").and_then(|group| group.acl(vec![]).build());
    report.add("a group without an access control list", members);
    let presence = Presence::builder(client, "/presence").expect("the path is valid");
    let presence = presence.acl(vec![]).begin("").await;
    report.add("a presence without an access control list", presence);
    let queue = WorkQueue::new(client, "/queue").expect("the path is valid");
    report.add("a work item of priority 1000", queue.put("").priority(1_000).await);
}
