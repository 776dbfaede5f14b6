//! Barriers: closing, opening and waiting.

use std::future::IntoFuture as _;
use std::time::Duration;

use tokio::task::JoinSet;
use zk_recipes::{Barrier, RecipeError};
use zk_tests::scene::spawn;
use zk_tests::target::Fixture;
use zk_tests::wait::{catch_up, soon};

const PATH: &str = "/barriers/x";

#[tokio::test]
async fn all_who_wait_are_released_when_the_barrier_is_opened() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let barrier = Barrier::new(&client, PATH).unwrap();
    barrier.wait().await.unwrap();
    for _ in 0..3 {
        barrier.close().await.unwrap();
        barrier.close().await.unwrap();
        let mut waiting = JoinSet::new();
        for _ in 0..4 {
            let other = fixture.client().await;
            catch_up(&other).await;
            let barrier = Barrier::new(&other, PATH).unwrap();
            assert_eq!(barrier.is_open().await, Ok(false));
            waiting.spawn(barrier.wait().into_future());
        }
        let short = barrier.wait().timeout(Duration::from_millis(100)).await;
        assert!(matches!(short, Err(RecipeError::TimedOut(_))));
        assert!(waiting.try_join_next().is_none(), "it is closed");
        barrier.open().await.unwrap();
        barrier.open().await.unwrap();
        for released in soon("the waiters", waiting.join_all()).await {
            assert_eq!(released, Ok(()));
        }
    }
}

#[tokio::test]
async fn a_barrier_that_is_open_for_a_moment_releases_those_who_waited() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let (mine, theirs) =
        (Barrier::new(&client, PATH).unwrap(), Barrier::new(&other, PATH).unwrap());
    mine.close().await.unwrap();
    catch_up(&other).await;
    for _ in 0..10 {
        let waiting = spawn(theirs.wait().into_future());
        // The waiter has looked by then: its read precedes this one on the same connection.
        tokio::task::yield_now().await;
        tokio::time::timeout(Duration::from_millis(100), theirs.wait()).await.unwrap_err();
        assert_eq!(theirs.is_open().await, Ok(false));
        mine.open().await.unwrap();
        mine.close().await.unwrap();
        soon("the waiter", waiting).await.unwrap().unwrap();
        catch_up(&other).await;
    }
    mine.open().await.unwrap();
}

#[tokio::test]
async fn a_wait_survives_lost_connections() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let other = fixture.client().await;
    let theirs = Barrier::new(&other, PATH).unwrap();
    theirs.close().await.unwrap();
    catch_up(&client).await;
    let waiting = spawn(Barrier::new(&client, PATH).unwrap().wait().into_future());
    for _ in 0..5 {
        tokio::time::timeout(Duration::from_millis(50), theirs.wait()).await.unwrap_err();
        proxy.cut_all();
    }
    assert!(!waiting.is_finished(), "it is closed");
    theirs.open().await.unwrap();
    soon("the waiter", waiting).await.unwrap().unwrap();
}
