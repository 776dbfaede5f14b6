//! Servers that refuse a request, whatever the code: an answer, and nothing left behind.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{
    Acl, CreateMode, CreateOptions, ErrorCode, ExclusiveLock, LockError, LockState, Released,
};
use zk_tests::exclusive::{ZNODE, check_clean, lock, make_directory, owner};
use zk_tests::scene::{CODES, at_op, at_request, is_survived, session, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault, Filter};

use crate::{FIRST, SECOND, holder, release};

/// Acquires, behind a holder or not, with errors at these requests; true if all of them fired.
fn acquire_refused(code: ErrorCode, at: &[usize], has_holder: bool) -> bool {
    run(async {
        let world = World::new();
        let other = world.client(SECOND).await;
        let held = if has_holder {
            Some(lock(&other).acquire().await.expect("nobody else wants it"))
        } else {
            None
        };
        let client = world.client(FIRST).await;
        for nth in at {
            world.server.inject(at_request(session(&client), *nth, Action::Error(code)));
        }
        let waiter = spawn(lock(&client).acquire().into_future());
        sleep_ms(1_500).await;
        if let Some(held) = held {
            assert_eq!(held.state(), LockState::Held);
            assert_eq!(owner(&world), Some(session(&other)), "{code} at {at:?}");
            release(held).await;
        }
        let ended = waiter.await.expect("an acquire does not panic");
        let fired = world.server.pending_faults().is_empty();
        world.server.clear_faults();
        match ended {
            Ok(guard) => {
                guard.validate().await.expect("it is held");
                release(guard).await;
            }
            Err(LockError::Refused { code: told, path, .. }) => {
                assert_eq!(told, code, "{path}");
                assert!(path.starts_with("/locks"), "{path}");
                assert!(!is_survived(code), "{code} at {at:?} passes\n{}", world.trace());
            }
            Err(error) => panic!("{code} at {at:?}: {error}\n{}", world.trace()),
        }
        check_clean(&world, &[&client, &other]).await;
        fired
    })
}

#[test]
fn an_error_at_any_request_of_acquire_is_reported_or_survived() {
    let mut points = 0;
    for has_holder in [false, true] {
        for code in CODES {
            let fired = (0..).take_while(|nth| acquire_refused(code, &[*nth], has_holder)).count();
            assert!(fired >= 2, "{code}: only {fired} requests");
            points += fired;
        }
    }
    eprintln!("{points} refused requests");
}

#[test]
fn two_errors_at_any_requests_of_acquire_are_reported_or_survived() {
    let mut points = 0;
    for has_holder in [false, true] {
        for code in CODES.into_iter().filter(|code| is_survived(*code)) {
            for first in 0..6 {
                let fired =
                    (0..6).filter(|second| acquire_refused(code, &[first, *second], has_holder));
                points += fired.count();
            }
        }
    }
    assert!(points >= 100, "only {points} pairs");
}

#[test]
fn a_release_that_is_refused_says_so_and_hangs_nowhere() {
    for code in CODES {
        for by_call in [false, true] {
            run(async {
                let world = World::new();
                let (client, guard) = holder(&world, FIRST).await;
                world.server.inject(at_op(session(&client), OpCode::DELETE, Action::Error(code)));
                if by_call {
                    let refused =
                        LockError::Refused { code, operation: "delete", path: ZNODE.into() };
                    let expected =
                        if is_survived(code) { Ok(Released::Released) } else { Err(refused) };
                    assert_eq!(guard.release().await, expected, "{}", world.trace());
                } else {
                    drop(guard);
                }
                world.until("the fault fires", |server| server.pending_faults().is_empty()).await;
                world.until("the janitor is idle", |_| client.janitor_slots_busy() == 0).await;
                assert_eq!(owner(&world).is_none(), is_survived(code), "{code}");
                client.close().await;
                assert_eq!(owner(&world), None, "it goes with the session");
            });
        }
    }
}

/// A create whose outcome is not known, then a caller who gives up: the sweep meets errors too.
#[test]
fn errors_at_any_request_of_a_sweep_are_survived() {
    let mut points = 0;
    for code in CODES.into_iter().filter(|code| is_survived(*code)) {
        for nth in 1.. {
            let fired = run(async {
                let world = World::new();
                make_directory(&world);
                let client = world.client(FIRST).await;
                let id = session(&client);
                world.server.inject(at_request(id, 0, Action::CutAfter));
                world.server.inject(at_request(id, nth, Action::Error(code)));
                let short = Duration::from_millis(1);
                let ended = lock(&client).acquire().timeout(short).await.map(drop);
                assert_eq!(ended, Err(LockError::TimedOut));
                world.until("the sweep is over", |_| client.janitor_slots_busy() == 0).await;
                assert_eq!(owner(&world), None, "{code} at {nth}\n{}", world.trace());
                let fired = world.server.pending_faults().is_empty();
                world.server.clear_faults();
                check_clean(&world, &[&client]).await;
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
        let lock = lock(&client);
        let ended = lock.acquire().timeout(Duration::from_millis(1_100)).await.map(drop);
        assert_eq!(ended, Err(LockError::TimedOut));
        assert_eq!(client.now().saturating_since(before).as_millis(), 1_100);
        let asked = world.server.requests().len();
        assert!(asked <= 14, "without pauses: {asked} requests");
        world.server.clear_faults();
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn an_error_at_the_proof_leaves_the_guard_at_risk_and_not_lost() {
    for op in [OpCode::MULTI, OpCode::GET_DATA] {
        for code in CODES {
            run(async {
                let world = World::new();
                let (client, guard) = holder(&world, FIRST).await;
                world.server.inject(at_op(session(&client), op, Action::Error(code)));
                world.server.disconnect_all();
                sleep_ms(3_000).await;
                assert!(world.server.pending_faults().is_empty(), "{}", world.trace());
                let state = guard.state();
                assert!(!matches!(state, LockState::Lost(_)), "{op:?} {code}: {state:?}");
                if is_survived(code) {
                    assert_eq!(state, LockState::Held, "{op:?} {code}\n{}", world.trace());
                }
                release(guard).await;
                check_clean(&world, &[&client]).await;
            });
        }
    }
}

#[test]
fn an_error_at_validate_is_reported_or_survived() {
    for op in [OpCode::MULTI, OpCode::GET_DATA] {
        for code in CODES {
            run(async {
                let world = World::new();
                let (client, guard) = holder(&world, FIRST).await;
                world.server.inject(at_op(session(&client), op, Action::Error(code)));
                let validated = guard.validate().await;
                if is_survived(code) {
                    assert_eq!(validated, Ok(()), "{op:?} {code}\n{}", world.trace());
                } else {
                    let refused =
                        LockError::Refused { code, operation: "check", path: ZNODE.into() };
                    assert_eq!(validated, Err(refused), "{}", world.trace());
                }
                release(guard).await;
                check_clean(&world, &[&client]).await;
            });
        }
    }
}

#[test]
fn a_directory_that_refuses_creates_is_reported() {
    run(async {
        let world = World::new();
        let other = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
        let options = CreateOptions::from(CreateMode::Persistent).acl(Acl::creator_all());
        other.create("/locks", "", options).await.expect("it is new");
        let client = world.client(FIRST).await;
        let refused = |operation| LockError::Refused {
            code: ErrorCode::NO_AUTH,
            operation,
            path: ZNODE.into(),
        };
        let lock = lock(&client);
        assert_eq!(lock.acquire().await.map(drop), Err(refused("create")));
        assert_eq!(lock.try_acquire().await.map(drop), Err(refused("create")));
        check_clean(&world, &[&client, &other]).await;
    });
}

/// Whoever may not read the holder's znode cannot wait for its end.
#[test]
fn a_holder_that_may_not_be_read_is_reported() {
    run(async {
        let world = World::new();
        let other = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
        let held = ExclusiveLock::builder(&other, ZNODE)
            .and_then(|lock| lock.acl(Acl::creator_all()).build())
            .expect("the options are legal")
            .acquire()
            .await
            .expect("nobody else wants it");
        let client = world.client(FIRST).await;
        let refused =
            LockError::Refused { code: ErrorCode::NO_AUTH, operation: "read", path: ZNODE.into() };
        let lock = lock(&client);
        assert_eq!(lock.acquire().await.map(drop), Err(refused.clone()));
        assert_eq!(lock.try_acquire().await.map(drop), Err(refused.clone()));
        assert_eq!(lock.holder().await, Err(refused));
        held.validate().await.expect("its owner may");
        release(held).await;
        check_clean(&world, &[&client, &other]).await;
    });
}
