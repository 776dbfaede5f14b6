//! What a crowd may cost that stands in a queue while nothing happens, with every option at its
//! default: the suites `crowd` and `real` expect the same of it.

use std::time::Duration;

use crate::meter::Pace;

/// How many minutes they wait: several rounds of the safety timer, which is one of 30 s.
pub const MINUTES: u32 = 3;
/// One of them.
pub const MINUTE: Duration = Duration::from_secs(60);
/// Lists of the whole queue that a client may read while its crowd arrives.
pub const LISTS_MAX: u32 = 8;
/// Bytes of an entry in a list: its length and the name, of 32 hexadecimal digits, `-lock-` and ten
/// more digits.
pub const ENTRY: u32 = 4 + 32 + 6 + 10;
/// What a waiter may cost in a minute, in both directions: two rounds of the safety timer, of two
/// reads each.
pub const WAITER_MAX: u32 = 1_000;
/// What it costs at least, if it checks at all.
pub const WAITER_MIN: u32 = 400;

/// Writes in a minute that renew the lease of a client that holds the lock or is next: each 1.5 s,
/// and closer together at first.
const RENEWALS_MAX: usize = 60;

/// Of a client with so many tasks in the queue, each of which asks for its create, its list and its
/// watches.
pub const fn pace(tasks: usize) -> Pace {
    Pace { per_second: 10 * tasks, per_minute: 20 * tasks + RENEWALS_MAX }
}
