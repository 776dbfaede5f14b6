//! Many clients that change one value at once, and servers that are overloaded.

use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use zk_recipes::{Client, RecipeError, ValueError};
use zk_tests::scene::{FIRST, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault, Filter, ServerConfig};

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

/// A client whose bytes need a millisecond in each direction, so that a write may be refused because
/// of what happened since its read.
async fn distant(world: &World, seed: u64) -> Client {
    let server = world.server.clone();
    let connect = move |_host| {
        let connected = server.connect();
        async move {
            let (mut from_server, mut to_server) = tokio::io::split(connected?);
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let (mut from_client, mut to_client) = tokio::io::split(theirs);
            spawn(async move { carry(&mut from_client, &mut to_server).await });
            spawn(async move { carry(&mut from_server, &mut to_client).await });
            Ok(ours)
        }
    };
    world.client_with(seed, |builder| builder.transport(connect)).await
}

async fn carry(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        sleep_ms(1).await;
        if to.write_all(bytes.get(..count).unwrap_or_default()).await.is_err() {
            return;
        }
    }
}

/// A refused write is a proposal to the ensemble, and a read is not. With a write after each read,
/// these were 4,544 writes and as many reads in 4.2 s.
#[test]
fn five_hundred_additions_at_once_take_few_writes_each() {
    const ADDITIONS: usize = 500;
    const CONNECTIONS: u64 = 100;
    run(async {
        let world = World::with(ServerConfig::default().log_capacity(100_000));
        create(&world, "0");
        let mut clients = Vec::new();
        for seed in 1..=CONNECTIONS {
            clients.push(distant(&world, seed).await);
        }
        world.server.clear_requests();
        let client = clients.first().expect("there are several");
        let began = client.now();
        let adding: Vec<_> = (clients.iter().cycle().take(ADDITIONS))
            .map(|client| {
                let counter = counter(client);
                spawn(async move { counter.add(1).await })
            })
            .collect();
        for adding in adding {
            adding.await.expect("no panic").expect("no session ends");
        }
        let time = client.now().saturating_since(began);
        let requests = world.server.requests();
        let count = |op| requests.iter().filter(|request| request.op == op).count();
        let (writes, reads) = (count(OpCode::MULTI), count(OpCode::GET_DATA));
        eprintln!("{ADDITIONS} additions: {writes} writes, {reads} reads, {time:?}");
        assert!(writes <= 3_100, "{writes} writes");
        assert!(reads <= 5_000, "{reads} reads");
        assert!(time <= Duration::from_millis(3_900), "{time:?}");
        check_clean(&world, &clients.iter().collect::<Vec<_>>()).await;
        assert_eq!(stored(&world), Some(ADDITIONS.to_string()));
    });
}
