//! The comparisons of docs/performance.md.
//!
//! Each run is a process of its own, so that none inherits another's memory. What is compared is
//! measured in turns, and the median of the rounds counts: a machine that is busy for a while slows
//! both.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};

use crate::Outcome;
use crate::options::Options;
use crate::report::{Report, round};

/// What is to hold.
#[derive(Clone, Copy, Debug)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// How much a figure differs from run to run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Noise {
    /// Memory and requests hardly do. One round is enough, and others may use the same run.
    Steady,
    /// Speed does.
    Usual,
    /// The rate of a client that keeps a server busy is the server's, and that has moods.
    Wild,
}

impl Noise {
    fn rounds(self, options: &Options) -> u32 {
        match self {
            Self::Steady => 1,
            Self::Usual => options.rounds,
            Self::Wild => options.rounds * 3,
        }
    }
}

/// A figure of one run, or its ratio to a figure of another.
#[derive(Clone, Copy, Debug)]
struct Goal {
    name: &'static str,
    run: &'static str,
    figure: &'static str,
    to: Option<&'static str>,
    bound: Bound,
    noise: Noise,
}

const FLOOR: &str = "lock-uncontended --floor";
const GET: &str = "get-pipelined --inflight 256 --size 128";
const GET_FLOOR: &str = "get-pipelined --inflight 256 --size 128 --floor";
const SET: &str = "set-pipelined --inflight 256 --size 128";
const SET_FLOOR: &str = "set-pipelined --inflight 256 --size 128 --floor";
const CREATE: &str = "create-pipelined --inflight 256 --size 128";
const CREATE_FLOOR: &str = "create-pipelined --inflight 256 --size 128 --floor";
const TASKS: &str = "get-pipelined --tasks 8 --runtime multi";
const TASKS_CURRENT: &str = "get-pipelined --tasks 8";

const GOALS: &[Goal] = &[
    ratio("1 get-pipelined, CPU", GET, "cpu_us_per", GET_FLOOR, Bound::AtMost(1.5)),
    ratio("  set-pipelined, CPU", SET, "cpu_us_per", SET_FLOOR, Bound::AtMost(2.0)),
    ratio("  create-pipelined, CPU", CREATE, "cpu_us_per", CREATE_FLOOR, Bound::AtMost(2.0)),
    ratio("2 acquire, p50", "lock-uncontended", "acquire_p50_us", FLOOR, Bound::AtMost(1.3)),
    ratio("2 cycles", "lock-uncontended", "per_s", FLOOR, Bound::AtLeast(0.75)),
    contended("3 cycles of 2 contenders", "lock-contended --contenders 2", 1.0),
    contended("3 cycles of 16 contenders", "lock-contended --contenders 16", 0.8),
    contended("3 cycles of 200 contenders", "lock-contended --contenders 200", 0.6),
    Goal {
        noise: Noise::Usual,
        ..single("4 try-busy", "try-busy", "vs_get_children", Bound::AtLeast(0.9))
    },
    single("5 KiB per idle session", "idle-sessions", "kb_per_session", Bound::AtMost(12.0)),
    single("6 KiB per waiter", "queue --n 10000", "kb_per_waiter", Bound::AtMost(2.0)),
    Goal {
        to: Some("queue --n 10"),
        ..single(
            "6 requests per hand-off, 10,000 to 10",
            "queue --n 10000",
            "requests_per_handoff",
            Bound::AtMost(1.01),
        )
    },
    Goal {
        noise: Noise::Usual,
        ..single(
            "7 decode of 1,000 names to a copy",
            "codec",
            "get_children_decode_vs_copy",
            Bound::AtMost(3.0),
        )
    },
    Goal {
        noise: Noise::Wild,
        ..ratio(
            "8 eight tasks, multi to current",
            TASKS,
            "per_s",
            TASKS_CURRENT,
            Bound::AtLeast(1.0),
        )
    },
];

const fn ratio(
    name: &'static str,
    run: &'static str,
    figure: &'static str,
    to: &'static str,
    bound: Bound,
) -> Goal {
    Goal { name, run, figure, to: Some(to), bound, noise: Noise::Usual }
}

const fn contended(name: &'static str, run: &'static str, at_least: f64) -> Goal {
    ratio(name, run, "per_s", "lock-uncontended", Bound::AtLeast(at_least))
}

const fn single(name: &'static str, run: &'static str, figure: &'static str, bound: Bound) -> Goal {
    Goal { name, run, figure, to: None, bound, noise: Noise::Steady }
}

impl Bound {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "at least {bound}"),
            Self::AtMost(bound) => write!(f, "at most {bound}"),
        }
    }
}

/// Measures all of them, shows each as it comes, and reports all.
pub(crate) fn run(options: &Options) -> Outcome<Report> {
    let mut figures = Map::new();
    let mut runs = Runs { options, kept: BTreeMap::new() };
    let mut missed = Vec::new();
    for goal in GOALS.iter().filter(|goal| goal.noise == Noise::Steady || !options.steady) {
        let rounds = goal.noise.rounds(options);
        let mut values =
            (0..rounds).map(|index| goal.value(&mut runs, index)).collect::<Outcome<Vec<_>>>()?;
        values.sort_by(f64::total_cmp);
        let (low, high) = (values.first().copied(), values.last().copied());
        let value = values.get(values.len() / 2).copied().ok_or("there were no rounds")?;
        let (value, low, high) =
            (round(value), round(low.unwrap_or(value)), round(high.unwrap_or(value)));
        let (bound, is_met) = (goal.bound.to_string(), goal.bound.is_met(value));
        let verdict = if is_met { "met" } else { "NOT MET" };
        eprintln!("{:40} {value:>8} ({low} to {high}), {bound}: {verdict}", goal.name);
        let figure =
            json!({ "value": value, "low": low, "high": high, "bound": bound, "met": is_met });
        if !is_met {
            missed.push(goal.name.trim());
        }
        figures.insert(goal.name.trim().to_owned(), figure);
    }
    let report = Report::new(options).figures(figures);
    if missed.is_empty() {
        return Ok(report);
    }
    report.print();
    Err(format!("not met: {}", missed.join("; ")).into())
}

impl Goal {
    fn value(&self, runs: &mut Runs<'_>, round: u32) -> Outcome<f64> {
        let mut figure = |run| runs.figure(run, self.figure, self.noise == Noise::Steady);
        let Some(to) = self.to else { return figure(self.run) };
        // Whoever comes first may find the server warmer, or colder.
        if round.is_multiple_of(2) {
            let own = figure(self.run)?;
            Ok(own / figure(to)?)
        } else {
            let other = figure(to)?;
            Ok(figure(self.run)? / other)
        }
    }
}

/// Runs of this program.
struct Runs<'a> {
    options: &'a Options,
    /// Reports of steady runs, of which other goals may want another figure.
    kept: BTreeMap<&'static str, Value>,
}

impl Runs<'_> {
    fn figure(&mut self, run: &'static str, figure: &str, is_steady: bool) -> Outcome<f64> {
        let report = match self.kept.get(run) {
            Some(report) if is_steady => report.clone(),
            _ => self.measure(run)?,
        };
        let value = report.get(figure).and_then(Value::as_f64);
        let value = value.ok_or_else(|| format!("{run}: {figure} is missing in {report}"))?;
        self.kept.insert(run, report);
        Ok(value)
    }

    fn measure(&self, run: &str) -> Outcome<Value> {
        let output = Command::new(std::env::current_exe()?)
            .args(run.split(' '))
            .args(["--connect", &self.options.connect, "--secs", &self.options.secs.to_string()])
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(format!("{run}: {}", output.status).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}
