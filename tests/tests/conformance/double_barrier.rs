//! Double barriers: participants of several clients enter together and leave together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use zk_recipes::{DoubleBarrier, RecipeError};
use zk_tests::target::Fixture;
use zk_tests::wait::{PATIENCE, catch_up, names_in, soon};

const PATH: &str = "/barriers/x";
const PARTICIPANTS: usize = 4;
const ROUNDS: usize = 5;

#[tokio::test]
async fn participants_enter_and_leave_together_again_and_again() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let (arrived, gone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..PARTICIPANTS {
        let other = fixture.client().await;
        let (arrived, gone) = (Arc::clone(&arrived), Arc::clone(&gone));
        tasks.spawn(async move {
            let barrier = DoubleBarrier::new(&other, PATH, PARTICIPANTS as u32).unwrap();
            for round in 1..=ROUNDS {
                arrived.fetch_add(1, Ordering::SeqCst);
                let inside = barrier.enter().timeout(PATIENCE).await.unwrap();
                assert!(arrived.load(Ordering::SeqCst) >= round * PARTICIPANTS, "early");
                gone.fetch_add(1, Ordering::SeqCst);
                inside.leave().timeout(PATIENCE).await.unwrap();
                assert!(gone.load(Ordering::SeqCst) >= round * PARTICIPANTS, "early");
            }
        });
    }
    soon("the rounds", tasks.join_all()).await;
    catch_up(&client).await;
    // The server may have removed the container already.
    let left = client.get_children(PATH).await.unwrap_or_default();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_participant_whose_client_is_closed_has_left() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let barriers = [&client, &other].map(|client| DoubleBarrier::new(client, PATH, 2).unwrap());
    let [mine, theirs] = barriers;
    let alone = mine.enter().timeout(Duration::from_millis(200)).await;
    assert!(matches!(alone.err(), Some(RecipeError::TimedOut(_))));
    // Until the znode of the attempt that gave up is deleted, the other one would enter with it.
    soon("the deletion", async {
        // Without a sync, a read could miss the directory, or a deletion that its server has not
        // received yet.
        catch_up(&other).await;
        while !names_in(&other, PATH).await.is_empty() {
            catch_up(&other).await;
        }
    })
    .await;
    let both = async { tokio::join!(mine.enter(), theirs.enter()) };
    let (mine, theirs) = soon("the entry of both", both).await;
    let (mine, theirs) = (mine.unwrap(), theirs.unwrap());
    other.close().await;
    soon("the end of the other", async { mine.leave().await }).await.unwrap();
    assert!(theirs.leave().await.is_err(), "its client is closed");
}
