//! Revocation: somebody asks for the lock, and the holder is told, whatever is lost on the way.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::kind::Queued;
use zk_recipes::{
    Acl, Client, ErrorCode, FairLock, Guard, LockState, LostReason, RecipeError, request_revocation,
};
use zk_tests::case::{Case, LOCK};
use zk_tests::for_each_lock;
use zk_tests::scene::{
    FIRST, SECOND, all_sent_since, at_request, create_directory, granted, hold, ops, place_of,
    release, sent_since, session, settle, spawn, start_waiting,
};
use zk_tests::world::{Enumeration, World, run, sleep_ms};
use zk_testserver::Action;

const READ: OpCode = OpCode::GET_DATA;
const WRITE: OpCode = OpCode::SET_DATA;

for_each_lock! {
    #[test] queues: [
        a_holder_is_told_and_keeps_the_lock,
        a_request_survives_every_cut,
        nobody_pays_for_requests_that_nobody_waits_for,
        a_session_that_ends_ends_no_wait,
        other_data_is_no_request,
    ]
    #[test] queue_pairs: [a_waiter_is_told_after_the_grant]
}

/// Time within which a request is reported, unless a fault delays it.
const SOON: Duration = Duration::from_millis(100);
/// Time within which a request is reported after two cuts.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum number of requests of a holder that reports a request after two cuts.
const SENT_MAX: usize = 11;

async fn ask(client: &Client, path: &str) {
    assert_eq!(request_revocation(client, path).await, Ok(true));
}

/// Whether the request is reported within this time.
async fn is_told<K: Queued>(guard: &Guard<K>, within: Duration) -> bool {
    tokio::time::timeout(within, guard.revocation_requested()).await.is_ok()
}

fn a_holder_is_told_and_keeps_the_lock<C: Case>()
where
    C::Kind: Queued,
{
    // The keeper reads its znode 100 ms after the grant.
    for asked_after_ms in [0, 50, 99, 100, 101, 5_000] {
        for waits_first in [false, true] {
            run(async {
                let world = World::new();
                let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
                let guard = hold(&C::of(&client)).await;
                let waiting = waits_first.then(|| spawn(guard.revocation_requested()));
                sleep_ms(asked_after_ms).await;
                ask(&other, guard.path()).await;
                if let Some(waiting) = waiting {
                    sleep_ms(200).await;
                    assert!(waiting.is_finished(), "\n{}", world.trace());
                }
                assert!(is_told(&guard, SOON).await, "\n{}", world.trace());
                assert!(is_told(&guard, Duration::ZERO).await, "a request is not forgotten");
                sleep_ms(30_000).await;
                assert_eq!(guard.state(), LockState::Held, "the holder decides");
                release(guard).await;
                world.check_clean(&[&client, &other]).await;
            });
        }
    }
}

fn a_waiter_is_told_after_the_grant<H: Case, W: Case>()
where
    H::Kind: Queued,
    W::Kind: Queued,
{
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let guard = hold(&H::of(&other)).await;
        let waiter = start_waiting(&world, W::of(&client).acquire()).await;
        ask(&other, &place_of(&world, session(&client))).await;
        sleep_ms(5_000).await;
        assert!(!waiter.is_finished(), "a request does not end the wait");
        release(guard).await;
        let guard = granted(waiter).await;
        assert!(is_told(&guard, SOON).await, "\n{}", world.trace());
        release(guard).await;
        world.check_clean(&[&client, &other]).await;
    });
}

/// The cuts hit either client.
fn a_request_survives_every_cut<C: Case>()
where
    C::Kind: Queued,
{
    let mut enumeration = Enumeration::new("a request to revoke", None).without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            create_directory::<C>(&world);
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let guard = hold(&C::of(&client)).await;
            world.server.clear_requests();
            world.inject(faults);
            let waiting = spawn(guard.revocation_requested());
            sleep_ms(50).await;
            ask(&other, guard.path()).await;
            assert!(is_told(&guard, PATIENCE).await, "\n{}", world.trace());
            waiting.await.expect("it does not panic");
            sleep_ms(30_000).await;
            let sent = sent_since(&world, &client);
            // Each cut costs the watches, and a proof that is repeated.
            assert!(sent.len() <= SENT_MAX, "{sent:?}");
            release(guard).await;
            world.check_clean(&[&client, &other]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(30, 150), "{enumeration:?}");
}

/// A lock that has waited watches its znode, and has not read it.
fn nobody_pays_for_requests_that_nobody_waits_for<C: Case>()
where
    C::Kind: Queued,
{
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let guard = hold(&C::Rival::of(&other)).await;
        let waiter = start_waiting(&world, C::of(&client).acquire()).await;
        sleep_ms(1_000).await;
        release(guard).await;
        let guard = granted(waiter).await;
        settle().await;
        sent_since(&world, &client);
        // The first test of existence comes after 30 s.
        sleep_ms(15_000).await;
        assert_eq!(sent_since(&world, &client), [], "\n{}", world.trace());

        let waiting = [(); 10].map(|()| spawn(guard.revocation_requested()));
        assert_eq!(all_sent_since(&world, &client).await, [READ], "one read for all who wait");
        sleep_ms(10_000).await;
        assert_eq!(sent_since(&world, &client), [], "waiting is free");
        world.server.clear_requests();
        ask(&other, guard.path()).await;
        for waiting in waiting {
            waiting.await.expect("it does not panic");
        }
        assert_eq!(ops(&world.server.requests()), [WRITE, READ]);
        release(guard).await;
        world.check_clean(&[&client, &other]).await;
    });
}

fn a_session_that_ends_ends_no_wait<C: Case>()
where
    C::Kind: Queued,
{
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let guard = hold(&C::of(&client)).await;
        let waiting = spawn(guard.revocation_requested());
        sleep_ms(500).await;
        let path = guard.path().to_owned();
        world.server.expire(session(&client));
        assert_eq!(guard.lost().await, LostReason::SessionExpired);
        assert_eq!(request_revocation(&other, &path).await, Ok(false), "it is gone");
        sleep_ms(30_000).await;
        assert!(!waiting.is_finished());
        assert!(!is_told(&guard, PATIENCE).await);
        drop(guard);
        sleep_ms(30_000).await;
        assert!(!waiting.is_finished());
        waiting.abort();
        world.check_clean(&[&client, &other]).await;
    });
}

fn other_data_is_no_request<C: Case>()
where
    C::Kind: Queued,
{
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = hold(&C::of(&client)).await;
        for data in ["", "__REVOKE_", "__REVOKE__ ", "x"] {
            world.server.admin_set_data(guard.path(), data.as_bytes());
            assert!(!is_told(&guard, PATIENCE).await, "{data}");
        }
        world.server.admin_set_data(guard.path(), b"__REVOKE__");
        assert!(is_told(&guard, SOON).await, "\n{}", world.trace());
        // A client that writes the data again does not take the request back.
        world.server.admin_set_data(guard.path(), b"x");
        sleep_ms(1_000).await;
        assert!(is_told(&guard, SOON).await);
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_request_to_revoke_the_writer_does_not_concern_the_reader_that_it_becomes() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let writer = World::rw_lock(&client).write().await.expect("it is free");
        ask(&other, writer.path()).await;
        assert!(is_told(&writer, SOON).await);
        let waiting = spawn(writer.revocation_requested());
        let reader = writer.downgrade().await.expect("it is held");
        waiting.await.expect("it was asked for before");
        assert!(!is_told(&reader, PATIENCE).await, "\n{}", world.trace());
        ask(&other, reader.path()).await;
        assert!(is_told(&reader, SOON).await, "\n{}", world.trace());
        release(reader).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn refusals_are_reported_to_the_one_who_asks_and_survived_by_the_one_who_waits() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let lock = FairLock::builder(&client, LOCK).expect("it is a path");
        let lock = lock.acl(Acl::read()).build().expect("the options are legal");
        let guard = lock.acquire().await.expect("it is free");
        let refused = request_revocation(&other, guard.path()).await.expect_err("no WRITE");
        let RecipeError::Refused { code, path, .. } = &refused else { panic!("{refused:?}") };
        assert_eq!((*code, path.as_str()), (ErrorCode::NO_AUTH, guard.path()));
        request_revocation(&other, "no/path").await.expect_err("the path is relative");
        release(guard).await;

        // A server that is overloaded for a while is asked again.
        let guard = hold(&World::lock(&client)).await;
        for client in [&client, &other] {
            for nth in 0..3 {
                let code = Action::Error(ErrorCode::THROTTLED_OP);
                world.server.inject(at_request(session(client), nth, code));
            }
        }
        ask(&other, guard.path()).await;
        assert!(is_told(&guard, PATIENCE).await, "\n{}", world.trace());
        release(guard).await;
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_stopped_client_cannot_ask() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let guard = hold(&World::lock(&client)).await;
        other.close().await;
        let stopped = request_revocation(&other, guard.path()).await;
        assert_eq!(stopped, Err(RecipeError::Closed));
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}
