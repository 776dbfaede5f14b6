//! Reports: figures and how they are measured.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Number, Value};

use crate::Outcome;
use crate::options::Options;

/// The figures of one run.
#[derive(Debug)]
pub(crate) struct Report(Map<String, Value>);

impl Report {
    /// Creates a report that starts with the name of the workload.
    pub(crate) fn new(options: &Options) -> Self {
        let mut report = Map::new();
        report.insert("workload".to_owned(), options.workload.to_string().into());
        report.insert("floor".to_owned(), options.floor.into());
        report.insert("runtime".to_owned(), format!("{:?}", options.runtime).to_lowercase().into());
        Self(report)
    }

    /// Adds a figure, rounded to four significant digits.
    pub(crate) fn figure(mut self, name: &str, value: f64) -> Self {
        self.0.insert(
            name.to_owned(),
            Number::from_f64(round(value)).map_or(Value::Null, Value::Number),
        );
        self
    }

    pub(crate) fn figures(mut self, figures: Map<String, Value>) -> Self {
        self.0.extend(figures);
        self
    }

    /// Adds the number of operations, their rate, and the processor time of this process.
    pub(crate) fn rate(self, rate: Rate) -> Self {
        self.figure("n", rate.n as f64)
            .figure("secs", rate.time.as_secs_f64())
            .figure("per_s", rate.n as f64 / rate.time.as_secs_f64())
            .figure("cpu_us_per", rate.cpu.as_secs_f64() * 1e6 / rate.n as f64)
    }

    pub(crate) fn print(&self) {
        #[expect(clippy::print_stdout, reason = "the program prints its report")]
        {
            println!("{}", Value::Object(self.0.clone()));
        }
    }
}

/// Rounds to four significant digits.
pub(crate) fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = (3.0 - value.abs().log10().floor()).max(0.0);
    let scale = 10_f64.powf(digits);
    (value * scale).round() / scale
}

/// A number of operations, and the time they took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) n: u64,
    pub(crate) time: Duration,
    /// User and system time of this process.
    pub(crate) cpu: Duration,
}

/// A measurement in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    began: Instant,
    cpu: Duration,
}

impl Meter {
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), cpu: cpu_time() }
    }

    pub(crate) fn stop(self, n: u64) -> Rate {
        Rate { n, time: self.began.elapsed(), cpu: cpu_time() - self.cpu }
    }
}

/// Returns the user and system time of this process so far.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Returns the resident memory of this process in bytes.
pub(crate) fn resident_bytes() -> Outcome<f64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u32>().ok());
    let pages = pages.ok_or_else(|| format!("/proc/self/statm is {statm:?}"))?;
    Ok(f64::from(pages) * rustix::param::page_size() as f64)
}

/// The latencies of single operations.
#[derive(Debug, Default)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    pub(crate) fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Returns the latency in microseconds that this many thousandths of the operations do not
    /// exceed, or 0 if there were no operations.
    pub(crate) fn at_most_us(&mut self, thousandths: usize) -> f64 {
        self.0.sort_unstable();
        let index = (self.0.len() * thousandths / 1000).min(self.0.len().saturating_sub(1));
        self.0.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e6)
    }
}
