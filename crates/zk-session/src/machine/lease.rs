//! The lease: until when nobody else can own the session's ephemerals, by our own clock.
//!
//! The leader ends a session when it has not heard of it for the session timeout. It hears of it
//! from the server we talk to, and that one may be cut off and go on answering. So the newest
//! acknowledgement proves little. The lease counts from a request of which the leader has heard for
//! certain: it ends 0.95 times the session timeout after that was sent, because our clock may be
//! 5 % slow. It never moves back, unless a server grants a shorter timeout.
//!
//! Which request that is follows from pings ([`window`]) or from committed writes ([`bridge`]).
//! Two events renew a lease of either kind:
//!
//! - The session was created. The ConnectRequest was a transaction of the leader.
//! - The session was resumed, and then a write on that connection was committed. The leader answers
//!   a resume, and counts from then on; but it may have been deposed, and then it commits nothing.

mod bridge;
mod config;
mod window;

use std::time::Duration;

use self::bridge::Bridge;
pub use self::config::Lease;
use self::window::Window;
use crate::time::Time;

/// That much on a clock that is slow is the whole time on another.
fn slow(time: Duration) -> Duration {
    time.saturating_mul(19) / 20
}

/// That much on a clock that is fast is the whole time on another.
fn fast(time: Duration) -> Duration {
    time.saturating_add(time / 20)
}

/// The lease of one session. It learns what was answered, and says how long the lease lasts.
#[derive(Clone, Debug)]
pub struct LeaseClock {
    config: Option<Lease>,
    timeout: Duration,
    /// `None` while the session timeout leaves no room for a lease.
    evidence: Option<Evidence>,
    /// The newest request of which the leader has heard.
    proven: Option<Mark>,
    /// The newest request of which it has heard unless it stood still.
    provisional: Option<Mark>,
    /// A resume that the leader has answered, but perhaps without a quorum.
    resumed: Option<Mark>,
}

/// What renews the lease.
#[derive(Clone, Debug)]
enum Evidence {
    Pings(Window),
    Writes(Bridge),
}

/// A request, and the session timeout that counts for it.
#[derive(Clone, Copy, Debug)]
struct Mark {
    sent: Time,
    timeout: Duration,
}

impl Mark {
    fn deadline(self) -> Time {
        self.sent + slow(self.timeout)
    }
}

/// The longest two gaps.
#[derive(Clone, Copy, Debug, Default)]
struct Gaps([Duration; 2]);

impl Gaps {
    fn add(&mut self, gap: Duration) {
        let [first, second] = self.0;
        self.0 = [first.max(gap), second.max(first.min(gap))];
    }

    fn longest(self) -> [Duration; 2] {
        self.0
    }

    fn sum(self) -> Duration {
        let [first, second] = self.0;
        first + second
    }
}

impl LeaseClock {
    /// Without a configuration there is never a lease.
    pub fn new(config: Option<Lease>) -> Self {
        let timeout = Duration::ZERO;
        Self { config, timeout, evidence: None, proven: None, provisional: None, resumed: None }
    }

    /// When the lease ends, or has ended. `None` if there is none, or none yet.
    pub fn deadline(&self) -> Option<Time> {
        self.evidence.as_ref()?;
        self.proven.map(Mark::deadline)
    }

    /// When a lease would end if the leader never stood still; never earlier than the lease. `None`
    /// if there is nothing to count from.
    pub fn provisional_deadline(&self) -> Option<Time> {
        self.evidence.as_ref()?;
        later(self.provisional, self.proven).map(Mark::deadline)
    }

    /// Whether the session timeout leaves room for a lease.
    pub fn is_possible(&self) -> bool {
        self.evidence.is_some()
    }

    /// How often to ping, if pings keep the lease.
    pub fn ping_interval(&self) -> Option<Duration> {
        match self.evidence.as_ref()? {
            Evidence::Pings(window) => Some(window.ping_interval),
            Evidence::Writes(_) => None,
        }
    }

    /// How far apart those requests are that keep the lease.
    pub fn interval(&self) -> Option<Duration> {
        Some(match self.evidence.as_ref()? {
            Evidence::Pings(window) => window.ping_interval,
            Evidence::Writes(bridge) => bridge.write_interval,
        })
    }

    /// Whether writes keep the lease.
    pub fn is_written(&self) -> bool {
        matches!(self.evidence, Some(Evidence::Writes(_)))
    }

    /// How long after a committed write the next one is due, if writes keep the lease. They are
    /// closer together while there is less than there could be, because each gap is paid for: so
    /// close that another bridge is complete when half of the rest has passed.
    pub fn write_interval(&self, now: Time) -> Option<Duration> {
        let Evidence::Writes(bridge) = self.evidence.as_ref()? else { return None };
        let config = self.config?;
        let left = self.deadline().unwrap_or_default().saturating_since(now);
        if left >= config.least(self.timeout)? {
            return Some(bridge.write_interval);
        }
        let span = config.bridge();
        let in_time = (left / 2).saturating_sub(span) / 5;
        Some(bridge.write_interval.min(in_time.max(span / 8)))
    }

    /// Somebody needs the lease, whom nobody preceded. What writes keep has run down meanwhile.
    pub fn needed(&mut self, now: Time) {
        if self.proven.is_some_and(|mark| !self.is_worth_it(mark, now)) {
            self.lapse();
        }
    }

    /// Whether a lease is to begin with this. One that ends before the next writes make more of it
    /// would end what relies on it, and does less for it than none.
    fn is_worth_it(&self, mark: Mark, now: Time) -> bool {
        let Some(config) = self.config else { return false };
        let least = config.least(self.timeout).unwrap_or_default();
        let enough = (config.bridge() * 2).min(least / 2);
        mark.deadline() > now + enough
    }

    /// How long a connection may be silent, if it is to be left in time for a new one to save the
    /// lease; `None` as long as there can be no lease.
    pub fn silence(&self) -> Option<Duration> {
        self.evidence.as_ref()?;
        self.config?.silence(self.timeout)
    }

    /// True if the lease has ended, and a write on this connection would not make a new one. Those
    /// that writes keep come back with more writes.
    pub fn is_beyond_repair(&self, now: Time) -> bool {
        self.ping_interval().is_some()
            && self.deadline().is_some_and(|deadline| deadline <= now)
            && self.resumed.is_none_or(|resumed| resumed.deadline() <= now)
    }

    /// The lease has ended. If writes keep it, there is none until they make another.
    pub fn lapse(&mut self) {
        if let Some(Evidence::Writes(_)) = self.evidence {
            self.proven = None;
        }
    }

    /// A session was created by a ConnectRequest that was sent then and answered now.
    pub fn created(&mut self, sent: Time, now: Time, timeout: Duration) {
        *self = Self::new(self.config);
        let mark = self.grant(sent, timeout);
        match &mut self.evidence {
            None => return,
            Some(Evidence::Pings(window)) => window.created(mark, now),
            Some(Evidence::Writes(bridge)) => bridge.connected(mark, now),
        }
        self.proven = Some(mark);
    }

    /// The session was resumed by a ConnectRequest that was sent then and answered now.
    pub fn resumed(&mut self, sent: Time, now: Time, timeout: Duration) {
        let mark = self.grant(sent, timeout);
        for mark in self.proven.iter_mut().chain(&mut self.provisional) {
            mark.timeout = mark.timeout.min(timeout);
        }
        match &mut self.evidence {
            None => {
                self.proven = None;
                self.provisional = None;
            }
            Some(Evidence::Pings(window)) => window.resumed(mark, now),
            Some(Evidence::Writes(bridge)) => bridge.connected(mark, now),
        }
        self.resumed = Some(mark);
    }

    /// A request of this connection, sent then, was answered now, by whatever server.
    pub fn acknowledged(&mut self, sent: Time, now: Time) {
        let mark = Mark { sent, timeout: self.timeout };
        match &mut self.evidence {
            None => {}
            Some(Evidence::Pings(window)) => {
                let proven = window.acknowledged(mark, now);
                prove(&mut self.proven, proven);
            }
            Some(Evidence::Writes(bridge)) => bridge.acknowledged(mark, now),
        }
    }

    /// A sync of this connection, sent then, was answered now. Only the leader can have done so,
    /// but perhaps one that was deposed.
    pub fn synced(&mut self, sent: Time, now: Time) {
        if let Some(Evidence::Writes(bridge)) = &mut self.evidence {
            bridge.led(sent, now);
        }
    }

    /// A write of this connection, sent then, was committed, and its answer has come now.
    pub fn committed(&mut self, sent: Time, now: Time) {
        if self.evidence.is_none() {
            return;
        }
        let mut proven = self.resumed.take();
        if let Some(Evidence::Writes(bridge)) = &mut self.evidence {
            prove(&mut self.provisional, bridge.provisional(sent));
            prove(&mut proven, bridge.committed(sent));
            bridge.led(sent, now);
            if self.proven.is_none() {
                proven = proven.filter(|mark| self.is_worth_it(*mark, now));
            }
        }
        prove(&mut self.proven, proven);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        match &self.evidence {
            None => 0,
            Some(Evidence::Pings(window)) => window.len(),
            Some(Evidence::Writes(bridge)) => bridge.len(),
        }
    }

    /// What counts from now on, if anything does, and the mark of a request sent then.
    fn grant(&mut self, sent: Time, timeout: Duration) -> Mark {
        self.timeout = timeout;
        let writes = self.config.and_then(|config| config.write_interval(timeout));
        let pings = self.config.and_then(|config| config.ping_interval(timeout));
        match (&mut self.evidence, writes, pings) {
            (Some(Evidence::Writes(bridge)), Some(interval), _) => bridge.write_interval = interval,
            (Some(Evidence::Pings(window)), _, Some(interval)) => window.ping_interval = interval,
            (evidence, Some(interval), _) => {
                let span = self.config.map(|config| config.bridge()).unwrap_or_default();
                *evidence = Some(Evidence::Writes(Bridge::new(span, interval)));
            }
            (evidence, None, Some(interval)) => {
                let unnoticed = self.config.and_then(|config| config.window()).unwrap_or_default();
                *evidence = Some(Evidence::Pings(Window::new(unnoticed, interval)));
            }
            (evidence, None, None) => *evidence = None,
        }
        Mark { sent, timeout }
    }
}

fn prove(newest: &mut Option<Mark>, mark: Option<Mark>) {
    *newest = later(*newest, mark);
}

/// The one whose deadline is later.
fn later(one: Option<Mark>, other: Option<Mark>) -> Option<Mark> {
    one.into_iter().chain(other).max_by_key(|mark| mark.deadline())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn at(ms: u64) -> Time {
        Time::from_start(Duration::from_millis(ms))
    }

    fn lease() -> LeaseClock {
        let mut lease = LeaseClock::new(Some(Lease::pings(5, Duration::from_secs(2))));
        lease.created(at(0), at(0), TIMEOUT);
        lease
    }

    /// Send time of the request from which the lease counts, in milliseconds.
    fn base(lease: &LeaseClock) -> u128 {
        let deadline = lease.deadline().expect("there is a lease").since_start();
        (deadline - TIMEOUT * 19 / 20).as_millis()
    }

    #[test]
    fn it_counts_from_the_newest_request_that_is_a_window_older() {
        let mut lease = lease();
        // Prompt acknowledgements each second: gaps of 1 s, twice, and 14.7 s.
        for second in 1..=40 {
            lease.acknowledged(at(second * 1000), at(second * 1000));
        }
        assert_eq!(base(&lease), 23_000, "16.7 s and not more than a second older");
    }

    #[test]
    fn lateness_and_the_longest_two_gaps_are_paid_for() {
        for (late, expected) in [(0, 23_000), (200, 23_000), (400, 22_000)] {
            let mut lease = lease();
            for second in 1..=40 {
                // Every one is late, so every gap is longer by it.
                lease.acknowledged(at(second * 1000), at(second * 1000 + late / 2));
            }
            // 16.7 s and one and a half times the lateness.
            assert_eq!(base(&lease), expected, "{late} ms");
        }
        let mut lease = lease();
        for second in (1..=40).filter(|second| !(30..=33).contains(second) && *second != 36) {
            lease.acknowledged(at(second * 1000), at(second * 1000));
        }
        assert_eq!(base(&lease), 18_000, "14.7 s, 5 s and 2 s are 21.7 s");
    }

    #[test]
    fn a_gap_over_a_resume_counts() {
        let mut lease = lease();
        for second in 1..=30 {
            lease.acknowledged(at(second * 1000), at(second * 1000));
        }
        lease.resumed(at(33_500), at(34_000), TIMEOUT);
        for second in 35..=40 {
            lease.acknowledged(at(second * 1000), at(second * 1000));
        }
        assert_eq!(base(&lease), 19_000, "14.7 s, 4 s and 1.5 s are 20.2 s");
        for _ in 0..2 {
            lease.committed(at(40_000), at(40_000));
            assert_eq!(base(&lease), 33_500);
        }
    }

    #[test]
    fn many_acknowledgements_are_remembered_in_few_entries() {
        let mut lease = lease();
        for ms in 1..=100_000 {
            lease.acknowledged(at(ms), at(ms));
        }
        assert!(lease.len() < 60, "{} entries", lease.len());
        assert!(base(&lease) > 84_000, "{}", base(&lease));
        // What comes out of order, or twice, changes nothing.
        let before = base(&lease);
        lease.acknowledged(at(99_000), at(100_000));
        lease.acknowledged(at(100_000), at(100_000));
        assert_eq!(base(&lease), before);
    }

    /// A ping and a write behind it, answered after so long.
    fn write(lease: &mut LeaseClock, sent: u64, late: u64) {
        lease.acknowledged(at(sent), at(sent + late));
        lease.acknowledged(at(sent), at(sent + late));
        lease.committed(at(sent), at(sent + late));
    }

    /// Kept by writes, with the session's creation far behind.
    fn written(interval: u64) -> LeaseClock {
        let mut lease = LeaseClock::new(Some(Lease::writes(Duration::from_millis(interval))));
        lease.created(at(0), at(0), TIMEOUT);
        lease.lapse();
        lease
    }

    #[test]
    fn writes_make_a_lease_when_they_bridge_a_tick_and_two_gaps() {
        let mut lease = written(1000);
        for second in 100..=105 {
            assert_eq!(lease.deadline(), None, "at {second}");
            write(&mut lease, second * 1000, 1);
        }
        // From 100.001 to 105 it is 4.999 s; a tick of 2.1 s and two gaps of 1 s need 4.102 s. The
        // gap before the first write is not between the two.
        write(&mut lease, 106_000, 1);
        assert_eq!(base(&lease), 100_000);
        write(&mut lease, 107_000, 1);
        assert_eq!(base(&lease), 101_000);
        assert_eq!(lease.provisional_deadline(), Some(at(105_000) + TIMEOUT * 19 / 20));
    }

    #[test]
    fn the_longest_two_gaps_are_paid_for_whatever_else_is_answered() {
        let mut lease = written(1000);
        for second in 100..=120 {
            // The leader stands still for 3 s and for 2 s. The follower answers pings meanwhile.
            if [114, 115, 118].contains(&second) {
                lease.acknowledged(at(second * 1000), at(second * 1000));
            } else {
                write(&mut lease, second * 1000, 0);
            }
        }
        // 119 is a', and 2.1 s, 3 s and 2 s before it is 111.9.
        assert_eq!(base(&lease), 111_000);
    }

    #[test]
    fn only_what_the_leader_has_committed_renews_a_lease_of_writes() {
        let mut lease = written(1000);
        for second in 100..=120 {
            lease.acknowledged(at(second * 1000), at(second * 1000));
            lease.synced(at(second * 1000), at(second * 1000));
        }
        assert_eq!((lease.deadline(), lease.provisional_deadline()), (None, None));
        // A single write does, behind syncs.
        write(&mut lease, 121_000, 0);
        // 120 is a', 115 is b+.
        assert_eq!(base(&lease), 114_000);
        let mut late = written(1000);
        for second in 100..=108 {
            write(&mut late, second * 1000, 1000);
        }
        assert_eq!(late.deadline(), None, "answers come after a second, and two gaps are 4 s");
        // The answer to 108 came before this was sent.
        write(&mut late, 109_500, 0);
        assert_eq!(base(&late), 100_000);
    }

    #[test]
    fn a_resume_ends_all_bridges_and_counts_when_a_write_is_committed() {
        let mut lease = written(1000);
        for second in 100..=110 {
            write(&mut lease, second * 1000, 0);
        }
        let before = base(&lease);
        lease.resumed(at(110_500), at(110_600), TIMEOUT);
        lease.acknowledged(at(110_700), at(110_700));
        assert_eq!(base(&lease), before);
        write(&mut lease, 111_000, 0);
        assert_eq!(base(&lease), 110_500);
        for second in 112..=115 {
            write(&mut lease, second * 1000, 0);
            assert_eq!(base(&lease), 110_500);
        }
        write(&mut lease, 116_000, 0);
        assert_eq!(base(&lease), 110_500, "the bridge begins at the answer behind the handshake");
        write(&mut lease, 117_000, 0);
        assert_eq!(base(&lease), 111_000);
        // A shorter timeout counts for what was proven before.
        lease.resumed(at(117_500), at(117_500), TIMEOUT / 2);
        let end = lease.deadline().expect("there is a lease");
        assert_eq!(end, at(111_000) + TIMEOUT / 2 * 19 / 20);
    }

    #[test]
    fn many_writes_are_remembered_in_few_entries() {
        let mut lease = written(1500);
        for ms in 100_000..=200_000 {
            write(&mut lease, ms, 0);
        }
        assert!(lease.len() < 200, "{} entries", lease.len());
        // A tick, two gaps and a quarter of an interval.
        assert!(base(&lease) > 196_000, "{}", base(&lease));
    }

    #[test]
    fn writes_are_close_together_as_long_as_there_is_no_lease() {
        let mut lease = written(1500);
        assert_eq!(lease.write_interval(at(100_000)), Some(Duration::from_micros(262_500)));
        let mut sent = 100_000;
        while lease.deadline().is_none() {
            write(&mut lease, sent, 1);
            sent += 263;
        }
        // A tick, two of these intervals for the gaps, and two for the ends.
        assert!((103_100..103_700).contains(&sent), "{sent}");
        assert_eq!(lease.write_interval(at(sent)), Some(Duration::from_millis(1500)));
        // It has run down to less than it is in the end of an interval.
        let end = lease.deadline().expect("there is a lease").since_start();
        let late = |left| Time::from_start(end - Duration::from_secs(left));
        assert_eq!(lease.write_interval(late(14)), Some(Duration::from_millis(980)));
        assert_eq!(lease.write_interval(late(4)), Some(Duration::from_micros(262_500)));
    }
}
