//! Runs seeds, shows the progress, and prints what was found. See `docs/simulation.md`.
#![expect(clippy::print_stdout, reason = "this is a program")]
#![expect(clippy::disallowed_methods, reason = "the speed is measured in real time")]

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use zk_simulation::cuts::Cuts;
use zk_simulation::judges::Violation;
use zk_simulation::run::{Report, run_cut};
use zk_simulation::shrink::shrink;
use zk_simulation::timeline::timeline;

/// Runs clients and locks in worlds that are drawn at random, and judges what they promised.
#[derive(Debug, Parser)]
struct Options {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000, conflicts_with = "seed")]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1, conflicts_with = "seed")]
    first: u64,
    /// Runs only this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Prints the world, everything that happened, and its hash.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Leaves out of a seed with a violation what it does not need, and prints the rest.
    #[arg(long, requires = "seed", conflicts_with = "trace")]
    shrink: bool,
    /// How many runs the shrinking takes at most.
    #[arg(long, default_value_t = 1_000, requires = "shrink")]
    shrink_runs: u64,
    /// Stops after the first seed with a violation.
    #[arg(long)]
    fail_fast: bool,
    /// Runs each n-th seed twice, and compares the traces. 0: none.
    #[arg(long, default_value_t = 16)]
    twice_every: u64,
    #[command(flatten)]
    cuts: Cuts,
}

/// How often the progress is shown.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Totals {
    seeds: u64,
    violations: u64,
    virtual_time: Duration,
    operations: u64,
    faults: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(seed) = options.seed.filter(|_| options.shrink) {
        return shrink_seed(seed, &options);
    }
    let (first, count) = options.seed.map_or((options.first, options.seeds), |seed| (seed, 1));
    let begun = Instant::now();
    let mut shown = begun;
    let mut totals = Totals::default();
    for seed in (0..count).map(|index| first.wrapping_add(index)) {
        let report = run_cut(seed, &options.cuts);
        if options.trace {
            print_trace(&report);
        }
        let mut violations: Vec<String> =
            report.violations.iter().map(ToString::to_string).collect();
        let is_repeated = options.twice_every > 0 && seed % options.twice_every == 0;
        if is_repeated && run_cut(seed, &options.cuts).hash != report.hash {
            violations
                .push("a seed gives the same run: the second run has another trace".to_owned());
        }
        for violation in &violations {
            println!("seed {seed}: {violation}");
        }
        if !violations.is_empty() {
            println!("seed {seed}: replay it with `{}`", replay(seed, &options.cuts));
        }
        totals.seeds += 1;
        totals.violations += violations.len() as u64;
        totals.virtual_time += report.virtual_time;
        totals.operations += report.operations;
        totals.faults += report.faults.len() as u64;
        if shown.elapsed() >= PROGRESS_INTERVAL {
            shown = Instant::now();
            show_progress(&totals, count, begun);
        }
        if options.fail_fast && totals.violations > 0 {
            break;
        }
    }
    if std::io::stderr().is_terminal() {
        eprintln!();
    }
    println!("{}", summary(&totals, begun.elapsed()));
    if totals.violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn summary(totals: &Totals, elapsed: Duration) -> String {
    let Totals { seeds, violations, virtual_time, operations, faults } = totals;
    let hours = virtual_time.as_secs_f64() / 3_600.0;
    #[expect(clippy::cast_precision_loss, reason = "the rate is rounded anyway")]
    let rate = *seeds as f64 / elapsed.as_secs_f64().max(0.001);
    format!(
        "simulation: {seeds} seeds, {violations} violations, {hours:.1} virtual hours, \
         {operations} operations, {faults} faults, {rate:.0} seeds per second"
    )
}

/// Prints the smallest run that breaks the same promise as a seed.
fn shrink_seed(seed: u64, options: &Options) -> ExitCode {
    let mut shown = Instant::now();
    let shrunk = shrink(seed, &options.cuts, options.shrink_runs, |size| {
        if shown.elapsed() >= PROGRESS_INTERVAL {
            shown = Instant::now();
            eprintln!("shrinking: {size}");
        }
    });
    let Some(shrunk) = shrunk else {
        println!("simulation: seed {seed}{} breaks no promise", options.cuts);
        return ExitCode::SUCCESS;
    };
    eprintln!("shrinking: {}", shrunk.size(seed));
    let same = |it: &&Violation| it.promise == shrunk.promise;
    if let Some(violation) = shrunk.report.violations.iter().find(same) {
        println!("{}", timeline(&shrunk.report, violation));
        println!("seed {seed}: {violation}");
    }
    println!("seed {seed}: replay the reduced run with\n{}", replay(seed, &shrunk.cuts));
    ExitCode::FAILURE
}

/// Returns the command that prints the trace of a run.
fn replay(seed: u64, cuts: &Cuts) -> String {
    format!("cargo run --release -p zk-simulation -- --seed {seed}{cuts} --trace")
}

/// On a terminal, the line replaces the last one.
fn show_progress(totals: &Totals, count: u64, begun: Instant) {
    let end = if std::io::stderr().is_terminal() { "\r" } else { "\n" };
    let line = format!("{} of {count}: {}{end}", totals.seeds, summary(totals, begun.elapsed()));
    // Nobody misses a progress that cannot be shown.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn print_trace(report: &Report) {
    println!("{}", report.plan);
    for event in &report.events {
        println!("{event}");
    }
    println!("requests:");
    for request in &report.requests {
        println!(
            "{:>9.3} s  {} connection {} xid {} {:?} {} -> {:?}",
            request.at.as_secs_f64(),
            request.session,
            request.connection,
            request.xid,
            request.op,
            request.path.as_deref().unwrap_or(""),
            request.outcome,
        );
    }
    println!("transactions:");
    for commit in &report.commits {
        println!(
            "{}  {} {:?} {} -> {:?}",
            commit.zxid,
            commit.session,
            commit.op,
            commit.path.as_deref().unwrap_or(""),
            commit.error,
        );
    }
    println!("trace: {:016x}", report.hash);
}
