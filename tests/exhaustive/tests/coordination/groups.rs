//! A group with two members and a watcher. During the outage, one member changes its data, the other
//! one leaves, and another client joins.

use std::collections::BTreeMap;
use std::time::Duration;

use zk_recipes::{Client, Group, GroupChange, GroupWatch, Member, MembershipState};

use crate::outage::{Outage, Plan, Worst, for_each_outage, now};

const GROUP: &str = "/services/x";
/// The client that watches the group.
const WATCHER: usize = 3;

/// Requests of four clients: a write, a removal and a join, each of which may be repeated behind a
/// barrier; members that rejoin; a list and the reads of all members for each change.
const REQUESTS_MAX: u64 = 25;

/// The time without changes after which a stream has delivered everything.
const QUIET: Duration = Duration::from_secs(10);

fn group(client: &Client) -> Group {
    Group::new(client, GROUP).expect("the options are legal")
}

/// The members that a stream has reported.
#[derive(Debug, Default)]
struct Roster(BTreeMap<String, Member>);

impl Roster {
    /// Applies a change. Panics if the stream has reported it before.
    fn apply(&mut self, change: GroupChange) {
        match change {
            GroupChange::Joined(member) => {
                let before = self.0.insert(member.id.clone(), member);
                assert_eq!(before, None, "joined twice");
            }
            GroupChange::Left(member) => {
                assert!(self.0.remove(&member.id).is_some(), "{member:?} has left twice");
            }
            GroupChange::Changed(member) => {
                let before = self.0.insert(member.id.clone(), member.clone());
                let before = before.expect("only members change");
                assert_eq!(before.czxid, member.czxid, "another member");
                assert_ne!(before.data, member.data, "reported twice");
            }
            other => panic!("an unknown change: {other:?}"),
        }
    }

    fn members(&self) -> Vec<(&str, &[u8])> {
        self.0.values().map(|member| (member.id.as_str(), &member.data[..])).collect()
    }

    /// Follows the stream until it has reported these members.
    async fn follow(
        mut self,
        mut watch: GroupWatch,
        expected: &[(&str, &[u8])],
    ) -> (Self, GroupWatch) {
        while self.members() != expected {
            self.apply(watch.next().await.expect("the group can be read"));
        }
        (self, watch)
    }
}

const LAST: [(&str, &[u8]); 2] = [("a", b"2"), ("c", b"1")];

async fn survive(plan: Plan) -> Worst {
    let mut outage = Outage::prepare(plan, 4).await;
    let a = group(&outage.clients[0]).join("a", "1").await.expect("the id is free");
    let b = group(&outage.clients[1]).join("b", "1").await.expect("the id is free");
    let watch = group(&outage.clients[WATCHER]).watch();
    let (roster, watch) = Roster::default().follow(watch, &[("a", b"1"), ("b", b"1")]).await;
    outage.settle().await;
    outage.begin();
    outage.middle().await;
    let write = outage.call("new data", 0, async move { (a.set_data("2").await, a) });
    let leave = outage.call("a leave", 1, b.leave());
    let join = outage.call("a join", 2, {
        let group = group(&outage.clients[2]);
        async move { group.join("c", "1").await }
    });
    let follow = outage.call("the last members", WATCHER, roster.follow(watch, &LAST));
    outage.end().await;
    let cause = now();
    let ((written, a), write_at) = outage.done(write, cause).await;
    assert_eq!(written, Ok(()), "{plan:?}\n{}", outage.world.trace());
    let (left, leave_at) = outage.done(leave, cause).await;
    left.unwrap_or_else(|error| panic!("{plan:?}: {error}"));
    let (joined, join_at) = outage.done(join, cause).await;
    let c = joined.unwrap_or_else(|error| panic!("{plan:?}: {error}"));
    let cause = write_at.max(leave_at).max(join_at);
    let ((mut roster, mut watch), _) = outage.done(follow, cause).await;
    while let Ok(change) = watch.next_within(QUIET).await {
        roster.apply(change);
    }
    assert_eq!(roster.members(), LAST, "{plan:?}\n{}", outage.world.trace());
    for (membership, client) in [(&a, 0), (&c, 2)] {
        let session = outage.clients[client].session_id().expect("connected");
        assert_eq!(membership.state(), MembershipState::Member { session }, "{plan:?}");
        let path = membership.path();
        let owner = outage.world.server.stat(path).map(|stat| stat.ephemeral_owner);
        assert_eq!(owner, Some(session), "{plan:?}: {path}");
    }
    a.leave().await.expect("it can leave");
    c.leave().await.expect("it can leave");
    drop(watch);
    outage.finish().await
}

#[test]
fn a_group_goes_on_after_an_outage_of_any_length() {
    for_each_outage("a group", REQUESTS_MAX, survive);
}
