//! Worlds whose links carry few bytes at a time, while callers read and write many: the pings and the
//! writes that keep a session and its leases alive wait behind these.

use std::time::Duration;

use zk_testserver::ServerVersion;

use super::calm::prompt;
use super::spread;
use crate::draw::Draw;
use crate::program::bulk::{CREATES_MAX, READS_MAX};
use crate::program::locks::LockKind;
use crate::program::{Job, Program};
use crate::world::plan::{FaultKind, Plan};

/// The bytes of the largest znode, so that a request or a reply with it is within the limits of
/// servers and clients.
const SIZE_MAX: u64 = 1_000_000;
/// The longest time for the bytes of one znode, in percent of the session timeout, where clients have
/// locks: as long as a commit may take with which a lease lives on.
const LEASED_PERCENT: u64 = 4;
/// The same, if a lease lives on whatever else happens: a renewal may wait for the rest of one znode and
/// for the whole next one.
const STEADY_PERCENT: u64 = 2;
/// The same where nobody has a lock: longer than the silence that a client permits, and shorter than
/// the servers do.
const UNLEASED_PERCENT: (u64, u64) = (50, 80);
/// How many of these worlds have locks, and how many have faults that end connections, in percent.
const LEASED: u64 = 50;
const CUT: u64 = 30;
/// The bytes in one millisecond: from 0.3 Mbit/s to 20 Mbit/s.
const RATES: [u64; 4] = [40, 100, 250, 2_500];
/// Divided by the seconds of the session timeout, the fewest of them where clients have locks. The buffers
/// of a slower link alone hold a renewal back for longer than a lease permits.
const LEASED_RATE: u64 = 2_400;
/// The session timeouts, in seconds.
const SESSIONS: [u64; 3] = [6, 10, 30];
/// With this tick, servers grant these.
const TICK: Duration = Duration::from_secs(2);
/// More steps than a task makes before the end.
const STEPS: u64 = 1_000;

/// The links of a narrow world, and what callers send through them.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a list of drawn values")]
pub struct Narrow {
    /// How many bytes a link carries in a millisecond, in each direction.
    pub rate: u64,
    /// The bytes of a large znode.
    pub size: usize,
    /// Leases live on, whatever callers read and write.
    pub is_steady: bool,
}

impl Narrow {
    /// Returns how long a link needs for this many bytes.
    pub fn carries(&self, bytes: usize) -> Duration {
        Duration::from_micros(bytes as u64 * 1_000 / self.rate)
    }

    /// Returns how long a link needs for all that the callers of this many tasks send or receive at
    /// once.
    pub fn longest(&self, tasks: usize) -> Duration {
        self.carries(self.size * READS_MAX.max(CREATES_MAX) * tasks)
    }
}

pub(super) fn draw(plan: &mut Plan, program: &mut Program, draw: &mut Draw) {
    let calm_at = draw.ms(60_000, 120_000);
    plan.calm_down(program, calm_at);
    prompt(plan);
    plan.members = 1;
    plan.latency = draw.ms(0, 20);
    plan.version = draw.pick(&[ServerVersion::V3_6, ServerVersion::V3_8, ServerVersion::V3_9]);
    (plan.tick, plan.session_timeout_max) = (TICK, None);
    plan.outstanding = None;
    program.steps = STEPS;
    let mut rate = draw.pick(&RATES);
    let session = draw.pick(&SESSIONS);
    plan.kinds.session = Some(Duration::from_secs(session));
    let (keeps_leases, is_cut) = (draw.chance(LEASED), draw.chance(CUT));
    let (least, most) = if keeps_leases { (1, LEASED_PERCENT) } else { UNLEASED_PERCENT };
    if keeps_leases {
        rate = rate.max(LEASED_RATE / session);
    }
    // A percent of a second has ten milliseconds, each of which carries `rate` bytes.
    let percent = draw.between(least, most);
    let bytes = percent * session * rate * 10;
    let size = usize::try_from(bytes.min(SIZE_MAX)).unwrap_or(usize::MAX);
    let is_steady = keeps_leases && !is_cut && percent <= STEADY_PERCENT;
    plan.kinds.narrow = Some(Narrow { rate, size, is_steady });
    if is_cut {
        plan.faults = vec![FaultKind::Cut, FaultKind::Restart];
        plan.fault_pause = draw.ms(1_000, 20_000);
        return spread(program, draw, 2, 1, &[Job::Pipe]);
    }
    program.is_patient = true;
    let clients = draw.size(1, 2);
    spread(program, draw, clients, 2, &[Job::Bulk, Job::Pipe]);
    if keeps_leases {
        let kind = draw.pick(&[LockKind::Fair, LockKind::Semaphore, LockKind::ReadWrite]);
        program.clients.iter_mut().for_each(|tasks| tasks.push(vec![Job::Lock(kind)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_needs_as_long_as_its_rate_says() {
        let narrow = Narrow { rate: 100, size: 50_000, is_steady: true };
        assert_eq!(narrow.carries(100_000), Duration::from_secs(1));
        assert_eq!(narrow.longest(2), Duration::from_secs(READS_MAX as u64));
    }
}
