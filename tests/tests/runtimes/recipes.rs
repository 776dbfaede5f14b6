//! The calls that each recipe declares for the suites, on a client whose runtime ends, is not driven,
//! or is not the runtime of the caller.

use std::time::Duration;

use futures_util::future::join_all;
use zk_recipes::{CloseOutcome, HandOverError, SessionState};
use zk_tests::recipes::{pauses::calls, timeouts};
use zk_tests::wait::soon;
use zk_tests::world::sleep_ms;

use crate::calls::{apart, names_the_end};
use crate::coordination::drive_until_clean;
use crate::{Caller, LONG_SESSION, SHORT_SESSION, Stage, driven_by_callers, drivers};

#[test]
fn each_call_of_a_recipe_completes_outside_of_tokio() {
    for caller in [Caller::Bare, Caller::Thread] {
        let (stage, drivers) = (Stage::start(), drivers());
        let client = stage.client(&drivers, LONG_SESSION);
        for (name, call) in stage.soon("the beginning", calls(&client)) {
            assert_eq!(apart(name, caller, call), Ok(()), "{name}");
        }
        stage.check_clean(&client);
    }
}

#[test]
fn the_end_of_the_clients_runtime_is_an_answer_to_each_call_of_a_recipe() {
    let (stage, drivers) = (Stage::start(), drivers());
    let client = stage.client(&drivers, LONG_SESSION);
    let calls = stage.soon("the beginning", calls(&client));
    drop(drivers);
    assert_eq!(client.state(), SessionState::Closed);
    for (name, call) in calls {
        let error = stage.soon(name, call).expect_err(name);
        assert!(names_the_end(&error), "{name}: {error}");
    }
}

/// Each call with a timeout begins while the runtime of its client is not driven, and the caller is on
/// another one.
#[test]
fn each_call_with_a_timeout_ends_although_nobody_drives_its_client() {
    let (stage, still) = (Stage::start(), driven_by_callers());
    let client = stage.client(&still, LONG_SESSION);
    let calls = still.block_on(soon("the beginning", timeouts::calls(&client)));
    let (names, begins): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
    let ended = stage.soon("the timeouts", join_all(begins.into_iter().map(|begin| begin())));
    for (name, ended) in names.into_iter().zip(ended) {
        let error = ended.expect_err(name);
        let reasons = ["did not run in that time", "the client may have them later"];
        assert!(reasons.iter().any(|reason| error.contains(reason)), "{name}: {error}");
    }
    drive_until_clean(&still, &client, &stage.server);
}

#[test]
fn a_close_and_a_hand_over_end_although_nobody_drives_their_client() {
    let (stage, still) = (Stage::start(), driven_by_callers());
    let client = stage.client(&still, SHORT_SESSION);
    let first = client.session_id();
    let ticket = stage.soon("the hand-over", client.hand_over());
    assert_eq!(ticket.map(drop), Err(HandOverError::RuntimeStopped));
    let until = |what, condition: &dyn Fn() -> bool| {
        still.block_on(soon(what, async {
            while !condition() {
                sleep_ms(1).await;
            }
        }));
    };
    // The server has ended the session meanwhile.
    let is_renewed = || client.session_id() != first && client.state() == SessionState::Connected;
    until("another session", &is_renewed);
    assert_eq!(stage.soon("the close", client.close()), CloseOutcome::Abandoned);
    until("the end of the client", &|| client.state() == SessionState::Closed);
}

#[test]
fn a_close_after_the_end_of_the_runtime_confirms_the_end_of_no_session() {
    for is_renewed in [false, true] {
        let (stage, drivers) = (Stage::start(), drivers());
        let client = stage.client(&drivers, LONG_SESSION);
        let first = client.session_id().expect("it is connected");
        if is_renewed {
            stage.server.expire(first);
            stage.until("another session", |_| client.session_id() != Some(first));
            stage.until("its connection", |_| client.state() == SessionState::Connected);
        }
        drop(drivers);
        assert_eq!(stage.soon("the close", client.close()), CloseOutcome::Abandoned);
    }
}

#[test]
fn each_call_of_a_recipe_that_nobody_drives_can_be_dropped_and_leaves_nothing() {
    let (stage, still) = (Stage::start(), driven_by_callers());
    let client = stage.client(&still, LONG_SESSION);
    let calls = still.block_on(soon("the beginning", calls(&client)));
    stage.runtime.block_on(async {
        for (name, call) in calls {
            let ended = tokio::time::timeout(Duration::from_millis(5), call).await;
            assert!(ended.is_err(), "{name} has completed without its client: {ended:?}");
        }
    });
    drive_until_clean(&still, &client, &stage.server);
}
