//! An ensemble that has lost its quorum, and a client that accepts the server that is left.

use std::time::Duration;

use zk_recipes::LockState;
use zk_session::{ErrorCode, SessionState};
use zk_tests::case::{Case as _, FairLock};
use zk_tests::ensemble::Ensemble;
use zk_tests::lock::acquire;
use zk_tests::wait::soon;

use crate::{EPHEMERAL, PERSISTENT};

#[tokio::test]
async fn reads_continue_without_a_quorum_and_the_session_returns_with_it() {
    let ensemble = Ensemble::take().await;
    let fixture = crate::fixture().await;
    // A server without a quorum may take longer than the default to serve reads.
    let builder = fixture.builder().read_only().give_up_after(Duration::from_secs(120));
    let client = builder.connect().await.expect("all servers serve clients");
    let session = client.session_id();
    client.create("/a", "1", PERSISTENT).await.unwrap();
    client.create("/e", "", EPHEMERAL).await.unwrap();
    let guard = acquire(&FairLock::of(&client)).await;
    fixture.settle().await;

    let leader = ensemble.leader().await;
    let follower = ensemble.follower().await;
    let faults = [ensemble.kill(&leader).await, ensemble.kill(&follower).await];
    let mut states = client.states();
    let read_only = async {
        loop {
            let deadline = client.status().guard_deadline();
            match guard.state() {
                LockState::Lost(reason) => {
                    let is_late = deadline.is_none_or(|deadline| deadline <= client.now());
                    assert!(is_late, "the lock is lost early: {reason:?}");
                }
                LockState::Held | LockState::AtRisk => {}
            }
            if states.current().state == SessionState::ConnectedReadOnly {
                assert_ne!(guard.state(), LockState::Held);
                return;
            }
            states.next().await.expect("the client continues");
        }
    };
    soon("a read-only server", read_only).await;
    assert_eq!(client.session_id(), session, "it is not given up");
    assert_eq!(client.get_data("/a").await.expect("reads continue").0, "1");
    let error = client.set_data("/a", "2", None).await.expect_err("there is no quorum");
    assert_eq!(error.server_code(), Some(ErrorCode::NOT_READ_ONLY), "{error}");
    assert!(error.to_string().contains("read-only"), "{error}");

    for fault in faults {
        fault.heal().await;
    }
    ensemble.whole().await;
    let connected = async {
        while states.current().state != SessionState::Connected {
            states.next().await.expect("the client continues");
        }
    };
    soon("a server with a quorum", connected).await;
    assert_eq!(client.session_id(), session, "the session is intact");
    assert!(client.exists("/e").await.unwrap().is_some());
    client.set_data("/a", "2", None).await.expect("there is a quorum");
    drop(guard);
}
