//! Links that are too slow for what the client sends: megabytes of writes wait to be sent, and with
//! them the pings and the writes that renew the lease.

use std::time::Duration;

use zk_recipes::{Client, FairLock, LockState};
use zk_session::SessionState;
use zk_tests::scene::spawn;
use zk_tests::world::{World, run, sleep_ms};

use super::links::Link;

const SECOND: Duration = Duration::from_secs(1);
/// Bytes of one write.
const SMALL: usize = 200_000;
const LARGE: usize = 900_000;

/// Writes `size` bytes for `count` times, without waiting in between. Calls `check` after each
/// reply. Returns how long all of them took.
async fn upload(client: &Client, size: usize, count: usize, check: impl Fn(usize)) -> Duration {
    let begun = client.now();
    let write = |_| client.set_data("/big", vec![b'x'; size], None);
    let writes: Vec<_> = (0..count).map(write).collect();
    for (n, write) in writes.into_iter().enumerate() {
        write.await.unwrap_or_else(|error| panic!("write {n}: {error}"));
        check(n);
    }
    client.now().saturating_since(begun)
}

#[test]
fn a_link_full_of_requests_loses_neither_a_write_nor_the_lock() {
    // The links have 0.8 Mbit/s and 2 Mbit/s.
    for (bytes, timeout, size, count) in
        [(100, 30, SMALL, 30), (250, 30, LARGE, 20), (250, 30, SMALL, 60), (250, 10, SMALL, 60)]
    {
        run(async {
            let world = World::new();
            let client = Link::up(bytes).timeout(SECOND * timeout).client(&world).await;
            world.server.admin_create("/big", b"", None);
            let lock = FairLock::new(&client, "/locks/x").expect("the path is legal");
            let guard = lock.acquire().await.expect("the lock is free");
            sleep_ms(20_000).await;
            let session = client.session_id();
            let case = format!("{bytes} kB/s, {timeout} s, {count} writes of {size} bytes");
            let took = upload(&client, size, count, |n| {
                let (state, remaining) = (guard.state(), guard.remaining());
                assert!(!matches!(state, LockState::Lost(_)), "{case}: {state:?} at write {n}");
                assert!(remaining.is_some(), "{case}: there is no lease at write {n}");
            })
            .await;
            assert!(took.as_millis() as usize >= size * count / bytes, "the link was not full");
            assert_eq!((client.status().connection, client.session_id()), (1, session), "{case}");
            assert!(guard.release().await.is_ok(), "{case}");
        });
    }
}

/// Each write takes longer than the silence that the client allows. The lock is lost in the second
/// case, because the servers hear of the session too rarely for a lease.
#[test]
fn a_connection_on_which_bytes_are_sent_is_not_silent() {
    for (timeout, is_locked) in [(10, false), (30, true)] {
        run(async {
            let world = World::new();
            let client = Link::up(95).timeout(SECOND * timeout).client(&world).await;
            world.server.admin_create("/big", b"", None);
            let lock = FairLock::new(&client, "/locks/x").expect("the path is legal");
            let mut guard = None;
            if is_locked {
                guard = Some(lock.acquire().await.expect("the lock is free"));
            }
            let session = client.session_id();
            upload(&client, LARGE, 8, |_| {}).await;
            assert_eq!((client.status().connection, client.session_id()), (1, session));
            if let Some(guard) = guard {
                assert!(matches!(guard.state(), LockState::Lost(_)), "{:?}", guard.state());
            }
        });
    }
}

/// Returns how long the client takes to notice that its link has stopped.
async fn time_to_notice(link: &Link, client: &Client) -> Duration {
    assert_eq!(client.status().state, SessionState::Connected);
    link.stop();
    let stopped = client.now();
    while client.status().state == SessionState::Connected {
        sleep_ms(10).await;
    }
    client.now().saturating_since(stopped)
}

#[test]
fn a_link_that_stops_is_noticed_in_time_whatever_waits_to_be_sent() {
    // While a lock needs the lease, the limit is shorter.
    for (is_locked, most) in [(false, 20_000), (true, 9_500)] {
        for (size, count, pause) in [(SMALL, 60, 0), (LARGE, 20, 0), (100, 60, 1_000)] {
            run(async {
                let world = World::new();
                let link = Link::up(100);
                let client = link.client(&world).await;
                world.server.admin_create("/big", b"", None);
                let lock = FairLock::new(&client, "/locks/x").expect("the path is legal");
                let mut guard = None;
                if is_locked {
                    guard = Some(lock.acquire().await.expect("the lock is free"));
                }
                let uploader = client.clone();
                spawn(async move {
                    let mut writes = vec![];
                    for _ in 0..count {
                        writes.push(uploader.set_data("/big", vec![b'x'; size], None));
                        sleep_ms(pause).await;
                    }
                    for write in writes {
                        let _ = write.await;
                    }
                });
                sleep_ms(12_300).await;
                let took = time_to_notice(&link, &client).await;
                let case = format!("writes of {size} bytes, locked: {is_locked}: {took:?}");
                assert!(took <= Duration::from_millis(most + 10), "{case}");
                drop(guard);
            });
        }
    }
}
