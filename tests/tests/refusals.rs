//! Servers that refuse a request, with every error code: each call fails or continues, and leaves
//! nothing behind.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::kind::Queued;
use zk_recipes::{
    Acl, AtRiskPolicy, Client, ErrorCode, FailedAction, FairLock, GroupError, LastSeen, LockError,
    LockState, Permissions, PresenceError, RecipeError, Released, ValueError, WorkQueueError,
};
use zk_session::recipe::Session;
use zk_tests::case::{Case, LOCK};
use zk_tests::for_each_lock;
use zk_tests::scene::{
    CODES, FIRST, SECOND, THIRD, at_op, at_request, create_directory, granted_now, hold, holder,
    is_survived, pauses_ms, release, session, spawn, start_waiting,
};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault, ServerConfig, ServerVersion};

for_each_lock! {
    #[test] pairs: [
        an_error_at_any_request_of_acquire_is_reported_or_survived,
        two_errors_at_any_requests_of_acquire_are_reported_or_survived,
        errors_at_any_request_of_a_sweep_are_survived,
    ]
    #[test] locks: [
        a_release_that_is_refused_says_so_and_hangs_nowhere,
        a_dropped_guard_whose_delete_is_refused_hangs_nowhere,
        a_refused_delete_is_tried_again_while_the_session_lives,
        the_removal_of_a_lost_lock_is_tried_again_while_its_owner_keeps_the_guard,
        a_delete_that_is_refused_for_ever_does_not_keep_the_session,
        an_overloaded_server_is_asked_again_after_a_pause,
        a_server_that_knows_nothing_is_asked_with_pauses,
        a_server_that_goes_on_failing_is_given_up,
        an_overloaded_server_is_waited_for_however_long_it_takes,
        an_overloaded_server_does_not_stretch_the_timeout,
        an_error_at_the_proof_leaves_the_guard_at_risk_and_not_lost,
        an_error_at_validate_is_reported_or_survived,
    ]
    #[test] queue_pairs: [
        a_predecessor_that_may_not_be_read_is_waited_for_by_the_directory,
        waiting_for_one_that_may_not_be_read_costs_the_same_with_every_check,
        an_own_znode_that_may_not_be_read_fails_the_wait_and_leaves_nothing,
    ]
    #[test] queues: [a_directory_that_may_not_be_listed_is_reported]
}

/// Acquires the lock, with or without a holder, and with errors at these requests. Returns whether
/// all errors fired.
fn acquire_refused<H: Case, W: Case>(code: ErrorCode, at: &[usize], has_holder: bool) -> bool {
    run(async {
        let world = World::new();
        let other = world.client(SECOND).await;
        let held = if has_holder { Some(hold(&H::of(&other)).await) } else { None };
        let client = world.client(FIRST).await;
        for nth in at {
            world.server.inject(at_request(session(&client), *nth, Action::Error(code)));
        }
        let waiter = spawn(W::of(&client).acquire().into_future());
        sleep_ms(1_500).await;
        if let Some(held) = held {
            assert_eq!(held.state(), LockState::Held);
            let znodes = world.znodes();
            let is_there = znodes.contains(&(held.path().to_owned(), held.session()));
            let is_beside = waiter.is_finished() && znodes.len() > 1;
            assert!(is_there && !is_beside, "{code} at {at:?}\n{}", world.trace());
            release(held).await;
        }
        let ended = waiter.await.expect("an acquire does not panic");
        let fired = world.server.pending_faults().is_empty();
        world.server.clear_faults();
        match ended {
            Ok(guard) => {
                guard.validate().await.expect("the lock is held");
                release(guard).await;
            }
            Err(LockError::Refused { code: reported, path, .. }) => {
                assert_eq!(reported, code, "{path}");
                assert!(path.starts_with("/locks"), "{path}");
                assert!(!is_survived(code), "{code} at {at:?} passes\n{}", world.trace());
            }
            Err(error) => panic!("{code} at {at:?}: {error}\n{}", world.trace()),
        }
        world.check_clean(&[&client, &other]).await;
        fired
    })
}

fn an_error_at_any_request_of_acquire_is_reported_or_survived<H: Case, W: Case>() {
    // A contender for a lock with a queue also lists the queue.
    let fired_min = if W::MARK.is_some() { 4 } else { 2 };
    let mut points = 0;
    for has_holder in [false, true] {
        for code in CODES {
            let is_refused = |nth: &usize| acquire_refused::<H, W>(code, &[*nth], has_holder);
            let fired = (0..).take_while(is_refused).count();
            assert!(fired >= fired_min, "{code}: only {fired} requests");
            points += fired;
        }
    }
    eprintln!("{} behind {}: {points} refused requests", W::NAME, H::NAME);
}

fn two_errors_at_any_requests_of_acquire_are_reported_or_survived<H: Case, W: Case>() {
    let mut points = 0;
    for has_holder in [false, true] {
        for code in CODES.into_iter().filter(|code| is_survived(*code)) {
            for first in 0..6 {
                let is_refused =
                    |second: &usize| acquire_refused::<H, W>(code, &[first, *second], has_holder);
                points += (0..6).filter(is_refused).count();
            }
        }
    }
    eprintln!("{} behind {}: {points} pairs of refused requests", W::NAME, H::NAME);
    assert!(points >= 100, "only {points} pairs");
}

fn a_release_that_is_refused_says_so_and_hangs_nowhere<C: Case>() {
    for code in CODES {
        run(async {
            let world = World::new();
            let (client, guard) = holder::<C>(&world, FIRST).await;
            let path = guard.path().to_owned();
            world.server.inject(at_op(session(&client), OpCode::DELETE, Action::Error(code)));
            let released = guard.release().await;
            assert!(world.server.pending_faults().is_empty());
            if is_survived(code) {
                assert_eq!(released, Ok(Released::Released), "{code}\n{}", world.trace());
                world.check_clean(&[&client]).await;
                return;
            }
            let refused = LockError::Refused { code, action: FailedAction::Delete, path };
            assert_eq!(released, Err(refused), "{}", world.trace());
            world
                .until("the janitor is idle", |_| Session::of(&client).janitor_slots_busy() == 0)
                .await;
            client.close().await;
            assert_eq!(world.znodes(), [], "the session takes the znode with it");
        });
    }
}

fn a_dropped_guard_whose_delete_is_refused_hangs_nowhere<C: Case>() {
    for code in CODES {
        run(async {
            let world = World::new();
            let (client, guard) = holder::<C>(&world, FIRST).await;
            world.server.inject(at_op(session(&client), OpCode::DELETE, Action::Error(code)));
            drop(guard);
            world.until("the fault fires", |server| server.pending_faults().is_empty()).await;
            world
                .until("the janitor is idle", |_| Session::of(&client).janitor_slots_busy() == 0)
                .await;
            assert_eq!(world.znodes().is_empty(), is_survived(code), "{code}");
            client.close().await;
            assert_eq!(world.znodes(), [], "the session takes the znode with it");
        });
    }
}

/// A znode that cannot be removed blocks the lock for as long as its session lives.
fn a_refused_delete_is_tried_again_while_the_session_lives<C: Case>() {
    for refusals in [1, 3, 5] {
        run(async {
            let world = World::new();
            let (client, guard) = holder::<C>(&world, FIRST).await;
            let id = session(&client);
            for _ in 0..refusals {
                let action = Action::Error(ErrorCode::NO_AUTH);
                world.server.inject(at_op(id, OpCode::DELETE, action));
            }
            let before = client.now();
            let backlog = || Session::of(&client).janitor_backlog();
            assert_eq!(backlog(), 0, "a lock that is held is no backlog");
            guard.release().await.expect_err("the server refuses it");
            sleep_ms(500).await;
            assert_eq!(backlog(), 1, "an operator can be told of the refused removal");
            world.until("the backlog is empty", |_| backlog() == 0).await;
            world.until("the znode is removed", |_| world.znodes().is_empty()).await;
            let waited = client.now().saturating_since(before);
            let sent = world.server.requests();
            let sent = sent.iter().filter(|request| request.op == OpCode::DELETE).count();
            assert_eq!(sent, refusals + 1, "after {waited:?}");
            // The pauses begin with a second, and double.
            let least = (0..refusals).map(|n| 1 << n).sum();
            assert!(waited.as_secs() >= least, "{refusals} refusals in {waited:?}");
            world.check_clean(&[&client]).await;
        });
    }
}

/// The owner keeps the guard and never releases the lock.
fn the_removal_of_a_lost_lock_is_tried_again_while_its_owner_keeps_the_guard<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = hold(&C::with(&client, |lock| lock.at_risk(AtRiskPolicy::TreatAsLost))).await;
        for _ in 0..3 {
            let action = Action::Error(ErrorCode::NO_AUTH);
            world.server.inject(at_op(session(&client), OpCode::DELETE, action));
        }
        world.server.disconnect_all();
        world.until("the znode is removed", |_| world.znodes().is_empty()).await;
        assert!(matches!(guard.state(), LockState::Lost(_)));
        guard.release().await.expect_err("the first try was refused");
        world.check_clean(&[&client]).await;
    });
}

fn a_delete_that_is_refused_for_ever_does_not_keep_the_session<C: Case>() {
    run(async {
        let world = World::new();
        let (client, guard) = holder::<C>(&world, FIRST).await;
        for _ in 0..1000 {
            let action = Action::Error(ErrorCode::NO_AUTH);
            world.server.inject(at_op(session(&client), OpCode::DELETE, action));
        }
        drop(guard);
        sleep_ms(10_000).await;
        assert_eq!(world.znodes().len(), 1);
        drop(client);
        sleep_ms(1_000).await;
        assert_eq!(world.znodes(), [], "the session is closed");
    });
}

/// The outcome of a create is unknown, the caller gives up, and requests of the sweep also fail.
fn errors_at_any_request_of_a_sweep_are_survived<H: Case, W: Case>() {
    let mut points = 0;
    for has_holder in [false, true] {
        for code in CODES.into_iter().filter(|code| is_survived(*code)) {
            for nth in 1.. {
                let fired = run(async {
                    let world = World::new();
                    create_directory::<W>(&world);
                    let other = world.client(SECOND).await;
                    let held = if has_holder { Some(hold(&H::of(&other)).await) } else { None };
                    let client = world.client(FIRST).await;
                    let id = session(&client);
                    world.server.inject(at_request(id, 0, Action::CutAfter));
                    world.server.inject(at_request(id, nth, Action::Error(code)));
                    let short = Duration::from_millis(1);
                    let ended = W::of(&client).acquire().timeout(short).await.map(drop);
                    assert!(matches!(ended, Err(LockError::TimedOut(_))));
                    world
                        .until("the sweep is over", |_| {
                            Session::of(&client).janitor_slots_busy() == 0
                        })
                        .await;
                    let left = world.znodes().len();
                    assert_eq!(left, usize::from(has_holder), "{code} at {nth}\n{}", world.trace());
                    let fired = world.server.pending_faults().is_empty();
                    world.server.clear_faults();
                    if let Some(held) = held {
                        release(held).await;
                    }
                    world.check_clean(&[&client, &other]).await;
                    fired
                });
                if !fired {
                    break;
                }
                points += 1;
            }
        }
    }
    assert!(points >= 12, "only {points} points");
}

fn an_overloaded_server_is_asked_again_after_a_pause<C: Case>() {
    for nth in 0..2 {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            create_directory::<C>(&world);
            let action = Action::Error(ErrorCode::THROTTLED_OP);
            world.server.inject(at_request(session(&client), nth, action));
            let before = client.now();
            let guard = hold(&C::of(&client)).await;
            let waited = client.now().saturating_since(before).as_millis();
            // The create needs a reply, so it is repeated after a pause, but a list alone is
            // repeated at once.
            assert!(waited <= 500 && (nth > 0 || waited >= 200), "{waited} ms");
            release(guard).await;
            world.check_clean(&[&client]).await;
        });
    }
}

fn a_server_that_knows_nothing_is_asked_with_pauses<C: Case>() {
    for code in [ErrorCode::SYSTEM_ERROR, ErrorCode::REQUEST_TIMEOUT, ErrorCode(-999)] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            create_directory::<C>(&world);
            let id = session(&client);
            world.server.inject(at_op(id, OpCode::CREATE2, Action::Error(code)));
            for _ in 0..6 {
                world.server.inject(at_op(id, OpCode::MULTI, Action::Error(code)));
            }
            let waited = acquired_after_ms::<C>(&world, &client).await;
            assert!(pauses_ms(7).contains(&waited), "{code}: 7 errors in {waited} ms");
        });
    }
}

/// Acquires and releases the lock, which leaves nothing behind. Returns how long the acquire took.
async fn acquired_after_ms<C: Case>(world: &World, client: &Client) -> u128 {
    let before = client.now();
    let guard = hold(&C::of(client)).await;
    let waited = client.now().saturating_since(before).as_millis();
    release(guard).await;
    world.check_clean(&[client]).await;
    waited
}

/// The error may be permanent, so an acquire without a timeout must not repeat its requests
/// forever.
fn a_server_that_goes_on_failing_is_given_up<C: Case>() {
    // The list of the claim is sent with the create.
    let failing: &[&[OpCode]] = match C::MARK {
        Some(_) => &[&[OpCode::CREATE2], &[OpCode::GET_CHILDREN, OpCode::GET_DATA]],
        None => &[&[OpCode::CREATE2]],
    };
    for code in [ErrorCode::SYSTEM_ERROR, ErrorCode::REQUEST_TIMEOUT, ErrorCode(-999)] {
        for ops in failing {
            run(async {
                let world = World::new();
                let client = world.client(FIRST).await;
                create_directory::<C>(&world);
                let id = session(&client);
                for _ in 0..1000 {
                    for op in *ops {
                        world.server.inject(at_op(id, *op, Action::Error(code)));
                    }
                }
                let (before, begin) = (world.server.requests().len(), client.now());
                let refused = C::of(&client).acquire().await.map(drop);
                let sent = world.server.requests().len() - before;
                let is_refused =
                    matches!(refused, Err(LockError::Refused { code: with, .. }) if with == code);
                assert!(is_refused, "{refused:?}");
                // A flight has up to three requests.
                assert!(sent <= 45, "{sent} requests");
                let waited = client.now().saturating_since(begin).as_millis();
                let is_paused = pauses_ms(8).contains(&waited);
                assert!(is_paused, "{code}, {ops:?}: {sent} requests in {waited} ms");
                world.server.clear_faults();
                world.check_clean(&[&client]).await;
            });
        }
    }
}

fn an_overloaded_server_is_waited_for_however_long_it_takes<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        create_directory::<C>(&world);
        let id = session(&client);
        for _ in 0..20 {
            let action = Action::Error(ErrorCode::THROTTLED_OP);
            world.server.inject(at_op(id, OpCode::CREATE2, action));
        }
        let waited = acquired_after_ms::<C>(&world, &client).await;
        assert!(pauses_ms(20).contains(&waited), "20 refusals in {waited} ms");
    });
}

fn an_overloaded_server_does_not_stretch_the_timeout<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        for nth in 0..100 {
            let action = Action::Error(ErrorCode::THROTTLED_OP);
            world.server.inject(Fault::new(At::op(OpCode::CREATE2).after(nth), action));
        }
        let before = client.now();
        let lock = C::of(&client);
        let ended = lock.acquire().timeout(Duration::from_millis(1_100)).await.map(drop);
        let Err(LockError::TimedOut(timed_out)) = ended else { panic!("{ended:?}") };
        assert_eq!(timed_out.seen, LastSeen::Refused(ErrorCode::THROTTLED_OP), "{timed_out}");
        assert!(timed_out.to_string().contains("it throttles its clients"), "{timed_out}");
        assert_eq!(client.now().saturating_since(before).as_millis(), 1_100);
        let sent = world.server.requests().len();
        assert!(sent <= 14, "without pauses: {sent} requests");
        world.server.clear_faults();
        world.check_clean(&[&client]).await;
    });
}

fn an_error_at_the_proof_leaves_the_guard_at_risk_and_not_lost<C: Case>() {
    for op in C::PROOF {
        for code in CODES {
            run(async {
                let world = World::new();
                let (client, guard) = holder::<C>(&world, FIRST).await;
                world.server.inject(at_op(session(&client), *op, Action::Error(code)));
                world.server.disconnect_all();
                sleep_ms(3_000).await;
                assert!(world.server.pending_faults().is_empty(), "{}", world.trace());
                let state = guard.state();
                assert!(!matches!(state, LockState::Lost(_)), "{op:?} {code}: {state:?}");
                if is_survived(code) {
                    assert_eq!(state, LockState::Held, "{op:?} {code}\n{}", world.trace());
                } else {
                    assert_eq!(state, LockState::AtRisk, "{op:?} {code}");
                    // The next check of the znode requests another proof.
                    sleep_ms(31_000).await;
                    assert_eq!(guard.state(), LockState::Held, "{op:?} {code}");
                }
                release(guard).await;
                world.check_clean(&[&client]).await;
            });
        }
    }
}

fn an_error_at_validate_is_reported_or_survived<C: Case>() {
    for op in C::PROOF {
        for code in CODES {
            run(async {
                let world = World::new();
                let (client, guard) = holder::<C>(&world, FIRST).await;
                world.server.inject(at_op(session(&client), *op, Action::Error(code)));
                let validated = guard.validate().await;
                if is_survived(code) {
                    assert_eq!(validated, Ok(()), "{op:?} {code}\n{}", world.trace());
                } else {
                    let path = guard.path().to_owned();
                    let is_read = *op == OpCode::GET_DATA;
                    let action = if is_read { FailedAction::Read } else { FailedAction::Check };
                    let refused = LockError::Refused { code, action, path };
                    assert_eq!(validated, Err(refused), "{}", world.trace());
                }
                release(guard).await;
                world.check_clean(&[&client]).await;
            });
        }
    }
}

fn a_predecessor_that_may_not_be_read_is_waited_for_by_the_directory<H: Case, W: Case>() {
    run(async {
        let world = World::new();
        create_directory::<H>(&world);
        let other = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
        let held = hold(&H::with(&other, |lock| lock.acl(Acl::creator_all()))).await;
        let client = world.client(FIRST).await;
        let lock = W::of(&client);
        let waiter = start_waiting(&world, lock.acquire()).await;
        // Another contender joins the queue: the directory changes, but the waiter is not granted
        // the lock.
        let third = world.client(THIRD).await;
        let last = start_waiting(&world, W::Rival::of(&third).acquire()).await;
        sleep_ms(500).await;
        assert!(!waiter.is_finished(), "{}", world.trace());
        release(held).await;
        let guard = granted_now(&world, waiter).await;
        sleep_ms(500).await;
        assert!(!last.is_finished());
        release(guard).await;
        release(granted_now(&world, last).await).await;
        assert_eq!(lock.stats().watches_missed, 0);
        world.check_clean(&[&client, &other, &third]).await;
    });
}

/// Servers of both kinds: up to 3.8.3, they test the existence of a znode for everyone.
fn waiting_for_one_that_may_not_be_read_costs_the_same_with_every_check<H: Case, W: Case>() {
    const CHECKS: u64 = 50;
    for version in [ServerVersion::V3_8, ServerVersion::V3_9] {
        run(async {
            let world = World::with(ServerConfig::default().version(version));
            create_directory::<H>(&world);
            let other = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
            let held = hold(&H::with(&other, |lock| lock.acl(Acl::creator_all()))).await;
            let client = world.client(FIRST).await;
            let lock = W::with(&client, |lock| lock.watch_check(Some(Duration::from_secs(1))));
            let waiter = start_waiting(&world, lock.acquire()).await;
            let watches = client.stats().watches;
            world.server.clear_requests();
            sleep_ms(CHECKS * 1_250).await;
            assert_eq!(client.stats().watches, watches, "{version:?}");
            let own = session(&client);
            let requests = world.server.requests();
            let sent = |op| requests.iter().filter(|it| it.session == own && it.op == op).count();
            let (lists, tests, reads) =
                (sent(OpCode::GET_CHILDREN), sent(OpCode::EXISTS), sent(OpCode::GET_DATA));
            let shown = format!("{version:?}: {lists} lists, {tests} tests, {reads} reads");
            // Checks are up to a quarter of the interval apart in addition.
            let checks = CHECKS as usize..=CHECKS as usize * 5 / 4;
            if W::NAME.contains("semaphore") {
                // It lists the directory in place of the test.
                assert!(checks.contains(&lists) && tests == 0 && reads == lists, "{shown}");
            } else {
                assert!(checks.contains(&tests) && reads == tests && lists == 0, "{shown}");
            }
            assert!(!waiter.is_finished());
            release(held).await;
            release(granted_now(&world, waiter).await).await;
            world.check_clean(&[&client, &other]).await;
        });
    }
}

fn an_own_znode_that_may_not_be_read_fails_the_wait_and_leaves_nothing<H: Case, W: Case>() {
    run(async {
        let world = World::new();
        let (other, held) = holder::<H>(&world, SECOND).await;
        let client = world.client(FIRST).await;
        let acl = vec![Acl::new(Permissions::WRITE | Permissions::ADMIN, "world", "anyone")];
        let refused = W::with(&client, |lock| lock.acl(acl)).acquire().await.map(drop);
        assert!(
            matches!(refused, Err(LockError::Refused { code: ErrorCode::NO_AUTH, .. })),
            "{refused:?}\n{}",
            world.trace()
        );
        sleep_ms(100).await;
        assert_eq!(world.contenders().len(), 1, "{}", world.trace());
        assert_eq!(held.state(), LockState::Held);
        release(held).await;
        world.check_clean(&[&client, &other]).await;
    });
}

fn a_directory_that_may_not_be_listed_is_reported<C: Case<Kind: Queued>>() {
    run(async {
        let world = World::new();
        let owner = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
        let acl = vec![
            Acl::new(Permissions::ALL, "auth", ""),
            Acl::new(Permissions::CREATE | Permissions::DELETE, "world", "anyone"),
        ];
        create_directory::<C>(&world);
        owner.set_acl(LOCK, acl, None).await.expect("it was open");
        let client = world.client(FIRST).await;
        let lock = C::of(&client);
        let refused = lock.acquire().await.map(drop);
        let is_listing = |error: &LockError| {
            matches!(error, LockError::Refused { action: FailedAction::List, .. })
        };
        assert!(refused.as_ref().is_err_and(is_listing), "{refused:?}");
        let refused = lock.try_acquire().await.map(drop);
        assert!(refused.as_ref().is_err_and(is_listing), "{refused:?}");
        world.check_clean(&[&client, &owner]).await;
    });
}

#[test]
fn errors_of_all_recipes_have_the_code_of_a_refusal() {
    let refused = RecipeError::Refused {
        code: ErrorCode::NO_AUTH,
        action: FailedAction::Create,
        path: "/a".to_owned(),
    };
    let codes = [
        refused.server_code(),
        GroupError::from(refused.clone()).server_code(),
        LockError::from(refused.clone()).server_code(),
        PresenceError::from(refused.clone()).server_code(),
        ValueError::from(refused.clone()).server_code(),
        WorkQueueError::from(refused).server_code(),
    ];
    assert_eq!(codes, [Some(ErrorCode::NO_AUTH); 6]);
    let codes = [
        GroupError::from(RecipeError::Closed).server_code(),
        LockError::Closed.server_code(),
        PresenceError::Ended.server_code(),
        ValueError::Conflict.server_code(),
        WorkQueueError::Takers(LockError::Closed).server_code(),
    ];
    assert_eq!(codes, [None; 5]);
}

#[test]
fn removals_that_are_refused_together_come_back_apart() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let mut acl = Acl::open();
        acl.iter_mut().for_each(|entry| entry.perms = Permissions::READ | Permissions::CREATE);
        let mut guards = Vec::new();
        for number in 0..8 {
            let directory = format!("/locks/{number}");
            let lock = FairLock::new(&client, &directory).expect("the path is valid");
            guards.push(lock.acquire().await.expect("the lock is free"));
            assert!(world.server.admin_set_acl(&directory, acl.clone()));
        }
        drop(guards);
        sleep_ms(1_500).await;
        let mut times: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
        for request in world.server.requests() {
            if let Some(path) = request.path.filter(|_| request.op == OpCode::DELETE) {
                times.entry(path).or_default().push(request.at);
            }
        }
        let of = |nth: usize| -> BTreeSet<Duration> {
            times.values().filter_map(|times| times.get(nth).copied()).collect()
        };
        assert_eq!((times.len(), of(0).len()), (8, 1), "all are refused at one moment");
        assert!(of(1).len() >= 6, "{:?}", of(1));
        client.close().await;
    });
}
