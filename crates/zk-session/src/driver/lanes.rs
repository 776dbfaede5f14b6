//! The task's ends of all lanes: their queues, their alarms, and the readers that must be woken.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::lane_event::LaneEvent;
use super::lane_queue::LaneSender;
use crate::machine::{Change, OwnerId};
use crate::time::Time;

/// Maximum number of readers that are woken before other tasks get a turn. Each reader may process
/// a long list, and one list may serve thousands of readers. If all were woken at once, the
/// session's task would run after all of them, and a heartbeat would be too late for the lease.
const WAKES_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<OwnerId, LaneEnd>,
    /// Number of lanes that need the lease.
    needing_lease: usize,
    /// Number of lanes whose users hold a lock.
    holding: usize,
    /// Alarms by time.
    alarms: BTreeSet<(Time, OwnerId)>,
    /// Lanes that have events but whose readers were not woken yet. Each lane occurs at most once.
    /// The task empties this queue before it waits.
    unwoken: VecDeque<OwnerId>,
}

struct LaneEnd {
    sender: LaneSender,
    alarm: Option<Time>,
    needs_lease: bool,
    holds_lock: bool,
    /// The lane is in [`Lanes::unwoken`].
    is_unwoken: bool,
}

impl Lanes {
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    pub(super) fn open(&mut self, id: OwnerId, sender: LaneSender) {
        let lane = LaneEnd {
            sender,
            alarm: None,
            needs_lease: false,
            holds_lock: false,
            is_unwoken: false,
        };
        self.lanes.insert(id, lane);
    }

    /// Removes a lane. Returns false if no lane has this id.
    pub(super) fn close(&mut self, id: OwnerId) -> bool {
        self.set_needs_lease(id, false);
        self.set_holds_lock(id, false);
        let Some(lane) = self.lanes.remove(&id) else { return false };
        if let Some(at) = lane.alarm {
            self.alarms.remove(&(at, id));
        }
        true
    }

    /// Sets whether a lane needs the lease.
    pub(super) fn set_needs_lease(&mut self, id: OwnerId, needs_lease: bool) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        self.needing_lease += usize::from(needs_lease);
        self.needing_lease -= usize::from(std::mem::replace(&mut lane.needs_lease, needs_lease));
    }

    /// Tells a lane that the session keeps the lease for it, and whether there was one.
    pub(super) fn keep_need(&self, id: OwnerId, need: u32, is_leased: bool) {
        if let Some(lane) = self.lanes.get(&id) {
            lane.sender.keep_need(need, is_leased);
        }
    }

    /// Sets whether the user of a lane holds a lock.
    pub(super) fn set_holds_lock(&mut self, id: OwnerId, holds_lock: bool) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        self.holding += usize::from(holds_lock);
        self.holding -= usize::from(std::mem::replace(&mut lane.holds_lock, holds_lock));
    }

    /// Returns whether the user of any lane holds a lock.
    pub(super) fn is_lock_held(&self) -> bool {
        self.holding > 0
    }

    /// Returns whether any lane needs the lease.
    pub(super) fn is_lease_needed(&self) -> bool {
        self.needing_lease > 0
    }

    /// Sets the alarm of a lane, replacing any earlier one.
    pub(super) fn set_alarm(&mut self, id: OwnerId, at: Time) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if let Some(before) = lane.alarm.replace(at) {
            self.alarms.remove(&(before, id));
        }
        self.alarms.insert((at, id));
    }

    pub(super) fn next_alarm(&self) -> Option<Time> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// Enqueues the alarms that are due.
    pub(super) fn ring(&mut self, now: Time) {
        while let Some((at, id)) = self.alarms.first().copied() {
            if at > now {
                break;
            }
            self.alarms.pop_first();
            if let Some(lane) = self.lanes.get_mut(&id) {
                lane.alarm = None;
                lane.push(id, LaneEvent::Alarm, &mut self.unwoken);
            }
        }
    }

    /// Enqueues an event for a lane. [`wake`](Self::wake) wakes its reader.
    pub(super) fn push(&mut self, id: OwnerId, event: LaneEvent) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.push(id, event, &mut self.unwoken);
        }
    }

    /// Enqueues a change for all lanes.
    pub(super) fn push_to_all(&mut self, change: Change) {
        for (id, lane) in &mut self.lanes {
            lane.push(*id, LaneEvent::Change(change), &mut self.unwoken);
        }
    }

    /// Wakes at most [`WAKES_MAX`] readers. Returns true if there are more to wake.
    pub(super) fn wake(&mut self) -> bool {
        let count = self.unwoken.len().min(WAKES_MAX);
        for id in self.unwoken.drain(..count) {
            if let Some(lane) = self.lanes.get_mut(&id) {
                lane.is_unwoken = false;
                lane.sender.wake();
            }
        }
        if self.unwoken.is_empty() {
            // Frees the buffer.
            self.unwoken = VecDeque::new();
        }
        !self.unwoken.is_empty()
    }

    /// Enqueues the last event for all lanes, and wakes their readers.
    pub(super) fn stop(&self) {
        for lane in self.lanes.values() {
            lane.sender.push(LaneEvent::Stopped);
            lane.sender.wake();
        }
    }
}

impl LaneEnd {
    fn push(&mut self, id: OwnerId, event: LaneEvent, unwoken: &mut VecDeque<OwnerId>) {
        self.sender.push(event);
        if !std::mem::replace(&mut self.is_unwoken, true) {
            unwoken.push_back(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::task::{Context, Waker};

    use super::super::lane_queue::tests::Count;
    use super::super::lane_queue::{LaneReceiver, lane_queue};
    use super::*;
    use crate::types::SessionId;

    /// Opens this many lanes, whose readers are waiting.
    fn lanes(count: u64, waker: &Waker) -> (Lanes, Vec<LaneReceiver>) {
        let mut lanes = Lanes::default();
        let receivers: Vec<_> = (0..count)
            .map(|id| {
                let (sender, receiver) = lane_queue();
                lanes.open(OwnerId(id), sender);
                assert!(receiver.poll_next(&mut Context::from_waker(waker)).is_pending());
                receiver
            })
            .collect();
        (lanes, receivers)
    }

    /// Each reader may need a long time to process its events.
    #[test]
    fn lanes_are_woken_in_turns_and_told_in_order() {
        const LANES: u64 = 1000;
        let woken = Arc::<Count>::default();
        let (mut lanes, receivers) = lanes(LANES, &Waker::from(Arc::clone(&woken)));
        lanes.push_to_all(Change::Closing);
        lanes.push_to_all(Change::AuthFailed);
        let mut before = 0;
        let mut turns = 0;
        loop {
            let is_more = lanes.wake();
            turns += 1;
            let now = woken.0.load(Ordering::Relaxed);
            assert!(now <= before + WAKES_MAX, "{now} after {before}");
            before = now;
            if !is_more {
                break;
            }
        }
        assert_eq!((before, turns), (LANES as usize, (LANES as usize).div_ceil(WAKES_MAX)));
        for receiver in receivers {
            assert_eq!(receiver.try_next(), Some(LaneEvent::Change(Change::Closing)));
            assert_eq!(receiver.try_next(), Some(LaneEvent::Change(Change::AuthFailed)));
        }
    }

    /// A server that resumes and drops connections causes changes faster than readers are woken.
    #[test]
    fn changes_that_nobody_has_read_do_not_pile_up() {
        let (mut lanes, receivers) = lanes(100, Waker::noop());
        let session = SessionId(1);
        for connection in 0..1000 {
            lanes.push_to_all(Change::Connected { session, connection, resumed: true });
            lanes.push_to_all(Change::Suspended { session });
        }
        assert_eq!(lanes.unwoken.len(), 100);
        for receiver in receivers {
            assert_eq!(std::iter::from_fn(|| receiver.try_next()).count(), 2);
        }
    }
}
