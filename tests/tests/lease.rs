//! The lease of a guard: nobody else can get the lock as long as it lasts.
//!
//! `cuts` runs the shipped client against servers that fail, at every moment of the ping interval.
//! `model` runs the formula against a model of an ensemble, many times, and other formulas too.
//! `frozen` stops the process between an acquire and a transaction, which needs no lease.
//! `quiet` measures the lease when nothing goes wrong.

#[path = "lease/cuts.rs"]
mod cuts;
#[path = "lease/frozen.rs"]
mod frozen;
#[path = "lease/model.rs"]
mod model;
#[path = "lease/quiet.rs"]
mod quiet;

use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Speeds of the client's clock, in thousandths.
const RATES: [u32; 3] = [950, 1000, 1050];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
