//! The number of connections of many clients to servers that fail.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use zk_recipes::{Client, Clock};
use zk_session::SessionState;
use zk_tests::world::{run, sleep_ms};

use super::peer::{Behaviour, Peers};

const CLIENTS: u64 = 200;
/// Length of an outage in seconds.
const OUTAGE: usize = 40;
/// Number of servers in the connect string.
const SERVERS: usize = 3;
/// How often a client may connect during an outage, in addition to once per second and once to each
/// server.
const EXTRA: usize = 8;
/// After this many seconds, the pauses of every client have reached their full length.
const CALM_AFTER: usize = 10;

/// The log of connections: the client and the time of each.
type Log = Arc<Mutex<Vec<(u64, Instant)>>>;

fn client(seed: u64, peers: &Peers, log: &Log) -> Client {
    let (peers, log) = (peers.clone(), Arc::clone(log));
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    let transport = move |_host| {
        let now = Instant::now();
        log.lock().unwrap_or_else(PoisonError::into_inner).push((seed, now));
        peers.clone().connect()
    };
    Client::builder("a,b,c")
        .transport(transport)
        .clock(Clock::tokio())
        .seed(seed)
        .start()
        .expect("the options are legal")
}

async fn all_are_connected(clients: &[Client], within_ms: u64) {
    for _ in 0..within_ms / 100 {
        if clients.iter().all(|client| client.state() == SessionState::Connected) {
            return;
        }
        sleep_ms(100).await;
    }
    panic!("not all clients are connected");
}

/// Returns the number of connections in each second of an outage, and the time until the first
/// connection of each client.
fn outage(behaviour: Behaviour, clients: u64, begins_well: bool) -> (Vec<usize>, Vec<Duration>) {
    run(async {
        let peers = Peers::new(if begins_well { Behaviour::Serves } else { behaviour });
        let log = Log::default();
        let all: Vec<_> = (0..clients).map(|seed| client(seed, &peers, &log)).collect();
        let mut watchers = Vec::new();
        if begins_well {
            all_are_connected(&all, 1_000).await;
            for client in &all {
                let watched = client.exists_and_watch("/a").await.expect("it is answered");
                watchers.push(watched.1);
            }
            // The first ping is sent after 10 s.
            sleep_ms(15_000).await;
            log.lock().unwrap_or_else(PoisonError::into_inner).clear();
            peers.behave(behaviour);
        }
        #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
        let begun = Instant::now();
        sleep_ms(OUTAGE as u64 * 1000).await;
        let mut seconds = vec![0; OUTAGE];
        let mut first = vec![Duration::MAX; clients as usize];
        for (client, at) in log.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let after = at.saturating_duration_since(begun);
            if let Some(second) = seconds.get_mut(after.as_secs() as usize) {
                *second += 1;
            }
            if let Some(first) = first.get_mut(client as usize) {
                *first = after.min(*first);
            }
        }
        // The outage is over. A client that has just begun an attempt must end the attempt first.
        peers.behave(Behaviour::Serves);
        all_are_connected(&all, 20_000).await;
        (seconds, first)
    })
}

#[test]
fn no_way_to_fail_makes_a_client_come_more_than_once_a_second() {
    for begins_well in [true, false] {
        for behaviour in Behaviour::BAD {
            if behaviour == Behaviour::ThrottlesWatches && !begins_well {
                // These servers serve clients without watches, so no client connects again.
                continue;
            }
            for clients in [1, CLIENTS] {
                let (seconds, _) = outage(behaviour, clients, begins_well);
                let shown = [0, 1, 2, 3, 5, 10, 20, 39].map(|second| seconds[second]);
                eprintln!(
                    "{behaviour:?}, {clients} clients, after service {begins_well}: {shown:?} \
                     connections in seconds 0, 1, 2, 3, 5, 10, 20, 39"
                );
                let most = clients as usize * (OUTAGE + SERVERS + EXTRA);
                let all: usize = seconds.iter().sum();
                assert!(all <= most, "{behaviour:?}: {all} connections, and not {most}");
                assert!(
                    all >= clients as usize,
                    "{behaviour:?}: a client has not connected at all"
                );
                // Pauses of full length are 1.5 s on average. More connections would mean that
                // clients do not pause.
                let calm = &seconds[CALM_AFTER..];
                let most = clients as usize * calm.len() * 85 / 100 + 1;
                let all: usize = calm.iter().sum();
                assert!(all <= most, "{behaviour:?}: {all} connections, and not {most}");
                for (second, connections) in seconds.iter().enumerate().skip(CALM_AFTER) {
                    assert!(
                        *connections <= clients as usize,
                        "{behaviour:?}: {connections} connections of {clients} clients in second \
                         {second}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_first_attempt_after_a_connection_of_use_is_immediate() {
    for behaviour in Behaviour::BAD {
        let (_, first) = outage(behaviour, 20, true);
        let worst = first.iter().max().copied().unwrap_or_default();
        assert!(worst <= Duration::from_millis(52), "{behaviour:?}: {worst:?}");
    }
}

#[test]
fn a_server_that_throttles_watches_is_named_with_the_cause() {
    run(async {
        let peers = Peers::new(Behaviour::Serves);
        let client = client(1, &peers, &Log::default());
        all_are_connected(std::slice::from_ref(&client), 1_000).await;
        let _watcher = client.exists_and_watch("/a").await.expect("it is answered");
        peers.behave(Behaviour::ThrottlesWatches);
        sleep_ms(5_000).await;
        let failure = client.last_failure().expect("something has failed").to_string();
        assert!(failure.contains("refused to restore watches"), "{failure}");
        let host = failure.split(": ").next().unwrap_or_default();
        assert!(["a:2181", "b:2181", "c:2181"].contains(&host), "{failure}");
    });
}
