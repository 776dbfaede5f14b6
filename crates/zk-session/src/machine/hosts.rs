//! Which server to try next, and when.

use std::time::Duration;

use crate::connect_string::Host;

/// Pause after the first failure, before jitter.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Longest pause, before jitter.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// The servers in shuffled order, and the pauses between attempts.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    hosts: Vec<Host>,
    next: usize,
    failures: u32,
    random: SplitMix,
}

impl Hosts {
    /// `hosts` is not empty; `seed` decides the order and the jitter.
    pub(crate) fn new(mut hosts: Vec<Host>, seed: u64) -> Self {
        assert!(!hosts.is_empty(), "the builder refuses an empty list");
        let mut random = SplitMix(seed);
        for end in (1..hosts.len()).rev() {
            hosts.swap(end, random.below(end as u64 + 1) as usize);
        }
        Self { hosts, next: 0, failures: 0, random }
    }

    /// The next server in turn.
    pub(crate) fn next(&mut self) -> Host {
        let host = self.hosts.get(self.next).expect("the index wraps").clone();
        self.next = (self.next + 1) % self.hosts.len();
        host
    }

    /// A server has answered the handshake: the next failure is a first one.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Pause after a failure: doubled each time up to a limit of 5 s, or of a tenth of the session
    /// timeout if that is less, and between half and all of that at random, so that the clients
    /// of a dead server do not come back together.
    pub(crate) fn pause(&mut self, session_timeout: Duration) -> Duration {
        let limit = BACKOFF_MAX.min(session_timeout / 10).max(Duration::from_millis(1));
        let full = BACKOFF_MIN.saturating_mul(1 << self.failures.min(16)).min(limit);
        self.failures = self.failures.saturating_add(1);
        let half = full / 2;
        half + Duration::from_nanos(self.random.below(half.as_nanos() as u64 + 1))
    }
}

/// A small generator (SplitMix64) whose seed is an argument.
#[derive(Clone, Debug)]
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0. The bias is below 2^-32 for the bounds used here.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(n: u16) -> Vec<Host> {
        (0..n).map(|port| Host { name: "zk".into(), port }).collect()
    }

    #[test]
    fn every_server_is_tried_once_a_lap_and_the_seed_decides_the_order() {
        let lap = |seed| {
            let mut rotation = Hosts::new(hosts(5), seed);
            (0..5).map(|_| rotation.next().port).collect::<Vec<_>>()
        };
        let mut sorted = lap(1);
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4]);
        assert_eq!(lap(1), lap(1));
        assert!((2..20).any(|seed| lap(seed) != lap(1)));
    }

    #[test]
    fn pauses_have_jitter_from_the_first_and_grow_to_a_limit() {
        let mut rotation = Hosts::new(hosts(1), 7);
        let timeout = Duration::from_secs(30);
        let pauses: Vec<_> = (0..10).map(|_| rotation.pause(timeout)).collect();
        assert!(pauses[0] >= BACKOFF_MIN / 2 && pauses[0] <= BACKOFF_MIN);
        assert!(pauses[9] <= timeout / 10 && pauses[9] >= timeout / 20);
        rotation.succeeded();
        assert!(rotation.pause(timeout) <= BACKOFF_MIN);
    }
}
