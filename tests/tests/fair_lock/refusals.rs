//! Servers that refuse a request, whatever the code: an answer, and nothing left behind.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{AtRiskPolicy, ErrorCode, FairLock, LockError, LockState, Released};
use zk_tests::scene::{CODES, is_survived, pauses_ms};
use zk_tests::world::{DIRECTORY, World, run, sleep_ms};
use zk_testserver::{Action, At, Fault, Filter};

use crate::{FIRST, SECOND, at_op, at_request, holder, release, session, spawn};

/// Acquires behind a holder with errors at these requests; true if all of them fired.
fn acquire_refused(code: ErrorCode, at: &[usize], has_holder: bool) -> bool {
    run(async {
        let world = World::new();
        let other = world.client(SECOND).await;
        let held = if has_holder {
            Some(World::lock(&other).acquire().await.expect("nobody else wants it"))
        } else {
            None
        };
        let client = world.client(FIRST).await;
        for nth in at {
            world.server.inject(at_request(session(&client), *nth, Action::Error(code)));
        }
        let waiter = spawn(World::lock(&client).acquire().into_future());
        sleep_ms(1_500).await;
        if let Some(held) = held {
            assert_eq!(held.state(), LockState::Held);
            let is_beside = waiter.is_finished() && world.contenders().len() > 1;
            assert!(!is_beside, "{code} at {at:?}\n{}", world.trace());
            release(held).await;
        }
        let ended = waiter.await.expect("an acquire does not panic");
        let fired = world.server.pending_faults().is_empty();
        world.server.clear_faults();
        match ended {
            Ok(guard) => release(guard).await,
            Err(LockError::Refused { code: told, path, .. }) => {
                assert_eq!(told, code, "{path}");
                assert!(path.starts_with("/locks"), "{path}");
                let is_wrong = is_survived(code);
                assert!(!is_wrong, "{code} at {at:?} passes\n{}", world.trace());
            }
            Err(error) => panic!("{code} at {at:?}: {error}\n{}", world.trace()),
        }
        world.check_clean(&[&client, &other]).await;
        fired
    })
}

#[test]
fn an_error_at_any_request_of_acquire_is_reported_or_survived() {
    let mut points = 0;
    for has_holder in [false, true] {
        for code in CODES {
            let fired = (0..).take_while(|nth| acquire_refused(code, &[*nth], has_holder)).count();
            assert!(fired >= 4, "{code}: only {fired} requests");
            points += fired;
        }
    }
    eprintln!("{points} refused requests");
}

#[test]
fn two_errors_at_any_requests_of_acquire_are_reported_or_survived() {
    let mut points = 0;
    for code in CODES.into_iter().filter(|code| is_survived(*code)) {
        for first in 0..6 {
            let fired = (0..6).filter(|second| acquire_refused(code, &[first, *second], true));
            points += fired.count();
        }
    }
    assert!(points >= 100, "only {points} pairs");
}

#[test]
fn a_release_that_is_refused_says_so_and_hangs_nowhere() {
    for code in CODES {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            let path = guard.path().to_owned();
            world.server.inject(at_op(session(&client), OpCode::DELETE, Action::Error(code)));
            let released = guard.release().await;
            assert!(world.server.pending_faults().is_empty());
            if is_survived(code) {
                assert_eq!(released, Ok(Released::Released), "{code}\n{}", world.trace());
                world.check_clean(&[&client]).await;
                return;
            }
            let refused = LockError::Refused { code, operation: "delete", path };
            assert_eq!(released, Err(refused), "{}", world.trace());
            world.until("the janitor is idle", |_| client.janitor_slots_busy() == 0).await;
            client.close().await;
            assert_eq!(world.contenders(), [""; 0], "it goes with the session");
        });
    }
}

#[test]
fn a_dropped_guard_whose_delete_is_refused_hangs_nowhere() {
    for code in CODES {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            world.server.inject(at_op(session(&client), OpCode::DELETE, Action::Error(code)));
            drop(guard);
            world.until("the fault fires", |server| server.pending_faults().is_empty()).await;
            world.until("the janitor is idle", |_| client.janitor_slots_busy() == 0).await;
            assert_eq!(world.contenders().is_empty(), is_survived(code), "{code}");
            client.close().await;
            assert_eq!(world.contenders(), [""; 0], "it goes with the session");
        });
    }
}

/// A znode that cannot be removed blocks everybody for as long as its session lives.
#[test]
fn a_refused_delete_is_tried_again_while_the_session_lives() {
    for refusals in [1, 3, 5] {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            let id = session(&client);
            for _ in 0..refusals {
                let action = Action::Error(ErrorCode::NO_AUTH);
                world.server.inject(at_op(id, OpCode::DELETE, action));
            }
            let before = client.now();
            guard.release().await.expect_err("it is refused");
            world.until("it is removed", |_| world.contenders().is_empty()).await;
            let waited = client.now().saturating_since(before);
            let asked = world.server.requests();
            let asked = asked.iter().filter(|request| request.op == OpCode::DELETE).count();
            assert_eq!(asked, refusals + 1, "after {waited:?}");
            // The pauses double from a second on.
            let least = (0..refusals).map(|n| 1 << n).sum();
            assert!(waited.as_secs() >= least, "{refusals} refusals in {waited:?}");
            world.check_clean(&[&client]).await;
        });
    }
}

/// Its owner keeps the guard, looks at it now and then, and never releases it.
#[test]
fn the_removal_of_a_lost_lock_is_tried_again_while_its_owner_keeps_the_guard() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let lock = FairLock::builder(&client, DIRECTORY)
            .and_then(|lock| lock.at_risk(AtRiskPolicy::TreatAsLost).build())
            .expect("the options are legal");
        let guard = lock.acquire().await.expect("nobody else wants it");
        for _ in 0..3 {
            let action = Action::Error(ErrorCode::NO_AUTH);
            world.server.inject(at_op(session(&client), OpCode::DELETE, action));
        }
        world.server.disconnect_all();
        world.until("it is removed", |_| world.contenders().is_empty()).await;
        assert!(matches!(guard.state(), LockState::Lost(_)));
        guard.release().await.expect_err("the first try was refused");
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_delete_that_is_refused_for_ever_does_not_keep_the_session() {
    run(async {
        let world = World::new();
        let (client, guard) = holder(&world, FIRST).await;
        for _ in 0..1000 {
            let action = Action::Error(ErrorCode::NO_AUTH);
            world.server.inject(at_op(session(&client), OpCode::DELETE, action));
        }
        drop(guard);
        sleep_ms(10_000).await;
        assert_eq!(world.contenders().len(), 1);
        drop(client);
        sleep_ms(1_000).await;
        assert_eq!(world.contenders(), [""; 0], "the session is closed");
    });
}

/// A create whose outcome is not known, then a caller who gives up: the sweep meets errors too.
#[test]
fn errors_at_any_request_of_a_sweep_are_survived() {
    let mut points = 0;
    for code in CODES.into_iter().filter(|code| is_survived(*code)) {
        for nth in 1.. {
            let fired = run(async {
                let world = World::new();
                let (other, held) = holder(&world, SECOND).await;
                let client = world.client(FIRST).await;
                let id = session(&client);
                world.server.inject(at_request(id, 0, Action::CutAfter));
                world.server.inject(at_request(id, nth, Action::Error(code)));
                let lock = World::lock(&client);
                let short = Duration::from_millis(1);
                let ended = lock.acquire().timeout(short).await.map(drop);
                assert_eq!(ended, Err(LockError::TimedOut));
                world.until("the sweep is over", |_| client.janitor_slots_busy() == 1).await;
                world.until("the place is free", |_| world.contenders().len() == 1).await;
                let fired = world.server.pending_faults().is_empty();
                world.server.clear_faults();
                release(held).await;
                world.check_clean(&[&client, &other]).await;
                fired
            });
            if !fired {
                break;
            }
            points += 1;
        }
    }
    assert!(points >= 12, "only {points} points");
}

#[test]
fn an_overloaded_server_is_asked_again_after_a_pause() {
    for nth in 0..2 {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            crate::make_directory(&world);
            let action = Action::Error(ErrorCode::THROTTLED_OP);
            world.server.inject(at_request(session(&client), nth, action));
            let before = client.now();
            let guard = World::lock(&client).acquire().await.expect("it is free");
            let waited = client.now().saturating_since(before).as_millis();
            // The create needs an answer; the list alone is asked for again at once.
            assert!(waited <= 500 && (nth > 0 || waited >= 200), "{waited} ms");
            release(guard).await;
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn a_server_that_knows_nothing_is_asked_with_pauses() {
    for code in [ErrorCode::SYSTEM_ERROR, ErrorCode::REQUEST_TIMEOUT, ErrorCode(-999)] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            crate::make_directory(&world);
            let id = session(&client);
            world.server.inject(at_op(id, OpCode::CREATE2, Action::Error(code)));
            for _ in 0..6 {
                world.server.inject(at_op(id, OpCode::MULTI, Action::Error(code)));
            }
            let before = client.now();
            let guard = World::lock(&client).acquire().await.expect("it is free");
            let waited = client.now().saturating_since(before).as_millis();
            assert!(pauses_ms(7).contains(&waited), "{code}: 7 errors in {waited} ms");
            release(guard).await;
            world.check_clean(&[&client]).await;
        });
    }
}

/// The code may never pass, so an acquire without a timeout must not ask for ever.
#[test]
fn a_server_that_goes_on_failing_is_given_up() {
    for code in [ErrorCode::SYSTEM_ERROR, ErrorCode::REQUEST_TIMEOUT, ErrorCode(-999)] {
        for op in [OpCode::CREATE2, OpCode::GET_CHILDREN] {
            run(async {
                let world = World::new();
                let client = world.client(FIRST).await;
                crate::make_directory(&world);
                let id = session(&client);
                for _ in 0..1000 {
                    world.server.inject(at_op(id, op, Action::Error(code)));
                    if op == OpCode::GET_CHILDREN {
                        // The list of the claim comes with the create.
                        world.server.inject(at_op(id, OpCode::GET_DATA, Action::Error(code)));
                    }
                }
                let (before, begin) = (world.server.requests().len(), client.now());
                let refused = World::lock(&client).acquire().await.map(drop);
                let asked = world.server.requests().len() - before;
                assert!(
                    matches!(refused, Err(LockError::Refused { code: with, .. }) if with == code),
                    "{refused:?}"
                );
                assert!(asked <= 40, "{asked} requests");
                let waited = client.now().saturating_since(begin).as_millis();
                assert!(
                    pauses_ms(8).contains(&waited),
                    "{code}, {op:?}: {asked} requests in {waited} ms"
                );
                world.server.clear_faults();
                world.check_clean(&[&client]).await;
            });
        }
    }
}

#[test]
fn an_overloaded_server_is_waited_for_however_long_it_takes() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        crate::make_directory(&world);
        let id = session(&client);
        for _ in 0..20 {
            let action = Action::Error(ErrorCode::THROTTLED_OP);
            world.server.inject(at_op(id, OpCode::CREATE2, action));
        }
        let before = client.now();
        let guard = World::lock(&client).acquire().await.expect("it is free in the end");
        let waited = client.now().saturating_since(before).as_millis();
        assert!(pauses_ms(20).contains(&waited), "20 refusals in {waited} ms");
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn an_overloaded_server_does_not_stretch_the_timeout() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        for nth in 0..100 {
            let action = Action::Error(ErrorCode::THROTTLED_OP);
            let filter = Filter { op: Some(OpCode::CREATE2), ..Filter::default() };
            world.server.inject(Fault::new(At::Request { nth, filter }, action));
        }
        let before = client.now();
        let lock = World::lock(&client);
        let ended = lock.acquire().timeout(Duration::from_millis(1_100)).await.map(drop);
        assert_eq!(ended, Err(LockError::TimedOut));
        assert_eq!(client.now().saturating_since(before).as_millis(), 1_100);
        world.server.clear_faults();
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn an_error_at_the_proof_leaves_the_guard_at_risk_and_not_lost() {
    for code in CODES {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            world.server.inject(at_op(session(&client), OpCode::MULTI, Action::Error(code)));
            world.server.disconnect_all();
            sleep_ms(3_000).await;
            assert!(world.server.pending_faults().is_empty(), "{}", world.trace());
            let state = guard.state();
            assert!(!matches!(state, LockState::Lost(_)), "{code}: {state:?}");
            if is_survived(code) {
                assert_eq!(state, LockState::Held, "{code}\n{}", world.trace());
            } else {
                // Nothing else asks again on this connection, but whoever does has the proof.
                assert_eq!(state, LockState::AtRisk, "{code}");
                guard.validate().await.expect("the next check is not refused");
                assert_eq!(guard.state(), LockState::Held, "{code}");
            }
            release(guard).await;
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn an_error_at_validate_is_reported_or_survived() {
    for code in CODES {
        run(async {
            let world = World::new();
            let (client, guard) = holder(&world, FIRST).await;
            world.server.inject(at_op(session(&client), OpCode::MULTI, Action::Error(code)));
            let validated = guard.validate().await;
            if is_survived(code) {
                assert_eq!(validated, Ok(()), "{code}\n{}", world.trace());
            } else {
                let path = guard.path().to_owned();
                let refused = LockError::Refused { code, operation: "check", path };
                assert_eq!(validated, Err(refused), "{}", world.trace());
            }
            release(guard).await;
            world.check_clean(&[&client]).await;
        });
    }
}
