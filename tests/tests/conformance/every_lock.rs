//! Properties that every lock must have. A scenario has a holder, and a waiter that the holder
//! keeps out. A queue may have a rival between them, which excludes both.

use std::cmp::Reverse;
use std::future::IntoFuture as _;
use std::time::Duration;

use zk_recipes::kind::Queued;
use zk_recipes::{
    Acl, Client, FailedAction, LockError, LockState, LostReason, Multi, Outcome, Permissions,
    Phase, Released, Version, request_revocation,
};
use zk_session::recipe::Session;
use zk_session::{CreateMode, CreateOptions, ErrorCode};
use zk_tests::case::{Case, LOCK, number};
use zk_tests::for_each_lock;
use zk_tests::lock::{Waiter, acquire, settle, until_znodes, znodes};
use zk_tests::scene::poll_times;
use zk_tests::target::{CREDENTIALS, Fixture};
use zk_tests::wait::{PATIENCE, catch_up, reconnected, soon};

use crate::expiry::{NEVER, Victim};

for_each_lock! {
    #[tokio::test] locks: [
        a_free_lock_is_acquired_and_released,
        a_missing_directory_is_made_with_its_ancestors,
        an_acquire_may_be_dropped_at_every_await_point,
        a_try_may_be_dropped_at_every_await_point,
        a_validation_notices_that_the_znode_is_gone,
        a_directory_that_cannot_be_is_refused_with_the_reason,
    ]
    #[tokio::test] pairs: [
        the_holder_keeps_the_other_out_until_it_releases,
        a_try_takes_a_free_lock_and_leaves_a_busy_one,
        a_wait_ends_at_its_timeout_and_leaves_nothing,
        a_wait_may_be_dropped_at_every_await_point,
        a_release_may_be_dropped_at_every_await_point,
        dropping_a_guard_releases,
        closing_the_holder_passes_the_lock_on,
        closing_the_waiter_ends_its_wait,
        a_guard_is_lost_when_somebody_deletes_its_znode,
        a_deleted_directory_is_made_again_by_who_waits,
        a_session_that_expires_while_waiting_is_followed_by_another_wait,
        a_session_that_expires_while_holding_loses_the_lock_and_the_next_may_have_it,
        a_directory_that_may_not_be_written_refuses_and_nothing_is_left,
        a_lock_is_held_over_the_loss_of_a_connection,
        a_waiter_goes_on_waiting_over_the_loss_of_a_connection,
        a_lost_reply_leaves_no_ghost,
    ]
    #[tokio::test] queue_pairs: [
        a_holder_and_a_waiter_may_be_asked_for_the_lock,
        a_contender_that_gives_up_in_the_middle_is_passed_over,
        a_holder_that_may_not_be_read_is_waited_for,
        who_may_not_list_is_refused_and_nothing_is_left,
        a_transaction_of_a_session_that_expires_changes_nothing,
    ]
    #[tokio::test] fifo_pairs: [
        contenders_are_served_in_the_order_of_their_znodes,
        a_contender_that_loses_its_znode_in_the_middle_goes_to_the_end,
        a_waiter_that_loses_its_znode_goes_to_the_end,
    ]
}

async fn owner(fixture: &Fixture) -> Client {
    fixture.builder().auth("digest", CREDENTIALS).connect().await.unwrap()
}

/// Creates the directory of the contender znodes. Its owner has all permissions, and all other
/// clients have the permissions `everybody`.
async fn directory<C: Case>(owner: &Client, everybody: Permissions) {
    let list = Acl::creator_all().into_iter().chain([Acl::new(everybody, "world", "anyone")]);
    let options = CreateOptions::from(CreateMode::Persistent).acl(list.collect());
    if C::MARK.is_some() {
        owner.create("/locks", "", CreateMode::Persistent).await.unwrap();
    }
    owner.create(C::directory(), "", options).await.unwrap();
}

/// Waits for the end of all cleanup in the background.
async fn cleaned_up(client: &Client) {
    soon("the end of the cleanup", async {
        while Session::of(client).janitor_slots_busy() > 0 {
            catch_up(client).await;
        }
    })
    .await;
}

/// Returns the zxid of the transaction that created a contender znode.
async fn czxid(client: &Client, path: &str) -> i64 {
    client.exists(path).await.unwrap().expect("its holder holds").czxid.0
}

fn is_refused(error: &LockError, what: FailedAction) -> bool {
    matches!(error, LockError::Refused { code: ErrorCode::NO_AUTH, action, .. } if *action == what)
}

async fn a_free_lock_is_acquired_and_released<C: Case>() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let guard = acquire(&C::of(&client)).await;
    assert_eq!((guard.state(), guard.session()), (LockState::Held, client.session_id().unwrap()));
    let stat = client.exists(guard.path()).await.unwrap().expect("the guard's znode exists");
    assert_eq!(stat.ephemeral_owner, Some(guard.session()));
    for _ in 0..3 {
        assert_eq!(guard.validate().await, Ok(()));
    }
    assert_eq!(znodes::<C>(&client).await.0, [guard.path()]);
    assert_eq!(guard.release().await, Ok(Released::Released));
    assert_eq!(znodes::<C>(&client).await.0, [""; 0]);
}

async fn a_missing_directory_is_made_with_its_ancestors<C: Case>() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    assert_eq!(client.exists("/locks").await, Ok(None));
    let guard = C::of(&client).try_acquire().await.unwrap().expect("the lock is free");
    let ancestor = client.exists("/locks").await.unwrap().unwrap();
    assert_eq!((ancestor.ephemeral_owner, ancestor.data_length), (None, 0));
    // A semaphore stores its number of permits there.
    let directory = client.exists(C::directory()).await.unwrap().unwrap();
    assert_eq!(directory.ephemeral_owner, None);
    guard.release().await.unwrap();
}

async fn the_holder_keeps_the_other_out_until_it_releases<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let holder = acquire(&H::of(&client)).await;
    let mut next = Waiter::queue(&W::of(&other)).await;
    settle(&other).await;
    assert!(next.is_waiting());
    assert_eq!(holder.validate().await, Ok(()));
    assert_eq!(holder.release().await, Ok(Released::Released));
    let next = next.guard().await;
    assert_eq!((next.state(), next.session()), (LockState::Held, other.session_id().unwrap()));
    assert_eq!(next.validate().await, Ok(()));
    assert_eq!(next.release().await, Ok(Released::Released));
    until_znodes::<W>(&client, 0).await;
}

async fn a_try_takes_a_free_lock_and_leaves_a_busy_one<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = H::of(&client).try_acquire().await.unwrap().expect("the lock is free");
    let before = client.exists(H::directory()).await.unwrap().unwrap();
    catch_up(&other).await;
    assert!(W::of(&other).try_acquire().await.unwrap().is_none());
    assert!(W::of(&client).try_acquire().await.unwrap().is_none(), "it is not reentrant");
    // A try only reads, so nothing was created.
    assert_eq!(client.exists(H::directory()).await.unwrap().unwrap(), before);
    guard.release().await.unwrap();
    catch_up(&other).await;
    let guard = W::of(&other).try_acquire().await.unwrap().expect("it is free again");
    guard.release().await.unwrap();
    until_znodes::<W>(&other, 0).await;
}

async fn a_wait_ends_at_its_timeout_and_leaves_nothing<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = acquire(&H::of(&client)).await;
    for timeout in [Duration::ZERO, Duration::from_millis(50)] {
        let error = W::of(&other).acquire().timeout(timeout).await.unwrap_err();
        assert!(error.is_timed_out());
    }
    cleaned_up(&other).await;
    until_znodes::<W>(&client, 1).await;
    assert_eq!(guard.validate().await, Ok(()));
    guard.release().await.unwrap();
    until_znodes::<W>(&client, 0).await;
}

async fn an_acquire_may_be_dropped_at_every_await_point<C: Case>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    for polls in 0.. {
        let acquiring = C::of(&client).acquire().timeout(PATIENCE).into_future();
        let acquired = poll_times(acquiring, polls, || {}).await;
        let is_complete = acquired.is_some();
        if let Some(guard) = acquired {
            guard.unwrap().release().await.unwrap();
        }
        until_znodes::<C>(&other, 0).await;
        cleaned_up(&client).await;
        if is_complete {
            break;
        }
        assert!(polls < POLLS_MAX, "the future does not complete");
    }
    let guard = C::of(&other).try_acquire().await.unwrap().expect("the lock is free");
    guard.release().await.unwrap();
}

/// The holder releases the lock as soon as the other contender waits, so the last of these acquires
/// succeed.
async fn a_wait_may_be_dropped_at_every_await_point<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let mut dropped_waiting = 0;
    for polls in 0.. {
        let holder = acquire(&H::of(&other)).await;
        let (acquire, mut phases) = W::of(&client).acquire().timeout(PATIENCE).phases();
        let acquiring = poll_times(acquire.into_future(), polls, || {});
        let hand_over = async {
            let mut phase = Some(phases.current());
            while matches!(phase, Some(Phase::Claiming)) {
                phase = phases.next().await;
            }
            let is_queued = matches!(phase, Some(Phase::Queued { .. }));
            assert_eq!(holder.release().await, Ok(Released::Released));
            is_queued
        };
        let (acquired, is_queued) = tokio::join!(acquiring, hand_over);
        let is_complete = acquired.is_some();
        dropped_waiting += usize::from(is_queued && !is_complete);
        if let Some(guard) = acquired {
            assert_eq!(guard.unwrap().release().await, Ok(Released::Released));
        }
        until_znodes::<W>(&other, 0).await;
        cleaned_up(&client).await;
        if is_complete {
            break;
        }
        assert!(polls < POLLS_MAX, "the future does not complete");
    }
    assert!(dropped_waiting > 0, "no wait was dropped");
}

async fn a_try_may_be_dropped_at_every_await_point<C: Case>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    for polls in 0.. {
        let trying = C::of(&client).try_acquire().into_future();
        let tried = poll_times(trying, polls, || {}).await;
        let is_complete = tried.is_some();
        if let Some(guard) = tried {
            guard.unwrap().expect("the lock is free").release().await.unwrap();
        }
        until_znodes::<C>(&other, 0).await;
        cleaned_up(&client).await;
        if is_complete {
            break;
        }
        assert!(polls < POLLS_MAX, "the future does not complete");
    }
}

async fn a_release_may_be_dropped_at_every_await_point<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    for polls in 0.. {
        let guard = acquire(&H::of(&client)).await;
        let next = Waiter::queue(&W::of(&other)).await;
        let released = poll_times(guard.release(), polls, || {}).await;
        assert_eq!(next.guard().await.release().await, Ok(Released::Released));
        until_znodes::<W>(&other, 0).await;
        if let Some(released) = released {
            assert_eq!(released, Ok(Released::Released));
            break;
        }
        assert!(polls < POLLS_MAX, "the future does not complete");
    }
}

async fn dropping_a_guard_releases<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = acquire(&H::of(&client)).await;
    let next = Waiter::queue(&W::of(&other)).await;
    drop(guard);
    next.guard().await.release().await.unwrap();
    until_znodes::<W>(&client, 0).await;
}

async fn closing_the_holder_passes_the_lock_on<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = acquire(&H::of(&client)).await;
    let next = Waiter::queue(&W::of(&other)).await;
    let lost = guard.lost();
    client.close().await;
    assert_eq!(soon("the loss", lost).await, LostReason::Closed);
    assert_eq!(guard.state(), LockState::Lost(LostReason::Closed));
    next.guard().await.release().await.unwrap();
    until_znodes::<W>(&other, 0).await;
}

async fn closing_the_waiter_ends_its_wait<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = acquire(&H::of(&client)).await;
    let next = Waiter::queue(&W::of(&other)).await;
    other.close().await;
    assert_eq!(next.result().await.unwrap_err(), LockError::Closed);
    until_znodes::<W>(&client, 1).await;
    assert_eq!(guard.validate().await, Ok(()));
    guard.release().await.unwrap();
}

async fn a_guard_is_lost_when_somebody_deletes_its_znode<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = acquire(&H::of(&client)).await;
    let next = Waiter::queue(&W::of(&other)).await;
    let lost = guard.lost();
    fixture.observer.delete(&fixture.full(guard.path()), None).await.unwrap();
    assert_eq!(soon("the loss", lost).await, LostReason::ZnodeDeleted);
    assert_eq!(guard.state(), LockState::Lost(LostReason::ZnodeDeleted));
    let next = next.guard().await;
    let error = guard.validate().await.unwrap_err();
    assert_eq!(error, LockError::Lost(LostReason::ZnodeDeleted));
    assert_eq!(guard.release().await, Ok(Released::AlreadyGone));
    assert_eq!(next.validate().await, Ok(()), "the loser has removed another holder's znode");
    assert_eq!(next.release().await, Ok(Released::Released));
    until_znodes::<W>(&client, 0).await;
}

/// The validation does not need the event of the deletion, which may not have arrived yet.
async fn a_validation_notices_that_the_znode_is_gone<C: Case>() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let guard = acquire(&C::of(&client)).await;
    client.delete(guard.path(), None).await.unwrap();
    let error = guard.validate().await.unwrap_err();
    assert_eq!(error, LockError::Lost(LostReason::ZnodeDeleted));
    assert_eq!(guard.release().await, Ok(Released::AlreadyGone));
}

async fn a_deleted_directory_is_made_again_by_who_waits<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let holder = acquire(&H::of(&client)).await;
    let before = czxid(&client, holder.path()).await;
    let next = Waiter::queue(&W::of(&other)).await;
    let (mut paths, _) = znodes::<W>(&client).await;
    // The waiter gets the event of its own znode first. In the opposite order, it may conclude from
    // the deletion ahead that it is next, hold the lock, and then learn that its own znode is gone
    // too.
    if W::MARK.is_some() {
        paths.sort_unstable_by_key(|path| Reverse(number(path)));
    }
    let mut all = paths.iter().fold(Multi::new(), |multi, path| multi.delete(path, None));
    if W::MARK.is_some() {
        all = all.delete(LOCK, None);
    }
    client.commit(all.delete("/locks", None)).await.unwrap();
    assert_eq!(soon("the loss", holder.lost()).await, LostReason::ZnodeDeleted);
    let next = next.guard().await;
    assert!(czxid(&other, next.path()).await > before);
    assert_eq!(holder.release().await, Ok(Released::AlreadyGone));
    assert_eq!(next.validate().await, Ok(()));
    assert_eq!(next.release().await, Ok(Released::Released));
    until_znodes::<W>(&client, 0).await;
}

async fn a_session_that_expires_while_waiting_is_followed_by_another_wait<H: Case, W: Case>() {
    let victim = Victim::start(NEVER, true).await;
    let client = victim.fixture.client().await;
    let holder = acquire(&H::of(&client)).await;
    let mut waiter = Waiter::queue(&W::of(&victim.client)).await;
    victim.expire().await;
    until_znodes::<W>(&client, 1).await;
    victim.proxy.resume();
    let after = victim.next_session().await;
    if W::MARK.is_some() {
        until_znodes::<W>(&client, 2).await;
    }
    settle(&victim.client).await;
    assert!(waiter.is_waiting());
    assert_eq!(holder.validate().await, Ok(()));
    assert_eq!(holder.release().await, Ok(Released::Released));
    let guard = waiter.guard().await;
    assert_eq!(Some(guard.session()), after.session);
    assert_eq!(guard.validate().await, Ok(()));
    assert_eq!(guard.release().await, Ok(Released::Released));
    until_znodes::<W>(&client, 0).await;
}

async fn a_session_that_expires_while_holding_loses_the_lock_and_the_next_may_have_it<
    H: Case,
    W: Case,
>() {
    let victim = Victim::start(NEVER, true).await;
    let client = victim.fixture.client().await;
    let holder = acquire(&H::of(&victim.client)).await;
    let next = Waiter::queue(&W::of(&client)).await;
    victim.expire().await;
    // No event reaches the holder, so it learns of the loss from its deadline.
    let next = next.guard().await;
    let reason = soon("the loss", holder.lost()).await;
    assert_eq!(reason, LostReason::DeadlinePassed);
    victim.proxy.resume();
    victim.next_session().await;
    // The lock stays lost when a server can be reached again.
    assert_eq!(holder.validate().await, Err(LockError::Lost(reason)));
    let released = soon("the release", holder.release()).await;
    assert!(
        matches!(released, Ok(Released::EndedWithSession | Released::AlreadyGone)),
        "{released:?}"
    );
    assert_eq!(next.validate().await, Ok(()));
    // The client of the lost holder continues in the new session.
    let again = Waiter::queue(&H::of(&victim.client)).await;
    assert_eq!(next.release().await, Ok(Released::Released));
    assert_eq!(again.guard().await.release().await, Ok(Released::Released));
    until_znodes::<W>(&client, 0).await;
}

async fn a_directory_that_may_not_be_written_refuses_and_nothing_is_left<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let (owner, other) = (owner(&fixture).await, fixture.client().await);
    directory::<W>(&owner, Permissions::READ).await;
    catch_up(&other).await;
    let waiter = W::of(&other);
    for _ in 0..2 {
        let error = waiter.acquire().timeout(PATIENCE).await.unwrap_err();
        assert!(is_refused(&error, FailedAction::Create), "{error}");
        let error = waiter.try_acquire().await.unwrap_err();
        assert!(is_refused(&error, FailedAction::Create), "{error}");
    }
    cleaned_up(&other).await;
    until_znodes::<W>(&owner, 0).await;
    let holder = acquire(&H::of(&owner)).await;
    catch_up(&other).await;
    // The lock is held, and the client has permission to read that.
    assert!(waiter.try_acquire().await.unwrap().is_none());
    let error = waiter.acquire().timeout(PATIENCE).await.unwrap_err();
    assert!(is_refused(&error, FailedAction::Create), "{error}");
    assert_eq!(holder.validate().await, Ok(()));
    assert_eq!(holder.release().await, Ok(Released::Released));
    until_znodes::<W>(&owner, 0).await;
}

async fn a_directory_that_cannot_be_is_refused_with_the_reason<C: Case>() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/locks", "", CreateMode::Ephemeral).await.unwrap();
    let error = C::of(&client).acquire().timeout(PATIENCE).await.unwrap_err();
    let LockError::Refused { code, .. } = &error else { panic!("{error}") };
    assert_eq!(*code, ErrorCode::NO_CHILDREN_FOR_EPHEMERALS);
    // The cleanup has nothing to do, and ends.
    cleaned_up(&client).await;
}

async fn a_lock_is_held_over_the_loss_of_a_connection<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let other = fixture.client().await;
    let guard = acquire(&H::of(&client)).await;
    let mut next = Waiter::queue(&W::of(&other)).await;
    for _ in 0..3 {
        let before = client.status();
        proxy.cut_all();
        reconnected(&client, before).await;
        assert_eq!(guard.validate().await, Ok(()));
    }
    settle(&other).await;
    assert!(next.is_waiting());
    assert_eq!(guard.release().await, Ok(Released::Released));
    next.guard().await.release().await.unwrap();
    until_znodes::<W>(&other, 0).await;
}

async fn a_waiter_goes_on_waiting_over_the_loss_of_a_connection<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let other = fixture.client().await;
    let holder = acquire(&H::of(&other)).await;
    let mut waiter = Waiter::queue(&W::of(&client)).await;
    let (before, _) = znodes::<W>(&other).await;
    for _ in 0..3 {
        let status = client.status();
        proxy.cut_all();
        reconnected(&client, status).await;
        settle(&client).await;
        assert!(waiter.is_waiting());
    }
    let (mut after, _) = znodes::<W>(&other).await;
    after.sort_by_key(|path| before.iter().position(|other| other == path));
    assert_eq!(after, before, "it has kept its place");
    holder.release().await.unwrap();
    let guard = waiter.guard().await;
    assert_eq!(guard.validate().await, Ok(()));
    guard.release().await.unwrap();
    until_znodes::<W>(&other, 0).await;
}

async fn a_lost_reply_leaves_no_ghost<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let other = fixture.client().await;
    let lock = W::of(&client);
    acquire(&lock).await.release().await.unwrap();
    for _ in 0..3 {
        proxy.lose_replies();
        let guard = acquire(&lock).await;
        assert_eq!(znodes::<W>(&other).await.0, [guard.path()]);
        assert_eq!(guard.validate().await, Ok(()));
        proxy.lose_replies();
        guard.release().await.unwrap();
        assert_eq!(znodes::<W>(&other).await.0, [""; 0]);
    }
    // The same must be true while another contender waits.
    for _ in 0..3 {
        let holder = acquire(&H::of(&other)).await;
        proxy.lose_replies();
        let waiter = Waiter::queue(&lock).await;
        assert_eq!(holder.release().await, Ok(Released::Released));
        waiter.guard().await.release().await.unwrap();
        until_znodes::<W>(&other, 0).await;
    }
}

async fn a_holder_and_a_waiter_may_be_asked_for_the_lock<H: Case, W: Case>()
where
    H::Kind: Queued,
    W::Kind: Queued,
{
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let holder = acquire(&H::of(&other)).await;
    let waiter = Waiter::queue(&W::of(&client)).await;
    let (queue, _) = znodes::<W>(&client).await;
    assert_eq!(queue.len(), 2, "{queue:?}");
    for path in &queue {
        assert_eq!(request_revocation(&client, path).await, Ok(true));
    }
    soon("the request", holder.revocation_requested()).await;
    assert_eq!(holder.release().await, Ok(Released::Released));
    let guard = waiter.guard().await;
    soon("the request", guard.revocation_requested()).await;
    let path = guard.path().to_owned();
    assert_eq!(guard.release().await, Ok(Released::Released));
    assert_eq!(request_revocation(&client, &path).await, Ok(false), "it is gone");
}

async fn contenders_are_served_in_the_order_of_their_znodes<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(fixture.client().await);
    }
    let first = acquire(&H::of(&clients[0])).await;
    let second = Waiter::queue(&W::Rival::of(&clients[1])).await;
    let mut third = Waiter::queue(&W::of(&clients[2])).await;
    let mut fourth = Waiter::queue(&W::Rival::of(&clients[3])).await;
    let mut fifth = Waiter::queue(&W::of(&clients[4])).await;

    let mut served = vec![czxid(&clients[0], first.path()).await];
    first.release().await.unwrap();
    let second = second.guard().await;
    served.push(czxid(&clients[1], second.path()).await);
    for client in &clients {
        settle(client).await;
    }
    assert!(third.is_waiting() && fourth.is_waiting() && fifth.is_waiting());
    second.release().await.unwrap();
    let third = third.guard().await;
    served.push(czxid(&clients[2], third.path()).await);
    for client in &clients {
        settle(client).await;
    }
    assert!(fourth.is_waiting() && fifth.is_waiting());
    third.release().await.unwrap();
    let fourth = fourth.guard().await;
    served.push(czxid(&clients[3], fourth.path()).await);
    settle(&clients[4]).await;
    assert!(fifth.is_waiting());
    fourth.release().await.unwrap();
    let fifth = fifth.guard().await;
    served.push(czxid(&clients[4], fifth.path()).await);
    fifth.release().await.unwrap();
    assert!(served.is_sorted_by(|earlier, later| earlier < later), "{served:?}");
    until_znodes::<W>(&clients[0], 0).await;
}

async fn a_contender_that_gives_up_in_the_middle_is_passed_over<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
    let holder = acquire(&H::of(&clients[0])).await;
    let middle = Waiter::queue(&W::Rival::of(&clients[1])).await;
    let mut last = Waiter::queue(&W::of(&clients[2])).await;
    until_znodes::<W>(&clients[0], 3).await;
    drop(middle);
    until_znodes::<W>(&clients[0], 2).await;
    settle(&clients[2]).await;
    assert!(last.is_waiting(), "the holder holds it still");
    holder.release().await.unwrap();
    last.guard().await.release().await.unwrap();
    until_znodes::<W>(&clients[0], 0).await;
}

/// Returns the path of the znode of a client.
async fn znode_of<C: Case>(fixture: &Fixture, client: &Client) -> String {
    for path in znodes::<C>(client).await.0 {
        let stat = client.exists(&path).await.unwrap().expect("the contender has a znode");
        if stat.ephemeral_owner == client.session_id() {
            return fixture.full(&path);
        }
    }
    panic!("it has none");
}

async fn a_contender_that_loses_its_znode_in_the_middle_goes_to_the_end<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
    let holder = acquire(&H::of(&clients[0])).await;
    let mut middle = Waiter::queue(&W::Rival::of(&clients[1])).await;
    let mut last = Waiter::queue(&W::of(&clients[2])).await;
    let doomed = znode_of::<W>(&fixture, &clients[1]).await;
    fixture.observer.delete(&doomed, None).await.unwrap();
    soon("another place", async {
        // The contender gives up its old place, and gets a new one.
        while znodes::<W>(&clients[0]).await.0.len() < 3 {}
    })
    .await;
    settle(&clients[2]).await;
    assert!(last.is_waiting(), "its predecessor is gone, but the holder still holds the lock");
    assert_eq!(holder.validate().await, Ok(()));
    holder.release().await.unwrap();
    let last = last.guard().await;
    settle(&clients[1]).await;
    assert!(middle.is_waiting(), "it is behind the last one by now");
    last.release().await.unwrap();
    middle.guard().await.release().await.unwrap();
    until_znodes::<W>(&clients[0], 0).await;
}

async fn a_waiter_that_loses_its_znode_goes_to_the_end<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
    let holder = acquire(&H::of(&clients[0])).await;
    let mut waiter = Waiter::queue(&W::of(&clients[1])).await;
    let rival = Waiter::queue(&W::Rival::of(&clients[2])).await;
    let doomed = znode_of::<W>(&fixture, &clients[1]).await;
    fixture.observer.delete(&doomed, None).await.unwrap();
    soon("another place", async { while znodes::<W>(&clients[0]).await.0.len() < 3 {} }).await;
    holder.release().await.unwrap();
    let rival = rival.guard().await;
    settle(&clients[1]).await;
    assert!(waiter.is_waiting());
    rival.release().await.unwrap();
    waiter.guard().await.release().await.unwrap();
    until_znodes::<W>(&clients[0], 0).await;
}

/// The waiter cannot watch the holder's znode, so it watches the directory instead.
async fn a_holder_that_may_not_be_read_is_waited_for<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let (owner, other) = (owner(&fixture).await, fixture.client().await);
    // Otherwise the lock would protect the directory as it protects the contender.
    directory::<H>(&owner, Permissions::ALL).await;
    catch_up(&other).await;
    let secret = H::with(&owner, |lock| lock.acl(Acl::creator_all()));
    let holder = acquire(&secret).await;
    let mut waiter = Waiter::queue(&W::of(&other)).await;
    // The directory changes, but the holder keeps the lock.
    let passer_by = Waiter::queue(&W::of(&fixture.client().await)).await;
    drop(passer_by);
    until_znodes::<W>(&owner, 2).await;
    settle(&other).await;
    assert!(waiter.is_waiting());
    holder.release().await.unwrap();
    waiter.guard().await.release().await.unwrap();
    until_znodes::<W>(&owner, 0).await;
}

async fn who_may_not_list_is_refused_and_nothing_is_left<H: Case, W: Case>() {
    let fixture = Fixture::start().await;
    let (owner, other) = (owner(&fixture).await, fixture.client().await);
    directory::<W>(&owner, Permissions::CREATE | Permissions::DELETE).await;
    catch_up(&other).await;
    let waiter = W::of(&other);
    let error = waiter.acquire().timeout(PATIENCE).await.unwrap_err();
    assert!(is_refused(&error, FailedAction::List), "{error}");
    let error = waiter.try_acquire().await.unwrap_err();
    assert!(is_refused(&error, FailedAction::List), "{error}");
    cleaned_up(&other).await;
    until_znodes::<W>(&owner, 0).await;
    acquire(&H::of(&owner)).await.release().await.unwrap();
}

async fn a_transaction_of_a_session_that_expires_changes_nothing<H: Case<Kind: Queued>, W: Case>() {
    let victim = Victim::start(NEVER, true).await;
    let client = victim.fixture.client().await;
    client.create("/paid", "", CreateMode::Persistent).await.unwrap();
    let holder = acquire(&H::of(&victim.client)).await;
    let next = Waiter::queue(&W::of(&client)).await;
    let pay = || holder.transaction(Multi::new().set_data("/paid", "late", None));
    // The outcome of a transaction that is in flight when the session expires is unknown at first.
    victim.proxy.pause();
    let (early, ()) = tokio::join!(pay(), async {
        victim.expire_while_blocked().await;
        victim.proxy.resume();
    });
    early.unwrap_err();
    victim.next_session().await;
    let late = pay().await.unwrap_err();
    assert_eq!(late.outcome(), Outcome::NotApplied, "{late}");
    let next = next.guard().await;
    catch_up(&client).await;
    let (data, stat) = client.get_data("/paid").await.unwrap();
    assert_eq!((data, stat.version), ("".into(), Version(0)));
    drop(holder);
    next.release().await.unwrap();
    until_znodes::<W>(&client, 0).await;
}

/// Far more polls than any of these futures needs.
const POLLS_MAX: usize = 300;
