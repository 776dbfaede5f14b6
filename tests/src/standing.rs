//! Limits for the cost of a crowd that waits in a queue while nothing happens, with every option at
//! its default. The suites `crowd` and `real` check the same limits.

use std::time::Duration;

use crate::case::Case;
use crate::meter::Pace;

/// How many minutes the crowd waits, which is several rounds of the safety timer of 30 s.
pub const MINUTES: u32 = 3;
/// One minute.
pub const MINUTE: Duration = Duration::from_secs(60);
/// Lists of the whole queue that a client may read while its crowd arrives.
pub const LISTS_MAX: u32 = 8;
/// Bytes that a waiter may cost per minute, in both directions: two rounds of the safety timer,
/// with two reads each.
pub const WAITER_MAX: u32 = 1_000;
/// Bytes that a waiter costs at least per minute if its safety timer works.
pub const WAITER_MIN: u32 = 400;

/// Number of writes per minute that renew the lease of a client that holds the lock or is next in
/// the queue: one every 1.5 s, and more at first.
const RENEWALS_MAX: usize = 60;

/// Returns the pace of a client with this many tasks in the queue. Each task sends a create, a
/// list, and reads that set watches.
pub const fn pace(tasks: usize) -> Pace {
    Pace { per_second: 10 * tasks, per_minute: 20 * tasks + RENEWALS_MAX }
}

/// Returns the number of bytes of an entry in a list: its length and its name, which consists of 32
/// hexadecimal digits, the mark, and the ten digits of the sequence number.
///
/// # Panics
///
/// If the lock has no queue.
pub fn entry<C: Case>() -> u32 {
    let mark = C::MARK.expect("a queue has a list");
    4 + 32 + u32::try_from(mark.len()).expect("a mark is short") + 10
}
