//! Servers that reply to everything, but late, so that commits may be too slow for a lease.
#![expect(clippy::disallowed_methods, reason = "a slow link is made of pauses, in virtual time")]

use std::future::IntoFuture as _;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use zk_recipes::{AtRiskPolicy, Client, FairLock, LockError, LockState, Released, Stopped};
use zk_tests::scene::spawn;
use zk_tests::world::{World, run_within, sleep_ms};
use zk_testserver::{ServerConfig, TestServer};

use crate::{SECOND, ms};

const TIMEOUTS: [u64; 7] = [4, 5, 6, 10, 15, 20, 30];
const COMMITS_MS: [u64; 5] = [50, 100, 200, 400, 800];
/// Virtual time of a cell.
const LONG: Duration = Duration::from_secs(10_000);

/// Connects through a link on which a round trip takes this long.
fn slow_link(server: &TestServer, round_trip: Duration) -> io::Result<DuplexStream> {
    let (near, far) = tokio::io::duplex(1 << 16);
    let (far_read, far_write) = tokio::io::split(far);
    let (server_read, server_write) = tokio::io::split(server.connect()?);
    drop(spawn(pass_on(far_read, server_write, round_trip / 2)));
    drop(spawn(pass_on(server_read, far_write, round_trip / 2)));
    Ok(near)
}

/// Passes bytes on, each after this time.
async fn pass_on(
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    late: Duration,
) {
    let (sender, mut receiver) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let writer = spawn(async move {
        while let Some((at, bytes)) = receiver.recv().await {
            sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
        let _ = to.shutdown().await;
    });
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let bytes = buffer.get(..count).unwrap_or_default().to_vec();
        let _ = sender.send((Instant::now() + late, bytes));
    }
    drop(sender);
    let _ = writer.await;
}

async fn client(world: &World, seconds: u64, commit: Duration) -> Client {
    let server = world.server.clone();
    let options = |builder: zk_recipes::ClientBuilder| {
        builder.session_timeout(SECOND * seconds as u32).transport(move |_host| {
            let link = slow_link(&server, commit);
            async move { link }
        })
    };
    world.client_with(1, options).await
}

fn world() -> World {
    World::with(ServerConfig::default().max_session_timeout(SECOND * 60)).leased()
}

/// A lock that continues at risk is never lost, whether it begins with the session or later.
async fn check_going_on(world: &World, seconds: u64, commit: Duration, idle: u64) {
    let client = client(world, seconds, commit).await;
    sleep_ms(idle).await;
    let lock = FairLock::new(&client, "/locks/going-on").expect("the path is valid");
    let guard = lock.acquire().await.expect("the lock is free");
    for _ in 0..seconds * 30 {
        let (state, status) = (guard.state(), client.status());
        let case = format!("{seconds} s, {commit:?}, idle for {idle} ms: {status:?}");
        assert!(!matches!(state, LockState::Lost(_)), "{state:?} {case}");
        sleep_ms(100).await;
    }
    assert_eq!(guard.release().await, Ok(Released::Released));
    client.close().await;
}

/// Returns the cell of the table: the shortest remaining lease, or the timeout that would do.
async fn cell(world: &World, seconds: u64, commit: Duration) -> String {
    let client = client(world, seconds, commit).await;
    sleep_ms(seconds * 2_000).await;
    let going_on = FairLock::new(&client, "/locks/y").expect("the path is valid");
    let guard = going_on.acquire().await.expect("the lock is free");
    let ran = guard.run(sleep_ms(1)).stop_at_risk();
    let ran = timeout(SECOND * 60, ran).await.expect("it begins or is refused");
    assert_eq!(guard.release().await, Ok(Released::Released));
    sleep_ms(seconds * 2_000).await;
    let builder = FairLock::builder(&client, "/locks/x").expect("the path is valid");
    let lock = builder.at_risk(AtRiskPolicy::TreatAsLost).build().expect("the options are legal");
    let acquired = timeout(SECOND * 60, lock.acquire().into_future()).await;
    let case = format!("{seconds} s, {commit:?}");
    let cell = match acquired.expect("it is granted or refused") {
        Ok(guard) => {
            assert_eq!(ran, Ok(()), "{case}");
            sleep_ms(seconds * 2_000).await;
            let mut least = Duration::MAX;
            for _ in 0..seconds * 20 {
                assert_eq!(guard.state(), LockState::Held, "{case}");
                least = least.min(guard.remaining().expect("there is a lease"));
                sleep_ms(100).await;
            }
            format!("{:.1} s", least.as_secs_f64())
        }
        Err(LockError::NoLease(slow)) => {
            assert_eq!(ran, Err(Stopped::NoLease(slow)), "{case}");
            assert_eq!((slow.commit, slow.timeout), (commit, SECOND * seconds as u32), "{case}");
            assert!(slow.needed > slow.timeout, "{case}: {slow}");
            format!("no: {:.1} s", slow.needed.as_secs_f64())
        }
        Err(error) => panic!("{case}: {error}"),
    };
    world.until("nothing is left", |server| server.ephemerals().is_empty()).await;
    client.close().await;
    cell
}

#[test]
fn a_lock_is_never_lost_because_commits_are_slow() {
    for seconds in TIMEOUTS {
        for commit in COMMITS_MS.map(ms) {
            for idle in [0, seconds * 700, seconds * 3_000] {
                run_within(LONG, async {
                    check_going_on(&world(), seconds, commit, idle).await;
                });
            }
        }
    }
}

#[test]
fn a_lease_is_kept_or_refused_with_numbers() {
    let page = include_str!("../../../../docs/internals/lease.md");
    let mut missing = String::new();
    for seconds in TIMEOUTS {
        let cells = COMMITS_MS
            .map(|commit| run_within(LONG, async { cell(&world(), seconds, ms(commit)).await }));
        let row = format!("| {seconds} s | {} |", cells.join(" | "));
        eprintln!("{row}");
        if !page.contains(&row) {
            missing = format!("{missing}\n{row}");
        }
    }
    assert!(missing.is_empty(), "docs/internals/lease.md does not say{missing}");
}
