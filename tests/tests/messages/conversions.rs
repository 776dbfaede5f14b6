//! A function that returns the error of the recipe that it uses needs nothing but `?`: not for the
//! constructors, the options, the calls, the guards or the streams. It is enough that these functions
//! compile; the test runs them, so that the calls are those of a program.

use zk_recipes::{
    CacheError, Client, ConfigError, FairLock, GroupError, LockError, LostReason, MultiLockError,
    Outcome, PresenceError, RecipeError, SettledError, Stopped, TransactionError, ValueError,
    WorkQueueError,
};
use zk_tests::meter::Pace;
use zk_tests::recipes::conversions;
use zk_tests::scene::FIRST;
use zk_tests::world::{World, run};

#[test]
fn a_function_that_returns_the_error_of_its_recipe_needs_no_conversions() {
    run(async {
        // All calls follow each other within a second.
        let client = World::new().pace(Pace::CALM.beside(300)).client(FIRST).await;
        conversions::all(&client).await.expect("all calls succeed");
        client.close().await;
    });
}

/// The error of a constructor is found in the error that a function has returned, even if `main`
/// returns it, which prints it in debug format.
#[test]
fn an_invalid_option_is_found_in_each_error() {
    fn invalid<E: From<ConfigError>>(client: &Client) -> E {
        FairLock::new(client, "relative").expect_err("the path is invalid").into()
    }
    fn shown<E: std::error::Error>(error: &E) -> String {
        assert_eq!(format!("{error:?}"), error.to_string());
        error.to_string()
    }
    run(async {
        let client = World::new().client(FIRST).await;
        let expected = ConfigError::to_string(&invalid(&client));
        for error in [
            shown(&invalid::<CacheError>(&client)),
            shown(&invalid::<GroupError>(&client)),
            shown(&invalid::<LockError>(&client)),
            shown(&invalid::<MultiLockError>(&client)),
            shown(&invalid::<PresenceError>(&client)),
            shown(&invalid::<RecipeError>(&client)),
            shown(&invalid::<TransactionError>(&client)),
            shown(&invalid::<ValueError>(&client)),
            shown(&invalid::<SettledError>(&client)),
            shown(&invalid::<WorkQueueError>(&client)),
        ] {
            assert_eq!(error, expected);
        }
        client.close().await;
    });
}

/// A caller that repeats what was not applied would commit twice after a release that has failed.
#[test]
fn a_lock_that_fails_leaves_open_whether_a_transaction_was_committed() {
    assert_eq!(TransactionError::from(LockError::Closed).outcome(), Outcome::Unknown);
    let stopped = Stopped::Lost(LostReason::SessionExpired);
    assert_eq!(TransactionError::from(stopped).outcome(), Outcome::Unknown);
}
