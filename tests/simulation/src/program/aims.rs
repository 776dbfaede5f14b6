//! Draws for what only worlds with aims do, apart from all draws that older seeds need.

use std::time::Duration;

use zk_testserver::ServerVersion;

use super::task::Task;
use crate::draw::Draw;
use crate::history::TraceHash;
use crate::world::plan::{FaultKind, Plan};

/// How much longer than its packets a handshake may take.
const HANDSHAKE_SLACK: Duration = Duration::from_millis(20);

/// Returns the draws of the place with this name, or `None` in a world without aims. They depend on the
/// next of these draws, which nothing takes away, so other draws stay what they are.
pub fn aim(plan: &Plan, draw: &Draw, place: &str) -> Option<Draw> {
    let mut salt = TraceHash::new();
    salt.add(&place);
    plan.has_aims.then(|| Draw::new(draw.clone().seed() ^ salt.get()))
}

impl Plan {
    /// Where clients end with their sessions, lets sessions end more often than other things go wrong.
    pub fn end_more_sessions(&mut self) {
        if self.has_aims && self.mortals.is_some() {
            self.faults.extend([FaultKind::Expiry; 2]);
        }
    }

    /// Returns whether servers can say who a client is.
    pub fn knows_identities(&self) -> bool {
        self.version >= ServerVersion::V3_7 && self.resumes()
    }

    /// Returns how long a connection and a handshake take at most, if servers are so distant that the
    /// exchange of credentials which follows needs clearly more time.
    pub fn distant_handshake(&self) -> Option<Duration> {
        let service = 10 * self.service + self.commit;
        let is_distant = 2 * self.latency > 4 * self.jitter + service + 2 * HANDSHAKE_SLACK;
        let is_distant = is_distant && self.unapplied_max().is_zero();
        is_distant.then(|| 4 * (self.latency + self.jitter) + service + HANDSHAKE_SLACK)
    }
}

impl Task {
    /// Returns the draws of the place with this name, or `None` in a world without aims.
    pub fn aim(&self, place: &str) -> Option<Draw> {
        aim(&self.world.plan, &self.draw, place)
    }

    /// Returns true with this probability in a world with aims, and false in all others.
    pub fn aims(&self, place: &str, percent: u64) -> bool {
        self.aim(place).is_some_and(|mut draw| draw.chance(percent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_worlds_with_aims_draw_them_and_each_place_has_its_own() {
        let draw = Draw::new(7);
        let mut plan = Plan::draw(&mut Draw::new(7));
        assert!(aim(&plan, &draw, "a").is_none());
        plan.has_aims = true;
        let drawn = |place| aim(&plan, &draw, place).unwrap().seed();
        assert_eq!(drawn("a"), drawn("a"));
        assert_ne!(drawn("a"), drawn("b"));
    }

    #[test]
    fn only_a_distant_server_needs_more_time_for_credentials() {
        let handshake = |ms| {
            let latency = Duration::from_millis(ms);
            let (jitter, commit, service) = <(Duration, Duration, Duration)>::default();
            let plan = Plan::draw(&mut Draw::new(7));
            let members = 1;
            let plan = Plan { latency, jitter, commit, service, members, ..plan };
            let at_once = Duration::ZERO;
            let plan = Plan { lag: at_once, unapplied: at_once, leader_unapplied: at_once, ..plan };
            plan.distant_handshake()
        };
        assert_eq!(handshake(10), None);
        assert_eq!(handshake(100), Some(Duration::from_millis(420)));
    }
}
