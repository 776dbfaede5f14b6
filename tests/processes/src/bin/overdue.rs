//! Measures what sessions and locks live through while a leader closes the connection to a learner
//! that does not read. `tests/ensemble/overdue` starts the servers and this program.
//!
//! `overdue FOLLOWER LEADER TIMEOUT CUT SECONDS` opens two sessions with this timeout, in seconds,
//! at the follower: one holds a lock, and the other only sends pings. Another client fills the
//! buffers of the leader's connections and then writes at the leader. After CUT seconds, the network
//! between the follower and the holder of the lock stops. The program prints when the znodes of both
//! sessions are gone, what the guard said at that time, and how long the writes took.

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "this is a program")]

use std::error::Error;
use std::time::{Duration, Instant};

use zk_recipes::{Client, CreateMode, FairLock, Guard, LockState};
use zk_session::recipe::Session;
use zk_tests::proxy::Proxy;
use zk_tests::target::remove;

/// What the leader cannot send to a learner that does not read: more than the buffers of a socket
/// hold.
const FILL: usize = 30;
const BLOCK: usize = 900_000;
const INTERVAL: Duration = Duration::from_millis(50);
/// How long small writes go on before the leader's buffers are filled.
const WARM_UP: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [follower, leader, timeout, cut, seconds] = &arguments[..] else {
        return Err("usage: overdue FOLLOWER LEADER TIMEOUT CUT SECONDS".into());
    };
    let [timeout, cut, end] =
        [timeout, cut, seconds].map(|text| text.parse().map(Duration::from_secs));
    let (timeout, cut, end) = (timeout?, cut?, end?);
    let proxy = Proxy::start(follower.parse()?).await;
    let at = |address: String| Client::builder(address).session_timeout(timeout).connect();
    let (holder, idle) = (at(proxy.addr().to_string()).await?, at(follower.clone()).await?);
    let writer = Client::builder(leader.clone()).session_timeout(4 * timeout).connect().await?;
    let root = format!("/overdue-{:016x}", Session::of(&writer).unique_id() as u64);
    writer.create(&root, "", CreateMode::Persistent).await?;
    let ephemeral = format!("{root}/idle");
    idle.create(&ephemeral, "", CreateMode::Ephemeral).await?;
    let guard = FairLock::new(&holder, &format!("{root}/lock"))?.acquire().await?;
    let began = Instant::now();
    println!("ready, {}", describe(&guard));
    while began.elapsed() < WARM_UP {
        writer.set_data(&root, "", None).await?;
        tokio::time::sleep(INTERVAL).await;
    }
    let fill: Vec<_> = (0..FILL).map(|_| writer.set_data(&root, vec![b'x'; BLOCK], None)).collect();
    for write in fill {
        write.await?;
    }
    println!("{} filled: {FILL} writes of {BLOCK} bytes", seconds_since(began));
    let (mut commits, mut longest) = (0, Duration::ZERO);
    let (mut lock_gone, mut idle_gone, mut was_lost) = (None, None, None);
    let mut is_cut = false;
    while began.elapsed() < end {
        if !is_cut && !cut.is_zero() && began.elapsed() >= cut {
            is_cut = true;
            proxy.pause();
            println!("{} the holder is cut off, {}", seconds_since(began), describe(&guard));
        }
        let sent = Instant::now();
        writer.set_data(&root, "", None).await?;
        (commits, longest) = (commits + 1, longest.max(sent.elapsed()));
        if idle_gone.is_none() && writer.exists(&ephemeral).await?.is_none() {
            idle_gone = Some(Instant::now());
            println!("{} the idle session's znode is gone", seconds_since(began));
        }
        if lock_gone.is_none() && writer.exists(guard.path()).await?.is_none() {
            lock_gone = Some(Instant::now());
            println!("{} the lock's znode is gone, {}", seconds_since(began), describe(&guard));
        }
        if was_lost.is_none() && matches!(guard.state(), LockState::Lost(_)) {
            was_lost = Some(Instant::now());
            println!("{} {}", seconds_since(began), describe(&guard));
        }
        tokio::time::sleep(INTERVAL).await;
    }
    println!("{commits} commits, the longest took {longest:?}");
    if let (Some(gone), Some(lost)) = (lock_gone, was_lost) {
        let wrong = lost.saturating_duration_since(gone);
        println!("the guard was wrong for {:.1} s", wrong.as_secs_f64());
    }
    remove(&writer, &root).await?;
    Ok(())
}

fn seconds_since(began: Instant) -> String {
    format!("{:5.1} s:", began.elapsed().as_secs_f64())
}

fn describe(guard: &Guard) -> String {
    format!("the guard says {:?}, {:?} remain", guard.state(), guard.remaining())
}
