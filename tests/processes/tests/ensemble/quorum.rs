//! Loss of the quorum.

use std::time::Duration;

use zk_recipes::{LockState, LostReason, Released};
use zk_tests::case::{Case as _, FairLock};
use zk_tests::ensemble::Ensemble;
use zk_tests::lock::{Waiter, acquire, until_znodes};
use zk_tests::wait::soon;

use crate::Roamer;

#[tokio::test]
async fn without_a_quorum_a_lock_is_lost_and_granted_to_nobody() {
    let ensemble = Ensemble::take().await;
    let fixture = crate::fixture().await;
    let leader = ensemble.leader().await;
    let follower = ensemble.follower().await;
    let other = ensemble.follower_but(&follower).await;
    let timeout = Duration::from_secs(3);
    let holder = Roamer::with_timeout(&fixture, &ensemble, &leader, timeout).await;
    let waiting = Roamer::at(&fixture, &ensemble, &leader).await;
    let guard = acquire(&FairLock::of(&holder.client)).await;
    let mut next = Waiter::queue(&FairLock::of(&waiting.client)).await;

    let faults = [ensemble.kill(&follower).await, ensemble.kill(&other).await];
    // No server can expire the session, so the deadline of the guard decides.
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::DeadlinePassed);
    assert_eq!(guard.state(), LockState::Lost(LostReason::DeadlinePassed));
    assert!(next.is_waiting());

    for fault in faults {
        fault.heal().await;
    }
    ensemble.whole().await;
    // The session may have survived because no leader could expire it. Even then, a lost lock stays
    // lost, and its znode is removed.
    let token = guard.fencing_token();
    let next = next.guard().await;
    assert!(next.fencing_token() > token);
    assert_eq!(guard.state(), LockState::Lost(LostReason::DeadlinePassed));
    soon("the end of the first", guard.release()).await.unwrap();
    until_znodes::<FairLock>(&waiting.client, 1).await;
    assert_eq!(next.validate().await, Ok(()));
    assert_eq!(next.release().await, Ok(Released::Released));
    until_znodes::<FairLock>(&waiting.client, 0).await;
}
