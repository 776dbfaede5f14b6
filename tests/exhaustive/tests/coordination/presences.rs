//! Two presences and one that waits for the path of the first. During the outage, the first is
//! closed, and the second changes its data.

use zk_recipes::{Client, Presence, PresenceBuilder, PresenceState};

use crate::outage::{Outage, Plan, Worst, for_each_outage, now};

/// Requests of three clients: a begin, a write and a removal, each of which may be repeated behind a
/// barrier, presences that come back, and tests of a znode that is in the way.
const REQUESTS_MAX: u64 = 25;

fn builder(client: &Client, name: &str) -> PresenceBuilder {
    Presence::builder(client, &format!("/services/{name}")).expect("the path is valid")
}

async fn survive(plan: Plan) -> Worst {
    let mut outage = Outage::prepare(plan, 3).await;
    let begin = |client: usize, name| builder(&outage.clients[client], name).begin("1");
    let a = begin(0, "a").await.expect("nothing is in the way");
    let b = begin(1, "b").await.expect("nothing is in the way");
    let waiting = builder(&outage.clients[2], "a").keep_trying().begin("2");
    outage.settle().await;
    outage.begin();
    outage.middle().await;
    let close = outage.call("a close", 0, a.close());
    let write = outage.call("new data", 1, async move { (b.set_data("2").await, b) });
    let next = outage.call("the next presence", 2, waiting);
    outage.end().await;
    let cause = now();
    let (closed, close_at) = outage.done(close, cause).await;
    closed.unwrap_or_else(|error| panic!("{plan:?}: {error}\n{}", outage.world.trace()));
    let ((written, b), _) = outage.done(write, cause).await;
    assert_eq!(written, Ok(()), "{plan:?}\n{}", outage.world.trace());
    let (next, _) = outage.done(next, close_at).await;
    let next = next.unwrap_or_else(|error| panic!("{plan:?}: {error}"));
    for (presence, client) in [(&next, 2), (&b, 1)] {
        let PresenceState::Present { session, czxid, .. } = presence.state() else {
            panic!("{plan:?}: {presence:?}\n{}", outage.world.trace())
        };
        assert_eq!(outage.clients[client].session_id(), Some(session), "{plan:?}");
        let stat = outage.world.server.stat(presence.path()).expect("it is present");
        assert_eq!((stat.ephemeral_owner, stat.czxid), (session, czxid), "{plan:?}");
        let data = outage.world.server.data(presence.path()).expect("it is present");
        assert_eq!(&data[..], b"2", "{plan:?}");
    }
    b.close().await.expect("it can be closed");
    next.close().await.expect("it can be closed");
    outage.finish().await
}

#[test]
fn presences_go_on_after_an_outage_of_any_length() {
    for_each_outage("presences", REQUESTS_MAX, survive);
}
