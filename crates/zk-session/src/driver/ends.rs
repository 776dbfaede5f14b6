//! The channels between the session's task and the client's handles.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::clock::Clock;
use super::command::Command;
use super::connection_log::ConnectionView;
use super::latest::{Reader, Writer, latest};
use super::meter::Totals;
use crate::machine::{EndCause, Status};
use crate::time::Time;

/// A task that runs this much too late has missed more than a busy machine explains.
pub(crate) const STALL_MIN: Duration = Duration::from_secs(1);

/// The channel ends that the handles share.
pub(crate) struct HandleEnds {
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    pub(crate) status: Reader<Status>,
    pub(crate) connection: watch::Receiver<ConnectionView>,
    pub(crate) queued: Queued,
    pub(crate) last_end: LastEnd,
    pub(crate) pulse: Pulse,
    pub(crate) totals: Totals,
}

/// The channel ends that the task owns.
pub(crate) struct DriverEnds {
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) status: Writer<Status>,
    pub(super) connection: watch::Sender<ConnectionView>,
    pub(super) queued: Queued,
    pub(super) last_end: LastEnd,
    pub(super) pulse: Pulse,
    pub(super) totals: Totals,
}

/// Creates the channels of a client whose session has this status, and whose task is due to run now.
pub(crate) fn channels(status: Status, now: Time) -> (HandleEnds, DriverEnds) {
    let (command_sender, command_receiver) = mpsc::unbounded_channel();
    let (status_sender, status_receiver) = latest(status);
    let (connection_sender, connection_receiver) = watch::channel(ConnectionView::default());
    let queued = Queued::default();
    let last_end = LastEnd::default();
    let pulse = Pulse::default();
    pulse.beat(Some(now));
    let totals = Totals::default();
    let handle_ends = HandleEnds {
        commands: command_sender,
        status: status_receiver,
        connection: connection_receiver,
        queued: queued.clone(),
        last_end: last_end.clone(),
        pulse: pulse.clone(),
        totals: totals.clone(),
    };
    let driver_ends = DriverEnds {
        commands: command_receiver,
        status: status_sender,
        connection: connection_sender,
        queued,
        last_end,
        pulse,
        totals,
    };
    (handle_ends, driver_ends)
}

/// Counts the flights that count against `outstanding_limit`.
#[derive(Clone, Default)]
pub(crate) struct Queued(Arc<Counts>);

#[derive(Default)]
struct Counts {
    /// Flights that are on their way to the task.
    on_way: AtomicUsize,
    /// Operations that the machine has accepted, as of the task's last round.
    outstanding: AtomicUsize,
}

impl Queued {
    /// Adds a flight unless the limit is reached, in which case it returns the count.
    pub(crate) fn add(&self, limit: usize) -> Result<(), usize> {
        let count = self.0.on_way.fetch_add(1, Ordering::Relaxed);
        if count >= limit {
            self.remove();
            return Err(count);
        }
        Ok(())
    }

    pub(crate) fn remove(&self) {
        self.0.on_way.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records the number of operations that the machine has accepted.
    pub(super) fn accepted(&self, outstanding: usize) {
        self.0.outstanding.store(outstanding, Ordering::Relaxed);
    }

    /// Returns the number of all operations that have no result yet.
    pub(crate) fn total(&self) -> usize {
        self.0.on_way.load(Ordering::Relaxed) + self.0.outstanding.load(Ordering::Relaxed)
    }
}

/// When the session's task must run next, so that handles can tell a task that does not run from a
/// server that does not answer. In nanoseconds; the lowest bit is [`HASTENED`](Pulse::HASTENED).
#[derive(Clone, Default)]
pub(crate) struct Pulse(Arc<AtomicU64>);

impl Pulse {
    /// A command has waited for the task since its last run.
    const HASTENED: u64 = 1;

    /// Records when the task must run next; `None` if it waits for no time.
    pub(super) fn beat(&self, due: Option<Time>) {
        self.0.store(due.map_or(u64::MAX, nanos) & !Self::HASTENED, Ordering::Relaxed);
    }

    /// Records that the task must run now, because a command waits for it. Only the first command
    /// since the last run counts, so the others do not read the clock, which has a lock.
    pub(crate) fn hasten(&self, clock: &Clock) {
        if self.0.load(Ordering::Relaxed) & Self::HASTENED == 0 {
            self.0.fetch_min(nanos(clock.now()) | Self::HASTENED, Ordering::Relaxed);
        }
    }

    /// Returns for how long the task should have run and has not, if that is worth telling.
    pub(crate) fn stall(&self, now: Time) -> Option<Duration> {
        let due = Time::from_start(Duration::from_nanos(self.0.load(Ordering::Relaxed)));
        Some(now.saturating_since(due)).filter(|stall| *stall >= STALL_MIN)
    }
}

fn nanos(time: Time) -> u64 {
    u64::try_from(time.since_start().as_nanos()).unwrap_or(u64::MAX)
}

/// How the last session of the client ended.
#[derive(Clone)]
pub(crate) struct LastEnd(Arc<Mutex<EndCause>>);

impl Default for LastEnd {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(EndCause::Abandoned)))
    }
}

impl LastEnd {
    pub(crate) fn get(&self) -> EndCause {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, cause: EndCause) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = cause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_has_not_run_since_the_first_command_is_stalled_from_then_on() {
        let (pulse, clock) = (Pulse::default(), Clock::tokio());
        let start = clock.now();
        let after = |seconds| start + Duration::from_secs(seconds);
        pulse.beat(None);
        assert_eq!(pulse.stall(after(1_000)), None, "it waits for nothing");
        pulse.beat(Some(after(100)));
        pulse.hasten(&clock);
        let stall = pulse.stall(after(10)).expect("a command waits");
        assert!(stall > Duration::from_secs(9), "{stall:?}");
        std::thread::sleep(Duration::from_millis(2));
        pulse.hasten(&clock);
        assert_eq!(pulse.stall(after(10)), Some(stall), "it is still the first one");
        pulse.beat(Some(after(100)));
        assert_eq!(pulse.stall(after(10)), None, "it has run");
        pulse.hasten(&clock);
        assert!(pulse.stall(after(10)).is_some_and(|next| next < stall), "another command waits");
    }
}
