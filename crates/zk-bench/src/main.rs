//! Measures this library against a real server, and prints one line of JSON for each run.
//!
//! It measures a workload through the library. With `--floor` it uses a blocking socket instead,
//! with prepared frames and without decoding replies: no client can be faster on this machine.
//! `goals` runs workloads and floors alternately, in separate processes, and compares them.

#![expect(
    clippy::disallowed_methods,
    reason = "the benchmark measures real time, and each contender is a task"
)]

mod codec;
mod directory;
mod goals;
mod lock;
mod metered;
mod options;
mod outcome;
mod pipelined;
mod queue;
mod report;
mod sessions;
mod settled;
mod wire;

use std::process::ExitCode;

use clap::Parser as _;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::options::{Options, RuntimeKind, Workload};
pub(crate) use crate::outcome::Outcome;
use crate::report::Report;

fn main() -> ExitCode {
    let options = Options::parse();
    allow_many_files();
    match measure(&options) {
        Ok(report) => {
            report.print();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("zk-bench {}: {error}", options.workload);
            ExitCode::FAILURE
        }
    }
}

/// Raises the limit of open files: a thousand sessions need more than most shells allow.
fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        eprintln!("zk-bench: cannot raise the limit of open files: {error}");
    }
}

fn measure(options: &Options) -> Outcome<Report> {
    if options.workload == Workload::Goals {
        return goals::run(options);
    }
    if options.floor {
        return floor(options);
    }
    #[cfg(feature = "tls")]
    if options.tls_ca.is_some() && !options.workload.supports_tls() {
        return Err(format!("{} does not support --tls-ca", options.workload).into());
    }
    let mut builder = match options.runtime {
        RuntimeKind::Current => tokio::runtime::Builder::new_current_thread(),
        RuntimeKind::Multi => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build()?;
    let report = runtime.block_on(through_the_library(options));
    // All sessions are closed, or the process exits with an error.
    runtime.shutdown_background();
    report
}

async fn through_the_library(options: &Options) -> Outcome<Report> {
    match options.workload {
        Workload::LockUncontended => lock::uncontended(options).await,
        Workload::LockContended => lock::contended(options).await,
        Workload::TryBusy => lock::try_busy(options).await,
        Workload::GetPipelined => pipelined::run(options, pipelined::Kind::Get).await,
        Workload::SetPipelined => pipelined::run(options, pipelined::Kind::Set).await,
        Workload::CreatePipelined => pipelined::run(options, pipelined::Kind::Create).await,
        Workload::IdleSessions => sessions::idle(options).await,
        Workload::HeldLocks => sessions::holding(options).await,
        Workload::ReconnectWatches => sessions::reconnect(options).await,
        Workload::Queue => queue::run(options).await,
        Workload::Settled => settled::run(options).await,
        Workload::Codec => Ok(Report::new(options).figures(codec::run(options.duration()))),
        Workload::Goals => unreachable!("goals run without a runtime"),
    }
}

fn floor(options: &Options) -> Outcome<Report> {
    match options.workload {
        Workload::LockUncontended => lock::uncontended_floor(options),
        Workload::TryBusy => lock::try_busy_floor(options),
        Workload::GetPipelined => pipelined::floor(options, pipelined::Kind::Get),
        Workload::SetPipelined => pipelined::floor(options, pipelined::Kind::Set),
        Workload::CreatePipelined => pipelined::floor(options, pipelined::Kind::Create),
        Workload::IdleSessions => sessions::idle_floor(options),
        Workload::ReconnectWatches => sessions::reconnect_floor(options),
        Workload::HeldLocks | Workload::LockContended | Workload::Queue => Err(
            "a waiter must read the queue, so there is no floor without decoding; compare with \
             that of lock-uncontended"
                .into(),
        ),
        Workload::Settled => Err("settled always measures the plain operations too".into()),
        Workload::Codec => Err("codec always measures its floor, a copy of the same bytes".into()),
        Workload::Goals => Err("goals always measure their floors".into()),
    }
}
