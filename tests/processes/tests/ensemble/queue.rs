//! A queue whose contenders are spread over all servers, none of which fails.

use zk_recipes::Released;
use zk_tests::case::{Case as _, FairLock};
use zk_tests::ensemble::Ensemble;
use zk_tests::lock::{Waiter, acquire, until_znodes};

use crate::Roamer;

#[tokio::test]
async fn contenders_at_all_servers_are_served_in_order() {
    let ensemble = Ensemble::take().await;
    let fixture = crate::fixture().await;
    let mut roamers = Vec::new();
    for home in ensemble.servers().iter().cycle().take(9) {
        let roamer = Roamer::at(&fixture, &ensemble, home).await;
        assert!(roamer.is_at(home));
        roamers.push(roamer);
    }
    let mut holder = acquire(&FairLock::of(&roamers[0].client)).await;
    let mut waiters = Vec::new();
    for roamer in &roamers[1..] {
        waiters.push(Waiter::queue(&FairLock::of(&roamer.client)).await);
    }
    for waiter in waiters {
        let token = holder.fencing_token();
        assert_eq!(holder.release().await, Ok(Released::Released));
        holder = waiter.guard().await;
        assert!(holder.fencing_token() > token);
        assert_eq!(holder.validate().await, Ok(()));
    }
    holder.release().await.unwrap();
    until_znodes::<FairLock>(&roamers[0].client, 0).await;
}

#[tokio::test]
async fn contenders_that_give_up_are_passed_over_by_those_at_other_servers() {
    let ensemble = Ensemble::take().await;
    let fixture = crate::fixture().await;
    let mut roamers = Vec::new();
    for home in ensemble.servers().iter().cycle().take(6) {
        roamers.push(Roamer::at(&fixture, &ensemble, home).await);
    }
    let holder = acquire(&FairLock::of(&roamers[0].client)).await;
    let mut waiters = Vec::new();
    for roamer in &roamers[1..] {
        waiters.push(Waiter::queue(&FairLock::of(&roamer.client)).await);
    }
    // One waiter leaves by a drop, one by the close of its session, and one by a drop during the
    // release.
    drop(waiters.remove(3));
    roamers[3].client.close().await;
    let gone = waiters.remove(2);
    until_znodes::<FairLock>(&roamers[0].client, 4).await;
    drop(waiters.remove(1));
    assert_eq!(holder.release().await, Ok(Released::Released));
    for waiter in waiters {
        assert_eq!(waiter.guard().await.release().await, Ok(Released::Released));
    }
    drop(gone);
    until_znodes::<FairLock>(&roamers[0].client, 0).await;
}
