//! Runs seeds, shows the progress, and prints what was found. See `docs/internals/simulation.md`.
#![expect(clippy::print_stdout, reason = "this is a program")]
#![expect(clippy::disallowed_methods, reason = "the speed is measured in real time")]

use std::io::{IsTerminal as _, Write as _};
use std::num::NonZero;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser};
use zk_simulation::cuts::Cuts;
use zk_simulation::draw::Draw;
use zk_simulation::fleet::{Watch, cores, work_in_order};
use zk_simulation::judges::Violation;
use zk_simulation::run::{Report, drawn, run_cut};
use zk_simulation::shrink::shrink;
use zk_simulation::timeline::timeline;
use zk_simulation::world::kinds::WorldKind;
use zk_simulation::world::plan::FIRST_SEED;

/// How many seeds to run if nothing is said about it.
const SEEDS: u64 = 1_000;

/// Runs clients and locks in worlds that are drawn at random, and judges what they promised.
#[derive(Debug, Parser)]
struct Options {
    /// How many seeds to run at most. The default is 1,000, or any number with --minutes.
    #[arg(long, conflicts_with = "seed")]
    seeds: Option<u64>,
    /// Runs seeds for this many minutes at most.
    #[arg(long, value_name = "M", conflicts_with = "seed")]
    minutes: Option<f64>,
    /// The first seed. The default is the first one with rows of faults or, with --minutes, one that
    /// nobody has run before: that one plus the time in seconds.
    #[arg(long, conflicts_with = "seed")]
    first: Option<u64>,
    /// Runs only this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Runs only seeds whose worlds are of this kind.
    #[arg(long, value_enum, conflicts_with = "seed")]
    kind: Option<WorldKind>,
    /// How many threads run seeds at once. The default is the number of cores.
    #[arg(long, value_name = "N", conflicts_with = "seed")]
    jobs: Option<NonZero<usize>>,
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
/// How long a seed may take in real time. Most take a few hundredths of a second. Whatever runs in
/// a seed without end, and is no caller, stops its virtual time.
const SEED_MAX: Duration = Duration::from_secs(120);
/// How many failed seeds the summary names.
const NAMED_MAX: usize = 20;

/// What a seed gave.
struct Verdict {
    seed: u64,
    violations: Vec<String>,
    virtual_time: Duration,
    operations: u64,
    faults: u64,
}

struct Totals {
    begun: Instant,
    jobs: usize,
    seeds: u64,
    violations: u64,
    failed: Vec<u64>,
    virtual_time: Duration,
    operations: u64,
    faults: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    std::thread::spawn(end_if_a_seed_spins);
    if let Some(seed) = options.seed.filter(|_| options.shrink) {
        return shrink_seed(seed, &options);
    }
    let limit = options.minutes.map(|minutes| Duration::from_secs_f64(minutes.max(0.0) * 60.0));
    let (first, count) = match (options.seed, limit) {
        (Some(seed), _) => (seed, 1),
        (None, None) => (options.first.unwrap_or(FIRST_SEED), options.seeds.unwrap_or(SEEDS)),
        (None, Some(_)) => {
            let count = options.seeds.unwrap_or(u64::MAX);
            (options.first.unwrap_or_else(fresh_seed), count)
        }
    };
    if options.kind.is_some() && first < FIRST_SEED {
        let reason = format!(
            "with --kind, --first must be at least {FIRST_SEED}: worlds of older seeds are of no kind"
        );
        Options::command().error(ErrorKind::ValueValidation, reason).exit();
    }
    let jobs = options.jobs.map_or_else(cores, NonZero::get);
    let worlds = usize::try_from(count).unwrap_or(usize::MAX);
    let jobs = jobs.min(worlds).max(1);
    if options.minutes.is_some() {
        println!("simulation: the first seed is {first}");
    }
    let mut totals = Totals::new(jobs);
    let begun = totals.begun;
    let mut shown = begun;
    let seeds = (0..).map(|index| first.wrapping_add(index));
    let seeds = seeds.filter(|seed| options.kind.is_none_or(|kind| kind_of(*seed) == Some(kind)));
    let seeds =
        seeds.take(worlds).take_while(|_| limit.is_none_or(|limit| begun.elapsed() < limit));
    work_in_order(
        seeds,
        jobs,
        |seed| verdict(seed, &options),
        |verdict| {
            totals.add(&verdict, &options.cuts);
            if shown.elapsed() >= PROGRESS_INTERVAL {
                shown = Instant::now();
                let goal = limit.map_or_else(|| count.to_string(), |limit| format!("{limit:?}"));
                totals.show_progress(&goal);
            }
            let is_enough = options.fail_fast && totals.violations > 0;
            if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    );
    if std::io::stderr().is_terminal() {
        eprintln!();
    }
    println!("{}", totals.summary());
    if let Some(failed) = totals.failed_seeds() {
        println!("{failed}");
    }
    if totals.violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The seeds that run.
static WATCH: Watch = Watch::new();

/// Ends the program if a seed does not end.
fn end_if_a_seed_spins() {
    loop {
        std::thread::sleep(PROGRESS_INTERVAL);
        if let Some(seed) = WATCH.overdue(SEED_MAX) {
            println!("seed {seed}: no task panics and no client spins: it runs since {SEED_MAX:?}");
            println!("simulation: failed seeds: {seed}");
            std::process::exit(1);
        }
    }
}

/// Returns the kind of the world of a seed, if it is of any.
fn kind_of(seed: u64) -> Option<WorldKind> {
    drawn(seed, &mut Draw::new(seed), &Cuts::default()).0.kinds.kind
}

/// Returns a seed that nobody has run before.
fn fresh_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    FIRST_SEED + now.map_or(0, |since| since.as_secs())
}

/// Runs a seed, or runs it twice.
fn verdict(seed: u64, options: &Options) -> Verdict {
    let report = WATCH.during(seed, || run_cut(seed, &options.cuts));
    if options.trace {
        print_trace(&report);
    }
    let mut violations: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
    let is_repeated = options.twice_every > 0 && seed.is_multiple_of(options.twice_every);
    let repeat = || run_cut(seed, &options.cuts).hash;
    if is_repeated && WATCH.during(seed, repeat) != report.hash {
        violations.push("a seed gives the same run: the second run has another trace".to_owned());
    }
    Verdict {
        seed,
        violations,
        virtual_time: report.virtual_time,
        operations: report.operations,
        faults: report.faults.len() as u64,
    }
}

impl Totals {
    fn new(jobs: usize) -> Self {
        Self {
            begun: Instant::now(),
            jobs,
            seeds: 0,
            violations: 0,
            failed: Vec::new(),
            virtual_time: Duration::ZERO,
            operations: 0,
            faults: 0,
        }
    }

    /// Adds a verdict, and prints its violations at once.
    fn add(&mut self, verdict: &Verdict, cuts: &Cuts) {
        let Verdict { seed, violations, .. } = verdict;
        for violation in violations {
            println!("seed {seed}: {violation}");
        }
        if !violations.is_empty() {
            println!("seed {seed}: replay it with `{}`", replay(*seed, cuts));
            self.failed.push(*seed);
        }
        self.seeds += 1;
        self.violations += violations.len() as u64;
        self.virtual_time += verdict.virtual_time;
        self.operations += verdict.operations;
        self.faults += verdict.faults;
    }

    fn summary(&self) -> String {
        let Self { begun, jobs, seeds, violations, virtual_time, operations, faults, .. } = self;
        let hours = virtual_time.as_secs_f64() / 3_600.0;
        #[expect(clippy::cast_precision_loss, reason = "the rate is rounded anyway")]
        let (rate, jobs) = (*seeds as f64 / begun.elapsed().as_secs_f64().max(0.001), *jobs as f64);
        let per_job =
            if jobs > 1.0 { format!(" ({:.0} per thread)", rate / jobs) } else { String::new() };
        format!(
            "simulation: {seeds} seeds, {violations} violations, {hours:.1} virtual hours, \
             {operations} operations, {faults} faults, {rate:.0} seeds per second{per_job}"
        )
    }

    /// Returns the line with the seeds that have failed.
    fn failed_seeds(&self) -> Option<String> {
        let named: Vec<String> =
            self.failed.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        let more = match self.failed.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        (!named.is_empty()).then(|| format!("simulation: failed seeds: {}{more}", named.join(", ")))
    }

    /// Shows what was done so far. On a terminal, the line replaces the last one.
    fn show_progress(&self, goal: &str) {
        let end = if std::io::stderr().is_terminal() { "\r" } else { "\n" };
        let seconds = self.begun.elapsed().as_secs();
        let line = format!("{seconds} s, {} of {goal}: {}{end}", self.seeds, self.summary());
        // Nobody misses a progress that cannot be shown.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
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
