//! What holds for every lock. A scenario has a holder and a waiter that it keeps out. In a queue
//! there may be a rival between them, who excludes both.

use std::cmp::Reverse;
use std::future::IntoFuture as _;
use std::time::Duration;

use zk_recipes::kind::Queued;
use zk_recipes::{
    Acl, Client, ExclusiveLock, FairLock, LockError, LockState, LostReason, Multi, Outcome,
    Permissions, Phase, Released, Version,
};
use zk_session::{CreateMode, CreateOptions, ErrorCode};
use zk_tests::lock::{
    LOCK, Reader, Side, Waiter, Writer, acquire, cancelled_after, settle, until_znodes, znodes,
};
use zk_tests::target::{CREDENTIALS, Fixture};
use zk_tests::wait::{PATIENCE, reconnected, soon};

use crate::expiry::{NEVER, Victim};

/// Who takes part.
trait Constellation {
    type Holder: Side;
    type Rival: Side;
    type Waiter: Side;
}

impl<H: Side, R: Side, W: Side> Constellation for (H, R, W) {
    type Holder = H;
    type Rival = R;
    type Waiter = W;
}

/// A module for each constellation, with the scenarios as its tests.
macro_rules! constellations {
    ($($name:ident: $parts:ty),+; $scenarios:tt) => {
        $(constellations!(@one $name: $parts; $scenarios);)+
    };
    (@one $name:ident: $parts:ty; [$($scenario:ident,)+]) => {
        mod $name {
            #[allow(unused_imports, reason = "each constellation needs some of them")]
            use super::{ExclusiveLock, FairLock, Reader, Writer};
            $(#[tokio::test]
            async fn $scenario() {
                super::$scenario::<$parts>().await;
            })+
        }
    };
}

constellations! {
    fair: (FairLock, FairLock, FairLock),
    reader_behind_writer: (Writer, Writer, Reader),
    writer_behind_reader: (Reader, Writer, Writer),
    writer_behind_writer: (Writer, Writer, Writer),
    exclusive: (ExclusiveLock, ExclusiveLock, ExclusiveLock);
    [
        a_free_lock_is_acquired_and_released,
        a_missing_directory_is_made_with_its_ancestors,
        the_holder_keeps_the_other_out_until_it_releases,
        a_try_takes_a_free_lock_and_leaves_a_busy_one,
        a_wait_ends_at_its_timeout_and_leaves_nothing,
        an_acquire_may_be_dropped_at_every_await_point,
        a_wait_may_be_dropped_at_every_await_point,
        a_try_may_be_dropped_at_every_await_point,
        a_release_may_be_dropped_at_every_await_point,
        dropping_a_guard_releases,
        closing_the_holder_passes_the_lock_on,
        closing_the_waiter_ends_its_wait,
        a_guard_is_lost_when_somebody_deletes_its_znode,
        a_validation_notices_that_the_znode_is_gone,
        a_deleted_directory_is_made_again_by_who_waits,
        a_session_that_expires_while_waiting_is_followed_by_another_wait,
        a_session_that_expires_while_holding_loses_the_lock_and_the_next_may_have_it,
        a_directory_that_may_not_be_written_refuses_and_nothing_is_left,
        a_directory_that_cannot_be_is_refused_with_the_reason,
        a_lock_is_held_over_the_loss_of_a_connection,
        a_waiter_goes_on_waiting_over_the_loss_of_a_connection,
        a_lost_reply_leaves_no_ghost,
    ]
}

mod queues {
    use super::*;

    constellations! {
        fair: (FairLock, FairLock, FairLock),
        reader_behind_writer: (Writer, Writer, Reader),
        writer_behind_reader: (Reader, Writer, Writer),
        writer_behind_writer: (Writer, Writer, Writer);
        [
            contenders_are_served_in_the_order_of_their_znodes,
            a_contender_that_gives_up_in_the_middle_is_passed_over,
            a_contender_that_loses_its_znode_in_the_middle_goes_to_the_end,
            a_waiter_that_loses_its_znode_goes_to_the_end,
            a_holder_that_may_not_be_read_is_waited_for,
            who_may_not_list_is_refused_and_nothing_is_left,
            a_transaction_of_a_session_that_expires_changes_nothing,
        ]
    }
}

async fn owner(fixture: &Fixture) -> Client {
    fixture.builder().auth("digest", CREDENTIALS).connect().await.unwrap()
}

/// Makes the directory of the contender znodes, which is the owner's. What everybody may do is
/// another thing.
async fn directory<S: Side>(owner: &Client, everybody: Permissions) {
    let list = Acl::creator_all().into_iter().chain([Acl::new(everybody, "world", "anyone")]);
    let options = CreateOptions::from(CreateMode::Persistent).acl(list.collect());
    if S::DIRECTORY == LOCK {
        owner.create("/locks", "", CreateMode::Persistent).await.unwrap();
    }
    owner.create(S::DIRECTORY, "", options).await.unwrap();
}

/// The work that is left to do in the background is done.
async fn cleaned_up(client: &Client) {
    soon("the end of the clean-up", async {
        while client.janitor_slots_busy() > 0 {
            client.sync("/").await.unwrap();
        }
    })
    .await;
}

/// The transaction that has created a contender znode.
async fn czxid(client: &Client, path: &str) -> i64 {
    client.exists(path).await.unwrap().expect("its holder holds").czxid.0
}

fn is_refused(error: &LockError, what: &str) -> bool {
    matches!(error, LockError::Refused { code: ErrorCode::NO_AUTH, operation, .. } if *operation == what)
}

async fn a_free_lock_is_acquired_and_released<C: Constellation>() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let guard = acquire(&C::Waiter::of(&client)).await;
    assert_eq!((guard.state(), guard.session()), (LockState::Held, client.session_id().unwrap()));
    let stat = client.exists(guard.path()).await.unwrap().expect("the guard's znode exists");
    assert_eq!(stat.ephemeral_owner, Some(guard.session()));
    for _ in 0..3 {
        assert_eq!(guard.validate().await, Ok(()));
    }
    assert_eq!(znodes::<C::Waiter>(&client).await.0, [guard.path()]);
    assert_eq!(guard.release().await, Ok(Released::Released));
    assert_eq!(znodes::<C::Waiter>(&client).await.0, [""; 0]);
}

async fn a_missing_directory_is_made_with_its_ancestors<C: Constellation>() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    assert_eq!(client.exists("/locks").await, Ok(None));
    let guard = C::Waiter::of(&client).trying().await.unwrap().expect("nobody holds it");
    for path in ["/locks", C::Waiter::DIRECTORY] {
        let stat = client.exists(path).await.unwrap().unwrap();
        assert_eq!((stat.ephemeral_owner, stat.data_length), (None, 0), "{path}");
    }
    guard.release().await.unwrap();
}

async fn the_holder_keeps_the_other_out_until_it_releases<C: Constellation>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let holder = acquire(&C::Holder::of(&client)).await;
    let mut next = Waiter::queue(&C::Waiter::of(&other)).await;
    settle(&other).await;
    assert!(next.is_waiting());
    assert_eq!(holder.validate().await, Ok(()));
    assert_eq!(holder.release().await, Ok(Released::Released));
    let next = next.guard().await;
    assert_eq!((next.state(), next.session()), (LockState::Held, other.session_id().unwrap()));
    assert_eq!(next.validate().await, Ok(()));
    assert_eq!(next.release().await, Ok(Released::Released));
    until_znodes::<C::Waiter>(&client, 0).await;
}

async fn a_try_takes_a_free_lock_and_leaves_a_busy_one<C: Constellation>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = C::Holder::of(&client).trying().await.unwrap().expect("nobody holds it");
    let before = client.exists(C::Holder::DIRECTORY).await.unwrap().unwrap();
    other.sync(LOCK).await.unwrap();
    assert!(C::Waiter::of(&other).trying().await.unwrap().is_none());
    assert!(C::Waiter::of(&client).trying().await.unwrap().is_none(), "it is not reentrant");
    // Reads only: nothing was created.
    assert_eq!(client.exists(C::Holder::DIRECTORY).await.unwrap().unwrap(), before);
    guard.release().await.unwrap();
    other.sync(LOCK).await.unwrap();
    let guard = C::Waiter::of(&other).trying().await.unwrap().expect("it is free again");
    guard.release().await.unwrap();
    until_znodes::<C::Waiter>(&other, 0).await;
}

async fn a_wait_ends_at_its_timeout_and_leaves_nothing<C: Constellation>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = acquire(&C::Holder::of(&client)).await;
    for timeout in [Duration::ZERO, Duration::from_millis(50)] {
        let error = C::Waiter::of(&other).acquiring().timeout(timeout).await.unwrap_err();
        assert_eq!(error, LockError::TimedOut);
    }
    cleaned_up(&other).await;
    until_znodes::<C::Waiter>(&client, 1).await;
    assert_eq!(guard.validate().await, Ok(()));
    guard.release().await.unwrap();
    until_znodes::<C::Waiter>(&client, 0).await;
}

async fn an_acquire_may_be_dropped_at_every_await_point<C: Constellation>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    for polls in 0.. {
        let acquiring = C::Waiter::of(&client).acquiring().timeout(PATIENCE).into_future();
        let acquired = cancelled_after(polls, acquiring).await;
        let is_complete = acquired.is_some();
        if let Some(guard) = acquired {
            guard.unwrap().release().await.unwrap();
        }
        until_znodes::<C::Waiter>(&other, 0).await;
        cleaned_up(&client).await;
        if is_complete {
            break;
        }
        assert!(polls < POLLS_MAX, "it does not come to its end");
    }
    let guard = C::Waiter::of(&other).trying().await.unwrap().expect("nobody holds it");
    guard.release().await.unwrap();
}

/// The holder lets go as soon as the other one waits, so the last of these waits are granted.
async fn a_wait_may_be_dropped_at_every_await_point<C: Constellation>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let mut dropped_waiting = 0;
    for polls in 0.. {
        let holder = acquire(&C::Holder::of(&other)).await;
        let (acquire, mut phases) = C::Waiter::of(&client).acquiring().timeout(PATIENCE).phases();
        let acquiring = cancelled_after(polls, acquire.into_future());
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
        until_znodes::<C::Waiter>(&other, 0).await;
        cleaned_up(&client).await;
        if is_complete {
            break;
        }
        assert!(polls < POLLS_MAX, "it does not come to its end");
    }
    assert!(dropped_waiting > 0, "no wait was dropped");
}

async fn a_try_may_be_dropped_at_every_await_point<C: Constellation>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    for polls in 0.. {
        let trying = C::Waiter::of(&client).trying().into_future();
        let tried = cancelled_after(polls, trying).await;
        let is_complete = tried.is_some();
        if let Some(guard) = tried {
            guard.unwrap().expect("nobody holds it").release().await.unwrap();
        }
        until_znodes::<C::Waiter>(&other, 0).await;
        cleaned_up(&client).await;
        if is_complete {
            break;
        }
        assert!(polls < POLLS_MAX, "it does not come to its end");
    }
}

async fn a_release_may_be_dropped_at_every_await_point<C: Constellation>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    for polls in 0.. {
        let guard = acquire(&C::Holder::of(&client)).await;
        let next = Waiter::queue(&C::Waiter::of(&other)).await;
        let released = cancelled_after(polls, guard.release()).await;
        assert_eq!(next.guard().await.release().await, Ok(Released::Released));
        until_znodes::<C::Waiter>(&other, 0).await;
        if let Some(released) = released {
            assert_eq!(released, Ok(Released::Released));
            break;
        }
        assert!(polls < POLLS_MAX, "it does not come to its end");
    }
}

async fn dropping_a_guard_releases<C: Constellation>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = acquire(&C::Holder::of(&client)).await;
    let next = Waiter::queue(&C::Waiter::of(&other)).await;
    drop(guard);
    next.guard().await.release().await.unwrap();
    until_znodes::<C::Waiter>(&client, 0).await;
}

async fn closing_the_holder_passes_the_lock_on<C: Constellation>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = acquire(&C::Holder::of(&client)).await;
    let next = Waiter::queue(&C::Waiter::of(&other)).await;
    let lost = guard.lost();
    client.close().await;
    assert_eq!(soon("the loss", lost).await, LostReason::Closed);
    assert_eq!(guard.state(), LockState::Lost(LostReason::Closed));
    next.guard().await.release().await.unwrap();
    until_znodes::<C::Waiter>(&other, 0).await;
}

async fn closing_the_waiter_ends_its_wait<C: Constellation>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = acquire(&C::Holder::of(&client)).await;
    let next = Waiter::queue(&C::Waiter::of(&other)).await;
    other.close().await;
    assert_eq!(next.result().await.unwrap_err(), LockError::Closed);
    until_znodes::<C::Waiter>(&client, 1).await;
    assert_eq!(guard.validate().await, Ok(()));
    guard.release().await.unwrap();
}

async fn a_guard_is_lost_when_somebody_deletes_its_znode<C: Constellation>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = acquire(&C::Holder::of(&client)).await;
    let next = Waiter::queue(&C::Waiter::of(&other)).await;
    let lost = guard.lost();
    fixture.observer.delete(&fixture.full(guard.path()), None).await.unwrap();
    assert_eq!(soon("the loss", lost).await, LostReason::ZnodeDeleted);
    assert_eq!(guard.state(), LockState::Lost(LostReason::ZnodeDeleted));
    let next = next.guard().await;
    let error = guard.validate().await.unwrap_err();
    assert_eq!(error, LockError::Lost(LostReason::ZnodeDeleted));
    assert_eq!(guard.release().await, Ok(Released::AlreadyGone));
    assert_eq!(next.validate().await, Ok(()), "the loser has removed nobody else's znode");
    assert_eq!(next.release().await, Ok(Released::Released));
    until_znodes::<C::Waiter>(&client, 0).await;
}

/// Whether or not its event has come yet.
async fn a_validation_notices_that_the_znode_is_gone<C: Constellation>() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let guard = acquire(&C::Waiter::of(&client)).await;
    client.delete(guard.path(), None).await.unwrap();
    let error = guard.validate().await.unwrap_err();
    assert_eq!(error, LockError::Lost(LostReason::ZnodeDeleted));
    assert_eq!(guard.release().await, Ok(Released::AlreadyGone));
}

async fn a_deleted_directory_is_made_again_by_who_waits<C: Constellation>() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let holder = acquire(&C::Holder::of(&client)).await;
    let before = czxid(&client, holder.path()).await;
    let next = Waiter::queue(&C::Waiter::of(&other)).await;
    let (mut paths, _) = znodes::<C::Waiter>(&client).await;
    // Who waits hears of its own znode first. The other way round it may take the deletion of the
    // one ahead for its turn, hold, and learn a moment later that its own znode went with it.
    paths.sort_unstable_by_key(|path| Reverse(path[path.len() - 10..].to_owned()));
    let mut all = paths.iter().fold(Multi::new(), |multi, path| multi.delete(path, None));
    if C::Waiter::DIRECTORY == LOCK {
        all = all.delete(LOCK, None);
    }
    client.commit(all.delete("/locks", None)).await.unwrap();
    assert_eq!(soon("the loss", holder.lost()).await, LostReason::ZnodeDeleted);
    let next = next.guard().await;
    assert!(czxid(&other, next.path()).await > before);
    assert_eq!(holder.release().await, Ok(Released::AlreadyGone));
    assert_eq!(next.validate().await, Ok(()));
    assert_eq!(next.release().await, Ok(Released::Released));
    until_znodes::<C::Waiter>(&client, 0).await;
}

async fn a_session_that_expires_while_waiting_is_followed_by_another_wait<C: Constellation>() {
    let victim = Victim::start(NEVER, true).await;
    let client = victim.fixture.client().await;
    let holder = acquire(&C::Holder::of(&client)).await;
    let mut waiter = Waiter::queue(&C::Waiter::of(&victim.client)).await;
    victim.expire().await;
    until_znodes::<C::Waiter>(&client, 1).await;
    victim.proxy.resume();
    let after = victim.next_session().await;
    if C::Waiter::DIRECTORY == LOCK {
        until_znodes::<C::Waiter>(&client, 2).await;
    }
    settle(&victim.client).await;
    assert!(waiter.is_waiting());
    assert_eq!(holder.validate().await, Ok(()));
    assert_eq!(holder.release().await, Ok(Released::Released));
    let guard = waiter.guard().await;
    assert_eq!(Some(guard.session()), after.session);
    assert_eq!(guard.validate().await, Ok(()));
    assert_eq!(guard.release().await, Ok(Released::Released));
    until_znodes::<C::Waiter>(&client, 0).await;
}

async fn a_session_that_expires_while_holding_loses_the_lock_and_the_next_may_have_it<
    C: Constellation,
>() {
    let victim = Victim::start(NEVER, true).await;
    let client = victim.fixture.client().await;
    let holder = acquire(&C::Holder::of(&victim.client)).await;
    let next = Waiter::queue(&C::Waiter::of(&client)).await;
    victim.expire().await;
    // Nobody has told the holder, who knows by itself.
    let next = next.guard().await;
    let reason = soon("the loss", holder.lost()).await;
    assert_eq!(reason, LostReason::DeadlinePassed);
    victim.proxy.resume();
    victim.next_session().await;
    // Lost is lost, also when a server can be reached again.
    assert_eq!(holder.validate().await, Err(LockError::Lost(reason)));
    let released = soon("the release", holder.release()).await;
    assert!(
        matches!(released, Ok(Released::EndedWithSession | Released::AlreadyGone)),
        "{released:?}"
    );
    assert_eq!(next.validate().await, Ok(()));
    // Its client goes on in the new session.
    let again = Waiter::queue(&C::Holder::of(&victim.client)).await;
    assert_eq!(next.release().await, Ok(Released::Released));
    assert_eq!(again.guard().await.release().await, Ok(Released::Released));
    until_znodes::<C::Waiter>(&client, 0).await;
}

async fn a_directory_that_may_not_be_written_refuses_and_nothing_is_left<C: Constellation>() {
    let fixture = Fixture::start().await;
    let (owner, other) = (owner(&fixture).await, fixture.client().await);
    directory::<C::Waiter>(&owner, Permissions::READ).await;
    other.sync(LOCK).await.unwrap();
    let waiter = C::Waiter::of(&other);
    for _ in 0..2 {
        let error = waiter.acquiring().timeout(PATIENCE).await.unwrap_err();
        assert!(is_refused(&error, "create"), "{error}");
        let error = waiter.trying().await.unwrap_err();
        assert!(is_refused(&error, "create"), "{error}");
    }
    cleaned_up(&other).await;
    until_znodes::<C::Waiter>(&owner, 0).await;
    let holder = acquire(&C::Holder::of(&owner)).await;
    other.sync(LOCK).await.unwrap();
    // It is taken, and that may be read.
    assert!(waiter.trying().await.unwrap().is_none());
    let error = waiter.acquiring().timeout(PATIENCE).await.unwrap_err();
    assert!(is_refused(&error, "create"), "{error}");
    assert_eq!(holder.validate().await, Ok(()));
    assert_eq!(holder.release().await, Ok(Released::Released));
    until_znodes::<C::Waiter>(&owner, 0).await;
}

async fn a_directory_that_cannot_be_is_refused_with_the_reason<C: Constellation>() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    client.create("/locks", "", CreateMode::Ephemeral).await.unwrap();
    let error = C::Waiter::of(&client).acquiring().timeout(PATIENCE).await.unwrap_err();
    let LockError::Refused { code, .. } = &error else { panic!("{error}") };
    assert_eq!(*code, ErrorCode::NO_CHILDREN_FOR_EPHEMERALS);
    // The clean-up finds nothing to do, and ends.
    cleaned_up(&client).await;
}

async fn a_lock_is_held_over_the_loss_of_a_connection<C: Constellation>() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let other = fixture.client().await;
    let guard = acquire(&C::Holder::of(&client)).await;
    let mut next = Waiter::queue(&C::Waiter::of(&other)).await;
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
    until_znodes::<C::Waiter>(&other, 0).await;
}

async fn a_waiter_goes_on_waiting_over_the_loss_of_a_connection<C: Constellation>() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let other = fixture.client().await;
    let holder = acquire(&C::Holder::of(&other)).await;
    let mut waiter = Waiter::queue(&C::Waiter::of(&client)).await;
    let (before, _) = znodes::<C::Waiter>(&other).await;
    for _ in 0..3 {
        let status = client.status();
        proxy.cut_all();
        reconnected(&client, status).await;
        settle(&client).await;
        assert!(waiter.is_waiting());
    }
    let (mut after, _) = znodes::<C::Waiter>(&other).await;
    after.sort_by_key(|path| before.iter().position(|other| other == path));
    assert_eq!(after, before, "it has kept its place");
    holder.release().await.unwrap();
    let guard = waiter.guard().await;
    assert_eq!(guard.validate().await, Ok(()));
    guard.release().await.unwrap();
    until_znodes::<C::Waiter>(&other, 0).await;
}

async fn a_lost_reply_leaves_no_ghost<C: Constellation>() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let other = fixture.client().await;
    let lock = C::Waiter::of(&client);
    acquire(&lock).await.release().await.unwrap();
    for _ in 0..3 {
        proxy.lose_replies();
        let guard = acquire(&lock).await;
        assert_eq!(znodes::<C::Waiter>(&other).await.0, [guard.path()]);
        assert_eq!(guard.validate().await, Ok(()));
        proxy.lose_replies();
        guard.release().await.unwrap();
        assert_eq!(znodes::<C::Waiter>(&other).await.0, [""; 0]);
    }
    // And of one who waits.
    for _ in 0..3 {
        let holder = acquire(&C::Holder::of(&other)).await;
        proxy.lose_replies();
        let waiter = Waiter::queue(&lock).await;
        assert_eq!(holder.release().await, Ok(Released::Released));
        waiter.guard().await.release().await.unwrap();
        until_znodes::<C::Waiter>(&other, 0).await;
    }
}

async fn contenders_are_served_in_the_order_of_their_znodes<C: Constellation>() {
    let fixture = Fixture::start().await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(fixture.client().await);
    }
    let first = acquire(&C::Holder::of(&clients[0])).await;
    let second = Waiter::queue(&C::Rival::of(&clients[1])).await;
    let mut third = Waiter::queue(&C::Waiter::of(&clients[2])).await;
    let mut fourth = Waiter::queue(&C::Rival::of(&clients[3])).await;
    let mut fifth = Waiter::queue(&C::Waiter::of(&clients[4])).await;

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
    until_znodes::<C::Waiter>(&clients[0], 0).await;
}

async fn a_contender_that_gives_up_in_the_middle_is_passed_over<C: Constellation>() {
    let fixture = Fixture::start().await;
    let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
    let holder = acquire(&C::Holder::of(&clients[0])).await;
    let middle = Waiter::queue(&C::Rival::of(&clients[1])).await;
    let mut last = Waiter::queue(&C::Waiter::of(&clients[2])).await;
    until_znodes::<C::Waiter>(&clients[0], 3).await;
    drop(middle);
    until_znodes::<C::Waiter>(&clients[0], 2).await;
    settle(&clients[2]).await;
    assert!(last.is_waiting(), "the holder holds it still");
    holder.release().await.unwrap();
    last.guard().await.release().await.unwrap();
    until_znodes::<C::Waiter>(&clients[0], 0).await;
}

/// Path of the znode of a client.
async fn znode_of<S: Side>(fixture: &Fixture, client: &Client) -> String {
    for path in znodes::<S>(client).await.0 {
        let stat = client.exists(&path).await.unwrap().expect("it stands there");
        if stat.ephemeral_owner == client.session_id() {
            return fixture.full(&path);
        }
    }
    panic!("it has none");
}

async fn a_contender_that_loses_its_znode_in_the_middle_goes_to_the_end<C: Constellation>() {
    let fixture = Fixture::start().await;
    let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
    let holder = acquire(&C::Holder::of(&clients[0])).await;
    let mut middle = Waiter::queue(&C::Rival::of(&clients[1])).await;
    let mut last = Waiter::queue(&C::Waiter::of(&clients[2])).await;
    let doomed = znode_of::<C::Waiter>(&fixture, &clients[1]).await;
    fixture.observer.delete(&doomed, None).await.unwrap();
    soon("another place", async {
        // It has neither its old place nor none.
        while znodes::<C::Waiter>(&clients[0]).await.0.len() < 3 {}
    })
    .await;
    settle(&clients[2]).await;
    assert!(last.is_waiting(), "who stood before it has gone, but the holder holds");
    assert_eq!(holder.validate().await, Ok(()));
    holder.release().await.unwrap();
    let last = last.guard().await;
    settle(&clients[1]).await;
    assert!(middle.is_waiting(), "it stands behind the last by now");
    last.release().await.unwrap();
    middle.guard().await.release().await.unwrap();
    until_znodes::<C::Waiter>(&clients[0], 0).await;
}

async fn a_waiter_that_loses_its_znode_goes_to_the_end<C: Constellation>() {
    let fixture = Fixture::start().await;
    let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
    let holder = acquire(&C::Holder::of(&clients[0])).await;
    let mut waiter = Waiter::queue(&C::Waiter::of(&clients[1])).await;
    let rival = Waiter::queue(&C::Rival::of(&clients[2])).await;
    let doomed = znode_of::<C::Waiter>(&fixture, &clients[1]).await;
    fixture.observer.delete(&doomed, None).await.unwrap();
    soon("another place", async { while znodes::<C::Waiter>(&clients[0]).await.0.len() < 3 {} })
        .await;
    holder.release().await.unwrap();
    let rival = rival.guard().await;
    settle(&clients[1]).await;
    assert!(waiter.is_waiting());
    rival.release().await.unwrap();
    waiter.guard().await.release().await.unwrap();
    until_znodes::<C::Waiter>(&clients[0], 0).await;
}

/// The directory is watched instead.
async fn a_holder_that_may_not_be_read_is_waited_for<C: Constellation>() {
    let fixture = Fixture::start().await;
    let (owner, other) = (owner(&fixture).await, fixture.client().await);
    let secret = C::Holder::build(&owner, Acl::creator_all()).unwrap();
    let holder = acquire(&secret).await;
    let mut waiter = Waiter::queue(&C::Waiter::of(&other)).await;
    // Something changes, but not for us.
    let passer_by = Waiter::queue(&C::Waiter::of(&fixture.client().await)).await;
    drop(passer_by);
    until_znodes::<C::Waiter>(&owner, 2).await;
    settle(&other).await;
    assert!(waiter.is_waiting());
    holder.release().await.unwrap();
    waiter.guard().await.release().await.unwrap();
    until_znodes::<C::Waiter>(&owner, 0).await;
}

async fn who_may_not_list_is_refused_and_nothing_is_left<C: Constellation>() {
    let fixture = Fixture::start().await;
    let (owner, other) = (owner(&fixture).await, fixture.client().await);
    directory::<C::Waiter>(&owner, Permissions::CREATE | Permissions::DELETE).await;
    other.sync(LOCK).await.unwrap();
    let waiter = C::Waiter::of(&other);
    let error = waiter.acquiring().timeout(PATIENCE).await.unwrap_err();
    assert!(is_refused(&error, "list"), "{error}");
    let error = waiter.trying().await.unwrap_err();
    assert!(is_refused(&error, "list"), "{error}");
    cleaned_up(&other).await;
    until_znodes::<C::Waiter>(&owner, 0).await;
    acquire(&C::Holder::of(&owner)).await.release().await.unwrap();
}

async fn a_transaction_of_a_session_that_expires_changes_nothing<
    C: Constellation<Holder: Side<Kind: Queued>>,
>() {
    let victim = Victim::start(NEVER, true).await;
    let client = victim.fixture.client().await;
    client.create("/paid", "", CreateMode::Persistent).await.unwrap();
    let holder = acquire(&C::Holder::of(&victim.client)).await;
    let next = Waiter::queue(&C::Waiter::of(&client)).await;
    let pay = || holder.transaction(Multi::new().set_data("/paid", "late", None));
    // Of one that is on its way when the session expires, nothing more is known at first.
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
    client.sync("/paid").await.unwrap();
    let (data, stat) = client.get_data("/paid").await.unwrap();
    assert_eq!((data, stat.version), ("".into(), Version(0)));
    drop(holder);
    next.release().await.unwrap();
    until_znodes::<C::Waiter>(&client, 0).await;
}

/// Far more than any of them needs.
const POLLS_MAX: usize = 300;
