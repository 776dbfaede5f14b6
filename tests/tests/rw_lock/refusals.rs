//! Servers that refuse a request, and access control lists in the way: an answer, and nothing left
//! behind.

use jute_codec::OpCode;
use zk_recipes::{Acl, Client, ErrorCode, LockError, LockState, Permissions, RwLock};
use zk_tests::scene::{FIRST, SECOND, THIRD, at_op, at_request, make_directory, session, spawn};
use zk_tests::world::{DIRECTORY, World, run, sleep_ms};
use zk_testserver::Action;

use crate::Side::{Read, Write};
use crate::{WAITS, acquire, acquire_within, granted_now, holder, queue_up};

/// Codes, and whether an acquire goes on.
const CODES: [(ErrorCode, bool); 6] = [
    (ErrorCode::NO_AUTH, false),
    (ErrorCode::QUOTA_EXCEEDED, false),
    (ErrorCode::THROTTLED_OP, true),
    (ErrorCode::NOT_READ_ONLY, true),
    (ErrorCode::SYSTEM_ERROR, true),
    (ErrorCode::SESSION_MOVED, true),
];

fn with_acl(client: &Client, acl: Vec<Acl>) -> RwLock {
    RwLock::builder(client, DIRECTORY)
        .and_then(|lock| lock.acl(acl).safety_relist(None).build())
        .expect("the options are legal")
}

#[test]
fn an_error_at_any_request_is_reported_or_survived() {
    let mut points = 0;
    for (ahead, behind) in WAITS {
        for (code, is_survived) in CODES {
            for nth in 0.. {
                let fired = run(async {
                    let world = World::new();
                    let (other, held) = holder(&world, SECOND, ahead).await;
                    let client = world.client(FIRST).await;
                    let action = Action::Error(code);
                    world.server.inject(at_request(session(&client), nth, action));
                    let waiter = spawn(acquire_within(World::rw_lock(&client), behind, None));
                    sleep_ms(1_500).await;
                    let is_beside = waiter.is_finished() && world.contenders().len() > 1;
                    assert!(!is_beside, "{code} at {nth}\n{}", world.trace());
                    held.release().await;
                    let ended = waiter.await.expect("an acquire does not panic");
                    let fired = world.server.pending_faults().is_empty();
                    world.server.clear_faults();
                    match ended {
                        Ok(guard) => guard.release().await,
                        Err(LockError::Refused { code: told, .. }) => {
                            assert_eq!(told, code);
                            assert!(!is_survived, "{code} at {nth}\n{}", world.trace());
                        }
                        Err(error) => panic!("{code} at {nth}: {error}\n{}", world.trace()),
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
    assert!(points >= 70, "only {points} refused requests");
}

#[test]
fn a_release_that_is_refused_says_so() {
    for side in [Read, Write] {
        run(async {
            let world = World::new();
            let (client, held) = holder(&world, FIRST, side).await;
            let path = held.path().to_owned();
            let code = ErrorCode::NO_AUTH;
            world.server.inject(at_op(session(&client), OpCode::DELETE, Action::Error(code)));
            let refused = LockError::Refused { code, operation: "delete", path };
            assert_eq!(held.end().await, Err(refused));
            client.close().await;
            assert_eq!(world.contenders(), [""; 0], "it goes with the session");
        });
    }
}

#[test]
fn a_predecessor_that_may_not_be_read_is_waited_for_by_the_directory() {
    for (ahead, behind) in WAITS {
        run(async {
            let world = World::new();
            let other = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
            let secret = with_acl(&other, Acl::creator_all());
            let held = acquire(&secret, ahead).await.expect("nobody else wants it");
            let client = world.client(FIRST).await;
            let lock = World::rw_lock(&client);
            let waiter = queue_up(&world, &lock, behind).await;
            // Someone behind: the directory changes, but that is no grant.
            let third = world.client(THIRD).await;
            let last = queue_up(&world, &World::rw_lock(&third), Write).await;
            sleep_ms(500).await;
            assert!(!waiter.is_finished(), "{}", world.trace());
            held.release().await;
            let guard = granted_now(&world, waiter).await;
            sleep_ms(500).await;
            assert!(!last.is_finished());
            guard.release().await;
            granted_now(&world, last).await.release().await;
            assert_eq!(lock.stats().watches_missed, 0);
            world.check_clean(&[&client, &other, &third]).await;
        });
    }
}

#[test]
fn an_own_znode_that_may_not_be_read_fails_the_wait_and_leaves_nothing() {
    for (ahead, behind) in WAITS {
        run(async {
            let world = World::new();
            let (other, held) = holder(&world, SECOND, ahead).await;
            let client = world.client(FIRST).await;
            let acl = vec![Acl::new(Permissions::WRITE | Permissions::ADMIN, "world", "anyone")];
            let refused = acquire(&with_acl(&client, acl), behind).await.map(drop);
            assert!(
                matches!(refused, Err(LockError::Refused { code: ErrorCode::NO_AUTH, .. })),
                "{refused:?}\n{}",
                world.trace()
            );
            sleep_ms(100).await;
            assert_eq!(world.contenders().len(), 1, "{}", world.trace());
            assert_eq!(held.state(), LockState::Held);
            held.release().await;
            world.check_clean(&[&client, &other]).await;
        });
    }
}

#[test]
fn a_directory_that_may_not_be_listed_is_reported() {
    for side in [Read, Write] {
        run(async {
            let world = World::new();
            let owner = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
            let acl = vec![
                Acl::new(Permissions::ALL, "auth", ""),
                Acl::new(Permissions::CREATE | Permissions::DELETE, "world", "anyone"),
            ];
            make_directory(&world);
            owner.set_acl(DIRECTORY, acl, None).await.expect("it was open");
            let client = world.client(FIRST).await;
            let lock = World::rw_lock(&client);
            let refused = acquire(&lock, side).await.map(drop);
            assert!(
                matches!(refused, Err(LockError::Refused { operation: "list", .. })),
                "{refused:?}"
            );
            let refused = crate::try_acquire(&lock, side).await.map(drop);
            assert!(matches!(refused, Err(LockError::Refused { operation: "list", .. })));
            world.check_clean(&[&client, &owner]).await;
        });
    }
}
