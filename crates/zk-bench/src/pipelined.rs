//! One session, many operations under way.

use std::collections::VecDeque;

use jute_codec::{CreateMode, Request, SetDataRequest};
use tokio::task::JoinSet;
use zk_session::{Client, OpError};

use crate::options::{Limit, Options, Workload};
use crate::report::{Meter, Report};
use crate::wire::{self, Wire};
use crate::{Outcome, directory};

pub(crate) async fn run(options: &Options) -> Outcome<Report> {
    let client = Client::connect(options.connect.as_str()).await?;
    let directory = directory::make(&client).await?;
    let data = vec![b'x'; usize::try_from(options.size)?];
    let path = format!("{directory}/znode");
    client.create(&path, data.clone(), CreateMode::Ephemeral).await?;

    tasks(options, &client, &path, options.warm_up()).await?;
    let meter = Meter::start();
    let rate = meter.stop(tasks(options, &client, &path, options.limit()).await?);
    // With it go the ephemerals, of which a create makes many.
    client.close().await;
    let client = Client::connect(options.connect.as_str()).await?;
    directory::remove(&client, &directory).await?;
    client.close().await;
    Ok(Report::new(options)
        .figure("inflight", options.inflight.into())
        .figure("tasks", options.tasks.into())
        .figure("size", options.size.into())
        .rate(rate))
}

/// Operations of all tasks together. One task is no task, but the caller.
async fn tasks(options: &Options, client: &Client, path: &str, limit: Limit) -> Outcome<u64> {
    if options.tasks == 1 {
        return operations(options, client, path, options.inflight, limit).await;
    }
    let limit = match limit {
        Limit::Count(n) => Limit::Count(n.div_ceil(options.tasks.into())),
        Limit::Until(_) => limit,
    };
    let inflight = options.inflight.div_ceil(options.tasks);
    let mut tasks = JoinSet::new();
    for _ in 0..options.tasks {
        let (options, client, path) = (options.clone(), client.clone(), path.to_owned());
        tasks.spawn(async move { operations(&options, &client, &path, inflight, limit).await });
    }
    let mut done = 0;
    while let Some(task) = tasks.join_next().await {
        done += task??;
    }
    Ok(done)
}

async fn operations(
    options: &Options,
    client: &Client,
    path: &str,
    inflight: u32,
    limit: Limit,
) -> Outcome<u64> {
    // Shared by all requests, as a service would that writes one value often.
    let data = bytes::Bytes::from(vec![b'x'; usize::try_from(options.size)?]);
    match options.workload {
        Workload::SetPipelined => {
            pipelined(inflight, limit, || client.set_data(path, data.clone(), None)).await
        }
        Workload::CreatePipelined => {
            let mode = CreateMode::EphemeralSequential;
            let path = format!("{}-", path);
            pipelined(inflight, limit, || client.create(&path, data.clone(), mode)).await
        }
        _ => pipelined(inflight, limit, || client.get_data(path)).await,
    }
}

async fn pipelined<F, T>(inflight: u32, limit: Limit, mut begin: impl FnMut() -> F) -> Outcome<u64>
where
    F: Future<Output = Result<T, OpError>>,
{
    // Answers come in the order of calls.
    let mut under_way: VecDeque<F> = (0..inflight).map(|_| begin()).collect();
    let mut done = 0;
    while let Some(oldest) = under_way.pop_front() {
        oldest.await?;
        done += 1;
        if !limit.is_reached(done + u64::try_from(under_way.len())?) {
            under_way.push_back(begin());
        }
    }
    Ok(done)
}

pub(crate) fn floor(options: &Options) -> Outcome<Report> {
    let mut wire = Wire::open(&options.connect)?;
    let directory = directory::path();
    wire.ask(&wire::frame(&wire::create(&directory, Vec::new(), CreateMode::Persistent)))?;
    let path = format!("{directory}/znode");
    let data = vec![b'x'; usize::try_from(options.size)?];
    wire.ask(&wire::frame(&wire::create(&path, data.clone(), CreateMode::Ephemeral)))?;
    let request = match options.workload {
        Workload::SetPipelined => {
            let data = Some(data.into());
            Request::SetData(SetDataRequest { path: path.as_str().into(), data, version: -1 })
        }
        Workload::CreatePipelined => {
            wire::create(&format!("{path}-"), data, CreateMode::EphemeralSequential)
        }
        _ => Request::GetData(wire::read(&path)),
    };
    let frame = wire::frame(&request);
    let inflight = usize::try_from(options.inflight)?;
    let frames = frame.repeat(inflight);

    let mut run = |limit: Limit| -> Outcome<u64> {
        wire.send(&frames)?;
        let (mut done, mut missing) = (0, inflight);
        while missing > 0 {
            // All that is there, then as many new ones in one write.
            let mut taken = 0;
            while taken == 0 || (wire.has_more() && taken < missing) {
                wire.answer()?;
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
    // The ephemerals first.
    wire.close()?;
    let mut wire = Wire::open(&options.connect)?;
    wire.ask(&wire::frame(&wire::delete(&directory)))?;
    wire.close()?;
    Ok(Report::new(options)
        .figure("inflight", options.inflight.into())
        .figure("size", options.size.into())
        .rate(rate))
}
