//! Sessions that end before the outcome of a write is known, and after it.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{
    CreateMode, NewZnode, OpError, Outcome, RecipeError, SettledClient, SettledError,
};
use zk_tests::scene::{FIRST, at_op, session, spawn};
use zk_tests::world::{World, run};
use zk_testserver::Action;

use crate::{MARKERS, OUTAGE, PATH, check_clean, create_directories, settled, world};

#[test]
fn a_write_whose_session_ends_before_its_outcome_is_known_is_an_outcome_of_its_own() {
    for action in [Action::CutBefore, Action::CutAfter] {
        for mode in [CreateMode::Persistent, CreateMode::Ephemeral] {
            run(async {
                let world = world();
                let client = world.client(FIRST).await;
                create_directories(&world);
                let settled = settled(&client);
                let before = session(&client);
                let fault = at_op(before, OpCode::MULTI, action.clone());
                world.server.inject(fault.refuse_for(OUTAGE));
                let created = settled.create(PATH, "mine", mode).await;
                let outcome = Outcome::Unknown;
                assert_eq!(created, Err(SettledError::SessionEnded { outcome }));
                settled.exists(MARKERS).await.expect("another session begins");
                assert_ne!(session(&client), before, "\n{}", world.trace());
                // It is not applied later, and an ephemeral znode is gone.
                let is_there = action == Action::CutAfter && mode == CreateMode::Persistent;
                assert_eq!(world.server.stat(PATH).is_some(), is_there, "\n{}", world.trace());
                // The next session has markers of its own.
                let deleted = settled.delete(PATH, None).await;
                assert_eq!(deleted.is_ok(), is_there, "{deleted:?}");
                drop(settled);
                check_clean(&world, &[&client]).await;
            });
        }
    }
}

/// Begins a create while no server answers, and returns its result after the session has ended.
async fn created_after_the_end(
    world: &World,
    settled: &SettledClient,
    mode: CreateMode,
) -> Result<NewZnode, SettledError> {
    world.server.refuse_for(OUTAGE);
    world.server.disconnect_all();
    let settled = settled.clone();
    let creating = spawn(async move { settled.create(PATH, "mine", mode).await });
    creating.await.expect("a create does not panic")
}

#[test]
fn a_write_that_was_not_sent_continues_in_the_next_session_unless_it_belongs_to_the_old_one() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        create_directories(&world);
        let settled = settled(&client);
        // There is a marker of the first session.
        settled.create("/data/first", "", CreateMode::Persistent).await.expect("it can be created");
        let before = session(&client);
        let created = created_after_the_end(&world, &settled, CreateMode::Persistent).await;
        assert_ne!(session(&client), before);
        let stat = created.expect("it can be created in any session").stat.expect("it replied");
        assert_eq!(world.server.stat(PATH).map(|found| found.czxid), Some(stat.czxid));
        settled.delete(PATH, None).await.expect("it exists");
        let created = created_after_the_end(&world, &settled, CreateMode::Ephemeral).await;
        let outcome = Outcome::NotApplied;
        assert_eq!(created, Err(SettledError::SessionEnded { outcome }));
        assert_eq!(world.server.stat(PATH), None, "\n{}", world.trace());
        drop(settled);
        check_clean(&world, &[&client]).await;
    });
}

/// The reply that was lost is all that the session's end takes away from a write that was applied.
#[test]
fn a_timeout_says_that_a_write_may_have_been_applied_and_a_read_just_ends() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        create_directories(&world);
        let settled = settled(&client);
        let fault = at_op(session(&client), OpCode::MULTI, Action::CutAfter);
        world.server.inject(fault.refuse_for(Duration::from_secs(5)));
        let writing = settled.create(PATH, "mine", CreateMode::Persistent);
        let late = writing.timeout(Duration::from_secs(2)).await.expect_err("no server answers");
        assert_eq!(late.outcome(), Outcome::Unknown);
        assert!(
            matches!(late, SettledError::Unknown { cause: RecipeError::TimedOut(_) }),
            "{late:?}"
        );
        let reading = settled.get_data(PATH).timeout(Duration::from_secs(1));
        assert!(reading.await.expect_err("no server answers").is_timed_out());
        assert_eq!(settled.get_data(PATH).await.expect("it was applied").0, "mine");
        client.close().await;
        let closed = settled.delete(PATH, None).await.expect_err("the client is closed");
        assert_eq!(closed, SettledError::Recipe(RecipeError::Closed));
        assert_eq!(closed.outcome(), Outcome::NotApplied);
    });
}

/// A session that is not replaced ends everything.
#[test]
fn a_client_without_another_session_says_that_nothing_was_applied() {
    run(async {
        let world = world();
        let client = world.client_with(FIRST, |builder| builder.renew_after_expiry(false)).await;
        create_directories(&world);
        let settled = settled(&client);
        world.server.expire(session(&client));
        zk_tests::world::sleep_ms(100).await;
        let written = settled.create(PATH, "mine", CreateMode::Persistent).await;
        let error = written.expect_err("there is no session");
        assert_eq!(error.outcome(), Outcome::NotApplied, "{error:?}");
        let read = settled.get_children(MARKERS).await.expect_err("there is no session");
        assert_eq!(read, RecipeError::SessionExpired);
        let error = client.get_data(PATH).await.expect_err("there is no session");
        assert!(matches!(error, OpError::SessionExpired { .. }));
    });
}
