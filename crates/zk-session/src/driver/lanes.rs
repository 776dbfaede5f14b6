//! The task's ends of all lanes: their inboxes and alarms, and who has to be woken.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::inbox::Teller;
use super::shared::LaneEvent;
use crate::machine::Change;
use crate::time::Time;

/// Readers that are woken before other tasks get their turn. Each may read a long list, and one list
/// may serve thousands of them: if all were woken at once, the session's task would be behind all of
/// them, and a heartbeat would come too late for the lease.
const WAKES_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<u64, End>,
    /// How many of them need the lease.
    in_need: usize,
    /// By time.
    alarms: BTreeSet<(Time, u64)>,
    /// Lanes that have something to read and whose readers were not woken yet, each once. It is
    /// emptied before the task waits.
    unwoken: VecDeque<u64>,
}

#[derive(Debug)]
struct End {
    teller: Teller,
    alarm: Option<Time>,
    needs_lease: bool,
    /// Its number is in [`Lanes::unwoken`].
    is_unwoken: bool,
}

impl Lanes {
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    pub(super) fn open(&mut self, id: u64, teller: Teller) {
        self.lanes.insert(id, End { teller, alarm: None, needs_lease: false, is_unwoken: false });
    }

    /// False if there is no such lane.
    pub(super) fn close(&mut self, id: u64) -> bool {
        self.need_lease(id, false);
        let Some(lane) = self.lanes.remove(&id) else { return false };
        if let Some(at) = lane.alarm {
            self.alarms.remove(&(at, id));
        }
        true
    }

    /// Whether the lane needs the lease.
    pub(super) fn need_lease(&mut self, id: u64, needs_lease: bool) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        self.in_need += usize::from(needs_lease);
        self.in_need -= usize::from(std::mem::replace(&mut lane.needs_lease, needs_lease));
    }

    /// Whether any lane needs the lease.
    pub(super) fn is_lease_needed(&self) -> bool {
        self.in_need > 0
    }

    /// Instead of the alarm that the lane has.
    pub(super) fn set_alarm(&mut self, id: u64, at: Time) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if let Some(before) = lane.alarm.replace(at) {
            self.alarms.remove(&(before, id));
        }
        self.alarms.insert((at, id));
    }

    pub(super) fn next_alarm(&self) -> Option<Time> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// Sends the alarms whose time has come.
    pub(super) fn ring(&mut self, now: Time) {
        while let Some((at, id)) = self.alarms.first().copied() {
            if at > now {
                break;
            }
            self.alarms.pop_first();
            if let Some(lane) = self.lanes.get_mut(&id) {
                lane.alarm = None;
                lane.tell(id, LaneEvent::Alarm, &mut self.unwoken);
            }
        }
    }

    /// Enqueues an event for a lane. Its reader is woken by [`wake`](Self::wake).
    pub(super) fn tell(&mut self, id: u64, event: LaneEvent) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.tell(id, event, &mut self.unwoken);
        }
    }

    /// Enqueues a change for all of them.
    pub(super) fn tell_all(&mut self, change: Change) {
        for (id, lane) in &mut self.lanes {
            lane.tell(*id, LaneEvent::Change(change), &mut self.unwoken);
        }
    }

    /// Wakes readers, up to [`WAKES_MAX`]. True if there are more.
    pub(super) fn wake(&mut self) -> bool {
        let count = self.unwoken.len().min(WAKES_MAX);
        for id in self.unwoken.drain(..count) {
            if let Some(lane) = self.lanes.get_mut(&id) {
                lane.is_unwoken = false;
                lane.teller.wake();
            }
        }
        if self.unwoken.is_empty() {
            self.unwoken = VecDeque::new();
        }
        !self.unwoken.is_empty()
    }

    /// The last word to all of them.
    pub(super) fn stop(&self) {
        for lane in self.lanes.values() {
            lane.teller.push(LaneEvent::Stopped);
            lane.teller.wake();
        }
    }
}

impl End {
    fn tell(&mut self, id: u64, event: LaneEvent, unwoken: &mut VecDeque<u64>) {
        self.teller.push(event);
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

    use super::super::inbox::Inbox;
    use super::super::inbox::tests::Count;
    use super::*;
    use crate::types::SessionId;

    /// That many lanes, whose readers wait.
    fn lanes(count: u64, waker: &Waker) -> (Lanes, Vec<Inbox>) {
        let mut lanes = Lanes::default();
        let inboxes: Vec<_> = (0..count)
            .map(|id| {
                let (teller, inbox) = Inbox::open();
                lanes.open(id, teller);
                assert!(inbox.poll_next(&mut Context::from_waker(waker)).is_pending());
                inbox
            })
            .collect();
        (lanes, inboxes)
    }

    /// Each of them may have much to do with what it is told.
    #[test]
    fn lanes_are_woken_in_turns_and_told_in_order() {
        const LANES: u64 = 1000;
        let woken = Arc::<Count>::default();
        let (mut lanes, inboxes) = lanes(LANES, &Waker::from(Arc::clone(&woken)));
        lanes.tell_all(Change::Closing);
        lanes.tell_all(Change::AuthFailed);
        let (mut before, mut turns) = (0, 0);
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
        for inbox in inboxes {
            assert_eq!(inbox.try_next(), Some(LaneEvent::Change(Change::Closing)));
            assert_eq!(inbox.try_next(), Some(LaneEvent::Change(Change::AuthFailed)));
        }
    }

    /// A server that resumes and drops brings changes faster than many readers can be woken.
    #[test]
    fn changes_that_nobody_has_read_do_not_pile_up() {
        let (mut lanes, inboxes) = lanes(100, Waker::noop());
        let session = SessionId(1);
        for connection in 0..1000 {
            lanes.tell_all(Change::Connected { session, connection, resumed: true });
            lanes.tell_all(Change::Suspended { session });
        }
        assert_eq!(lanes.unwoken.len(), 100);
        for inbox in inboxes {
            assert_eq!(std::iter::from_fn(|| inbox.try_next()).count(), 2);
        }
    }
}
