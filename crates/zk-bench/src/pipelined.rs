//! One session with many operations in flight.

use std::collections::VecDeque;

use bytes::Bytes;
use jute_codec::{CreateMode, Request, SetDataRequest, Version};
use tokio::task::JoinSet;
use zk_session::{Client, OpError};

use crate::options::{Limit, Options};
use crate::report::{Meter, Report};
use crate::wire::{self, Wire};
use crate::{Outcome, directory};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Get,
    Set,
    Create,
}

pub(crate) async fn run(options: &Options, kind: Kind) -> Outcome<Report> {
    let client = options.client()?.connect().await?;
    let directory = directory::make(&client).await?;
    let path = format!("{directory}/znode");
    client.create(&path, data(options)?, CreateMode::Ephemeral).await?;

    tasks(options, kind, &client, &path, options.warm_up()).await?;
    let meter = Meter::start();
    let rate = meter.stop(tasks(options, kind, &client, &path, options.limit()).await?);
    // Closing the session deletes the many ephemerals that `create` leaves.
    client.close().await;
    let client = options.client()?.connect().await?;
    directory::remove(&client, &directory).await?;
    client.close().await;
    Ok(Report::new(options)
        .figure("inflight", options.inflight.into())
        .figure("tasks", options.tasks.into())
        .figure("size", options.size.into())
        .rate(rate))
}

/// Runs the operations of all tasks and returns their total number. If there is only one task, it
/// runs in the caller's task.
async fn tasks(
    options: &Options,
    kind: Kind,
    client: &Client,
    path: &str,
    limit: Limit,
) -> Outcome<u64> {
    if options.tasks == 1 {
        return operations(kind, client, path, data(options)?, options.inflight, limit).await;
    }
    let limit = match limit {
        Limit::Count(n) => Limit::Count(n.div_ceil(options.tasks.into())),
        Limit::Until(_) => limit,
    };
    let inflight = options.inflight.div_ceil(options.tasks);
    let mut tasks = JoinSet::new();
    for _ in 0..options.tasks {
        let client = client.clone();
        let path = path.to_owned();
        let data = data(options)?;
        tasks.spawn(async move { operations(kind, &client, &path, data, inflight, limit).await });
    }
    let mut done = 0;
    while let Some(task) = tasks.join_next().await {
        done += task??;
    }
    Ok(done)
}

async fn operations(
    kind: Kind,
    client: &Client,
    path: &str,
    data: Bytes,
    inflight: u32,
    limit: Limit,
) -> Outcome<u64> {
    match kind {
        Kind::Get => pipelined(inflight, limit, || client.get_data(path)).await,
        Kind::Set => pipelined(inflight, limit, || client.set_data(path, data.clone(), None)).await,
        Kind::Create => {
            let mode = CreateMode::EphemeralSequential;
            let path = format!("{}-", path);
            pipelined(inflight, limit, || client.create(&path, data.clone(), mode)).await
        }
    }
}

/// Returns the data. All requests share it, as in a service that often writes the same value.
fn data(options: &Options) -> Outcome<Bytes> {
    Ok(vec![b'x'; usize::try_from(options.size)?].into())
}

async fn pipelined<F, T>(inflight: u32, limit: Limit, mut begin: impl FnMut() -> F) -> Outcome<u64>
where
    F: Future<Output = Result<T, OpError>>,
{
    // Replies arrive in the order of the calls.
    let mut in_flight: VecDeque<F> = (0..inflight).map(|_| begin()).collect();
    let mut done = 0;
    while let Some(oldest) = in_flight.pop_front() {
        oldest.await?;
        done += 1;
        if !limit.is_reached(done + u64::try_from(in_flight.len())?) {
            in_flight.push_back(begin());
        }
    }
    Ok(done)
}

pub(crate) fn floor(options: &Options, kind: Kind) -> Outcome<Report> {
    let mut wire = Wire::open(&options.connect)?;
    let directory = directory::path();
    wire.call(&wire::frame(&wire::create(&directory, Vec::new(), CreateMode::Persistent)))?;
    let path = format!("{directory}/znode");
    let data = data(options)?;
    wire.call(&wire::frame(&wire::create(&path, data.clone(), CreateMode::Ephemeral)))?;
    let request = match kind {
        Kind::Get => Request::GetData(wire::read(&path)),
        Kind::Set => {
            let path = path.as_str().into();
            Request::SetData(SetDataRequest { path, data: Some(data), version: Version::ANY })
        }
        Kind::Create => wire::create(&format!("{path}-"), data, CreateMode::EphemeralSequential),
    };
    let frame = wire::frame(&request);
    let inflight = usize::try_from(options.inflight)?;
    let frames = frame.repeat(inflight);

    let mut run = |limit: Limit| -> Outcome<u64> {
        wire.send(&frames)?;
        let mut done = 0;
        let mut missing = inflight;
        while missing > 0 {
            // Read all available replies, then send as many requests in one write.
            let mut taken = 0;
            while taken == 0 || (wire.has_more() && taken < missing) {
                wire.reply()?;
                taken += 1;
            }
            done += u64::try_from(taken)?;
            missing -= taken;
            if !limit.is_reached(done + u64::try_from(missing)?) {
                wire.send(frames.get(..taken * frame.len()).unwrap_or_default())?;
                missing += taken;
            }
        }
        Ok(done)
    };
    run(options.warm_up())?;
    let meter = Meter::start();
    let rate = meter.stop(run(options.limit())?);
    // Closing the session deletes the ephemerals, so that the directory is empty.
    wire.close()?;
    let mut wire = Wire::open(&options.connect)?;
    wire.call(&wire::frame(&wire::delete(&directory)))?;
    wire.close()?;
    Ok(Report::new(options)
        .figure("inflight", options.inflight.into())
        .figure("size", options.size.into())
        .rate(rate))
}
