//! The deadlines of a session.

use crate::time::Time;

/// A deadline. Each is armed at most once at a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Timer {
    /// When to stop waiting for the server to confirm a close.
    Close,
    /// When to give up the current attempt to connect.
    Connect,
    /// When to end the session even though no server has reported its end.
    GiveUp,
    /// When the session's ephemeral znodes must no longer be trusted.
    Guard,
    /// When to abandon a connection on which no lease was established.
    Lease,
    /// When to send a ping.
    Ping,
    /// When to treat a silent connection as dead.
    Read,
    /// When to try the next server.
    Reconnect,
    /// When to send a write that renews the lease.
    Renew,
    /// When to search for a server that accepts writes.
    Seek,
}

impl Timer {
    const ALL: [Self; 10] = [
        Self::Close,
        Self::Connect,
        Self::GiveUp,
        Self::Guard,
        Self::Lease,
        Self::Ping,
        Self::Read,
        Self::Reconnect,
        Self::Renew,
        Self::Seek,
    ];

    /// Returns true if the deadline ends with the connection.
    const fn is_of_connection(self) -> bool {
        match self {
            Self::Connect | Self::Lease | Self::Ping | Self::Read | Self::Renew | Self::Seek => {
                true
            }
            // The guard deadline keeps running, because another connection may save the lease.
            Self::Close | Self::GiveUp | Self::Guard | Self::Reconnect => false,
        }
    }
}

/// The armed deadlines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    deadlines: [Option<Time>; Timer::ALL.len()],
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: Time) {
        *self.slot(timer) = Some(at);
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        *self.slot(timer) = None;
    }

    /// Disarms the deadlines that end with the connection.
    pub(crate) fn stop_those_of_connection(&mut self) {
        for timer in Timer::ALL.into_iter().filter(|timer| timer.is_of_connection()) {
            self.stop(timer);
        }
    }

    pub(crate) fn get(&self, timer: Timer) -> Option<Time> {
        self.deadlines.get(timer as usize).copied().flatten()
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.get(timer).is_some()
    }

    /// Returns the earliest deadline.
    pub(crate) fn next(&self) -> Option<Time> {
        self.deadlines.iter().flatten().min().copied()
    }

    /// Disarms and returns the earliest deadline that has passed.
    pub(crate) fn take_expired(&mut self, now: Time) -> Option<Timer> {
        let expired = |timer: &Timer| {
            let at = self.deadlines.get(*timer as usize).copied().flatten()?;
            (at <= now).then_some((at, *timer))
        };
        let (_, timer) = Timer::ALL.iter().filter_map(expired).min_by_key(|(at, _)| *at)?;
        self.stop(timer);
        Some(timer)
    }

    fn slot(&mut self, timer: Timer) -> &mut Option<Time> {
        self.deadlines.get_mut(timer as usize).expect("the table has a slot for every timer")
    }
}
