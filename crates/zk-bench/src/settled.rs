//! Operations that settle, and the plain ones, in turns.

use std::time::{Duration, Instant};

use jute_codec::CreateMode;
use tokio::task::JoinSet;
use zk_recipes::SettledClient;
use zk_session::{Client, Multi};

use crate::metered::Traffic;
use crate::options::Options;
use crate::report::{Report, cpu_time, round};
use crate::{Outcome, directory};

/// Number of operations of each kind that each task performs in one turn. Short turns are better than
/// long ones, because the speed of a disk that others use changes from second to second.
const TURN: u32 = 10;

/// What a turn does, in this order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Get,
    Set,
    /// Creates persistent znodes with fixed names.
    Create,
    /// Deletes them.
    Delete,
    /// Creates sequential znodes.
    Sequential,
    /// Commits two writes together.
    Commit,
}

const KINDS: [(Kind, &str); 6] = [
    (Kind::Get, "get"),
    (Kind::Set, "set"),
    (Kind::Create, "create"),
    (Kind::Delete, "delete"),
    (Kind::Sequential, "sequential"),
    (Kind::Commit, "commit"),
];

/// What the operations of one kind in one turn cost.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    time: Duration,
    cpu: Duration,
    bytes: u64,
}

/// One side of the comparison.
#[derive(Clone)]
struct Side {
    client: Client,
    /// The handle, if the operations settle.
    settled: Option<SettledClient>,
    directory: String,
    data: Vec<u8>,
}

/// Measures turns of plain and settled operations, one operation at a time unless `--tasks` says
/// otherwise, and reports the medians of the ratios of neighbouring turns.
pub(crate) async fn run(options: &Options) -> Outcome<Report> {
    let traffic = Traffic::default();
    let client = options.client()?.transport(traffic.transport()).connect().await?;
    let directory = directory::make(&client).await?;
    let data = vec![b'x'; usize::try_from(options.size)?];
    for name in ["znode", "other"] {
        let path = format!("{directory}/{name}");
        client.create(&path, data.clone(), CreateMode::Persistent).await?;
    }
    let settled = SettledClient::new(&client, &format!("{directory}/markers"))?;
    let plain = Side { client: client.clone(), settled: None, directory: directory.clone(), data };
    let settling = Side { settled: Some(settled), ..plain.clone() };
    // The markers exist from now on.
    turn(&settling, options.tasks, &traffic).await?;

    let mut turns: Vec<[[Cost; KINDS.len()]; 2]> = Vec::new();
    let until = Instant::now() + options.duration();
    while Instant::now() < until || turns.len() < 3 {
        // Whatever the first turn of a pair does to the second one, it does to both kinds.
        let [settled, plain] = if turns.len().is_multiple_of(2) {
            let settled = turn(&settling, options.tasks, &traffic).await?;
            [settled, turn(&plain, options.tasks, &traffic).await?]
        } else {
            let plain = turn(&plain, options.tasks, &traffic).await?;
            [turn(&settling, options.tasks, &traffic).await?, plain]
        };
        turns.push([settled, plain]);
    }

    drop(settling);
    directory::remove(&client, &directory).await?;
    client.close().await;
    let mut report = Report::new(options)
        .figure("turns", turns.len() as f64)
        .figure("tasks", options.tasks.into())
        .figure("size", options.size.into());
    for (at, (_, name)) in KINDS.into_iter().enumerate() {
        let ratios = |figure: fn(&Cost) -> f64| {
            let costs = turns.iter().map(|[settled, plain]| (settled.get(at), plain.get(at)));
            let ratio = costs.map(|costs| match costs {
                (Some(settled), Some(plain)) => figure(settled) / figure(plain),
                _ => f64::NAN,
            });
            let mut ratios: Vec<_> = ratio.collect();
            ratios.sort_by(f64::total_cmp);
            let at = |part: usize| ratios.get(ratios.len() * part / 20).copied();
            [at(1), at(10), at(19)].map(|ratio| round(ratio.unwrap_or(f64::NAN)))
        };
        let [low, median, high] = ratios(|cost| cost.time.as_secs_f64());
        let [_, cpu, _] = ratios(|cost| cost.cpu.as_secs_f64());
        let [_, bytes, _] = ratios(|cost| cost.bytes as f64);
        report = report
            .figure(&format!("{name}_vs_plain"), median)
            .figure(&format!("{name}_vs_plain_low"), low)
            .figure(&format!("{name}_vs_plain_high"), high)
            .figure(&format!("{name}_cpu_vs_plain"), cpu)
            .figure(&format!("{name}_bytes_vs_plain"), bytes);
    }
    Ok(report)
}

/// Performs the operations of all kinds, and returns what each kind cost.
async fn turn(side: &Side, tasks: u32, traffic: &Traffic) -> Outcome<[Cost; KINDS.len()]> {
    let mut costs = [Cost::default(); KINDS.len()];
    for ((kind, _), cost) in KINDS.into_iter().zip(&mut costs) {
        let (sent, cpu, began) = (traffic.so_far(), cpu_time(), Instant::now());
        let mut running = JoinSet::new();
        for task in 0..tasks {
            running.spawn(side.clone().perform(kind, task, TURN));
        }
        let mut made = Vec::new();
        while let Some(task) = running.join_next().await {
            made.extend(task??);
        }
        *cost =
            Cost { time: began.elapsed(), cpu: cpu_time() - cpu, bytes: traffic.since(sent).bytes };
        // These are not measured.
        let removing: Vec<_> = made.iter().map(|path| side.client.delete(path, None)).collect();
        for removed in removing {
            removed.await?;
        }
    }
    Ok(costs)
}

impl Side {
    /// Performs operations one after the other, and returns the paths of the znodes to remove.
    async fn perform(self, kind: Kind, task: u32, count: u32) -> Outcome<Vec<String>> {
        let Self { client, settled, directory, data } = self;
        let (path, other) = (format!("{directory}/znode"), format!("{directory}/other"));
        let mut made = Vec::new();
        for number in 0..count {
            let name = format!("{directory}/made-{task}-{number}");
            let both = || {
                let first = Multi::new().set_data(&path, data.clone(), None);
                first.set_data(&other, data.clone(), None)
            };
            match (kind, &settled) {
                (Kind::Get, None) => drop(client.get_data(&path).await?),
                (Kind::Get, Some(settled)) => drop(settled.get_data(&path).await?),
                (Kind::Set, None) => {
                    client.set_data(&path, data.clone(), None).await?;
                }
                (Kind::Set, Some(settled)) => {
                    settled.set_data(&path, data.clone(), None).await?;
                }
                (Kind::Create, None) => {
                    client.create(&name, data.clone(), CreateMode::Persistent).await?;
                }
                (Kind::Create, Some(settled)) => {
                    settled.create(&name, data.clone(), CreateMode::Persistent).await?;
                }
                (Kind::Delete, None) => client.delete(&name, None).await?,
                (Kind::Delete, Some(settled)) => settled.delete(&name, None).await?,
                (Kind::Sequential, None) => {
                    let mode = CreateMode::PersistentSequential;
                    let created = client.create(&format!("{path}-"), data.clone(), mode).await?;
                    made.push(created.path.to_string());
                }
                (Kind::Sequential, Some(settled)) => {
                    let mode = CreateMode::PersistentSequential;
                    let created = settled.create(&format!("{path}-"), data.clone(), mode).await?;
                    made.extend(created.path.map(|path| path.to_string()));
                }
                (Kind::Commit, None) => drop(client.commit(both()).await?),
                (Kind::Commit, Some(settled)) => drop(settled.commit(both()).await?),
            }
        }
        Ok(made)
    }
}
