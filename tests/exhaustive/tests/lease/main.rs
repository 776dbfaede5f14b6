//! The lease of a guard: while it lasts, no other client can get the lock.
//!
//! `cuts` runs the shipped client against servers that fail, at every moment of the interval
//! between the pings or writes that keep the lease. `model` checks the formula, and other formulas,
//! in many histories of a model of an ensemble. `frozen` freezes the process between an acquire and
//! a transaction, which needs no lease. `idle` acquires locks on sessions that were idle. `quiet`
//! measures the lease when nothing fails, and `slow` when each commit takes long.

mod cuts;
mod frozen;
mod idle;
mod model;
mod quiet;
mod slow;

use std::time::Duration;

use zk_recipes::Lease;

const SECOND: Duration = Duration::from_secs(1);

/// Speeds of the client's clock, in thousandths.
const RATES: [u32; 3] = [950, 1000, 1050];

/// Returns a lease that pings renew, with the values of ZooKeeper's sample configuration.
fn by_pings() -> Lease {
    Lease::pings(5, SECOND * 2)
}

/// Returns the interval between the requests that keep this lease.
fn interval(lease: Lease, timeout: Duration) -> Option<Duration> {
    lease.write_interval(timeout).or_else(|| lease.ping_interval(timeout))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
