//! Many clients that change one value at once, and servers that are overloaded.

use std::time::Duration;

use jute_codec::ErrorCode;
use zk_recipes::{RecipeError, ValueError};
use zk_tests::scene::{FIRST, spawn};
use zk_tests::world::{World, run};
use zk_testserver::{Action, At, Fault, Filter};

use crate::{check_clean, counter, create, stored};

const CLIENTS: u64 = 100;

#[test]
fn a_hundred_clients_that_add_at_once_all_succeed_at_a_calm_pace() {
    run(async {
        // A client that exceeds 60 requests in a second, or 200 in a minute, panics.
        let world = World::new();
        create(&world, "0");
        let mut clients = Vec::new();
        for seed in 1..=CLIENTS {
            clients.push(world.client(seed).await);
        }
        let adding: Vec<_> = clients
            .iter()
            .map(|client| {
                let counter = counter(client);
                spawn(async move { counter.add(1).await })
            })
            .collect();
        let mut sums = Vec::new();
        for adding in adding {
            sums.push(adding.await.expect("no panic").expect("no session ends"));
        }
        sums.sort_unstable();
        assert_eq!(sums, (1..=i64::try_from(CLIENTS).expect("small")).collect::<Vec<_>>());
        eprintln!("{CLIENTS} additions: {} requests", world.traffic().requests);
        let clients: Vec<_> = clients.iter().collect();
        check_clean(&world, &clients).await;
        assert_eq!(stored(&world), Some(CLIENTS.to_string()));
    });
}

/// The server is overloaded for as long as the counter waits.
#[test]
fn an_overloaded_server_gets_few_requests_until_the_timeout() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        create(&world, "0");
        for _ in 0..1_000 {
            let at = At::Request { nth: 0, filter: Filter::default() };
            world.server.inject(Fault::new(at, Action::Error(ErrorCode::THROTTLED_OP)));
        }
        world.server.clear_requests();
        let before = client.now();
        let late = counter(&client).add(1).await.expect_err("the server is overloaded");
        assert!(matches!(late, ValueError::Recipe(RecipeError::TimedOut(_))), "{late}");
        assert_eq!(client.now().saturating_since(before), Duration::from_secs(60));
        let requests = world.traffic().requests;
        assert!(requests <= 20, "{requests} requests in a minute");
        world.server.clear_faults();
        assert_eq!(counter(&client).add(1).await, Ok(1));
        check_clean(&world, &[&client]).await;
    });
}
