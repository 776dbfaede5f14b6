//! The ping lease: until when nobody else can own the session's ephemerals, by our own clock.
//!
//! The leader ends a session when it has not heard of it for the session timeout. It hears of it
//! from the server we talk to, and that one may be cut off: it goes on acknowledging until it
//! notices, and our requests of that time count for nothing. So the newest acknowledgement proves
//! little. But an acknowledgement proves that what we had sent *long enough before* has reached
//! the leader: had the cut come earlier, the server would have noticed before it acknowledged.
//!
//! When a request *a* is acknowledged, let *b* be the newest acknowledged request with
//!
//! ```text
//! sent(b) + 1.05 * (syncLimit + 2) * tick + late(b) + G1 + G2  <=  sent(a)
//! ```
//!
//! - `syncLimit * tick` is how long a server takes to notice that it has lost its leader, or a
//!   leader its followers. Two more ticks are left for the rhythm in which they look, and in which
//!   a follower passes on what it has heard.
//! - `late(b)` is how long the acknowledgement of *b* took: the server may have looked at *b* as
//!   late as that.
//! - A server that stands still notices nothing. `G1` and `G2` are the longest two of the gaps
//!   from *b* to *a*. A gap lies between neighbouring acknowledged requests, handshakes among
//!   them, from the sending of the first to the acknowledgement of the second: no longer pause
//!   fits in unseen. One pause can hide the cut, and another one the end of the time in which it
//!   has to be noticed.
//! - Our clock may be 5 % fast, and the first term is the servers' time.
//!
//! Then the lease ends at `sent(b) + 0.95 * timeout`, because our clock may be 5 % slow. It never
//! moves back, unless a server grants a shorter timeout.
//!
//! A lease begins with the ConnectRequest that has created the session, because that is a
//! transaction of the leader. A resume is answered by the leader too, which counts from then on;
//! but it may have been deposed. So a resume counts once a write on its connection was committed.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Time;

/// A shorter ping interval is not worth its traffic; then there is no lease.
const PING_INTERVAL_MIN: Duration = Duration::from_millis(250);

/// What the lease has to know about the servers.
///
/// The default is that of an ensemble with `syncLimit=5` and `tickTime=2000`, as in the sample
/// configuration that comes with ZooKeeper. Where the servers have other values, say so: with less
/// than they have, the lease promises too much.
///
/// ```
/// use std::time::Duration;
/// use zk_session::LeaseConfig;
///
/// // syncLimit=10, tickTime=1000
/// let config = LeaseConfig::default().tick(Duration::from_secs(1)).sync_limit(10);
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[must_use = "a configuration does nothing until a client is built with it"]
pub struct LeaseConfig {
    pub(crate) sync_limit: u32,
    pub(crate) tick: Duration,
    pub(crate) acknowledgement: Duration,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self {
            sync_limit: 5,
            tick: Duration::from_secs(2),
            acknowledgement: Duration::from_secs(1),
        }
    }
}

impl LeaseConfig {
    /// `syncLimit` of the servers, in ticks. Default: 5.
    pub fn sync_limit(mut self, ticks: u32) -> Self {
        self.sync_limit = ticks;
        self
    }

    /// `tickTime` of the servers. Default: 2 s.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// The longest time to an acknowledgement that is planned for: it decides how often pings are
    /// sent. A later one is allowed for, and makes the lease shorter. Default: 1 s.
    pub fn acknowledgement(mut self, time: Duration) -> Self {
        self.acknowledgement = time;
        self
    }

    /// What is wrong with the values.
    pub(crate) fn defect(&self) -> Option<&'static str> {
        const LONG: Duration = Duration::from_secs(24 * 60 * 60);
        if self.tick < Duration::from_millis(1) {
            return Some("the tick is shorter than 1 ms");
        }
        if self.sync_limit == 0 {
            return Some("the sync limit is zero");
        }
        if self.tick > LONG || self.tick.saturating_mul(self.sync_limit) > LONG {
            return Some("the sync limit is longer than a day");
        }
        if self.acknowledgement > LONG {
            return Some("the acknowledgement takes longer than a day");
        }
        None
    }

    /// How often to ping with this session timeout; `None` if there is no lease.
    ///
    /// A sixth of what the timeout leaves: four intervals of it go into gaps and waiting, the rest
    /// is the lease that remains even then.
    pub fn ping_interval(&self, timeout: Duration) -> Option<Duration> {
        let spare = slow(timeout).checked_sub(self.unnoticed())?;
        let interval = (spare.checked_sub(self.acknowledgement)? / 6).min(timeout / 3);
        (interval >= PING_INTERVAL_MIN).then_some(interval)
    }

    /// The shortest session timeout that leaves room for a lease.
    pub fn timeout_min(&self) -> Duration {
        let spare = self.acknowledgement.saturating_add(PING_INTERVAL_MIN * 6);
        let slow = self.unnoticed().saturating_add(spare);
        // What is granted comes in whole milliseconds.
        let ms = (slow.saturating_mul(20) / 19).as_nanos().div_ceil(1_000_000);
        Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    /// How long a running server may go on without its leader, or a leader without its followers,
    /// on a clock that is fast.
    fn unnoticed(&self) -> Duration {
        let time = self.tick.saturating_mul(self.sync_limit.saturating_add(2));
        time.saturating_add(time / 20)
    }
}

/// That much on a clock that is slow is the whole time on another.
fn slow(time: Duration) -> Duration {
    time.saturating_mul(19) / 20
}

/// The lease of one session. It is told what was acknowledged, and says how long it lasts.
#[derive(Clone, Debug)]
pub struct Lease {
    config: Option<LeaseConfig>,
    /// `None` as long as there can be no lease.
    ping_interval: Option<Duration>,
    timeout: Duration,
    /// Newest request of which the leader must know.
    proven: Option<Mark>,
    /// A resume that the leader has answered, but perhaps without a quorum.
    resumed: Option<Time>,
    /// Sending of the newest acknowledged request, be it the ConnectRequest.
    newest: Option<Time>,
    /// The longest gaps since the newest entry.
    gaps: Gaps,
    /// Acknowledged requests, the oldest first, at least a quarter of a ping interval apart.
    entries: VecDeque<Entry>,
}

/// A request, and the session timeout that counts for it.
#[derive(Clone, Copy, Debug)]
struct Mark {
    sent: Time,
    timeout: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    mark: Mark,
    late: Duration,
    /// The longest ones since the entry before.
    gaps: Gaps,
}

/// The longest two.
#[derive(Clone, Copy, Debug, Default)]
struct Gaps([Duration; 2]);

impl Gaps {
    fn add(&mut self, gap: Duration) {
        let [first, second] = self.0;
        self.0 = [first.max(gap), second.max(first.min(gap))];
    }

    fn sum(self) -> Duration {
        let [first, second] = self.0;
        first + second
    }
}

impl Lease {
    /// Without a configuration there is never a lease.
    pub fn new(config: Option<LeaseConfig>) -> Self {
        Self {
            config,
            ping_interval: None,
            timeout: Duration::ZERO,
            proven: None,
            resumed: None,
            newest: None,
            gaps: Gaps::default(),
            entries: VecDeque::new(),
        }
    }

    /// When the lease ends, or has ended. `None` if there is none.
    pub fn deadline(&self) -> Option<Time> {
        self.ping_interval?;
        self.proven.map(Mark::deadline)
    }

    /// How often to ping; `None` as long as there can be no lease.
    pub fn ping_interval(&self) -> Option<Duration> {
        self.ping_interval
    }

    /// How long a connection may be silent, if it is to be left in time for a new one to save the
    /// lease; `None` as long as there can be no lease.
    pub fn silence(&self) -> Option<Duration> {
        Some(self.ping_interval? * 2 + self.config?.acknowledgement)
    }

    /// True if the lease has ended, and a write on this connection would not make a new one.
    pub fn is_beyond_repair(&self, now: Time) -> bool {
        let lasts = |sent: Time| sent + slow(self.timeout) > now;
        self.deadline().is_some_and(|deadline| deadline <= now) && !self.resumed.is_some_and(lasts)
    }

    /// A session was created by a ConnectRequest that was sent then and answered now.
    pub fn created(&mut self, sent: Time, now: Time, timeout: Duration) {
        *self = Self::new(self.config);
        self.grant(timeout);
        if self.ping_interval.is_some() {
            let mark = Mark { sent, timeout };
            let late = now.saturating_since(sent);
            self.proven = Some(mark);
            self.newest = Some(sent);
            self.entries.push_back(Entry { mark, late, gaps: Gaps::default() });
        }
    }

    /// The session was resumed by a ConnectRequest that was sent then and answered now.
    pub fn resumed(&mut self, sent: Time, now: Time, timeout: Duration) {
        let was_possible = self.ping_interval.is_some();
        self.grant(timeout);
        if !was_possible || self.ping_interval.is_none() {
            self.proven = None;
            self.entries.clear();
            self.gaps = Gaps::default();
        }
        let marks = self.entries.iter_mut().map(|entry| &mut entry.mark);
        for mark in marks.chain(&mut self.proven) {
            mark.timeout = mark.timeout.min(timeout);
        }
        // A server may have stood still since before the connection was lost.
        if let Some(before) = self.newest {
            self.gaps.add(now.saturating_since(before));
        }
        self.resumed = Some(sent);
        self.newest = Some(sent);
    }

    /// A request of this connection, sent then, was acknowledged now.
    pub fn acknowledged(&mut self, sent: Time, now: Time) {
        let (Some(interval), Some(before)) = (self.ping_interval, self.newest) else { return };
        if sent <= before {
            return;
        }
        self.newest = Some(sent);
        self.gaps.add(now.saturating_since(before));
        let is_soon = |entry: &Entry| sent < entry.mark.sent + interval / 4;
        if self.entries.back().is_some_and(is_soon) {
            return;
        }
        let mark = Mark { sent, timeout: self.timeout };
        let late = now.saturating_since(sent);
        self.entries.push_back(Entry { mark, late, gaps: std::mem::take(&mut self.gaps) });
        while self.entries.front().is_some_and(|entry| entry.mark.deadline() <= sent) {
            self.entries.pop_front();
        }
        if let Some(mark) = self.newest_known_to_the_leader(sent) {
            self.prove(mark);
        }
    }

    /// A write of this connection was committed.
    pub fn committed(&mut self) {
        if let Some(sent) = self.resumed.take()
            && self.ping_interval.is_some()
        {
            self.prove(Mark { sent, timeout: self.timeout });
        }
    }

    fn grant(&mut self, timeout: Duration) {
        self.timeout = timeout;
        self.ping_interval = self.config.and_then(|config| config.ping_interval(timeout));
    }

    /// `sent`: of the newest entry.
    fn newest_known_to_the_leader(&self, sent: Time) -> Option<Mark> {
        let unnoticed = self.config?.unnoticed();
        let mut gaps = Gaps::default();
        for entry in self.entries.iter().rev() {
            if entry.mark.sent + unnoticed + gaps.sum() + entry.late <= sent {
                return Some(entry.mark);
            }
            for gap in entry.gaps.0 {
                gaps.add(gap);
            }
        }
        None
    }

    fn prove(&mut self, mark: Mark) {
        if self.proven.is_none_or(|proven| proven.deadline() < mark.deadline()) {
            self.proven = Some(mark);
        }
    }
}

impl Mark {
    fn deadline(self) -> Time {
        self.sent + slow(self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn at(ms: u64) -> Time {
        Time::from_start(Duration::from_millis(ms))
    }

    fn lease() -> Lease {
        let mut lease = Lease::new(Some(LeaseConfig::default()));
        lease.created(at(0), at(0), TIMEOUT);
        lease
    }

    /// Send time of the request from which the lease counts, in milliseconds.
    fn base(lease: &Lease) -> u128 {
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
        lease.committed();
        assert_eq!(base(&lease), 33_500);
        lease.committed();
        assert_eq!(base(&lease), 33_500);
    }

    #[test]
    fn many_acknowledgements_are_remembered_in_few_entries() {
        let mut lease = lease();
        for ms in 1..=100_000 {
            lease.acknowledged(at(ms), at(ms));
        }
        assert!(lease.entries.len() < 60, "{} entries", lease.entries.len());
        assert!(base(&lease) > 84_000, "{}", base(&lease));
        // What comes out of order, or twice, changes nothing.
        let before = base(&lease);
        lease.acknowledged(at(99_000), at(100_000));
        lease.acknowledged(at(100_000), at(100_000));
        assert_eq!(base(&lease), before);
    }

    #[test]
    fn the_ping_interval_says_whether_there_can_be_a_lease() {
        let config = LeaseConfig::default();
        let interval = |ms| config.ping_interval(Duration::from_millis(ms));
        assert_eq!(interval(18_100), None);
        assert_eq!(interval(18_106), Some(Duration::from_nanos(250_116_666)));
        assert_eq!(interval(0), None);
        assert_eq!(config.timeout_min(), Duration::from_millis(18_106));
        let quick = LeaseConfig::default().tick(Duration::from_millis(10));
        assert_eq!(
            quick.acknowledgement(Duration::ZERO).ping_interval(TIMEOUT * 2),
            Some((Duration::from_secs(57) - Duration::from_micros(73_500)) / 6)
        );
    }

    #[test]
    fn values_that_cannot_be_meant_are_refused() {
        let config = LeaseConfig::default();
        assert_eq!(config.defect(), None);
        let bad = [
            config.tick(Duration::ZERO),
            config.sync_limit(0),
            config.sync_limit(u32::MAX),
            config.tick(Duration::MAX),
            config.acknowledgement(Duration::MAX),
        ];
        for config in bad {
            assert!(config.defect().is_some(), "{config:?}");
            // None of them panics either.
            let _ = config.ping_interval(TIMEOUT);
        }
    }
}
