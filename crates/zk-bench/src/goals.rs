//! The comparisons of docs/internals/performance.md, and comparisons with another build of this program.
//!
//! Each run is a separate process, so that no run inherits the memory of another one. Two figures
//! to compare are measured right after each other, and the result is the median of the ratios of
//! all rounds. Many short rounds are better than a few long ones: the speed of a shared machine can
//! change by half within seconds, which is less likely to happen between two short runs. While
//! noise could decide whether a goal is met, more rounds are measured.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};

use crate::Outcome;
use crate::options::Options;
use crate::report::{Report, round};

/// Maximum number of rounds of a goal, in multiples of `--rounds`. After these rounds, the median
/// decides.
const ROUNDS_FACTOR: u32 = 4;
/// Duration of a round in seconds, unless `--secs` is given.
const SECS: f64 = 0.5;
/// How much worse than another build a figure may be. Smaller differences cannot be distinguished
/// from noise in reasonable time.
const WORSE_MAX: f64 = 0.1;

/// The condition that a figure must meet.
#[derive(Clone, Copy, Debug)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// How much a figure differs from run to run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Noise {
    /// Memory and numbers of requests hardly differ. One round suffices, and other goals may reuse
    /// its result.
    Steady,
    /// Like `Steady`, but on a busy machine, a run takes longer, and waiters check more often
    /// meanwhile. Since this only adds requests, the least of the rounds counts.
    Added,
    /// Speed differs.
    Usual,
}

/// The reference to which a figure is compared.
#[derive(Clone, Copy, Debug)]
enum Reference {
    /// No other figure: the bound applies to the figure itself.
    None,
    /// The same figure of another run.
    Run(&'static str),
    /// The same figure of the same run of another build.
    Base,
}

/// A figure of one run, or its ratio to another.
#[derive(Clone, Copy, Debug)]
struct Goal {
    name: &'static str,
    run: &'static str,
    figure: &'static str,
    to: Reference,
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

const CYCLES: Goal = ratio("2 cycles", "lock-uncontended", "per_s", FLOOR, Bound::AtLeast(0.75));

const GOALS: &[Goal] = &[
    ratio("1 get-pipelined, CPU", GET, "cpu_us_per", GET_FLOOR, Bound::AtMost(1.5)),
    ratio("  set-pipelined, CPU", SET, "cpu_us_per", SET_FLOOR, Bound::AtMost(2.0)),
    ratio("  create-pipelined, CPU", CREATE, "cpu_us_per", CREATE_FLOOR, Bound::AtMost(2.0)),
    ratio("2 acquire, p50", "lock-uncontended", "acquire_p50_us", FLOOR, Bound::AtMost(1.3)),
    CYCLES,
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
        to: Reference::Run("queue --n 10"),
        noise: Noise::Added,
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
        noise: Noise::Usual,
        ..single("9 settled read to a plain one", "settled", "get_vs_plain", Bound::AtMost(1.05))
    },
    Goal {
        noise: Noise::Usual,
        ..single("  settled write to a plain one", "settled", "set_vs_plain", Bound::AtMost(1.1))
    },
    ratio("8 eight tasks, multi to current", TASKS, "per_s", TASKS_CURRENT, Bound::AtLeast(0.9)),
];

const fn ratio(
    name: &'static str,
    run: &'static str,
    figure: &'static str,
    to: &'static str,
    bound: Bound,
) -> Goal {
    Goal { name, run, figure, to: Reference::Run(to), bound, noise: Noise::Usual }
}

const fn contended(name: &'static str, run: &'static str, at_least: f64) -> Goal {
    ratio(name, run, "per_s", "lock-uncontended", Bound::AtLeast(at_least))
}

const fn single(name: &'static str, run: &'static str, figure: &'static str, bound: Bound) -> Goal {
    Goal { name, run, figure, to: Reference::None, bound, noise: Noise::Steady }
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

/// Measures all goals, prints each result immediately, and reports all of them.
pub(crate) fn run(options: &Options) -> Outcome<Report> {
    let mut figures = Map::new();
    let mut runs = Runs { options, own: std::env::current_exe()?, kept: BTreeMap::new() };
    let mut missed = Vec::new();
    let goals = if options.base.is_some() { against_base() } else { GOALS.to_vec() };
    for goal in goals.iter().filter(|goal| goal.noise != Noise::Usual || !options.steady) {
        let Summary { value, low, high, rounds } = goal.measure(&mut runs)?;
        let [value, low, high] = [value, low, high].map(round);
        let bound = goal.bound.to_string();
        let is_met = goal.bound.is_met(value);
        let verdict = if is_met { "met" } else { "NOT MET" };
        let name = goal.name();
        eprintln!("{name:50} {value:>8} ({low} to {high}, n {rounds}), {bound}: {verdict}");
        let figure = json!({
            "value": value, "low": low, "high": high, "rounds": rounds, "bound": bound,
            "met": is_met,
        });
        figures.insert(name.clone(), figure);
        if !is_met {
            missed.push(name);
        }
    }
    let report = Report::new(options).figures(figures);
    if missed.is_empty() {
        return Ok(report);
    }
    report.print();
    Err(format!("not met: {}", missed.join("; ")).into())
}

/// Returns goals that compare each figure with the same figure of another build.
fn against_base() -> Vec<Goal> {
    let mut seen = BTreeSet::new();
    let mut goals = GOALS.to_vec();
    goals.retain(|goal| seen.insert((goal.run, goal.figure)));
    for goal in &mut goals {
        goal.to = Reference::Base;
        goal.bound = match goal.bound {
            Bound::AtLeast(_) => Bound::AtLeast(1.0 - WORSE_MAX),
            Bound::AtMost(_) => Bound::AtMost(1.0 + WORSE_MAX),
        };
    }
    goals
}

/// What counts of the rounds: their median, with its 95 % confidence interval, or their least.
#[derive(Clone, Copy, Debug)]
struct Summary {
    value: f64,
    low: f64,
    high: f64,
    rounds: usize,
}

impl Summary {
    fn of(values: &mut [f64], noise: Noise) -> Outcome<Self> {
        values.sort_by(f64::total_cmp);
        let rounds = values.len();
        // The interval is bounded by ranks of the binomial distribution, approximated by the normal
        // one.
        let rank = ((rounds as f64 - 1.96 * (rounds as f64).sqrt()) / 2.0).max(0.0) as usize;
        let at = |rank: usize| values.get(rank).copied().ok_or("there were no rounds");
        let low = at(rank)?;
        let high = at((rounds - 1).saturating_sub(rank))?;
        let value = if noise == Noise::Added { at(0)? } else { at(rounds / 2)? };
        Ok(Self { value, low, high, rounds })
    }
}

impl Goal {
    fn name(&self) -> String {
        match self.to {
            Reference::Base => format!("{}, {}", self.run, self.figure),
            Reference::None | Reference::Run(_) => self.name.trim().to_owned(),
        }
    }

    fn measure(&self, runs: &mut Runs<'_>) -> Outcome<Summary> {
        let (least, most) = match self.noise {
            // Even memory varies by a few percent, so a goal that is missed gets the median of three.
            Noise::Steady | Noise::Added => (1, 3),
            Noise::Usual => {
                (runs.options.rounds, runs.options.rounds.saturating_mul(ROUNDS_FACTOR))
            }
        };
        let mut values = Vec::new();
        for index in 0..most {
            values.push(self.value(runs, index)?);
            if index + 1 < least {
                continue;
            }
            let Summary { value, low, high, .. } = Summary::of(&mut values, self.noise)?;
            let is_decided = match self.noise {
                Noise::Steady | Noise::Added => self.bound.is_met(value),
                Noise::Usual => self.bound.is_met(low) == self.bound.is_met(high),
            };
            if is_decided {
                break;
            }
        }
        Summary::of(&mut values, self.noise)
    }

    fn value(&self, runs: &mut Runs<'_>, round: u32) -> Outcome<f64> {
        let is_steady = self.noise != Noise::Usual && round == 0;
        let own = (None, self.run);
        let other = match self.to {
            Reference::None => return runs.figure(own, self.figure, is_steady),
            Reference::Run(run) => (None, run),
            Reference::Base => (runs.options.base.as_deref(), self.run),
        };
        let mut figure = |run| runs.figure(run, self.figure, is_steady);
        // Alternate the order, because the first run may find the server warmer or colder.
        if round.is_multiple_of(2) {
            let own = figure(own)?;
            Ok(own / figure(other)?)
        } else {
            let other = figure(other)?;
            Ok(figure(own)? / other)
        }
    }
}

/// A run of this program or of another build: the path of that build, and the arguments.
type Run<'a> = (Option<&'a Path>, &'static str);

/// The runs measured so far.
struct Runs<'a> {
    options: &'a Options,
    own: PathBuf,
    /// Reports of runs. Other goals may need another figure of a steady run.
    kept: BTreeMap<Run<'a>, Value>,
}

impl<'a> Runs<'a> {
    fn figure(&mut self, run: Run<'a>, figure: &str, is_steady: bool) -> Outcome<f64> {
        let report = match self.kept.get(&run) {
            Some(report) if is_steady => report.clone(),
            _ => self.measure(run)?,
        };
        let value = report.get(figure).and_then(Value::as_f64);
        let value = value.ok_or_else(|| format!("{}: {figure} is missing in {report}", run.1))?;
        self.kept.insert(run, report);
        Ok(value)
    }

    fn measure(&self, (program, run): Run<'a>) -> Outcome<Value> {
        let program = program.unwrap_or(&self.own);
        let secs = self.options.secs.unwrap_or(SECS).to_string();
        let output = Command::new(program)
            .args(run.split(' '))
            .args(["--connect", &self.options.connect, "--secs", &secs])
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        if !output.status.success() {
            return Err(format!("{} {run}: {}", program.display(), output.status).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}
