//! One lock with many waiters.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use zk_recipes::{Acquire, Client, FairLock, Guard, LockError, kind};

use crate::metered::Traffic;
use crate::options::Options;
use crate::report::{Latencies, Meter, Report, resident_bytes};
use crate::{Outcome, directory};

const WAITERS: u64 = 1000;
/// Maximum number of measured hand-offs.
const HANDOFFS_MAX: u64 = 1000;
/// Number of waiters that join the queue at once.
const AT_ONCE: u64 = 64;
/// How often the progress is printed.
const PROGRESS: Duration = Duration::from_secs(2);
/// How often the queue is polled.
const POLL: Duration = Duration::from_millis(2);

type Granted = Result<Guard, LockError>;

pub(crate) async fn run(options: &Options) -> Outcome<Report> {
    let waiters = options.sessions.map(u64::from).or(options.n).unwrap_or(WAITERS);
    let traffic = Traffic::default();
    let client = connect(options, &traffic).await?;
    let directory = directory::make(&client).await?;
    let path = format!("{directory}/lock");
    let lock = FairLock::new(&client, &path)?;
    let holder = lock.acquire().await?;

    let before = resident_bytes()?;
    let (granted, mut grants) = mpsc::unbounded_channel();
    let mut clients = Vec::new();
    let mut printed = Instant::now();
    for index in 1..=waiters {
        let lock = if options.sessions.is_some() {
            let own = connect(options, &traffic).await?;
            clients.push(own.clone());
            FairLock::new(&own, &path)?
        } else {
            lock.clone()
        };
        // The task ends when its client is closed.
        tokio::spawn(wait(lock.acquire(), granted.clone()));
        if index.is_multiple_of(AT_ONCE) || index == waiters {
            queued(&client, &path, index).await?;
        }
        if printed.elapsed() >= PROGRESS {
            eprintln!("zk-bench queue: {index} of {waiters} wait");
            printed = Instant::now();
        }
    }
    // Waiters set their watches after they have joined the queue.
    settle(&client, &clients).await?;
    let memory = resident_bytes()? - before;

    let handoffs = waiters.min(HANDOFFS_MAX);
    let mut latencies = Latencies::default();
    let mut guard = holder;
    let counted = traffic.so_far();
    let meter = Meter::start();
    for _ in 0..handoffs {
        let began = Instant::now();
        guard.release().await?;
        guard = grants.recv().await.ok_or("all waiters have stopped")??;
        latencies.add(began.elapsed());
    }
    let rate = meter.stop(handoffs);
    let counted = traffic.since(counted);
    guard.release().await?;
    drop(grants);
    for client in clients {
        client.close().await;
    }
    client.close().await;
    let client = Client::connect(options.connect.as_str()).await?;
    directory::remove(&client, &directory).await?;
    client.close().await;
    Ok(Report::new(options)
        .figure("waiters", waiters as f64)
        .figure("sessions", options.sessions.unwrap_or(1).into())
        .rate(rate)
        .figure("handoff_p50_us", latencies.at_most_us(500))
        .figure("requests_per_handoff", counted.requests as f64 / handoffs as f64)
        .figure("bytes_per_handoff", counted.bytes as f64 / handoffs as f64)
        .figure("kb_per_waiter", memory / 1024.0 / waiters as f64))
}

async fn connect(options: &Options, traffic: &Traffic) -> Outcome<Client> {
    let builder = Client::builder(options.connect.as_str()).transport(traffic.transport());
    Ok(builder.connect().await?)
}

async fn wait(acquire: Acquire<kind::Fair>, granted: mpsc::UnboundedSender<Granted>) {
    // If the receiver is closed, the guard is dropped, which releases the lock.
    let _ = granted.send(acquire.await);
}

/// Waits until this many waiters are in the queue behind the holder.
async fn queued(client: &Client, path: &str, waiters: u64) -> Outcome<()> {
    loop {
        let stat = client.exists(path).await?.ok_or("the directory of the lock does not exist")?;
        if u64::try_from(stat.num_children)? > waiters {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until the replies to earlier requests have arrived. The function waits twice, because
/// waiters send requests that depend on the first reply.
async fn settle(client: &Client, others: &[Client]) -> Outcome<()> {
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        for client in others.iter().chain([client]) {
            client.sync("/").await?;
        }
    }
    Ok(())
}
