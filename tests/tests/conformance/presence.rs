//! Presences: znodes that outlive their sessions, and wait for those of others.

use std::future::IntoFuture as _;

use tokio::task::JoinSet;
use zk_recipes::{
    Absence, Acl, Client, CreateMode, CreateOptions, Presence, PresenceError, PresenceState,
    Released,
};
use zk_tests::target::{CREDENTIALS, Fixture};
use zk_tests::wait::{catch_up, soon};
use zk_tests::world::sleep_ms;

use super::expiry::{NEVER, Victim};

const PATH: &str = "/services/x/host-7";

fn builder(client: &Client) -> zk_recipes::PresenceBuilder {
    Presence::builder(client, PATH).unwrap()
}

/// Waits until the znode is present in the current session, and compares it with what `observer`
/// sees.
async fn check_present(presence: &mut Presence, client: &Client, observer: &Client, data: &str) {
    let (czxid, since) = loop {
        match presence.state() {
            PresenceState::Present { session, czxid, since }
                if Some(session) == client.session_id() =>
            {
                break (czxid, since);
            }
            _ => soon("a change", presence.changed()).await,
        };
    };
    catch_up(observer).await;
    let (found, stat) = observer.get_data(PATH).await.unwrap();
    assert_eq!(&found[..], data.as_bytes());
    assert_eq!((stat.ephemeral_owner, stat.czxid), (client.session_id(), czxid));
    assert_eq!(stat.ctime, since);
}

#[tokio::test]
async fn a_presence_comes_back_after_a_deletion_until_it_is_closed() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let mut presence = builder(&client).begin("1").await.unwrap();
    check_present(&mut presence, &client, &other, "1").await;
    presence.set_data("2").await.unwrap();
    other.delete(PATH, None).await.unwrap();
    let deleted = soon("the deletion or the new znode", presence.changed()).await;
    let is_either = matches!(
        deleted,
        PresenceState::Absent(Absence::ZnodeDeleted) | PresenceState::Present { .. }
    );
    assert!(is_either, "{deleted:?}");
    check_present(&mut presence, &client, &other, "2").await;
    let taken = builder(&other).begin("3").await.unwrap_err();
    let session = client.session_id().unwrap();
    assert_eq!(taken, PresenceError::Taken { path: PATH.to_owned(), session });
    let mut waiting = JoinSet::new();
    waiting.spawn(builder(&other).keep_trying().begin("3").into_future());
    assert_eq!(presence.close().await, Ok(Released::Released));
    let mut next = soon("the next presence", waiting.join_next()).await.unwrap().unwrap().unwrap();
    check_present(&mut next, &other, &client, "3").await;
    next.close().await.unwrap();
}

#[tokio::test]
async fn a_presence_whose_session_expires_waits_for_whoever_has_taken_its_path() {
    let victim = Victim::start(NEVER, true).await;
    let mut presence = builder(&victim.client).begin("1").await.unwrap();
    let observer = victim.fixture.client().await;
    victim.expire().await;
    let theirs = builder(&observer).keep_trying().begin("theirs");
    let theirs = soon("the path", theirs).await.unwrap();
    victim.proxy.resume();
    victim.next_session().await;
    let owner = observer.session_id().unwrap();
    while presence.state() != PresenceState::Absent(Absence::Taken(owner)) {
        soon("the absence", presence.changed()).await;
    }
    theirs.close().await.unwrap();
    check_present(&mut presence, &victim.client, &observer, "1").await;
    presence.close().await.unwrap();
}

/// Only an administrator may create the parent.
#[tokio::test]
async fn a_presence_comes_with_the_parent_that_it_may_not_create() {
    let fixture = Fixture::start().await;
    let admin = fixture.builder().auth("digest", CREDENTIALS).connect().await.unwrap();
    let client = fixture.client().await;
    let create = async |path, acl| {
        let options = CreateOptions::from(CreateMode::Persistent).acl(acl);
        admin.create(path, "", options).await.unwrap();
    };
    create("/services", [Acl::read(), Acl::creator_all()].concat()).await;
    let mut waiting = JoinSet::new();
    waiting.spawn(builder(&client).keep_trying().begin("1").into_future());
    let tests =
        || client.stats().request("exists").map_or(0, |tests| tests.completed + tests.refused);
    // After this many attempts, the pauses are long.
    soon("attempts", async {
        while tests() < 15 {
            sleep_ms(5).await
        }
    })
    .await;
    create("/services/x", Acl::open()).await;
    let created = client.now();
    let mut presence = soon("the presence", waiting.join_next()).await.unwrap().unwrap().unwrap();
    eprintln!("present after {:?}", client.now().saturating_since(created));
    check_present(&mut presence, &client, &admin, "1").await;
    presence.close().await.unwrap();
}
