//! A barrier is closed and opened at most once, whatever is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jute_codec::{ErrorCode, OpCode};
use zk_recipes::{Acl, Barrier, FailedAction, Permissions, RecipeError};
use zk_tests::scene::{
    CODES, FIRST, SECOND, TURNS, Trouble, at_op, is_survived, poll_times, session, spawn,
};
use zk_tests::world::{Enumeration, World, run, sleep_ms};
use zk_testserver::Action;

use crate::{OUTAGE, PATH, barrier, check_clean, close, first_session, flush, is_closed, open};

/// Undoes the change as soon as it is visible, before the client knows its outcome. A replay must
/// not change the barrier a second time.
async fn undo_once(world: &World, is_closing: bool, done: &AtomicBool) {
    while is_closed(world) != is_closing {
        if done.load(Ordering::Relaxed) {
            return;
        }
        tokio::task::yield_now().await;
        sleep_ms(1).await;
    }
    if is_closing { open(world) } else { close(world) }
}

#[test]
fn a_change_that_another_client_undoes_is_not_repeated_under_any_pair_of_cuts() {
    for is_closing in [true, false] {
        let name = if is_closing { "closing" } else { "opening" };
        let mut enumeration = Enumeration::new(name, first_session());
        enumeration.run(&|faults| {
            run(async {
                let world = World::new();
                let client = world.client(FIRST).await;
                if !is_closing {
                    close(&world);
                }
                world.inject(faults);
                let barrier = barrier(&client);
                let done = Arc::new(AtomicBool::new(false));
                let changing = async {
                    let changed =
                        if is_closing { barrier.close().await } else { barrier.open().await };
                    changed.expect("no session ends");
                };
                let undoing = undo_once(&world, is_closing, &done);
                tokio::join!(changing, undoing);
                flush(&world).await;
                assert_eq!(is_closed(&world), !is_closing, "a ghost\n{}", world.trace());
                check_clean(&world, &[&client]).await;
                world.ran()
            })
        });
        assert!(enumeration.is_complete(20, 100), "{enumeration:?}");
    }
}

#[test]
fn closing_twice_and_opening_twice_changes_nothing() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let (one, two) = (barrier(&client), barrier(&other));
        one.open().await.expect("without a directory it is open");
        assert_eq!(two.is_open().await, Ok(true));
        one.close().await.expect("it can be closed");
        let created = world.server.stat(PATH).map(|stat| stat.czxid);
        two.close().await.expect("it is closed");
        one.close().await.expect("it is closed");
        assert_eq!(world.server.stat(PATH).map(|stat| stat.czxid), created);
        assert_eq!(two.is_open().await, Ok(false));
        two.open().await.expect("it can be opened");
        one.open().await.expect("it is open");
        assert_eq!(one.is_open().await, Ok(true));
        check_clean(&world, &[&client, &other]).await;
    });
}

/// The session ends before the outcome is known.
#[test]
fn after_the_end_of_the_session_the_barrier_itself_decides() {
    for is_closing in [true, false] {
        for (action, is_undone, is_certain) in [
            // It was applied, and shows.
            (Action::CutAfter, false, true),
            // It was applied and undone, which looks as if it had not been applied.
            (Action::CutAfter, true, false),
            (Action::CutBefore, false, false),
        ] {
            run(async {
                let world = World::new();
                let client = world.client(FIRST).await;
                if !is_closing {
                    close(&world);
                } else {
                    world.server.admin_create("/barriers", b"", None);
                }
                let cut = at_op(session(&client), OpCode::MULTI, action.clone());
                world.server.inject(cut.refuse_for(OUTAGE));
                let changing = {
                    let barrier = barrier(&client);
                    spawn(async move {
                        if is_closing { barrier.close().await } else { barrier.open().await }
                    })
                };
                sleep_ms(1_000).await;
                if is_undone {
                    if is_closing { open(&world) } else { close(&world) }
                }
                let changed = changing.await.expect("it does not panic");
                let expected = if is_certain { Ok(()) } else { Err(RecipeError::SessionExpired) };
                assert_eq!(changed, expected, "{action:?} {is_undone}\n{}", world.trace());
                assert_eq!(is_closed(&world), is_closing == is_certain, "nothing is repeated");
                check_clean(&world, &[&client]).await;
            });
        }
    }
}

#[test]
fn a_dropped_change_happens_once_or_not_at_all_and_leaves_no_marker() {
    let mut points = 0;
    for is_closing in [true, false] {
        for trouble in Trouble::all(first_session().expect("connected"), 3) {
            for polls in 0..=TURNS {
                points += 1;
                let is_over = run(async {
                    let world = World::new();
                    let client = world.client(FIRST).await;
                    if !is_closing {
                        close(&world);
                    }
                    trouble.begin(&world);
                    let changing = {
                        let barrier = barrier(&client);
                        async move {
                            if is_closing { barrier.close().await } else { barrier.open().await }
                        }
                    };
                    let dropped = poll_times(changing, polls, || trouble.cancelling(&world)).await;
                    trouble.cancelled(&world);
                    if let Some(changed) = &dropped {
                        assert_eq!(*changed, Ok(()), "{trouble:?}");
                        assert_eq!(is_closed(&world), is_closing, "{trouble:?}");
                    }
                    flush(&world).await;
                    world.server.clear_faults();
                    check_clean(&world, &[&client]).await;
                    dropped.is_some()
                });
                if is_over {
                    break;
                }
                assert!(polls < TURNS, "it never ends: {trouble:?}");
            }
        }
    }
    eprintln!("dropped changes: {points} points");
    assert!(points >= 150, "only {points} points");
}

#[test]
fn every_code_at_the_change_is_reported_or_survived() {
    for code in CODES {
        for is_closing in [true, false] {
            run(async {
                let world = World::new();
                let client = world.client(FIRST).await;
                close(&world);
                if is_closing {
                    open(&world);
                }
                world.server.inject(at_op(session(&client), OpCode::MULTI, Action::Error(code)));
                let barrier = barrier(&client);
                let changed = if is_closing { barrier.close().await } else { barrier.open().await };
                if is_survived(code) {
                    assert_eq!(changed, Ok(()), "{code}\n{}", world.trace());
                    assert_eq!(is_closed(&world), is_closing);
                } else {
                    let Err(RecipeError::Refused { code: reported, .. }) = changed else {
                        panic!("{code}: {changed:?}\n{}", world.trace())
                    };
                    assert_eq!(reported, code);
                    assert_eq!(is_closed(&world), !is_closing);
                }
                check_clean(&world, &[&client]).await;
            });
        }
    }
}

#[test]
fn a_refusal_names_its_action_and_its_path() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        close(&world);
        world.server.admin_create("/barriers/x/child", b"", None);
        let refused =
            |code, action| Err(RecipeError::Refused { code, action, path: PATH.to_owned() });
        let not_empty = refused(ErrorCode::NOT_EMPTY, FailedAction::Delete);
        assert_eq!(barrier(&client).open().await, not_empty);
        let acl = Acl::new(Permissions::READ, "world", "anyone");
        client.set_acl("/barriers", vec![acl], None).await.expect("the list may be changed");
        let opened = barrier(&client).open().await;
        assert!(
            matches!(opened, Err(RecipeError::Refused { code: ErrorCode::NO_AUTH, .. })),
            "{opened:?}"
        );
        for path in ["", "x", "/", "/x/", "/x//y"] {
            Barrier::new(&client, path).expect_err(path);
        }
    });
}
