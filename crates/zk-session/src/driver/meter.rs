//! Counts what a client does, for [`Client::stats`](crate::Client::stats) and for metrics.

use std::sync::{Arc, Mutex, PoisonError};

#[cfg(feature = "metrics")]
use super::export::Export;
use super::round::Round;
use crate::machine::sample::{Fate, Sample};
use crate::machine::{Change, EndCause, Event, SessionMachine, WatchNews};
use crate::stats::Stats;
use crate::time::Time;

/// Capacity of the buffer of samples that an idle session keeps.
const SAMPLES_KEPT: usize = 64;

/// The counters, which the task writes and the handles read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals(Arc<Mutex<Stats>>);

impl Totals {
    /// Returns a copy of the counters.
    pub(crate) fn read(&self) -> Stats {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Counts what the task of a session does. A round is what one read, one timer or one batch of
/// commands has caused. The handles see its counts before anybody gets its results, and a round takes
/// the lock once, however many results it has.
pub(super) struct Meter {
    totals: Totals,
    /// What has happened in this round.
    round: Round,
    samples: Vec<Sample>,
    watches: usize,
    /// When the last connection was lost.
    lost_at: Option<Time>,
    #[cfg(feature = "metrics")]
    export: Export,
}

impl Meter {
    pub(super) fn new(totals: Totals) -> Self {
        Self {
            totals,
            round: Round::default(),
            samples: Vec::new(),
            watches: 0,
            lost_at: None,
            #[cfg(feature = "metrics")]
            export: Export::new(),
        }
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.round.bytes_sent += bytes as u64;
    }

    pub(super) fn received(&mut self, bytes: usize) {
        self.round.bytes_received += bytes as u64;
    }

    fn event(&mut self, event: &Event, now: Time) {
        match event {
            Event::Connect(_) => self.round.attempts += 1,
            Event::Change(change) => self.session_changed(*change, now),
            Event::Watch { .. } | Event::PersistentWatch { news: WatchNews::Event(_), .. } => {
                self.round.watch_events += 1;
            }
            Event::PersistentWatch {
                news: WatchNews::Ended(_) | WatchNews::Gap | WatchNews::Reset,
                ..
            }
            | Event::Disconnect(_)
            | Event::HandedOver(_)
            | Event::Probe { .. }
            | Event::Reply { .. }
            | Event::CreateChroot(_)
            | Event::Sasl(_) => {}
        }
    }

    fn session_changed(&mut self, change: Change, now: Time) {
        match change {
            Change::Connected { resumed, .. } => {
                self.round.connections += 1;
                self.round.sessions += u64::from(!resumed);
                let outage = self.lost_at.take().map(|lost_at| now.saturating_since(lost_at));
                self.round.outage = self.round.outage.or(outage);
            }
            Change::Suspended { .. } => {
                self.round.connections_lost += 1;
                self.lost_at.get_or_insert(now);
            }
            Change::Ended { cause, .. } => match cause {
                EndCause::Expired | EndCause::GaveUp | EndCause::Swapped => {
                    self.round.sessions_lost += 1;
                    self.lost_at.get_or_insert(now);
                }
                EndCause::Abandoned | EndCause::Closed => {}
            },
            Change::AuthFailed | Change::Closing | Change::Lapsed { .. } => {}
        }
    }

    /// Publishes what has happened in this round, including the events that the machine has not yet
    /// handed out.
    pub(super) fn count(&mut self, machine: &mut SessionMachine, now: Time) {
        for event in machine.events() {
            self.event(event, now);
        }
        machine.take_samples(&mut self.samples);
        #[cfg(feature = "metrics")]
        self.export.set_levels(machine);
        let watches = machine.watch_count();
        let is_unchanged = watches == std::mem::replace(&mut self.watches, watches);
        if is_unchanged && self.samples.is_empty() && self.round == Round::default() {
            return;
        }
        let round = std::mem::take(&mut self.round);
        #[cfg(feature = "metrics")]
        self.export.round(&round, &self.samples);
        let mut stats = self.totals.0.lock().unwrap_or_else(PoisonError::into_inner);
        stats.bytes_sent += round.bytes_sent;
        stats.bytes_received += round.bytes_received;
        stats.connections += round.connections;
        stats.connections_lost += round.connections_lost;
        stats.attempts += round.attempts;
        stats.sessions += round.sessions;
        stats.sessions_lost += round.sessions_lost;
        stats.watch_events += round.watch_events;
        stats.watches = watches;
        stats.disconnected += round.outage.unwrap_or_default();
        for Sample { op, fate, latency } in self.samples.drain(..) {
            let requests = stats.of(op);
            match fate {
                Fate::Completed => requests.completed += 1,
                Fate::Refused => requests.refused += 1,
                Fate::Lost => requests.lost += 1,
                Fate::Unusable => requests.unusable += 1,
            }
            if fate != Fate::Lost {
                requests.latencies.record(latency);
            }
        }
        drop(stats);
        if self.samples.capacity() > SAMPLES_KEPT {
            self.samples = Vec::new();
        }
    }
}
