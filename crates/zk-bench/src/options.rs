//! The command line.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};

/// What to measure, and how.
#[derive(Clone, Debug, Parser)]
#[command(about = "Measures this library against a real ZooKeeper; one line of JSON for each run.")]
pub(crate) struct Options {
    /// What to measure.
    pub(crate) workload: Workload,
    /// The servers. Test traffic: znodes under /zk-bench-… are made and removed.
    #[arg(long, default_value = "127.0.0.1:2181")]
    pub(crate) connect: String,
    /// Operations, hand-offs, waiters or watches; see the workload.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) n: Option<u64>,
    /// Seconds to measure, where no number of operations is given: 5, and 0.5 in a round of `goals`.
    #[arg(long, value_parser = seconds)]
    pub(crate) secs: Option<f64>,
    /// Contenders of `lock-contended`, each with a session of its own.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) contenders: u32,
    /// Operations outstanding at a time.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) inflight: u32,
    /// Bytes of data.
    #[arg(long, default_value_t = 128)]
    pub(crate) size: u32,
    /// Sessions of `idle-sessions` and `held-locks` (default 1000); of `queue`, whose waiters are tasks of one
    /// client without it.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sessions: Option<u32>,
    /// Tasks that share one client, in the pipelined workloads. They share `--inflight`, too.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tasks: u32,
    /// Runtime of the library.
    #[arg(long, value_enum, default_value_t = RuntimeKind::Current)]
    pub(crate) runtime: RuntimeKind,
    /// From a blocking socket, with frames built before and replies that are not decoded.
    #[arg(long)]
    pub(crate) floor: bool,
    /// Of `goals`, only those that do not depend on the speed of the machine: memory and requests.
    #[arg(long)]
    pub(crate) steady: bool,
    /// Another build of this program: `goals` compares the figures of the two, in turns.
    #[arg(long)]
    pub(crate) base: Option<PathBuf>,
    /// Rounds of each comparison of `goals`; up to four times as many where chance may decide.
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Workload {
    /// One session: acquire and confirmed release, again and again.
    LockUncontended,
    /// Contenders with a session each, for one lock.
    LockContended,
    /// try_acquire of a lock that another session holds, and plain getChildren in turn.
    TryBusy,
    /// getData, pipelined on one session.
    GetPipelined,
    /// setData, pipelined on one session.
    SetPipelined,
    /// create (ephemeral, sequential), pipelined on one session.
    CreatePipelined,
    /// Sessions that are left alone for ten seconds, or --secs if that is longer.
    IdleSessions,
    /// Sessions that hold a lock each for a minute, or --secs.
    HeldLocks,
    /// --n watches, then a reconnect.
    ReconnectWatches,
    /// --n waiters of one lock, then hand-offs.
    Queue,
    /// Encoding and decoding, without a server.
    Codec,
    /// The comparisons of docs/performance.md, each in turns; fails if one is not as it should be.
    Goals,
}

impl std::fmt::Display for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("?", clap::builder::PossibleValue::get_name))
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum RuntimeKind {
    Current,
    Multi,
}

/// When a measurement ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Count(u64),
    Until(Instant),
}

impl Limit {
    pub(crate) fn is_reached(self, done: u64) -> bool {
        match self {
            Self::Count(count) => done >= count,
            Self::Until(at) => Instant::now() >= at,
        }
    }
}

impl Options {
    /// Begins now.
    pub(crate) fn limit(&self) -> Limit {
        self.n.map_or_else(|| Limit::Until(Instant::now() + self.duration()), Limit::Count)
    }

    /// A tenth of it, before.
    pub(crate) fn warm_up(&self) -> Limit {
        match self.n {
            Some(n) => Limit::Count(n.div_ceil(10)),
            None => Limit::Until(Instant::now() + self.duration() / 10),
        }
    }

    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.secs.unwrap_or(5.0))
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        Ok(_) => Err("between 0.01 and 3600".to_owned()),
        Err(error) => Err(format!("{error}")),
    }
}
