//! Which server to try next, and when.

use std::time::Duration;

use crate::connect_string::Host;
use crate::time::Time;

/// Longest pause before the first attempt after a proven connection: enough that the
/// clients of a server that went away do not all come in the same moment.
const FIRST_MAX: Duration = Duration::from_millis(50);
/// Pause before each other server of the first lap, before jitter.
const LAP_PAUSE: Duration = Duration::from_millis(50);
/// Servers of the first lap that are tried so quickly.
const LAP_MAX: usize = 16;
/// First pause after that lap, before jitter.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest pause, before jitter, while a lease or a session can still be saved. Half of it is
/// certain, so it is also what keeps a client below one attempt a second.
const BACKOFF_URGENT_MAX: Duration = Duration::from_secs(2);
/// Longest pause, before jitter, when there is nothing to save.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// In the long run there is no more than one attempt in this time, whatever servers do.
const SPACING: Duration = Duration::from_secs(1);
/// Attempts that may come sooner, besides one lap: those of the first, short pauses.
const BURST: usize = 8;

/// An attempt to connect, as a transport has to know it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Attempt {
    number: u64,
    time: Duration,
}

impl Attempt {
    /// The attempt with this number, which has this much time.
    pub const fn new(number: u64, time: Duration) -> Self {
        Self { number, time }
    }

    /// How often this server was tried before, counted from a random start. A transport that knows
    /// several addresses of a server begins with another one each time.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The time to connect and to get the handshake's answer. When it is over, the future of the
    /// connection is dropped.
    pub const fn time(&self) -> Duration {
        self.time
    }
}

/// The servers in shuffled order, and the pauses between attempts.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    hosts: Vec<Host>,
    /// Attempts so far.
    attempts: u64,
    /// Number of the first attempt at each server.
    start: u64,
    /// Attempts that failed, and connections that ended, since one was proven.
    failures: u32,
    /// No answer that ends a session has been followed at once since a connection was proven.
    may_hurry: bool,
    /// Attempts so far have used up the time until then, at one in `SPACING`.
    paid_until: Time,
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
        // Far from the end of the numbers.
        let start = random.next() >> 32;
        let paid_until = Time::default();
        Self { hosts, attempts: 0, start, failures: 0, may_hurry: true, paid_until, random }
    }

    pub(crate) fn len(&self) -> usize {
        self.hosts.len()
    }

    /// The next server in turn, and the number of this attempt at it.
    pub(crate) fn next(&mut self) -> (Host, u64) {
        let count = self.hosts.len() as u64;
        let host = self.hosts.get((self.attempts % count) as usize).expect("the index wraps");
        let number = self.start + self.attempts / count;
        self.attempts += 1;
        (host.clone(), number)
    }

    /// Attempts that failed, and connections that ended, since a connection was proven.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Servers that were not tried yet in this lap, the next one among them.
    pub(crate) fn left(&self) -> u32 {
        let count = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        count - self.failures.saturating_sub(1) % count
    }

    /// A connection is proven: the next failure is a first one.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
        self.may_hurry = true;
    }

    /// When to make the next attempt, after one has failed or a connection has ended now.
    pub(crate) fn retry_at(&mut self, now: Time, is_urgent: bool) -> Time {
        let (least, most) = self.pause(is_urgent);
        self.failures = self.failures.saturating_add(1);
        let jitter = self.random.below((most - least).as_nanos() as u64 + 1);
        self.pace(now + least + Duration::from_nanos(jitter))
    }

    /// The same, after an answer that is no failure of the server: at once, but only once for each
    /// proven connection, because a server may give such answers for ever.
    pub(crate) fn follow_at(&mut self, now: Time, is_urgent: bool) -> Time {
        if std::mem::take(&mut self.may_hurry) {
            self.pace(now)
        } else {
            self.retry_at(now, is_urgent)
        }
    }

    /// The shortest and the longest pause now.
    fn pause(&self, is_urgent: bool) -> (Duration, Duration) {
        let others = (self.hosts.len() - 1).min(LAP_MAX) as u32;
        if self.failures == 0 {
            return (Duration::ZERO, FIRST_MAX);
        }
        let Some(doublings) = self.failures.checked_sub(others + 1) else {
            return (LAP_PAUSE / 2, LAP_PAUSE);
        };
        let most = if is_urgent { BACKOFF_URGENT_MAX } else { BACKOFF_MAX };
        let full = BACKOFF_MIN.saturating_mul(1 << doublings.min(16)).min(most);
        (full / 2, full)
    }

    /// A connection that proves its use and then ends, again and again, must not be a way round
    /// the long pauses. So each attempt has a price, and there is credit for one lap and a burst.
    fn pace(&mut self, wanted: Time) -> Time {
        let credit = SPACING * (self.hosts.len().min(LAP_MAX) + BURST) as u32;
        let debt = self.paid_until.saturating_since(wanted);
        let at = wanted + debt.saturating_sub(credit);
        self.paid_until = self.paid_until.max(at) + SPACING;
        at
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

    /// Moments of the attempts that one client makes if each fails at once.
    fn outage(hosts: Hosts, is_urgent: bool, seconds: u64) -> Vec<Duration> {
        let mut hosts = hosts;
        let mut now = Time::default();
        let mut moments = Vec::new();
        while now.since_start() < Duration::from_secs(seconds) {
            moments.push(now.since_start());
            hosts.next();
            now = hosts.retry_at(now, is_urgent);
        }
        moments
    }

    #[test]
    fn every_server_is_tried_once_a_lap_and_the_seed_decides_the_order() {
        let lap = |seed| {
            let mut rotation = Hosts::new(hosts(5), seed);
            (0..5).map(|_| rotation.next().0.port).collect::<Vec<_>>()
        };
        let mut sorted = lap(1);
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4]);
        assert_eq!(lap(1), lap(1));
        assert!((2..20).any(|seed| lap(seed) != lap(1)));
    }

    #[test]
    fn each_lap_has_the_next_number_whatever_the_count_of_servers() {
        for count in 1..5 {
            let mut rotation = Hosts::new(hosts(count), 3);
            let start = rotation.next().1;
            for attempt in 1..20 {
                assert_eq!(rotation.next().1, start + attempt / u64::from(count));
            }
        }
        let start = |seed| Hosts::new(hosts(1), seed).next().1;
        assert!((2..20).any(|seed| start(seed) % 3 != start(1) % 3), "the seed decides it");
    }

    #[test]
    fn the_first_attempt_is_immediate_the_first_lap_quick_and_then_pauses_double() {
        let ms = Duration::from_millis;
        for is_urgent in [true, false] {
            let mut rotation = Hosts::new(hosts(3), 7);
            let mut now = Time::default();
            let mut expected = vec![(ms(0), ms(50)), (ms(25), ms(50)), (ms(25), ms(50))];
            for full in [100, 200, 400, 800, 1600] {
                expected.push((ms(full / 2), ms(full)));
            }
            let rest: &[u64] = if is_urgent { &[2000, 2000] } else { &[3200, 5000, 5000] };
            expected.extend(rest.iter().map(|full| (ms(full / 2), ms(*full))));
            for (least, most) in expected {
                let at = rotation.retry_at(now, is_urgent);
                let pause = at.saturating_since(now);
                assert!(least <= pause && pause <= most, "{pause:?}, not {least:?} to {most:?}");
                now = at;
            }
            rotation.succeeded();
            assert!(rotation.retry_at(now, is_urgent).saturating_since(now) <= FIRST_MAX);
        }
    }

    #[test]
    fn an_answer_is_followed_at_once_only_once_for_each_connection_of_use() {
        let mut rotation = Hosts::new(hosts(1), 7);
        for minute in 1..4 {
            let now = Time::from_start(Duration::from_secs(60 * minute));
            for _ in 0..5 {
                rotation.retry_at(now, true);
            }
            assert_eq!(rotation.follow_at(now, true), now);
            assert!(rotation.follow_at(now, true) > now + Duration::from_millis(500));
            rotation.succeeded();
        }
    }

    #[test]
    fn no_way_of_success_and_failure_allows_more_than_one_attempt_a_second() {
        // A server that proves its use at once and then goes away is the worst there can be.
        for (count, failures) in [(1, 0), (1, 1), (5, 3), (16, 15), (50, 49)] {
            let mut rotation = Hosts::new(hosts(count), 9);
            let mut now = Time::default();
            let mut attempts = 0_u64;
            while now.since_start() < Duration::from_secs(1000) {
                for _ in 0..=failures {
                    now = rotation.retry_at(now, true);
                    attempts += 1;
                }
                rotation.succeeded();
                now = rotation.follow_at(now, true);
                attempts += 1;
            }
            let seconds = now.since_start().as_secs();
            let most = seconds + 2 + (usize::from(count).min(LAP_MAX) + BURST) as u64;
            assert!(attempts <= most, "{count} servers: {attempts} attempts in {seconds} s");
        }
    }

    /// Attempts in each of these seconds, by this many clients of one server that is gone.
    fn curve(clients: u64, servers: u16, is_urgent: bool) -> Vec<usize> {
        let mut seconds = vec![0; 60];
        for seed in 0..clients {
            for moment in outage(Hosts::new(hosts(servers), seed), is_urgent, 60) {
                seconds[moment.as_secs() as usize] += 1;
            }
        }
        seconds
    }

    #[test]
    fn clients_of_servers_that_are_gone_make_at_most_one_attempt_a_second_each() {
        for (servers, is_urgent) in [(1, true), (1, false), (3, true), (3, false), (16, true)] {
            for clients in [1, 200, 5_000] {
                let curve = curve(clients, servers, is_urgent);
                let shown: Vec<_> = [0, 1, 2, 3, 5, 10, 20, 40].map(|second| curve[second]).into();
                eprintln!(
                    "{clients} clients of {servers} servers, urgent {is_urgent}: \
                     {shown:?} attempts in seconds 0, 1, 2, 3, 5, 10, 20, 40"
                );
                let worst = curve[10..].iter().max().copied().unwrap_or_default();
                assert!(worst as u64 <= clients, "{worst} attempts in one second");
            }
        }
    }
}
