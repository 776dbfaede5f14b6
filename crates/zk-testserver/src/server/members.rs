//! The members of the ensemble: a leader, and followers that lag behind it.
//!
//! The leader validates and commits every write at once. A follower has its own tree and its own
//! watches, and repeats the transactions later, in the same order; so does a leader that applies its
//! commits late. Transactions are deterministic, so that all arrive at the same states. Every
//! connection belongs to one member, which serves its reads and sends its events.

use std::sync::Arc;
use std::time::Duration;

use jute_codec::Zxid;

use super::Server;
use crate::commit::{Committed, Proposal};
use crate::replica::{Entry, Replica};

/// The number of the member that leads.
pub(super) const LEADER: usize = 0;

impl Server {
    /// Returns the number of members.
    #[must_use]
    pub fn members(&self) -> usize {
        self.followers.len() + 1
    }

    /// Makes every follower apply everything that has been committed.
    pub fn catch_up_all(&mut self, now: Duration) {
        for member in 0..self.members() {
            self.catch_up(member, now);
        }
    }

    /// Returns the member of a connection.
    pub(super) fn member_of(&self, id: u64) -> usize {
        self.connections.get(id).map_or(LEADER, |connection| connection.member)
    }

    /// Returns the state that a connection sees.
    pub(super) fn replica(&self, id: u64) -> &Replica {
        let member = self.member_of(id);
        match self.islands.get(&member) {
            Some(island) => &island.replica,
            None => self.member(member),
        }
    }

    pub(super) fn replica_mut(&mut self, id: u64) -> &mut Replica {
        let member = self.member_of(id);
        if self.islands.contains_key(&member) {
            let island = self.islands.get_mut(&member);
            return &mut island.expect("the line above found it").replica;
        }
        self.member_mut(member)
    }

    /// Returns what a member has applied, not counting the time in which it is partitioned.
    pub(super) fn member(&self, member: usize) -> &Replica {
        let follower = member.checked_sub(1).and_then(|index| self.followers.get(index));
        follower.or(self.late_leader.as_ref()).unwrap_or(&self.leader)
    }

    pub(super) fn member_mut(&mut self, member: usize) -> &mut Replica {
        let follower = member.checked_sub(1).and_then(|index| self.followers.get_mut(index));
        follower.or(self.late_leader.as_mut()).unwrap_or(&mut self.leader)
    }

    /// Hands a transaction, which the leader has committed, to those that apply it later.
    pub(super) fn replicate(&mut self, proposal: &Proposal, zxid: Zxid, now: Duration) {
        if self.followers.is_empty() {
            return;
        }
        let arrives = now.checked_add(self.config.lag);
        let entry = Entry { zxid, proposal: Arc::new(proposal.clone()), arrives };
        for follower in &mut self.followers {
            follower.enqueue(entry.clone());
        }
        if let Some(leader) = &mut self.late_leader {
            leader.enqueue(Entry { arrives: Some(now), ..entry });
        }
        self.apply_due(now);
    }

    /// Applies what the members must have applied by now.
    pub(super) fn apply_due(&mut self, now: Duration) {
        for member in 0..self.members() {
            let unapplied = match member {
                LEADER => self.config.leader_unapplied,
                _ => self.config.unapplied,
            };
            while let Some(entry) = self.member_mut(member).take_due(now, unapplied) {
                self.apply(member, &entry.proposal, entry.zxid, now);
            }
        }
    }

    /// Makes a member receive everything that has been committed, because its leader has answered it:
    /// the answer follows the commits on their connection. What is received is applied in its time.
    pub(super) fn hear_from_leader(&mut self, member: usize, now: Duration) {
        self.member_mut(member).receive_by(now);
        self.apply_due(now);
    }

    /// Makes a member apply everything that has been committed.
    pub(super) fn catch_up(&mut self, member: usize, now: Duration) {
        while let Some(entry) = self.member_mut(member).take_next() {
            self.apply(member, &entry.proposal, entry.zxid, now);
        }
    }

    /// Commits a transaction. A leader that applies at once sends the events to its connections.
    pub(super) fn decide(&mut self, proposal: &Proposal, zxid: Zxid, now: Duration) -> Committed {
        let committed = self.leader.apply(&self.config, proposal, zxid);
        if self.late_leader.is_none() {
            self.notify_all(LEADER, &committed, zxid, now);
        }
        committed
    }

    /// Applies a transaction to the state of a member, and sends the events to its connections.
    fn apply(&mut self, member: usize, proposal: &Proposal, zxid: Zxid, now: Duration) {
        // This repeats `member_mut`, because the compiler must see that only one field is borrowed.
        let follower = member.checked_sub(1).and_then(|index| self.followers.get_mut(index));
        let replica = follower.or(self.late_leader.as_mut()).unwrap_or(&mut self.leader);
        let committed = replica.apply(&self.config, proposal, zxid);
        self.notify_all(member, &committed, zxid, now);
    }

    fn notify_all(&mut self, member: usize, committed: &Committed, zxid: Zxid, now: Duration) {
        let zxid = if self.config.version.events_have_zxids() { zxid } else { Zxid::NONE };
        for change in &committed.changes {
            self.notify(member, change, zxid, now);
        }
    }

    /// Returns when a member must apply something.
    pub(super) fn next_lag(&self) -> Option<Duration> {
        let followers = self.followers.iter().map(|each| each.next_due(self.config.unapplied));
        let late_leader = self.late_leader.as_ref();
        let leader = late_leader.and_then(|each| each.next_due(self.config.leader_unapplied));
        followers.flatten().chain(leader).min()
    }
}
