//! Counts what a client does, for [`Client::stats`](crate::Client::stats) and for metrics.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[cfg(feature = "metrics")]
use super::export::Export;
use super::round::Round;
#[cfg(feature = "metrics")]
use crate::machine::SessionState;
use crate::machine::sample::{Fate, Sample};
use crate::machine::{Change, EndCause, Event, SessionMachine, WatchNews};
#[cfg(feature = "metrics")]
use crate::report::stats::Gauges;
use crate::report::stats::{Counts, Levels, RequestStats, Stats, Times};
use crate::time::Time;

/// Capacity of the buffer of samples that an idle session keeps.
const SAMPLES_KEPT: usize = 64;

/// The counters, which the task writes and the handles read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals(Arc<Mutex<Sums>>);

#[derive(Debug, Default)]
struct Sums {
    counts: Counts<u64>,
    times: Times<Duration>,
    levels: Levels<usize>,
    requests: Vec<RequestStats>,
}

impl Totals {
    /// Returns a copy of the counters.
    pub(crate) fn read(&self) -> Stats {
        let sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = sums.requests.clone();
        Stats { requests, ..Stats::of(&sums.counts, &sums.times, &sums.levels) }
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
            lost_at: None,
            #[cfg(feature = "metrics")]
            export: Export::new(),
        }
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.round.counts.bytes_sent += bytes as u64;
    }

    pub(super) fn received(&mut self, bytes: usize) {
        self.round.counts.bytes_received += bytes as u64;
    }

    fn event(&mut self, event: &Event, now: Time) {
        match event {
            Event::Connect(_) => self.round.counts.attempts += 1,
            Event::Change(change) => self.session_changed(*change, now),
            Event::Watch { .. } | Event::PersistentWatch { news: WatchNews::Event(_), .. } => {
                self.round.counts.watch_events += 1;
            }
            Event::PersistentWatch {
                news: WatchNews::Ended(_) | WatchNews::Gap | WatchNews::Reset,
                ..
            }
            | Event::AuthChanged { .. }
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
                self.round.counts.connections += 1;
                self.round.counts.sessions += u64::from(!resumed);
                let outage = self.lost_at.take().map(|lost_at| now.saturating_since(lost_at));
                let disconnected = &mut self.round.times.disconnected;
                *disconnected = disconnected.or(outage);
            }
            Change::Suspended { .. } => {
                self.round.counts.connections_lost += 1;
                self.lost_at.get_or_insert(now);
            }
            Change::Ended { cause, .. } => match cause {
                EndCause::Expired | EndCause::GaveUp | EndCause::Swapped => {
                    self.round.counts.sessions_lost += 1;
                    self.lost_at.get_or_insert(now);
                }
                EndCause::Abandoned | EndCause::Closed => {}
            },
            Change::AuthFailed | Change::Closing | Change::Lapsed { .. } => {}
        }
    }

    /// Publishes what has happened in this round, including the events that the machine has not yet
    /// handed out.
    pub(super) fn count(&mut self, machine: &mut SessionMachine) {
        for event in machine.events() {
            self.event(event, machine.now());
        }
        machine.take_samples(&mut self.samples);
        let levels = Levels { watches: machine.watch_count(), pending: machine.outstanding() };
        let round = std::mem::take(&mut self.round);
        #[cfg(feature = "metrics")]
        {
            let is_connected = machine.status().state == SessionState::Connected;
            let gauges = Gauges { clients: 1, connected: usize::from(is_connected) };
            self.export.round(&round, &self.samples, &levels, &gauges);
        }
        let mut locked = self.totals.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sums = &mut *locked;
        sums.counts.pairs(&round.counts).for_each(|(sum, count)| *sum += count);
        sums.times.pairs(&round.times).for_each(|(sum, time)| *sum += time.unwrap_or_default());
        sums.levels = levels;
        for Sample { op, fate, latency } in self.samples.drain(..) {
            let requests = RequestStats::of(&mut sums.requests, op);
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
        drop(locked);
        if self.samples.capacity() > SAMPLES_KEPT {
            self.samples = Vec::new();
        }
    }
}
