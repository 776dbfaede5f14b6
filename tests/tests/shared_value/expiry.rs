//! Sessions that end before the outcome of a write is known. The marker ends with them, so the
//! value itself has to decide, or the caller learns that nothing can.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{RecipeError, SharedValue, ValueError, Version, Versioned};
use zk_tests::scene::{FIRST, SECOND, at_op, session, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, Fault};

use crate::{check_clean, counter, create, stored, value};

/// Longer than the session timeout.
const OUTAGE: Duration = Duration::from_secs(30);

/// Runs a write from `old` to `new` whose connection is lost, together with its session. Another
/// client makes these writes meanwhile. Returns the result and the data afterwards.
async fn written(
    action: Action,
    others: &[&'static str],
) -> (Result<Versioned, ValueError>, String) {
    let world = World::new();
    let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
    create(&world, "old");
    let value = value(&client);
    let old = value.get().await.expect("it can be read");
    let before = session(&client);
    world.server.inject(at_op(before, OpCode::MULTI, action).refuse_for(OUTAGE));
    let writing = {
        let value = value.clone();
        spawn(async move { value.compare_and_set(&old, "new").await })
    };
    sleep_ms(1_000).await;
    // The other client keeps its connection.
    let theirs = SharedValue::new(&other, crate::PATH).expect("the path is valid");
    for data in others {
        theirs.set(*data).await.expect("it can be written");
    }
    let result = writing.await.expect("a write does not panic");
    assert_ne!(session(&client), before, "the session has ended\n{}", world.trace());
    check_clean(&world, &[&client, &other]).await;
    (result, stored(&world).expect("it exists"))
}

#[track_caller]
fn assert_undecided(result: Result<Versioned, ValueError>, bytes: &str, version: i32) {
    let Err(ValueError::Undecided { cause: RecipeError::SessionExpired, found: Some(found) }) =
        result
    else {
        panic!("{result:?}")
    };
    assert_eq!((found.bytes().as_ref(), found.version()), (bytes.as_bytes(), Version(version)));
}

#[test]
fn a_write_that_was_not_applied_is_written_in_the_next_session() {
    run(async {
        let (result, data) = written(Action::CutBefore, &[]).await;
        let new = result.expect("the version is still the old one");
        assert_eq!((new.bytes().as_ref(), new.version()), (&b"new"[..], Version(1)));
        assert_eq!(data, "new");
    });
}

#[test]
fn a_write_that_was_applied_is_undecided_because_another_client_could_have_written_the_same() {
    run(async {
        let (result, data) = written(Action::CutAfter, &[]).await;
        assert_undecided(result, "new", 1);
        assert_eq!(data, "new");
        let (result, _) = written(Action::CutBefore, &["new"]).await;
        assert_undecided(result, "new", 1);
    });
}

#[test]
fn another_value_at_the_next_version_is_a_conflict() {
    run(async {
        let (result, data) = written(Action::CutBefore, &["theirs"]).await;
        assert_eq!(result, Err(ValueError::Conflict));
        assert_eq!(data, "theirs");
    });
}

#[test]
fn later_versions_are_undecided_and_show_what_was_found() {
    run(async {
        for action in [Action::CutAfter, Action::CutBefore] {
            let others: &[_] =
                if action == Action::CutAfter { &["theirs"] } else { &["this", "theirs"] };
            let (result, data) = written(action, others).await;
            assert_undecided(result, "theirs", 2);
            assert_eq!(data, "theirs", "nothing is overwritten");
        }
    });
}

/// Two counters add while the session of one is lost at every request: the sum is exact, or the
/// undecided addition accounts for the difference.
#[test]
fn an_undecided_addition_accounts_for_the_difference() {
    let mut undecided = 0;
    for action in [Action::CutBefore, Action::CutAfter, Action::Expire] {
        for nth in 0..8 {
            undecided += run(async {
                let world = World::new();
                let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
                create(&world, "0");
                let fault = zk_tests::scene::at_request(session(&one), nth, action.clone());
                world.server.inject(Fault { refuse_for: Some(OUTAGE), ..fault });
                let (first, second) = (counter(&one), counter(&two));
                let mine = async {
                    let mut counted = (0, 0);
                    for _ in 0..3 {
                        match first.add(1).await {
                            Ok(_) => counted.0 += 1,
                            Err(ValueError::Undecided { .. }) => counted.1 += 1,
                            Err(error) => panic!("{error}"),
                        }
                    }
                    counted
                };
                let theirs = async {
                    for _ in 0..3 {
                        second.add(1).await.expect("its session lives");
                    }
                };
                let ((certain, undecided), ()) = tokio::join!(mine, theirs);
                let sum: i64 = stored(&world).expect("it exists").parse().expect("a number");
                let possible = 3 + certain..=3 + certain + undecided;
                assert!(possible.contains(&sum), "{sum}, not {possible:?}\n{}", world.trace());
                check_clean(&world, &[&one, &two]).await;
                undecided
            });
        }
    }
    assert!(undecided >= 3, "only {undecided} undecided additions");
}
