//! Access control lists and credentials.

use zk_session::{
    Acl, Answer, AuthError, Client, ConnectError, CreateMode, CreateOptions, ErrorCode, Multi,
    OpError, Permissions, SessionState, Touch, Version,
};
use zk_tests::bare::{Bare as _, refused};
use zk_tests::target::{CREDENTIALS, Fixture};
use zk_tests::wait::{catch_up, reconnected, status};

const PERSISTENT: CreateMode = CreateMode::Persistent;
/// The id that the server derives from [`CREDENTIALS`]: the name, and a hash of the name and the
/// password.
const DIGEST_ID: &str = "conformance:5BRLTtJskCRSj+MoK6cC4JtJ7W0=";

fn locked() -> CreateOptions {
    CreateOptions::from(PERSISTENT).acl(Acl::creator_all())
}

fn no_auth<T>() -> Result<T, OpError> {
    Err(OpError::server(ErrorCode::NO_AUTH))
}

async fn owner(fixture: &Fixture) -> Client {
    fixture.builder().auth("digest", CREDENTIALS).connect().await.unwrap()
}

fn everyone(permissions: Permissions) -> Vec<Acl> {
    vec![Acl::new(permissions, "world", "anyone")]
}

#[tokio::test]
async fn a_list_is_open_unless_told_otherwise() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    assert_eq!(client.default_acl("/a"), Acl::open());
    let created = client.create("/a", "", PERSISTENT).await.unwrap();
    assert_eq!(client.get_acl("/a").await, Ok((Acl::open(), created.stat)));
}

#[tokio::test]
async fn set_acl_changes_the_list_and_its_version_only() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let before = client.create("/a", "x", PERSISTENT).await.unwrap().stat;
    let list = vec![
        Acl::new(Permissions::READ | Permissions::ADMIN, "world", "anyone"),
        Acl::new(Permissions::ALL, "ip", "10.0.0.0/8"),
    ];
    let after = client.set_acl("/a", list.clone(), Some(Version(0))).await.unwrap();
    let mut expected = before;
    expected.aversion = Version(1);
    assert_eq!(after, expected);
    assert_eq!(client.get_acl("/a").await, Ok((list, after)));
}

#[tokio::test]
async fn set_acl_needs_the_version_it_is_given() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    client.set_data("/a", "", None).await.unwrap();
    let set = |version| client.set_acl("/a", Acl::open(), version);
    assert_eq!(set(Some(Version(1))).await.bare(), Err(OpError::server(ErrorCode::BAD_VERSION)));
    assert_eq!(set(Some(Version(0))).await.unwrap().aversion, Version(1));
    assert_eq!(set(None).await.unwrap().aversion, Version(2));
}

#[tokio::test]
async fn only_the_owner_gets_at_a_znode_of_the_owner() {
    let fixture = Fixture::start().await;
    let (owner, other) = (owner(&fixture).await, fixture.client().await);
    owner.create("/a", "secret", locked()).await.unwrap();
    owner.create("/a/b", "", PERSISTENT).await.unwrap();
    catch_up(&other).await;
    assert_eq!(other.get_data("/a").await.bare(), no_auth());
    assert_eq!(other.set_data("/a", "x", None).await.bare(), no_auth());
    assert_eq!(other.set_data("/a", "x", Some(Version(9))).await.bare(), no_auth());
    assert_eq!(other.get_children("/a").await.bare(), no_auth());
    assert_eq!(other.get_children_with_stat("/a").await.bare(), no_auth());
    assert_eq!(other.get_acl("/a").await.bare(), no_auth());
    assert_eq!(other.set_acl("/a", Acl::open(), None).await.bare(), no_auth());
    assert_eq!(other.create("/a/c", "", PERSISTENT).await.bare(), no_auth());
    assert_eq!(other.delete("/a/b", None).await.bare(), no_auth());
    let check = other.commit(Multi::new().check("/a", None)).await;
    assert_eq!(check.bare(), Err(refused(0, ErrorCode::NO_AUTH)));
    // Access control lists are not inherited.
    assert_eq!(other.set_data("/a/b", "x", None).await.unwrap().version, Version(1));

    let (data, stat) = owner.get_data("/a").await.unwrap();
    assert_eq!((data, stat.version, stat.num_children), ("secret".into(), Version(0), 1));
    assert_eq!(owner.set_data("/a", "x", None).await.unwrap().version, Version(1));
}

#[tokio::test]
async fn the_same_credentials_are_the_same_owner() {
    let fixture = Fixture::start().await;
    let (first, second) = (owner(&fixture).await, owner(&fixture).await);
    let stat = first.create("/a", "x", locked()).await.unwrap().stat;
    catch_up(&second).await;
    assert_eq!(second.get_data("/a").await.unwrap().0, "x");
    let list = vec![Acl::new(Permissions::ALL, "digest", DIGEST_ID)];
    assert_eq!(second.get_acl("/a").await, Ok((list, stat)));

    let builder = fixture.builder().auth("digest", "conformance:wrong");
    let stranger = builder.connect().await.unwrap();
    assert_eq!(stranger.get_data("/a").await.bare(), no_auth());
}

#[tokio::test]
async fn a_client_may_have_several_credentials() {
    let fixture = Fixture::start().await;
    let builder = fixture.builder().auth("digest", "someone:else").auth("digest", CREDENTIALS);
    let client = builder.connect().await.unwrap();
    client.create("/a", "", locked()).await.unwrap();
    let (list, _) = client.get_acl("/a").await.unwrap();
    assert_eq!(list.len(), 2);
    assert!(list.iter().any(|entry| entry.id.id == DIGEST_ID), "{list:?}");
    assert_eq!(owner(&fixture).await.get_data("/a").await.unwrap().0, "");
}

#[tokio::test]
async fn a_reader_does_not_see_the_hashes_of_passwords() {
    let fixture = Fixture::start().await;
    let (owner, reader) = (owner(&fixture).await, fixture.client().await);
    let mut list = Acl::read();
    list.push(Acl::new(Permissions::ALL, "digest", DIGEST_ID));
    owner.create("/a", "", CreateOptions::from(PERSISTENT).acl(list.clone())).await.unwrap();
    assert_eq!(owner.get_acl("/a").await.unwrap().0, list);
    catch_up(&reader).await;
    let (seen, _) = reader.get_acl("/a").await.unwrap();
    assert_eq!(seen.first(), list.first());
    assert_eq!(seen.get(1).map(|entry| entry.id.id.as_ref()), Some("conformance:x"));
}

#[tokio::test]
async fn every_permission_allows_its_own_operations_only() {
    let fixture = Fixture::start().await;
    let client = owner(&fixture).await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    client.create("/a/b", "", PERSISTENT).await.unwrap();
    let other = fixture.client().await;
    let all = [
        Permissions::READ,
        Permissions::WRITE,
        Permissions::CREATE,
        Permissions::DELETE,
        Permissions::ADMIN,
    ];
    for granted in all {
        let mut list = everyone(granted);
        list.push(Acl::new(Permissions::ADMIN, "digest", DIGEST_ID));
        client.set_acl("/a", list.clone(), None).await.unwrap();
        fixture.settle().await;
        let expect = |allowing: &[Permissions]| {
            let is_allowed = allowing.contains(&granted);
            if is_allowed { Ok(()) } else { no_auth() }
        };
        let read = other.get_data("/a").await.bare().map(drop);
        assert_eq!(read, expect(&[Permissions::READ]), "get_data, {granted:?}");
        let listed = other.get_children("/a").await.bare().map(drop);
        assert_eq!(listed, expect(&[Permissions::READ]), "get_children, {granted:?}");
        let written = other.set_data("/a", "", None).await.bare().map(drop);
        assert_eq!(written, expect(&[Permissions::WRITE]), "set_data, {granted:?}");
        let created = other.create("/a/c", "", PERSISTENT).await.bare().map(drop);
        assert_eq!(created, expect(&[Permissions::CREATE]), "create, {granted:?}");
        let deleted = other.delete("/a/b", None).await.bare();
        assert_eq!(deleted, expect(&[Permissions::DELETE]), "delete, {granted:?}");
        let shown = other.get_acl("/a").await.bare().map(drop);
        let allowing = [Permissions::READ, Permissions::ADMIN];
        assert_eq!(shown, expect(&allowing), "get_acl, {granted:?}");
        let changed = other.set_acl("/a", list, None).await.bare().map(drop);
        assert_eq!(changed, expect(&[Permissions::ADMIN]), "set_acl, {granted:?}");
    }
    client.set_acl("/a", Acl::open(), None).await.unwrap();
}

#[tokio::test]
async fn a_znode_is_deleted_by_leave_of_its_parent() {
    let fixture = Fixture::start().await;
    let (owner, other) = (owner(&fixture).await, fixture.client().await);
    owner.create("/a", "", locked()).await.unwrap();
    catch_up(&other).await;
    assert_eq!(other.get_data("/a").await.bare(), no_auth());
    assert_eq!(other.delete("/a", None).await, Ok(()));
}

/// Servers check for a missing znode first, then for missing permissions, then for anything else.
#[tokio::test]
async fn permissions_have_their_place_among_the_refusals() {
    let fixture = Fixture::start().await;
    let (owner, other) = (owner(&fixture).await, fixture.client().await);
    owner.create("/a", "", locked()).await.unwrap();
    owner.create("/a/b", "", PERSISTENT).await.unwrap();
    catch_up(&other).await;
    let no_node = OpError::server(ErrorCode::NO_NODE);
    assert_eq!(other.create("/a/b", "", PERSISTENT).await.bare(), no_auth());
    assert_eq!(other.create("/a/missing/x", "", PERSISTENT).await.bare(), Err(no_node.clone()));
    assert_eq!(other.delete("/a/missing", None).await.bare(), no_auth());
    assert_eq!(other.delete("/a/missing/x", None).await.bare(), Err(no_node));
    assert_eq!(other.delete("/a/b", Some(Version(9))).await.bare(), no_auth());
    let bad = CreateOptions::from(PERSISTENT).acl(vec![]);
    let refusal = other.create("/a/c", "", bad).await.unwrap_err().bare();
    assert_eq!(refusal, OpError::server(ErrorCode::INVALID_ACL));
}

#[tokio::test]
async fn identities_that_cannot_be_are_refused() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/a", "", PERSISTENT).await.unwrap();
    let invalid = OpError::server(ErrorCode::INVALID_ACL);
    for (scheme, id) in [
        ("world", "someone"),
        ("world", ""),
        ("digest", "name-without-hash"),
        ("digest", "one:two:three"),
        ("ip", "not-an-address"),
        ("ip", "10.0.0.0/64"),
        ("nosuchscheme", "x"),
        // The client has no credentials.
        ("auth", ""),
    ] {
        let list = vec![Acl::new(Permissions::ALL, scheme, id)];
        let set = client.set_acl("/a", list.clone(), None).await;
        assert_eq!(set.bare(), Err(invalid.clone()), "{scheme}:{id}");
        let options = CreateOptions::from(PERSISTENT).acl(list);
        assert_eq!(
            client.create("/b", "", options).await.unwrap_err().bare(),
            invalid,
            "{scheme}:{id}"
        );
    }
    assert_eq!(client.set_acl("/a", vec![], None).await.bare(), Err(invalid));
    assert_eq!(client.exists("/a").await.unwrap().unwrap().aversion, Version(0));
}

#[tokio::test]
async fn repeated_entries_are_stored_once() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let (open, read) = (Acl::open().remove(0), Acl::read().remove(0));
    let list = vec![read.clone(), open.clone(), read.clone(), open.clone()];
    client.create("/a", "", CreateOptions::from(PERSISTENT).acl(list)).await.unwrap();
    assert_eq!(client.get_acl("/a").await.unwrap().0, [read, open]);
}

#[tokio::test]
async fn credentials_are_sent_again_on_every_connection() {
    let fixture = Fixture::start().await;
    let proxy = fixture.proxy().await;
    let builder = fixture.builder_at(proxy.addr()).auth("digest", CREDENTIALS);
    let client = builder.connect().await.unwrap();
    client.create("/a", "secret", locked()).await.unwrap();
    for _ in 0..3 {
        let before = client.status();
        proxy.cut_all();
        let after = reconnected(&client, before).await;
        assert_eq!(after.session, before.session);
        assert_eq!(client.get_data("/a").await.unwrap().0, "secret");
    }
}

#[tokio::test]
async fn an_unknown_scheme_ends_the_client() {
    let fixture = Fixture::start().await;
    let refused = fixture.builder().auth("nosuchscheme", "x").connect().await;
    assert_eq!(refused.unwrap_err(), ConnectError::AuthFailed);

    let client = fixture.builder().auth("nosuchscheme", "x").start().unwrap();
    let waiting = client.get_data("/");
    assert_eq!(waiting.await, Err(OpError::AuthFailed));
    status(&client, "the refusal", |now| now.state == SessionState::AuthFailed).await;
    assert_eq!(client.exists("/").await, Err(OpError::AuthFailed));
}

#[tokio::test]
async fn credentials_are_added_to_a_client_that_runs() {
    let fixture = Fixture::start().await;
    let proxy = fixture.proxy().await;
    let owner = owner(&fixture).await;
    owner.create("/a", "secret", locked()).await.unwrap();
    let client = fixture.builder_at(proxy.addr()).connect().await.unwrap();
    catch_up(&client).await;
    assert_eq!(client.get_data("/a").await.bare(), no_auth());
    let adding = client.add_auth("digest", CREDENTIALS);
    // This request follows the credentials, although nobody has polled the future.
    assert_eq!(client.get_data("/a").await.unwrap().0, "secret");
    assert_eq!(adding.await, Ok(()));
    let before = client.status();
    proxy.cut_all();
    let after = reconnected(&client, before).await;
    assert_eq!(after.session, before.session);
    assert_eq!(client.get_data("/a").await.unwrap().0, "secret");
}

#[tokio::test]
async fn credentials_are_replaced_on_the_next_connection() {
    let fixture = Fixture::start().await;
    let proxy = fixture.proxy().await;
    let builder = fixture.builder_at(proxy.addr()).auth("digest", CREDENTIALS);
    let client = builder.connect().await.unwrap();
    client.create("/old", "", locked()).await.unwrap();
    assert_eq!(client.replace_auth([("digest", "someone:else")]).await, Ok(()));
    client.create("/both", "", locked()).await.unwrap();
    assert_eq!(client.get_acl("/both").await.unwrap().0.len(), 2, "the connection has both");
    let before = client.status();
    proxy.cut_all();
    reconnected(&client, before).await;
    assert_eq!(client.get_data("/old").await.bare(), no_auth());
    assert_eq!(client.get_data("/both").await.unwrap().0, "");
    assert_eq!(owner(&fixture).await.get_data("/old").await.unwrap().0, "");
}

#[tokio::test]
async fn new_credentials_that_are_refused_cost_a_connection_only() {
    let fixture = Fixture::start().await;
    for client in [fixture.client().await, owner(&fixture).await] {
        let before = client.status();
        assert_eq!(client.add_auth("nosuchscheme", "x").await, Err(AuthError::Refused));
        let after = reconnected(&client, before).await;
        assert_eq!(after.session, before.session);
        assert_eq!(client.add_auth("digest", CREDENTIALS).await, Ok(()));
        let path = client.create("/a-", "", CreateMode::EphemeralSequential).await.unwrap().path;
        client.set_acl(&path, Acl::creator_all(), None).await.unwrap();
        let invalid = client.add_auth("digest", "without a colon").await;
        assert!(matches!(invalid, Err(AuthError::Config(_))), "{invalid:?}");
        client.close().await;
        assert_eq!(client.add_auth("digest", CREDENTIALS).await, Err(AuthError::Closed));
    }
}

#[tokio::test]
async fn what_may_not_be_read_is_unknown_and_what_is_missing_depends_on_its_ancestors() {
    let fixture = Fixture::start().await;
    let owner = owner(&fixture).await;
    let builder = fixture.builder().auth("digest", "someone:else");
    let other = builder.connect().await.unwrap();
    owner.create("/a", "", locked()).await.unwrap();
    catch_up(&other).await;
    let mine = owner.exposure("/a").await.unwrap();
    assert_eq!(mine.strangers_may(Touch::Write), Answer::No);
    assert_eq!(mine.who_may(Touch::Write).unwrap().len(), 1);
    // Everyone may change the chroot of the fixture.
    assert_eq!(mine.strangers_may(Touch::Delete), Answer::Yes);
    let theirs = other.exposure("/a").await.unwrap();
    assert!(theirs.exists());
    assert_eq!(theirs.strangers_may(Touch::Write), Answer::Unknown);
    assert_eq!(theirs.who_may(Touch::Write), None);
    assert_eq!(theirs.strangers_may(Touch::Delete), Answer::Yes);
    let below = other.exposure("/a/b/c").await.unwrap();
    assert_eq!(below.strangers_may_touch(), Answer::Unknown, "{below:?}");
    let below = owner.exposure("/a/b/c").await.unwrap();
    assert!(!below.exists());
    assert_eq!(below.strangers_may_touch(), Answer::No, "{below:?}");
    let open: Vec<_> = below.open_ancestors().collect();
    assert_eq!(open.first(), Some(&(fixture.chroot(), Answer::Yes)));
    let missing = owner.exposure("/missing/x").await.unwrap();
    assert_eq!(missing.strangers_may(Touch::Replace), Answer::Yes);
    let invalid = owner.exposure("a").await;
    assert!(matches!(invalid, Err(OpError::InvalidPath { .. })), "{invalid:?}");
    assert_eq!(owner.exposure("/").await.unwrap().strangers_may(Touch::Write), Answer::Yes);
}
