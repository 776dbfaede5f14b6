//! Loss of the leader.

use zk_recipes::Released;
use zk_session::{OpError, Outcome, SessionState};
use zk_tests::bare::Bare as _;
use zk_tests::case::{Case as _, FairLock};
use zk_tests::ensemble::Ensemble;
use zk_tests::lock::{Waiter, acquire, contenders, until_znodes};
use zk_tests::wait::{catch_up, held_again, reconnected, soon, status};

use crate::{PERSISTENT, Roamer};

#[tokio::test]
async fn a_lock_and_its_queue_outlive_the_leader() {
    let ensemble = Ensemble::take().await;
    let fixture = crate::fixture().await;
    let leader = ensemble.leader().await;
    let follower = ensemble.follower().await;
    let last = ensemble.follower_but(&follower).await;
    let mut roamers = Vec::new();
    // The holder and its successor are connected to the leader, and the other contenders to
    // followers.
    for home in [&leader, &leader, &follower, &last] {
        roamers.push(Roamer::at(&fixture, &ensemble, home).await);
    }
    let guard = acquire(&FairLock::of(&roamers[0].client)).await;
    let mut waiters = Vec::new();
    for roamer in &roamers[1..] {
        waiters.push(Waiter::queue(&FairLock::of(&roamer.client)).await);
    }
    let before: Vec<_> = roamers.iter().map(|roamer| roamer.client.status()).collect();

    let fault = ensemble.kill(&leader).await;
    ensemble.leader_but(&leader).await;
    for (roamer, before) in roamers.iter().zip(before) {
        let after = reconnected(&roamer.client, before).await;
        assert_eq!(after.session, before.session);
    }
    assert_eq!(guard.validate().await, Ok(()));
    held_again("the lock", &guard).await;
    assert!(waiters.iter_mut().all(Waiter::is_waiting));

    // The lock is granted in the order in which the contenders arrived.
    let mut holder = guard;
    for waiter in waiters {
        let token = holder.fencing_token();
        assert_eq!(holder.release().await, Ok(Released::Released));
        holder = waiter.guard().await;
        assert!(holder.fencing_token() > token);
    }
    fault.heal().await;
    ensemble.whole().await;
    assert_eq!(holder.validate().await, Ok(()));
    assert_eq!(holder.release().await, Ok(Released::Released));
    until_znodes::<FairLock>(&roamers[0].client, 0).await;
}

/// A leader without followers accepts writes for a while. They are never committed.
#[tokio::test]
async fn a_leader_that_is_cut_off_acknowledges_nothing_and_keeps_nobodys_lock() {
    let ensemble = Ensemble::take().await;
    let fixture = crate::fixture().await;
    let leader = ensemble.leader().await;
    let roamer = Roamer::at(&fixture, &ensemble, &leader).await;
    let other = Roamer::at(&fixture, &ensemble, &ensemble.follower().await).await;
    roamer.client.create("/data", "old", PERSISTENT).await.unwrap();
    let guard = acquire(&FairLock::of(&roamer.client)).await;
    let mut next = Waiter::queue(&FairLock::of(&other.client)).await;

    let before = roamer.client.status();
    let fault = ensemble.cut_off(&leader).await;
    let write = roamer.client.set_data("/data", "lost", None);
    let written = soon("the end of the write", write).await;
    assert_eq!(written.bare(), Err(OpError::connection_loss(Outcome::Unknown)));
    let after = reconnected(&roamer.client, before).await;
    assert_eq!(after.session, before.session);
    assert_eq!(soon("a proof", guard.validate()).await, Ok(()));
    assert!(next.is_waiting());
    assert_eq!(roamer.client.get_data("/data").await.unwrap().0, "old");

    fault.heal().await;
    ensemble.whole().await;
    for client in [&roamer.client, &other.client] {
        // It may still be backing off after its attempts during the election.
        status(client, "a connection", |now| now.state == SessionState::Connected).await;
        catch_up(client).await;
        assert_eq!(client.get_data("/data").await.unwrap().0, "old");
    }
    assert_eq!(contenders(&other.client).await, 2);
    assert_eq!(guard.release().await, Ok(Released::Released));
    assert_eq!(next.guard().await.release().await, Ok(Released::Released));
}
