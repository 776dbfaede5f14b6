//! Groups: members that outlive their sessions, and streams of changes.

use zk_recipes::{
    Client, Group, GroupChange, GroupError, GroupWatch, Membership, MembershipState, Released,
};
use zk_tests::target::Fixture;
use zk_tests::wait::{catch_up, soon};

use super::expiry::{NEVER, Victim};

const GROUP: &str = "/services/x/members";

fn group(client: &Client) -> Group {
    Group::new(client, GROUP).unwrap()
}

/// The next change, in a form that is easy to compare.
async fn next(watch: &mut GroupWatch) -> String {
    let (what, member) = match soon("a change", watch.next()).await.unwrap() {
        GroupChange::Joined(member) => ("joined", member),
        GroupChange::Left(member) => ("left", member),
        GroupChange::Changed(member) => ("changed", member),
        other => panic!("{other:?}"),
    };
    format!("{what} {} {}", member.id, String::from_utf8_lossy(&member.data))
}

async fn until_member(membership: &mut Membership) {
    while !matches!(membership.state(), MembershipState::Member { .. }) {
        soon("the member", membership.changed()).await;
    }
}

#[tokio::test]
async fn members_join_change_and_leave_and_a_watch_reports_it() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let mut watch = group(&other).watch();
    let a = group(&client).join("a", "1").await.unwrap();
    assert_eq!(next(&mut watch).await, "joined a 1");
    let b = group(&client).join("b", "").await.unwrap();
    assert_eq!(next(&mut watch).await, "joined b ");
    a.set_data("2").await.unwrap();
    assert_eq!(next(&mut watch).await, "changed a 2");
    catch_up(&other).await;
    let members = group(&other).members().await.unwrap();
    let ids: Vec<_> = members.iter().map(|member| (member.id.as_str(), member.session)).collect();
    let session = client.session_id().unwrap();
    assert_eq!(ids, [("a", session), ("b", session)]);
    let taken = group(&other).join("a", "3").await.unwrap_err();
    assert!(matches!(taken, GroupError::IdTaken { session: by, .. } if by == session), "{taken}");
    assert_eq!(a.leave().await, Ok(Released::Released));
    assert_eq!(next(&mut watch).await, "left a 2");
    drop(b);
    assert_eq!(next(&mut watch).await, "left b ");
}

#[tokio::test]
async fn a_member_that_is_deleted_or_replaced_is_left_and_joined() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let mut membership = group(&client).join("a", "1").await.unwrap();
    let mut watch = group(&other).watch();
    assert_eq!(next(&mut watch).await, "joined a 1");
    other.delete(&format!("{GROUP}/a"), None).await.unwrap();
    assert_eq!(next(&mut watch).await, "left a 1");
    assert_eq!(next(&mut watch).await, "joined a 1");
    until_member(&mut membership).await;
    membership.leave().await.unwrap();
    assert_eq!(next(&mut watch).await, "left a 1");
    // The directory disappears, perhaps because the server removes it first, and is created again.
    if let Err(error) = other.delete(GROUP, None).await {
        assert!(error.is_no_node(), "{error}");
    }
    let membership = group(&client).join("b", "1").await.unwrap();
    assert_eq!(next(&mut watch).await, "joined b 1");
    membership.leave().await.unwrap();
}

#[tokio::test]
async fn a_member_whose_session_expires_rejoins_in_the_next() {
    let victim = Victim::start(NEVER, true).await;
    let mut membership = group(&victim.client).join("a", "1").await.unwrap();
    let observer = victim.fixture.client().await;
    let mut watch = group(&observer).watch();
    assert_eq!(next(&mut watch).await, "joined a 1");
    victim.expire().await;
    assert_eq!(next(&mut watch).await, "left a 1");
    victim.proxy.resume();
    victim.next_session().await;
    assert_eq!(next(&mut watch).await, "joined a 1");
    until_member(&mut membership).await;
    assert_ne!(victim.client.session_id(), victim.before.session);
    membership.leave().await.unwrap();
    assert_eq!(next(&mut watch).await, "left a 1");
}
