//! The lease of a guard: nobody else can get the lock as long as it lasts.
//!
//! `cuts` runs the shipped client against servers that fail, at every moment of the interval between
//! the pings or writes that keep the lease.
//! `model` runs the formula against a model of an ensemble, many times, and other formulas too.
//! `frozen` stops the process between an acquire and a transaction, which needs no lease.
//! `idle` takes locks on sessions that nobody has needed for a while.
//! `quiet` measures the lease when nothing goes wrong.

#[path = "lease/cuts.rs"]
mod cuts;
#[path = "lease/frozen.rs"]
mod frozen;
#[path = "lease/idle.rs"]
mod idle;
#[path = "lease/model.rs"]
mod model;
#[path = "lease/quiet.rs"]
mod quiet;

use std::time::Duration;

use zk_recipes::Lease;

const SECOND: Duration = Duration::from_secs(1);

/// Speeds of the client's clock, in thousandths.
const RATES: [u32; 3] = [950, 1000, 1050];

/// What pings keep, with the values of the sample configuration that comes with ZooKeeper.
fn by_pings() -> Lease {
    Lease::pings(5, SECOND * 2)
}

/// How far apart the requests are that keep this lease.
fn interval(lease: Lease, timeout: Duration) -> Option<Duration> {
    lease.write_interval(timeout).or_else(|| lease.ping_interval(timeout))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
