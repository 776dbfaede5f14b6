//! The command line.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use zk_session::{Client, ClientBuilder};

use crate::Outcome;

/// What to measure, and how.
#[derive(Clone, Debug, Parser)]
#[command(about = "Measures this library against a real ZooKeeper; one line of JSON for each run.")]
pub(crate) struct Options {
    /// What to measure.
    pub(crate) workload: Workload,
    /// The servers. The benchmark creates and removes znodes below /zk-bench-….
    #[arg(long, default_value = "127.0.0.1:2181")]
    pub(crate) connect: String,
    /// Connect with TLS, and trust the CA in this file (PEM). The floor has no TLS, and the workloads
    /// that count bytes refuse this option.
    #[cfg(feature = "tls")]
    #[arg(long, conflicts_with = "floor")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Number of operations, hand-offs, waiters or watches; see the workload.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) n: Option<u64>,
    /// Seconds to measure if no number of operations is given. Default: 5, or 0.5 in a round of
    /// `goals`.
    #[arg(long, value_parser = seconds)]
    pub(crate) secs: Option<f64>,
    /// Number of contenders of `lock-contended`. Each has its own session.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) contenders: u32,
    /// Number of operations in flight.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) inflight: u32,
    /// Length of the data in bytes.
    #[arg(long, default_value_t = 128)]
    pub(crate) size: u32,
    /// Number of sessions of `idle-sessions` and `held-locks` (default 1000). With it, each waiter
    /// of `queue` has its own session; otherwise all waiters share one client.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sessions: Option<u32>,
    /// Number of tasks that share one client in the pipelined workloads, where they also share
    /// `--inflight`, and in `settled`, where each has one operation in flight.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tasks: u32,
    /// The runtime for the library.
    #[arg(long, value_enum, default_value_t = RuntimeKind::Current)]
    pub(crate) runtime: RuntimeKind,
    /// Measure the floor: a blocking socket with prepared frames, without decoding replies.
    #[arg(long)]
    pub(crate) floor: bool,
    /// Measure only the goals that do not depend on the speed of the machine: memory and requests.
    #[arg(long)]
    pub(crate) steady: bool,
    /// Another build of this program, with which `goals` compares this one.
    #[arg(long)]
    pub(crate) base: Option<PathBuf>,
    /// Number of rounds of each goal; up to four times as many while noise could decide the result.
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Workload {
    /// Repeated acquires and confirmed releases by one session.
    LockUncontended,
    /// Contenders for one lock, each with its own session.
    LockContended,
    /// try_acquire of a lock held by another session, alternating with plain getChildren.
    TryBusy,
    /// getData, pipelined on one session.
    GetPipelined,
    /// setData, pipelined on one session.
    SetPipelined,
    /// create (ephemeral, sequential), pipelined on one session.
    CreatePipelined,
    /// Sessions that are idle for ten seconds, or for --secs if that is longer.
    IdleSessions,
    /// Sessions that each hold a lock for a minute, or for --secs.
    HeldLocks,
    /// --n watches, then a reconnect.
    ReconnectWatches,
    /// --n waiters of one lock, then hand-offs.
    Queue,
    /// Reads and writes that settle, alternating with plain ones.
    Settled,
    /// Encoding and decoding, without a server.
    Codec,
    /// The comparisons of docs/internals/performance.md; fails if a goal is not met.
    Goals,
}

#[cfg(feature = "tls")]
impl Workload {
    /// Returns whether all connections of the workload can use TLS.
    pub(crate) fn supports_tls(self) -> bool {
        match self {
            Self::LockUncontended
            | Self::LockContended
            | Self::TryBusy
            | Self::GetPipelined
            | Self::SetPipelined
            | Self::CreatePipelined => true,
            Self::IdleSessions
            | Self::HeldLocks
            | Self::ReconnectWatches
            | Self::Queue
            | Self::Settled
            | Self::Codec
            | Self::Goals => false,
        }
    }
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
    /// Creates the limit of a measurement that starts now.
    pub(crate) fn limit(&self) -> Limit {
        self.n.map_or_else(|| Limit::Until(Instant::now() + self.duration()), Limit::Count)
    }

    /// Creates the limit of the warm-up, which is a tenth as long.
    pub(crate) fn warm_up(&self) -> Limit {
        match self.n {
            Some(n) => Limit::Count(n.div_ceil(10)),
            None => Limit::Until(Instant::now() + self.duration() / 10),
        }
    }

    /// Configures a client for the servers.
    #[cfg_attr(
        not(feature = "tls"),
        expect(clippy::unnecessary_wraps, reason = "a TLS transport can be refused")
    )]
    pub(crate) fn client(&self) -> Outcome<ClientBuilder> {
        let builder = Client::builder(self.connect.as_str());
        #[cfg(feature = "tls")]
        if let Some(ca) = &self.tls_ca {
            return Ok(builder.transport(zk_session::Tls::builder().ca_file(ca).build()?));
        }
        Ok(builder)
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
