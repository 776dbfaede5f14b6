//! Shared values and counters: markers, versions, and changes.

use std::time::Duration;

use tokio::task::JoinSet;
use zk_recipes::{Client, Counter, CounterFormat, SharedValue, ValueError};
use zk_tests::scene::spawn;
use zk_tests::target::Fixture;
use zk_tests::wait::{catch_up, soon};

const PATH: &str = "/values/x";

fn value(client: &Client) -> SharedValue {
    SharedValue::builder(client, PATH).unwrap().initial("first").build().unwrap()
}

/// Waits until the janitor has deleted all markers.
async fn until_no_marker(client: &Client) {
    let deleting = async {
        while !client.get_children(PATH).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    soon("the end of the markers", deleting).await;
}

#[tokio::test]
async fn a_value_is_created_read_compared_and_set() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let (mine, theirs) = (value(&client), value(&other));
    let first = mine.get().await.unwrap();
    assert_eq!((first.bytes().as_ref(), first.version().0), (&b"first"[..], 0));
    let second = theirs.compare_and_set(&first, "second").await.unwrap();
    assert_eq!(second.version().0, 1);
    assert_eq!(mine.compare_and_set(&first, "third").await, Err(ValueError::Conflict));
    mine.set("third").await.unwrap();
    let fourth = mine.update(|old| [old, &b"+1"[..]].concat().into()).await.unwrap();
    assert_eq!((fourth.bytes().as_ref(), fourth.version().0), (&b"third+1"[..], 3));
    until_no_marker(&client).await;
    client.delete(PATH, None).await.unwrap();
    assert_eq!(mine.compare_and_set(&fourth, "x").await, Err(ValueError::Conflict));
}

#[tokio::test]
async fn every_addition_counts_once() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    for format in [CounterFormat::Decimal, CounterFormat::BigEndian32, CounterFormat::BigEndian64] {
        let mut adding = JoinSet::new();
        for _ in 0..4 {
            let other = fixture.client().await;
            adding.spawn(async move {
                let counter =
                    Counter::builder(&other, PATH).unwrap().format(format).build().unwrap();
                for _ in 0..5 {
                    counter.add(3).await.unwrap();
                }
            });
        }
        soon("the additions", adding.join_all()).await;
        catch_up(&client).await;
        let counter = Counter::builder(&client, PATH).unwrap().format(format).build().unwrap();
        assert_eq!(counter.get().await, Ok(60));
        until_no_marker(&client).await;
        client.delete(PATH, None).await.unwrap();
    }
}

/// The proxy cuts the connection at moments that the test does not choose.
#[tokio::test]
async fn additions_over_a_connection_that_is_cut_again_and_again_count_once() {
    let fixture = Fixture::start().await;
    let (proxy, client) = fixture.proxied().await;
    let other = fixture.client().await;
    let adding = spawn(async move {
        let counter = Counter::new(&client, PATH).unwrap();
        for _ in 0..20 {
            counter.add(1).await.unwrap();
        }
        client
    });
    let counter = Counter::new(&other, PATH).unwrap();
    for _ in 0..20 {
        counter.add(1).await.unwrap();
        proxy.cut_all();
    }
    let client = soon("the additions", adding).await.unwrap();
    catch_up(&client).await;
    assert_eq!(Counter::new(&client, PATH).unwrap().get().await, Ok(40));
    until_no_marker(&other).await;
}

#[tokio::test]
async fn changes_report_the_current_value_and_the_last_one() {
    let fixture = Fixture::start().await;
    let (client, other) = (fixture.client().await, fixture.client().await);
    let mut changes = Counter::new(&client, PATH).unwrap().changes();
    assert_eq!(soon("the current value", changes.next()).await, Ok(None));
    let counter = Counter::new(&other, PATH).unwrap();
    for _ in 0..10 {
        counter.add(1).await.unwrap();
    }
    let last = async { while changes.next().await != Ok(Some(10)) {} };
    soon("the last value", last).await;
    until_no_marker(&other).await;
    other.delete(PATH, None).await.unwrap();
    let missing = async { while changes.next().await != Ok(None) {} };
    soon("the end of the znode", missing).await;
    let idle = tokio::time::timeout(Duration::from_millis(200), changes.next()).await;
    idle.unwrap_err();
}
