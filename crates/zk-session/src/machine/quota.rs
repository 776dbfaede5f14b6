//! Limits on the requests of single handles, and the flights that wait because of them.
//!
//! A flight of a limited handle is *admitted* before it is sent. Until then it is held, behind the
//! earlier ones of its handle and apart from all other flights, which go past it. It gives its place
//! back when its request leaves the queue of those in flight, or when it is known that it will never
//! be sent. A request that has timed out, or whose future was dropped, still keeps its server busy,
//! so it keeps its place until its reply arrives or its connection ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::flight::{Flight, OwnerId, Token};
use crate::time::Time;

/// How much of the rate may be used at once, so that timers of a millisecond are precise enough.
const BURST: Duration = Duration::from_millis(100);

/// Limits on the requests of a handle; see [`Client::with_limits`](crate::Client::with_limits).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[must_use = "limits do nothing until a handle has them"]
pub struct Limits {
    in_flight: Option<usize>,
    per_second: Option<u32>,
}

impl Limits {
    /// Creates limits that allow everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how many requests may be in flight at a time. 0 counts as 1. Default: no limit.
    pub fn in_flight(mut self, requests: usize) -> Self {
        self.in_flight = Some(requests.max(1));
        self
    }

    /// Sets how many requests may be sent in a second, on average. A handle that was idle may send
    /// those of a tenth of a second at once. 0 counts as 1. Default: no limit.
    pub fn per_second(mut self, requests: u32) -> Self {
        self.per_second = Some(requests.max(1));
        self
    }
}

/// The limited handles that have flights, or have had some a moment ago.
///
/// There may be thousands of them, and each flight asks what is due. So all questions are answered by
/// an index, and none by a look at each handle.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    quotas: BTreeMap<OwnerId, Quota>,
    /// The handles of flights that were admitted.
    admitted: BTreeMap<Token, OwnerId>,
    /// The handles of flights that are held, by the places of the flights.
    held: BTreeMap<u64, OwnerId>,
    /// The handles whose next flight may be sent at this time.
    due: BTreeSet<(Time, OwnerId)>,
    /// The handles without flights, and when a new quota would not differ from theirs.
    idle: BTreeSet<(Time, OwnerId)>,
}

#[derive(Debug)]
struct Quota {
    limits: Limits,
    in_flight: usize,
    /// When the rate would be met if requests had been spread evenly.
    even: Time,
    /// Flights that wait, in the order of submission.
    held: BTreeMap<u64, (Token, Flight)>,
}

/// What a handle waits for.
enum Stage {
    /// Its next flight waits for this time.
    Due(Time),
    /// Its next flight waits until another one completes, or it has flights but none is held.
    Busy,
    /// It has no flights, and can be forgotten at this time.
    Idle(Time),
}

impl Quotas {
    /// Adds a flight, which is held until [`admit`](Self::admit) returns it. The place says when it
    /// was submitted.
    pub(super) fn hold(
        &mut self,
        id: OwnerId,
        limits: Limits,
        place: u64,
        token: Token,
        flight: Flight,
    ) {
        let new = || Quota { limits, in_flight: 0, even: Time::default(), held: BTreeMap::new() };
        self.quotas.entry(id).or_insert_with(new);
        self.held.insert(place, id);
        self.change(id, |quota| quota.held.insert(place, (token, flight)));
    }

    /// Returns the number of flights of a handle that are held.
    pub(super) fn held_len(&self, id: OwnerId) -> usize {
        self.quotas.get(&id).map_or(0, |quota| quota.held.len())
    }

    /// Takes a flight that may be sent now, and its place. Forgets handles that no longer need to be
    /// known.
    pub(super) fn admit(&mut self, now: Time) -> Option<(u64, Token, Flight)> {
        if let Some((_, id)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            let (place, (token, flight)) = self.change(id, |quota| {
                quota.in_flight += 1;
                if let Some(rate) = quota.limits.per_second {
                    quota.even = quota.even.max(now) + Duration::from_secs(1) / rate;
                }
                quota.held.pop_first()
            })??;
            self.held.remove(&place);
            self.admitted.insert(token, id);
            return Some((place, token, flight));
        }
        while let Some((_, id)) = self.idle.first().copied().filter(|(even, _)| *even <= now) {
            self.idle.pop_first();
            self.quotas.remove(&id);
        }
        None
    }

    /// Returns when the next flight may be sent, unless another one has to complete before.
    pub(super) fn due(&self) -> Option<Time> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Gives the place of a flight back, if it was admitted.
    pub(super) fn release(&mut self, token: Token) {
        if let Some(id) = self.admitted.remove(&token) {
            self.change(id, |quota| quota.in_flight -= 1);
        }
    }

    /// Takes the flight that is held at this place.
    pub(super) fn take(&mut self, place: u64) -> Option<(Token, Flight)> {
        let id = self.held.remove(&place)?;
        self.change(id, |quota| quota.held.remove(&place))?
    }

    /// Takes all flights that are held, in the order of submission.
    pub(super) fn take_all(&mut self) -> BTreeMap<u64, (Token, Flight)> {
        let held = std::mem::take(&mut self.held);
        let take = |(place, id)| Some((place, self.change(id, |it| it.held.remove(&place))??));
        held.into_iter().filter_map(take).collect()
    }

    /// Changes the quota of a handle, and where the indexes have it.
    fn change<T>(&mut self, id: OwnerId, change: impl FnOnce(&mut Quota) -> T) -> Option<T> {
        let quota = self.quotas.get_mut(&id)?;
        match quota.stage() {
            Stage::Due(at) => self.due.remove(&(at, id)),
            Stage::Idle(at) => self.idle.remove(&(at, id)),
            Stage::Busy => false,
        };
        let result = change(quota);
        match quota.stage() {
            Stage::Due(at) => self.due.insert((at, id)),
            Stage::Idle(at) => self.idle.insert((at, id)),
            Stage::Busy => false,
        };
        Some(result)
    }

    /// Returns true if no flight is held, and none has a place.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let is_idle = |quota: &Quota| quota.in_flight == 0 && quota.held.is_empty();
        self.admitted.is_empty()
            && self.held.is_empty()
            && self.due.is_empty()
            && self.idle.len() == self.quotas.len()
            && self.quotas.values().all(is_idle)
    }

    /// Returns the number of handles that are known.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.quotas.len()
    }
}

impl Quota {
    fn stage(&self) -> Stage {
        if self.held.is_empty() && self.in_flight == 0 {
            return Stage::Idle(self.even);
        }
        let is_full = self.limits.in_flight.is_some_and(|limit| self.in_flight >= limit);
        if is_full || self.held.is_empty() {
            return Stage::Busy;
        }
        Stage::Due(Time::from_start(self.even.since_start().saturating_sub(BURST)))
    }
}
