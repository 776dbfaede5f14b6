//! Computes the end of a session's lease from the replies that the session gets.

use std::time::Duration;

use super::bridge::Bridge;
use super::commits::{CommitTimes, SlowCommits};
use super::config::{Lease, WriteTerms};
use super::proof::Proof;
use super::window::Window;
use crate::time::Time;

/// The lease of one session. It records replies and computes how long the lease lasts.
#[derive(Clone, Debug)]
pub struct LeaseClock {
    config: Option<Lease>,
    timeout: Duration,
    /// `None` while the session timeout is too short for a lease.
    evidence: Option<Evidence>,
    /// The newest request that the leader has learned of.
    proven: Option<Proof>,
    /// The newest request that the leader has learned of unless it was paused.
    provisional: Option<Proof>,
    /// A resume that the leader has granted, but possibly after it was deposed.
    resumed: Option<Proof>,
    commits: CommitTimes,
    /// When the first write was committed after the last lease ended.
    seeking_since: Option<Time>,
    /// Boxed, because nearly all sessions have none, and each has room for one.
    slow_commits: Option<Box<SlowCommits>>,
}

/// What renews the lease.
#[derive(Clone, Debug)]
enum Evidence {
    Pings(Window),
    Writes(Bridge),
}

impl LeaseClock {
    /// Creates the clock of a session that does not exist yet. Without a configuration, there is
    /// never a lease.
    pub fn new(config: Option<Lease>) -> Self {
        Self {
            config,
            timeout: Duration::ZERO,
            evidence: None,
            proven: None,
            provisional: None,
            resumed: None,
            commits: CommitTimes::default(),
            seeking_since: None,
            slow_commits: None,
        }
    }

    /// Returns why writes do not establish a lease, as far as measured.
    pub fn slow_commits(&self) -> Option<SlowCommits> {
        self.slow_commits.as_deref().copied()
    }

    /// Returns whether one of the newest commits took too long for a lease.
    pub fn is_too_slow(&self) -> bool {
        self.is_written() && !self.is_reachable(self.commits.longest())
    }

    /// Returns how long the slowest of the newest commits took.
    pub fn commit_time(&self) -> Duration {
        self.commits.longest()
    }

    /// Returns the time at which the lease ends or ended. Returns `None` if there is no lease, or
    /// none yet.
    pub fn deadline(&self) -> Option<Time> {
        self.evidence.as_ref()?;
        self.proven.map(Proof::deadline)
    }

    /// Returns the time from which no lock may begin to rely on the lease: it would end before
    /// further writes could extend it. Returns `None` if there is no lease.
    pub fn begin_deadline(&self) -> Option<Time> {
        let deadline = self.deadline()?;
        if !self.is_written() {
            return Some(deadline);
        }
        let after_idle = if self.is_reachable(self.commits.longest()) {
            earlier(deadline, self.bridge_time())
        } else {
            Time::default()
        };
        let in_use = self.in_use_until().filter(|until| {
            // With a long timeout, the first time is later anyway, and cheap.
            *until > after_idle && self.can_be_kept(*until)
        });
        Some(after_idle.max(in_use.unwrap_or_default()).min(deadline))
    }

    /// Returns whether writes keep the lease if a lock begins to need it at this time.
    fn can_be_kept(&self, from: Time) -> bool {
        let (Some(Evidence::Writes(bridge)), Some(proof)) = (&self.evidence, self.proven) else {
            return false;
        };
        bridge.outlasts(proof, from, self.commits.longest())
    }

    /// Returns until when the next write extends the lease, because the session was idle for a
    /// moment only. Returns `None` if that is not so.
    fn in_use_until(&self) -> Option<Time> {
        let Some(Evidence::Writes(bridge)) = &self.evidence else { return None };
        let (got, proof) = bridge.next()?;
        let interval = bridge.terms.interval.max(self.commits.longest());
        let until = earlier(proof.deadline(), self.reserve()).min(got + interval * 2);
        // The next write follows an interval later.
        Some(until.min(earlier(self.deadline()?, interval * 2)))
    }

    /// Returns the maximum time from when a lock begins to need the lease of an idle session until
    /// writes extend it, if the servers reply promptly.
    fn bridge_time(&self) -> Duration {
        let Some(WriteTerms { interval, span, .. }) = self.terms() else { return Duration::ZERO };
        let commit = self.commits.longest();
        let interval = interval.min(span / 8).max(commit);
        // Five intervals pass: until the first write, two in the gaps, until the next candidate for
        // *a'*, and until *a*. The commits of *b+* and *a*, and one in each gap, come on top.
        span + interval * 5 + commit * 4
    }

    /// Returns how writes keep the lease, if they do.
    fn terms(&self) -> Option<WriteTerms> {
        match &self.evidence {
            Some(Evidence::Writes(bridge)) => Some(bridge.terms),
            Some(Evidence::Pings(_)) | None => None,
        }
    }

    /// Returns whether writes can keep a lease if each commit takes this long.
    fn is_reachable(&self, commit: Duration) -> bool {
        self.terms().is_some_and(|terms| terms.is_reachable(commit))
    }

    /// Returns the time at which a lease would end if the leader never paused. It is never earlier
    /// than the end of the lease. Returns `None` if no request counts yet.
    pub fn provisional_deadline(&self) -> Option<Time> {
        self.evidence.as_ref()?;
        Proof::later(self.provisional, self.proven).map(Proof::deadline)
    }

    /// Returns whether the session timeout is long enough for a lease.
    pub fn is_possible(&self) -> bool {
        self.evidence.is_some()
    }

    /// Returns the ping interval that the lease needs, if pings keep it.
    pub fn ping_interval(&self) -> Option<Duration> {
        match self.evidence.as_ref()? {
            Evidence::Pings(window) => Some(window.ping_interval),
            Evidence::Writes(_) => None,
        }
    }

    /// Returns the interval between the requests that keep the lease.
    pub fn interval(&self) -> Option<Duration> {
        Some(match self.evidence.as_ref()? {
            Evidence::Pings(window) => window.ping_interval,
            Evidence::Writes(bridge) => bridge.terms.interval,
        })
    }

    /// Returns whether writes keep the lease.
    pub fn is_written(&self) -> bool {
        matches!(self.evidence, Some(Evidence::Writes(_)))
    }

    /// Returns how long after a committed write the next one is due, if writes keep the lease.
    ///
    /// The interval is half of the usual one while the lease may end before two more of the usual
    /// ones have extended it. A lease begins if renewals at the usual intervals extend it in time, but
    /// other writes of the session move the renewals, and a write that comes a moment too early for
    /// the next bridge costs an interval.
    pub fn write_interval(&self, now: Time) -> Option<Duration> {
        let interval = self.usual_interval(now)?;
        let (Some(Evidence::Writes(bridge)), Some(proven)) = (&self.evidence, self.proven) else {
            return Some(interval);
        };
        // The next write waits for the last commit.
        let commit = self.commits.longest();
        let step = interval.max(commit);
        let next = Proof::later(Some(proven), bridge.next_proof()).unwrap_or(proven);
        let is_near =
            proven.deadline() <= now + step + commit || next.deadline() <= now + step * 2 + commit;
        Some(if is_near { interval / 2 } else { interval })
    }

    /// Returns the usual interval between writes.
    ///
    /// While the lease is shorter than it could be, the interval is shorter too, because each gap
    /// shortens the lease. The interval is then so short that another bridge is complete by the
    /// time half of the remaining lease has passed.
    fn usual_interval(&self, now: Time) -> Option<Duration> {
        let WriteTerms { interval, span, remaining_min, .. } = self.terms()?;
        let remaining = self.deadline().unwrap_or_default().saturating_since(now);
        if remaining >= remaining_min {
            return Some(interval);
        }
        let in_time = (remaining / 2).saturating_sub(span) / 5;
        Some(interval.min(in_time.max(span / 8)))
    }

    /// Returns how long it takes at most until the next write moves the deadline, if a lock begins to
    /// need it now. If writes do not keep the lease, or are too slow to, the result is zero.
    pub fn renewal_time(&self, now: Time) -> Duration {
        let commit = self.commits.longest();
        match self.usual_interval(now) {
            // Half an interval and a commit are spare, as for the start of a lease.
            Some(interval) if !self.is_too_slow() => interval * 3 / 2 + commit * 2,
            Some(_) | None => Duration::ZERO,
        }
    }

    /// Records that a lock needs the lease, and none did before. Until now a lease kept by writes
    /// was not renewed, and if too little of it is left, it is discarded.
    pub fn needed(&mut self, now: Time) {
        self.slow_commits = None;
        self.seeking_since = None;
        if self.in_use_until().is_none_or(|until| until <= now) {
            self.commits.keep_newest();
        }
        if self.begin_deadline().is_some_and(|deadline| deadline <= now) {
            self.lapse();
        }
    }

    /// Returns whether a lease should start with this proof. If the lease ended before further
    /// writes could extend it, the locks that rely on it would be lost, which is worse than having
    /// no lease yet.
    fn is_worthwhile(&self, proof: Proof, now: Time) -> bool {
        let commit = self.commits.longest();
        let is_kept = |bridge: &Bridge| bridge.outlasts(proof, earlier(now, commit), commit);
        let bridge = match &self.evidence {
            Some(Evidence::Writes(bridge)) => Some(bridge),
            Some(Evidence::Pings(_)) | None => None,
        };
        proof.deadline() > now + self.reserve() && bridge.is_none_or(is_kept)
    }

    /// Returns how much must be left of a lease that a lock begins with.
    fn reserve(&self) -> Duration {
        let Some(WriteTerms { span, remaining_min, .. }) = self.terms() else {
            return Duration::ZERO;
        };
        (span * 2).min(remaining_min / 2)
    }

    /// Returns the maximum silence of a connection after which a new connection can still save the
    /// lease. Returns `None` if no lease is possible.
    pub fn silence_max(&self) -> Option<Duration> {
        self.evidence.as_ref()?;
        self.config?.silence_max(self.timeout)
    }

    /// Returns true if the lease has ended and a write on this connection would not establish
    /// another one. The result is always false if writes keep the lease, because further writes
    /// restore it.
    pub fn is_beyond_repair(&self, now: Time) -> bool {
        self.ping_interval().is_some()
            && self.deadline().is_some_and(|deadline| deadline <= now)
            && self.resumed.is_none_or(|resumed| resumed.deadline() <= now)
    }

    /// Records that the lease has ended. If writes keep the lease, there is none until further
    /// writes establish another.
    pub fn lapse(&mut self) {
        if let Some(Evidence::Writes(_)) = self.evidence {
            // A request that the leader has learned of counts for a provisional lease too, so the
            // guard deadline does not move back.
            self.provisional = Proof::later(self.provisional, self.proven.take());
        }
    }

    /// Records that a ConnectRequest sent at `sent` has created the session.
    pub fn created(&mut self, sent: Time, now: Time, timeout: Duration) {
        *self = Self::new(self.config);
        let proof = self.grant(sent, timeout);
        self.commits.add(now.saturating_since(sent));
        match &mut self.evidence {
            None => return,
            Some(Evidence::Pings(window)) => window.created(proof, now),
            Some(Evidence::Writes(bridge)) => bridge.connected(proof, now),
        }
        // Creating a session is a transaction, so the leader itself knows of this request.
        self.proven = Some(proof);
    }

    /// Records that a ConnectRequest sent at `sent` has resumed the session.
    pub fn resumed(&mut self, sent: Time, now: Time, timeout: Duration) {
        let proof = self.grant(sent, timeout);
        // From now on the server uses this timeout. A shorter timeout applies to earlier requests
        // too; a longer one must not extend the lease that they proved.
        for earlier in self.proven.iter_mut().chain(&mut self.provisional) {
            earlier.timeout = earlier.timeout.min(timeout);
        }
        match &mut self.evidence {
            None => {
                self.proven = None;
                self.provisional = None;
            }
            Some(Evidence::Pings(window)) => window.resumed(proof, now),
            Some(Evidence::Writes(bridge)) => bridge.connected(proof, now),
        }
        // The resume proves nothing yet: a deposed leader grants one too. A committed write will
        // prove the resume.
        self.resumed = Some(proof);
    }

    /// Records that some server has acknowledged a request of this connection sent at `sent`.
    pub fn acknowledged(&mut self, sent: Time, now: Time) {
        let proof = Proof { sent, timeout: self.timeout };
        match &mut self.evidence {
            None => {}
            Some(Evidence::Pings(window)) => {
                let proven = window.acknowledged(proof, now);
                self.proven = Proof::later(self.proven, proven);
            }
            Some(Evidence::Writes(bridge)) => bridge.acknowledged(proof, now),
        }
    }

    /// Records that a sync of this connection, sent at `sent`, succeeded. Only a leader can have
    /// replied, but that leader may have been deposed, so the sync proves no lease by itself.
    pub fn synced(&mut self, sent: Time, now: Time) {
        if let Some(Evidence::Writes(bridge)) = &mut self.evidence {
            bridge.leader_replied(sent, now);
        }
    }

    /// Records that a write of this connection, sent at `sent`, was committed.
    pub fn committed(&mut self, sent: Time, now: Time) {
        debug_assert!(sent <= now, "a reply arrives after its request was sent");
        if self.evidence.is_none() {
            return;
        }
        self.commits.add(now.saturating_since(sent));
        // A deposed leader commits nothing. So the leader that granted the resume is in office, and
        // the resume counts.
        let mut proven = self.resumed.take();
        if let Some(Evidence::Writes(bridge)) = &mut self.evidence {
            debug_assert!(
                proven.is_none_or(|resumed| resumed.sent <= sent),
                "the write was sent on the connection that resumed the session"
            );
            self.provisional = Proof::later(self.provisional, bridge.provisional(sent));
            proven = Proof::later(proven, bridge.committed(sent));
            bridge.leader_replied(sent, now);
            // Only the start of a lease must be worthwhile. Extending a lease never does harm.
            if self.proven.is_none() {
                let is_kept = self.is_reachable(self.commits.longest());
                proven = proven.filter(|proof| is_kept && self.is_worthwhile(*proof, now));
            }
        }
        self.proven = Proof::later(self.proven, proven);
        self.judge_commits(now);
    }

    /// Decides whether commits are too slow for a lease. Each of the newest is, or there was no
    /// lease for a session timeout although writes were committed.
    fn judge_commits(&mut self, now: Time) {
        self.slow_commits = None;
        let Some(config) = self.config.filter(|_| self.is_written() && self.proven.is_none())
        else {
            self.seeking_since = None;
            return;
        };
        let since = *self.seeking_since.get_or_insert(now);
        let is_late = since + self.timeout <= now;
        let too_slow = self.commits.shortest().filter(|commit| !self.is_reachable(*commit));
        let commit = too_slow.or_else(|| is_late.then(|| self.commits.longest()));
        let slow_commits = commit.map(|commit| SlowCommits {
            commit,
            timeout: self.timeout,
            needed: config.timeout_min_for(commit),
        });
        self.slow_commits = slow_commits.map(Box::new);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        match &self.evidence {
            None => 0,
            Some(Evidence::Pings(window)) => window.len(),
            Some(Evidence::Writes(bridge)) => bridge.len(),
        }
    }

    /// Adopts the timeout that a server has granted in reply to a ConnectRequest sent at `sent`,
    /// and decides what renews the lease from now on, if anything. Returns the request as a
    /// possible proof.
    fn grant(&mut self, sent: Time, timeout: Duration) -> Proof {
        self.timeout = timeout;
        let writes = self.config.and_then(|config| config.write_terms(timeout));
        let pings = self.config.and_then(|config| config.ping_interval(timeout));
        match (&mut self.evidence, writes, pings) {
            (Some(Evidence::Writes(bridge)), Some(terms), _) => bridge.terms = terms,
            (Some(Evidence::Pings(window)), _, Some(interval)) => window.ping_interval = interval,
            (evidence, Some(terms), _) => *evidence = Some(Evidence::Writes(Bridge::new(terms))),
            (evidence, None, Some(interval)) => {
                let unnoticed =
                    self.config.and_then(|config| config.window_span()).unwrap_or_default();
                *evidence = Some(Evidence::Pings(Window::new(unnoticed, interval)));
            }
            (evidence, None, None) => *evidence = None,
        }
        Proof { sent, timeout }
    }
}

/// Returns the time that is this much before another.
fn earlier(time: Time, by: Duration) -> Time {
    Time::from_start(time.since_start().saturating_sub(by))
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

    /// Returns the send time, in milliseconds, of the request on which the lease is based.
    fn base(lease: &LeaseClock) -> u128 {
        let deadline = lease.deadline().expect("there is a lease").since_start();
        (deadline - TIMEOUT * 19 / 20).as_millis()
    }

    #[test]
    fn it_counts_from_the_newest_request_that_is_a_window_older() {
        let mut lease = lease();
        // With prompt acknowledgements every second, the terms are two gaps of 1 s, and 14.7 s.
        for second in 1..=40 {
            lease.acknowledged(at(second * 1000), at(second * 1000));
        }
        assert_eq!(base(&lease), 23_000, "it is 16.7 s older, rounded up to a second");
    }

    #[test]
    fn lateness_and_the_longest_two_gaps_are_paid_for() {
        for (late, expected) in [(0, 23_000), (200, 23_000), (400, 22_000)] {
            let mut lease = lease();
            for second in 1..=40 {
                // Each reply takes `late / 2`, so each gap is longer by that time.
                lease.acknowledged(at(second * 1000), at(second * 1000 + late / 2));
            }
            // The terms add up to 16.7 s plus one and a half times `late`.
            assert_eq!(base(&lease), expected, "{late} ms");
        }
        let mut lease = lease();
        for second in (1..=40).filter(|second| !(30..=33).contains(second) && *second != 36) {
            lease.acknowledged(at(second * 1000), at(second * 1000));
        }
        assert_eq!(base(&lease), 18_000, "14.7 s, 5 s and 2 s are 21.7 s");
    }

    #[test]
    fn requests_between_pings_do_not_shorten_the_lease() {
        for offset in [50, 300, 800, 950] {
            let (mut quiet, mut busy) = (lease(), lease());
            for second in 1..=60 {
                for lease in [&mut quiet, &mut busy] {
                    lease.acknowledged(at(second * 1000), at(second * 1000));
                }
                assert!(busy.deadline() >= quiet.deadline(), "{offset} ms after {second} s");
                if second % 5 == 0 {
                    busy.acknowledged(at(second * 1000 + offset), at(second * 1000 + offset));
                }
            }
        }
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
        // An out-of-order or repeated acknowledgement changes nothing.
        let before = base(&lease);
        lease.acknowledged(at(99_000), at(100_000));
        lease.acknowledged(at(100_000), at(100_000));
        assert_eq!(base(&lease), before);
    }

    /// Sends a ping and then a write, with replies after `late` milliseconds.
    fn write(lease: &mut LeaseClock, sent: u64, late: u64) {
        lease.acknowledged(at(sent), at(sent + late));
        lease.acknowledged(at(sent), at(sent + late));
        lease.committed(at(sent), at(sent + late));
    }

    /// Creates a lease kept by writes, long after its session was created.
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
        // From 100.001 s to 105 s is 4.999 s. A tick of 2.1 s and two gaps of 1 s need 4.102 s. The
        // gap before the first write does not count.
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
            // The leader pauses for 3 s and for 2 s, while the follower replies to pings.
            if [114, 115, 118].contains(&second) {
                lease.acknowledged(at(second * 1000), at(second * 1000));
            } else {
                write(&mut lease, second * 1000, 0);
            }
        }
        // The request *a'* is at 119 s, and 2.1 s, 3 s and 2 s before that is 111.9 s.
        assert_eq!(base(&lease), 111_000);
    }

    #[test]
    fn only_what_the_leader_has_committed_renews_a_lease_of_writes() {
        let mut lease = written(1000);
        for second in 100..=120 {
            lease.acknowledged(at(second * 1000), at(second * 1000));
            lease.synced(at(second * 1000), at(second * 1000));
        }
        assert_eq!(lease.deadline(), None);
        // The leader has certainly learned of the creation of the session, and of nothing else.
        assert_eq!(lease.provisional_deadline(), Some(at(0) + TIMEOUT * 19 / 20));
        // A single write after the syncs is enough.
        write(&mut lease, 121_000, 0);
        // The request *a'* is at 120 s, and *b+* is at 115 s.
        assert_eq!(base(&lease), 114_000);
        let mut late = written(1000);
        for second in 100..=108 {
            write(&mut late, second * 1000, 1000);
        }
        assert_eq!(late.deadline(), None, "replies take a second, so two gaps are 4 s");
        // The reply to the write of 108 s arrived before this next write was sent.
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
        assert_eq!(
            base(&lease),
            110_500,
            "the bridge starts with the first reply after the handshake"
        );
        write(&mut lease, 117_000, 0);
        assert_eq!(base(&lease), 111_000);
        // A shorter timeout applies to earlier proofs too.
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
        // A tick, two gaps and a quarter of an interval are lost.
        assert!(base(&lease) > 196_000, "{}", base(&lease));
    }

    #[test]
    fn a_lease_that_ends_before_writes_extend_it_is_not_begun_with() {
        let mut lease = LeaseClock::new(Some(Lease::writes(Duration::from_millis(1000))));
        lease.created(at(0), at(0), TIMEOUT);
        // Writes at intervals of an eighth of a tick extend it 3.4125 s after they begin.
        let begin = lease.begin_deadline().expect("there is a lease");
        assert_eq!(begin, at(28_500 - 3_413) + Duration::from_micros(500));
        let mut late = lease.clone();
        lease.needed(at(25_087));
        assert!(lease.deadline().is_some());
        late.needed(at(25_088));
        assert_eq!((late.deadline(), late.provisional_deadline()), (None, lease.deadline()));
        // After a write that is part of a bridge, less is enough for a while.
        let mut busy = written(1000);
        for second in 100..=110 {
            write(&mut busy, second * 1000, 0);
        }
        let end = busy.deadline().expect("there is a lease");
        assert!(busy.begin_deadline().is_some_and(|begin| begin < end));
        busy.needed(at(111_900));
        assert!(busy.deadline().is_some());
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
        // The lease needs a tick, two of these intervals for the gaps, and two for the ends.
        assert!((103_100..103_700).contains(&sent), "{sent}");
        assert_eq!(lease.write_interval(at(sent)), Some(Duration::from_millis(1500)));
        // Less of the lease is left than there should be at the end of an interval.
        let end = lease.deadline().expect("there is a lease").since_start();
        let late = |left| Time::from_start(end - Duration::from_secs(left));
        assert_eq!(lease.write_interval(late(14)), Some(Duration::from_millis(980)));
        assert_eq!(lease.write_interval(late(4)), Some(Duration::from_micros(262_500)));
    }
}
