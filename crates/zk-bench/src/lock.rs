//! Uncontended and contended locks, and `try_acquire` calls for a lock that is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jute_codec::{CreateMode, Request};
use tokio::task::JoinSet;
use zk_recipes::{Client, FairLock, Released};

use crate::options::{Limit, Options};
use crate::report::{Latencies, Meter, Report};
use crate::wire::{self, Wire};
use crate::{Outcome, directory};

/// Number of consecutive calls before the other kind of call takes its turn.
const TURN: u64 = 100;
/// A name and a length of the data that resemble those of the library's contenders.
const NAME: &str = "0123456789abcdef0123456789abcdef-lock-";
const DATA_BYTES: usize = 32;

pub(crate) async fn uncontended(options: &Options) -> Outcome<Report> {
    let client = options.client()?.connect().await?;
    let directory = directory::make(&client).await?;
    let lock = FairLock::new(&client, &format!("{directory}/lock"))?;
    cycles(&lock, options.warm_up()).await?;
    let meter = Meter::start();
    let mut acquires = cycles(&lock, options.limit()).await?;
    let rate = meter.stop(acquires.count());
    directory::remove(&client, &directory).await?;
    client.close().await;
    Ok(Report::new(options)
        .rate(rate)
        .figure("acquire_p50_us", acquires.at_most_us(500))
        .figure("acquire_p99_us", acquires.at_most_us(990)))
}

async fn cycles(lock: &FairLock, limit: Limit) -> Outcome<Latencies> {
    let mut acquires = Latencies::default();
    while !limit.is_reached(acquires.count()) {
        let began = Instant::now();
        let guard = lock.acquire().await?;
        acquires.add(began.elapsed());
        match guard.release().await? {
            Released::Released => {}
            Released::AlreadyGone | Released::EndedWithSession => {
                return Err("the lock was lost".into());
            }
        }
    }
    Ok(acquires)
}

pub(crate) fn uncontended_floor(options: &Options) -> Outcome<Report> {
    let mut wire = Wire::open(&options.connect)?;
    let directory = directory::path();
    let lock = format!("{directory}/lock");
    wire.call(&wire::frame(&wire::create(&directory, "", CreateMode::Persistent)))?;
    // The lock creates its directory as a container. The floor creates a persistent znode instead,
    // because a server deletes empty containers once a minute, and the floor would not create the
    // directory again.
    wire.call(&wire::frame(&wire::create(&lock, "", CreateMode::Persistent)))?;
    let name = format!("{lock}/{NAME}");
    let data = vec![b'x'; DATA_BYTES];
    let mut acquire = wire::frame(&wire::create(&name, data, CreateMode::EphemeralSequential));
    acquire.extend_from_slice(&wire::frame(&Request::GetChildren(wire::read(&lock))));
    let mut release = wire::frame(&wire::delete(&format!("{name}0000000000"))).to_vec();
    // In the frame, the version follows the path.
    let end = release.len() - size_of::<i32>();

    let mut cycles = |limit: Limit| -> Outcome<Latencies> {
        let mut acquires = Latencies::default();
        while !limit.is_reached(acquires.count()) {
            let began = Instant::now();
            wire.send(&acquire)?;
            let created = wire::created_path(wire.reply()?)?;
            let path = release.get_mut(end - created.len()..end);
            path.ok_or("the path is longer than expected")?.copy_from_slice(created);
            wire.reply()?;
            acquires.add(began.elapsed());
            wire.call(&release)?;
        }
        Ok(acquires)
    };
    cycles(options.warm_up())?;
    let meter = Meter::start();
    let mut acquires = cycles(options.limit())?;
    let rate = meter.stop(acquires.count());
    wire.call(&wire::frame(&wire::delete(&lock)))?;
    wire.call(&wire::frame(&wire::delete(&directory)))?;
    wire.close()?;
    Ok(Report::new(options)
        .rate(rate)
        .figure("acquire_p50_us", acquires.at_most_us(500))
        .figure("acquire_p99_us", acquires.at_most_us(990)))
}

/// State shared by the contenders.
struct Contest {
    began: Instant,
    /// The number of the contender that holds the lock, from 1; 0 if it is free.
    holder: AtomicU32,
    newest_token: AtomicI64,
    /// When the last release was requested, in nanoseconds since `began`.
    released_ns: AtomicU64,
    cycles: AtomicU64,
    is_measured: AtomicBool,
    is_over: AtomicBool,
}

pub(crate) async fn contended(options: &Options) -> Outcome<Report> {
    let client = options.client()?.connect().await?;
    let directory = directory::make(&client).await?;
    let path = format!("{directory}/lock");
    let contest = Arc::new(Contest {
        began: Instant::now(),
        holder: AtomicU32::new(0),
        newest_token: AtomicI64::new(0),
        released_ns: AtomicU64::new(0),
        cycles: AtomicU64::new(0),
        is_measured: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
    });
    let mut contenders = JoinSet::new();
    for me in 1..=options.contenders {
        let own = options.client()?.connect().await?;
        contenders.spawn(contend(Arc::clone(&contest), own, path.clone(), me));
    }
    let timed = async {
        tokio::time::sleep(options.duration() / 10).await;
        contest.is_measured.store(true, Ordering::SeqCst);
        let meter = Meter::start();
        let before = contest.cycles.load(Ordering::SeqCst);
        match options.n {
            None => tokio::time::sleep(options.duration()).await,
            Some(n) => {
                while contest.cycles.load(Ordering::SeqCst) < before + n {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
        let rate = meter.stop(contest.cycles.load(Ordering::SeqCst) - before);
        contest.is_over.store(true, Ordering::SeqCst);
        rate
    };
    let mut handoffs = Latencies::default();
    let mut ends = async || -> Outcome<()> {
        while let Some(end) = contenders.join_next().await {
            handoffs.append(end??);
        }
        Ok(())
    };
    // If a contender fails, the measurement ends.
    let (rate, ended) = tokio::join!(timed, async {
        let ended = ends().await;
        contest.is_over.store(true, Ordering::SeqCst);
        ended
    });
    ended?;
    directory::remove(&client, &directory).await?;
    client.close().await;
    Ok(Report::new(options)
        .figure("contenders", options.contenders.into())
        .rate(rate)
        .figure("handoff_p50_us", handoffs.at_most_us(500))
        .figure("handoff_p99_us", handoffs.at_most_us(990)))
}

async fn contend(
    contest: Arc<Contest>,
    client: Client,
    path: String,
    me: u32,
) -> Outcome<Latencies> {
    let lock = FairLock::new(&client, &path)?;
    let mut handoffs = Latencies::default();
    while !contest.is_over.load(Ordering::SeqCst) {
        let guard = lock.acquire().await?;
        let other = contest.holder.swap(me, Ordering::SeqCst);
        if other != 0 {
            return Err(format!("contenders {other} and {me} hold the lock at once").into());
        }
        let token = guard.fencing_token().into();
        let newest = contest.newest_token.swap(token, Ordering::SeqCst);
        if newest >= token {
            return Err(format!("fencing token {token} after {newest}").into());
        }
        let released = Duration::from_nanos(contest.released_ns.load(Ordering::SeqCst));
        if contest.is_measured.load(Ordering::SeqCst) {
            handoffs.add(contest.began.elapsed().saturating_sub(released));
        }
        contest.cycles.fetch_add(1, Ordering::SeqCst);
        contest.holder.store(0, Ordering::SeqCst);
        let now = u64::try_from(contest.began.elapsed().as_nanos())?;
        contest.released_ns.store(now, Ordering::SeqCst);
        guard.release().await?;
    }
    client.close().await;
    Ok(handoffs)
}

pub(crate) async fn try_busy(options: &Options) -> Outcome<Report> {
    let holder = options.client()?.connect().await?;
    let client = options.client()?.connect().await?;
    let directory = directory::make(&holder).await?;
    let path = format!("{directory}/lock");
    let guard = FairLock::new(&holder, &path)?.acquire().await?;
    let lock = FairLock::new(&client, &path)?;

    let turns = async |limit: Limit| -> Outcome<(u64, Duration, Duration)> {
        let mut done = 0;
        let mut tries = Duration::ZERO;
        let mut lists = Duration::ZERO;
        while !limit.is_reached(done) {
            let began = Instant::now();
            for _ in 0..TURN {
                if lock.try_acquire().await?.is_some() {
                    return Err("a held lock was granted".into());
                }
            }
            tries += began.elapsed();
            let began = Instant::now();
            for _ in 0..TURN {
                client.get_children(&path).await?;
            }
            lists += began.elapsed();
            done += TURN;
        }
        Ok((done, tries, lists))
    };
    turns(options.warm_up()).await?;
    let (done, tries, lists) = turns(options.limit()).await?;
    guard.release().await?;
    directory::remove(&holder, &directory).await?;
    client.close().await;
    holder.close().await;
    Ok(Report::new(options)
        .figure("n", done as f64)
        .figure("per_s", done as f64 / tries.as_secs_f64())
        .figure("get_children_per_s", done as f64 / lists.as_secs_f64())
        .figure("vs_get_children", lists.as_secs_f64() / tries.as_secs_f64()))
}

pub(crate) fn try_busy_floor(options: &Options) -> Outcome<Report> {
    let mut wire = Wire::open(&options.connect)?;
    let directory = directory::path();
    wire.call(&wire::frame(&wire::create(&directory, "", CreateMode::Persistent)))?;
    let name = format!("{directory}/{NAME}");
    let holder = wire::create(&name, vec![b'x'; DATA_BYTES], CreateMode::EphemeralSequential);
    let created = wire::created_path(wire.call(&wire::frame(&holder))?)?.to_vec();
    let list = wire::frame(&Request::GetChildren(wire::read(&directory)));
    let mut lists = |limit: Limit| -> Outcome<u64> {
        let mut done = 0;
        while !limit.is_reached(done) {
            wire.call(&list)?;
            done += 1;
        }
        Ok(done)
    };
    lists(options.warm_up())?;
    let meter = Meter::start();
    let rate = meter.stop(lists(options.limit())?);
    wire.call(&wire::frame(&wire::delete(std::str::from_utf8(&created)?)))?;
    wire.call(&wire::frame(&wire::delete(&directory)))?;
    wire.close()?;
    Ok(Report::new(options).rate(rate))
}
