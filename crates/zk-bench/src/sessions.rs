//! Idle sessions, sessions that hold locks, and a session that reconnects.

use std::time::{Duration, Instant};

use jute_codec::{Request, SetWatches};
use tokio::task::JoinSet;
use zk_recipes::{FairLock, Guard, LockState};
use zk_session::{Client, SessionState, Zxid};

use crate::metered::Traffic;
use crate::options::Options;
use crate::report::{Report, cpu_time, resident_bytes};
use crate::wire::{self, Wire};
use crate::{Outcome, directory};

const SESSIONS: u32 = 1000;
const IDLE: Duration = Duration::from_secs(10);
const HELD: Duration = Duration::from_secs(60);
const WATCHES: u64 = 10_000;
/// Length of the reply to a ping, with its length prefix.
const PING: usize = 20;
/// Number of sessions that are opened concurrently.
const AT_ONCE: usize = 64;
/// Number of paths in one SetWatches of the floor: as many as fit into a frame of the library.
const BATCH: usize = 1000;

/// Measures idle sessions.
pub(crate) async fn idle(options: &Options) -> Outcome<Report> {
    let sessions = options.sessions.unwrap_or(SESSIONS);
    let traffic = Traffic::default();
    // The first session allocates what all sessions share.
    let first = open(options, &traffic).await?;
    let before = resident_bytes()?;
    let clients = open_all(options, &traffic, sessions).await?;
    let idle = options.duration().max(IDLE);
    // Give the clients time to finish the work that opening the sessions has started.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let memory = resident_bytes()? - before;
    let counted = traffic.so_far();
    let cpu = cpu_time();
    let began = Instant::now();
    tokio::time::sleep(idle).await;
    let counted = traffic.since(counted);
    let cpu = cpu_time() - cpu;
    let time = began.elapsed();
    if clients.iter().any(|client| client.state() != SessionState::Connected) {
        return Err("a session was lost while it was idle".into());
    }
    close_all(clients).await;
    first.close().await;
    let session_seconds = f64::from(sessions) * time.as_secs_f64();
    Ok(Report::new(options)
        .figure("sessions", sessions.into())
        .figure("secs", time.as_secs_f64())
        .figure("kb_per_session", memory / 1024.0 / f64::from(sessions))
        .figure("idle_cpu_us_per_session_s", cpu.as_secs_f64() * 1e6 / session_seconds)
        .figure("pings_per_session_s", counted.requests as f64 / session_seconds)
        .figure("looks_per_ping", counted.looks as f64 / counted.requests as f64))
}

/// Measures sessions that each hold a different lock.
pub(crate) async fn holding(options: &Options) -> Outcome<Report> {
    let sessions = options.sessions.unwrap_or(SESSIONS);
    let traffic = Traffic::default();
    let clients = open_all(options, &traffic, sessions).await?;
    let observer = Client::connect(options.connect.as_str()).await?;
    let directory = directory::make(&observer).await?;
    let mut guards = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        let lock = FairLock::new(client, &format!("{directory}/{number}"))?;
        guards.push(lock.acquire().await?);
    }
    // This is usually longer than the lease that the creation of the sessions has granted.
    let held = options.secs.map_or(HELD, |_| options.duration());
    let mut least = Duration::MAX;
    let mut lost = 0;
    let counted = traffic.so_far();
    let cpu = cpu_time();
    let began = Instant::now();
    let zxid = zxid(&observer, &directory).await?;
    while began.elapsed() < held {
        tokio::time::sleep(Duration::from_millis(100)).await;
        lost = guards.iter().filter(|guard| guard.state() != LockState::Held).count().max(lost);
        least = guards.iter().filter_map(Guard::remaining).min().unwrap_or_default().min(least);
    }
    let writes = self::zxid(&observer, &directory).await?.0 - zxid.0 - 1;
    let counted = traffic.since(counted);
    let cpu = cpu_time() - cpu;
    let time = began.elapsed();
    drop(guards);
    close_all(clients).await;
    directory::remove(&observer, &directory).await?;
    observer.close().await;
    let session_seconds = f64::from(sessions) * time.as_secs_f64();
    Ok(Report::new(options)
        .figure("sessions", sessions.into())
        .figure("secs", time.as_secs_f64())
        .figure("writes_per_s", writes as f64 / time.as_secs_f64())
        .figure("requests_per_session_s", counted.requests as f64 / session_seconds)
        .figure("cpu_us_per_session_s", cpu.as_secs_f64() * 1e6 / session_seconds)
        .figure("remaining_least_s", least.as_secs_f64())
        .figure("not_held_most", lost as f64))
}

/// Writes a znode, and returns the zxid of that write, which is the newest.
async fn zxid(client: &Client, directory: &str) -> Outcome<Zxid> {
    Ok(client.set_data(directory, "", None).await?.mzxid)
}

async fn open_all(options: &Options, traffic: &Traffic, sessions: u32) -> Outcome<Vec<Client>> {
    let mut clients = Vec::new();
    let mut opening = JoinSet::new();
    for _ in 0..sessions {
        while opening.len() >= AT_ONCE
            && let Some(opened) = opening.join_next().await
        {
            clients.push(opened??);
        }
        let options = options.clone();
        let traffic = traffic.clone();
        opening.spawn(async move { open(&options, &traffic).await });
    }
    while let Some(opened) = opening.join_next().await {
        clients.push(opened??);
    }
    Ok(clients)
}

async fn close_all(clients: Vec<Client>) {
    let mut closing = JoinSet::new();
    for client in clients {
        closing.spawn(async move { client.close().await });
    }
    closing.join_all().await;
}

async fn open(options: &Options, traffic: &Traffic) -> Outcome<Client> {
    let builder = Client::builder(options.connect.as_str()).transport(traffic.transport());
    Ok(builder.connect().await?)
}

pub(crate) fn idle_floor(options: &Options) -> Outcome<Report> {
    let sessions = options.sessions.unwrap_or(SESSIONS);
    let before = resident_bytes()?;
    let wires = (0..sessions).map(|_| Wire::with_capacity(&options.connect, PING));
    let wires = wires.collect::<Outcome<Vec<_>>>()?;
    let memory = resident_bytes()? - before;
    wires.into_iter().try_for_each(Wire::close)?;
    Ok(Report::new(options)
        .figure("sessions", sessions.into())
        .figure("kb_per_session", memory / 1024.0 / f64::from(sessions)))
}

/// Measures how a session with watches reconnects.
pub(crate) async fn reconnect(options: &Options) -> Outcome<Report> {
    let watches = options.n.unwrap_or(WATCHES);
    let traffic = Traffic::default();
    let client = open(options, &traffic).await?;
    let directory = directory::make(&client).await?;
    let requests: Vec<_> =
        (0..watches).map(|index| client.exists_and_watch(&watched(&directory, index))).collect();
    let mut watchers = Vec::new();
    for request in requests {
        watchers.push(request.await?.1);
    }
    let counted = traffic.so_far();
    let began = Instant::now();
    traffic.cut()?;
    let mut states = client.states();
    while states.current().state == SessionState::Connected {
        states.next().await.ok_or("the client has stopped")?;
    }
    // This request is sent after the watches, so its reply arrives after theirs.
    client.exists(&directory).await?;
    let time = began.elapsed();
    let counted = traffic.since(counted);
    // Check that the last watch was restored, too.
    let last = watched(&directory, watches - 1);
    client.create(&last, "", zk_session::CreateMode::Ephemeral).await?;
    let mut last = watchers.pop().ok_or("there are no watches")?;
    last.changed().await.map_err(|end| format!("a watch was not restored: {end:?}"))?;
    client.delete(&watched(&directory, watches - 1), None).await?;
    directory::remove(&client, &directory).await?;
    client.close().await;
    Ok(Report::new(options)
        .figure("watches", watches as f64)
        .figure("secs", time.as_secs_f64())
        .figure("bytes", counted.bytes as f64)
        .figure("requests", counted.requests as f64))
}

pub(crate) fn reconnect_floor(options: &Options) -> Outcome<Report> {
    let watches = options.n.unwrap_or(WATCHES);
    let directory = directory::path();
    let paths: Vec<_> = (0..watches).map(|index| watched(&directory, index).into()).collect();
    let batches = paths.chunks(BATCH).map(|paths| {
        wire::frame(&Request::SetWatches(SetWatches {
            relative_zxid: Zxid(0),
            data: Vec::new(),
            exist: paths.to_vec(),
            child: Vec::new(),
        }))
    });
    let frames = batches.clone().collect::<Vec<_>>().concat();
    let count = batches.count();
    let began = Instant::now();
    let mut wire = Wire::open(&options.connect)?;
    wire.send(&frames)?;
    for _ in 0..count {
        wire.reply()?;
    }
    let time = began.elapsed();
    wire.close()?;
    Ok(Report::new(options)
        .figure("watches", watches as f64)
        .figure("secs", time.as_secs_f64())
        .figure("bytes", frames.len() as f64)
        .figure("requests", count as f64))
}

/// Returns a path as long as that of a lock's znode.
fn watched(directory: &str, index: u64) -> String {
    format!("{directory}/0123456789abcdef0123456789abcdef-lock-{index:010}")
}
