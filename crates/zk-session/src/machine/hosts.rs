//! Decides which server to try next, and when.

use std::time::Duration;

use super::rebalance::{Rebalanced, rebalance, shuffle};
use crate::host::Host;
use crate::random::SplitMix;
use crate::time::Time;

/// Maximum pause before the first attempt after a proven connection. It spreads out the clients of
/// a failed server, which would otherwise all reconnect at the same moment.
const FIRST_MAX: Duration = Duration::from_millis(50);
/// Pause before each further server of the first lap, without jitter.
const LAP_PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of servers of the first lap that are tried with such short pauses.
const LAP_MAX: usize = 16;
/// First pause after that lap, without jitter.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Maximum pause, without jitter, while a lease or a session can still be saved. Jitter shortens a
/// pause by at most half, so this also limits a client to one attempt per second.
const BACKOFF_URGENT_MAX: Duration = Duration::from_secs(2);
/// Divides the time that is left of a lease that a lock needs; the result is the maximum pause, without
/// jitter. An outage that ends before the lease is followed by an attempt in time. Clients without a
/// lock come no more often near the end of their sessions, because that is one time for all of them.
const LEFT_SHARE: u32 = 2;
/// Minimum of that maximum.
const LEFT_PAUSE_MIN: Duration = Duration::from_millis(200);
/// Maximum pause, without jitter, when there is nothing to save.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Minimum average time between attempts in the long run, whatever the servers do.
const SPACING: Duration = Duration::from_secs(1);
/// Number of attempts, in addition to one lap, that may exceed that rate. They cover the first,
/// short pauses.
const BURST: usize = 8;

/// The number and the time limit of an attempt to connect, for the transport.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Attempt {
    number: u64,
    time: Duration,
}

impl Attempt {
    /// Creates an attempt with this number, which must complete within `time`.
    pub const fn new(number: u64, time: Duration) -> Self {
        Self { number, time }
    }

    /// Returns how often this server was tried before, counted from a random start. A transport
    /// that knows several addresses of a server starts each attempt with a different one.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the time allowed for the connection and the reply to the handshake. When this time
    /// has run out, the future of the connection is dropped.
    pub const fn time(&self) -> Duration {
        self.time
    }
}

/// What a new connection can save.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stake {
    /// Nothing, because the session has probably expired, or there is none.
    Nothing,
    /// The session.
    Session,
    /// A lease that a lock needs, until this time.
    Lease(Time),
}

/// The servers in shuffled order, and the pauses between attempts.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    hosts: Vec<Host>,
    /// The list that the client began with, if it follows the ensemble. Boxed, because few clients
    /// do.
    fallback: Option<Box<Fallback>>,
    /// Number of attempts since the last proven connection, or since the list was replaced.
    lap: u64,
    /// Number of attempts so far.
    attempts: u64,
    /// Number of the first attempt at each server.
    start: u64,
    /// Failed attempts and lost connections since the last proven connection.
    failures: u32,
    /// Whether the next reply that ends a session may be followed by an attempt without a pause.
    may_hurry: bool,
    /// The attempts so far have used up the budget of one attempt per `SPACING` until this time.
    paid_until: Time,
    random: SplitMix,
    /// The server to try next, out of turn.
    aimed: Option<Box<Host>>,
}

/// The servers to try after each server of the list has failed: the configuration of an ensemble may
/// have addresses that a client cannot reach, and the servers that it names may be gone.
#[derive(Clone, Debug)]
struct Fallback {
    /// The list that the client was given.
    given: Vec<Host>,
    /// The servers of it that are not in the list in use.
    others: Vec<Host>,
}

impl Hosts {
    /// Creates the rotation. `hosts` must not be empty; `seed` determines the order and the jitter.
    pub(crate) fn new(mut hosts: Vec<Host>, seed: u64) -> Self {
        assert!(!hosts.is_empty(), "the builder refuses an empty list");
        let mut random = SplitMix(seed);
        shuffle(&mut hosts, &mut random);
        // Drop half of the bits, so that adding attempts never overflows.
        let start = random.next() >> 32;
        let paid_until = Time::default();
        Self {
            hosts,
            fallback: None,
            lap: 0,
            attempts: 0,
            start,
            failures: 0,
            may_hurry: true,
            paid_until,
            random,
            aimed: None,
        }
    }

    /// Returns the number of servers of a lap, which includes those to fall back to.
    pub(crate) fn len(&self) -> usize {
        self.hosts.len() + self.others().len()
    }

    fn others(&self) -> &[Host] {
        self.fallback.as_ref().map_or(&[], |fallback| &fallback.others)
    }

    /// Returns the next server in turn, and the number of this attempt at it. The servers to fall
    /// back to have their turn when each server of the list was tried without success.
    pub(crate) fn next(&mut self) -> (Host, u64) {
        let count = self.hosts.len() as u64;
        let place = self.lap % self.len() as u64;
        let number = self.start + self.attempts / count;
        self.lap += 1;
        let other = place.checked_sub(count).and_then(|place| self.others().get(place as usize));
        let host = match other.cloned() {
            Some(other) => other,
            None => {
                let at = (self.attempts % count) as usize;
                self.attempts += 1;
                self.hosts.get(at).expect("the index wraps").clone()
            }
        };
        (self.aimed.take().map_or(host, |aimed| *aimed), number)
    }

    /// Replaces the list, which must not be empty. `current` is the server in use, if any. Returns
    /// true if the client has to leave it.
    pub(crate) fn replace(&mut self, mut hosts: Vec<Host>, current: Option<&Host>) -> bool {
        assert!(!hosts.is_empty(), "the caller refuses an empty list");
        let decision =
            current.map(|current| rebalance(&self.hosts, &hosts, current, &mut self.random));
        self.attempts = 0;
        self.lap = 0;
        self.fallback = None;
        self.aimed = None;
        if let Some(Rebalanced::Move(order)) = decision {
            self.hosts = order;
            return true;
        }
        shuffle(&mut hosts, &mut self.random);
        // After a failure of the current server, the others are tried first.
        if let Some(at) = hosts.iter().position(|host| Some(host) == current) {
            let last = hosts.len() - 1;
            hosts.swap(at, last);
        }
        self.hosts = hosts;
        false
    }

    /// Replaces the list like [`replace`](Self::replace) by the servers that the ensemble itself
    /// names. The list that the client was given remains for the time when none of them can be
    /// reached.
    pub(crate) fn follow(&mut self, hosts: Vec<Host>, current: Option<&Host>) -> bool {
        let fallback = self.fallback.take();
        let given = fallback.map_or_else(|| self.hosts.clone(), |fallback| fallback.given);
        let mut others = given.clone();
        others.retain(|host| !hosts.contains(host));
        shuffle(&mut others, &mut self.random);
        let must_move = self.replace(hosts, current);
        self.fallback = Some(Box::new(Fallback { given, others }));
        must_move
    }

    /// Makes this server the next one, and returns true. A server that is not in the list, because
    /// the list was replaced since the server was chosen, changes nothing.
    pub(crate) fn aim(&mut self, host: Host) -> bool {
        let is_listed = self.lists(&host);
        if is_listed {
            self.aimed = Some(Box::new(host));
        }
        is_listed
    }

    /// Returns whether this server is in the list, or among those to fall back to.
    pub(crate) fn lists(&self, host: &Host) -> bool {
        self.hosts.contains(host) || self.others().contains(host)
    }

    /// Returns the number of failed attempts and lost connections since the last proven connection.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns how many servers are left to try in this lap, including the next one.
    pub(crate) fn left(&self) -> u32 {
        let count = u32::try_from(self.len()).unwrap_or(u32::MAX);
        count - self.failures.saturating_sub(1) % count
    }

    /// Records that a connection is proven: the next failure counts as the first again.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
        self.lap = 0;
        self.may_hurry = true;
    }

    /// Records that an attempt failed, or a connection was lost, at `now`. Returns the time of the
    /// next attempt.
    pub(crate) fn retry_at(&mut self, now: Time, stake: Stake) -> Time {
        let (least, most) = self.pause(now, stake);
        self.failures = self.failures.saturating_add(1);
        let jitter = self.random.below((most - least).as_nanos() as u64 + 1);
        self.pace(now + least + Duration::from_nanos(jitter))
    }

    /// Like [`retry_at`](Self::retry_at), but after a regular reply rather than a failure of the
    /// server. The next attempt is due at once, but only once per proven connection, because a
    /// faulty server may send such replies again and again.
    pub(crate) fn follow_at(&mut self, now: Time, stake: Stake) -> Time {
        if std::mem::take(&mut self.may_hurry) {
            // The server has answered, so there is no reason to fall back.
            self.lap = 0;
            self.pace(now)
        } else {
            self.retry_at(now, stake)
        }
    }

    /// Returns the minimum and the maximum pause before the next attempt.
    fn pause(&self, now: Time, stake: Stake) -> (Duration, Duration) {
        let others = (self.len() - 1).min(LAP_MAX) as u32;
        // The ensemble itself is probably fine after a single failure, so try another server soon.
        if self.failures == 0 {
            return (Duration::ZERO, FIRST_MAX);
        }
        // Back off only when every server has failed once.
        let Some(doublings) = self.failures.checked_sub(others + 1) else {
            return (LAP_PAUSE / 2, LAP_PAUSE);
        };
        let most = match stake {
            Stake::Nothing => BACKOFF_MAX,
            Stake::Session => BACKOFF_URGENT_MAX,
            Stake::Lease(until) => {
                (until.saturating_since(now) / LEFT_SHARE).clamp(LEFT_PAUSE_MIN, BACKOFF_URGENT_MAX)
            }
        };
        let full = BACKOFF_MIN.saturating_mul(1 << doublings.min(16)).min(most);
        (full / 2, full)
    }

    /// Delays an attempt if there were too many before it. Otherwise, connections that prove
    /// themselves and then end, again and again, would bypass the long pauses. So each attempt uses
    /// up part of a budget, which has credit for one lap and a burst.
    pub(crate) fn pace(&mut self, wanted: Time) -> Time {
        let credit = SPACING * (self.len().min(LAP_MAX) + BURST) as u32;
        let debt = self.paid_until.saturating_since(wanted);
        let at = wanted + debt.saturating_sub(credit);
        self.paid_until = self.paid_until.max(at) + SPACING;
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(n: u16) -> Vec<Host> {
        (0..n).map(|port| Host { name: "zk".into(), port }).collect()
    }

    fn stake(is_urgent: bool) -> Stake {
        if is_urgent { Stake::Session } else { Stake::Nothing }
    }

    /// Returns the times of the attempts of one client if each fails at once.
    fn outage(hosts: Hosts, stake: Stake, seconds: u64) -> Vec<Duration> {
        let mut hosts = hosts;
        let mut now = Time::default();
        let mut moments = Vec::new();
        while now.since_start() < Duration::from_secs(seconds) {
            moments.push(now.since_start());
            hosts.next();
            now = hosts.retry_at(now, stake);
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
        assert!((2..20).any(|seed| start(seed) % 3 != start(1) % 3), "the seed determines it");
    }

    fn ports(rotation: &mut Hosts, count: usize) -> Vec<u16> {
        (0..count).map(|_| rotation.next().0.port).collect()
    }

    fn sorted(mut ports: Vec<u16>) -> Vec<u16> {
        ports.sort_unstable();
        ports
    }

    #[test]
    fn the_list_that_was_given_follows_the_one_that_the_ensemble_names() {
        for seed in 0..20 {
            let mut rotation = Hosts::new(hosts(4), seed);
            let named = |range: std::ops::Range<u16>| -> Vec<Host> {
                range.map(|port| Host { name: "zk".into(), port }).collect()
            };
            rotation.follow(named(2..5), None);
            for _ in 0..3 {
                assert_eq!(sorted(ports(&mut rotation, 3)), [2, 3, 4]);
                assert_eq!(sorted(ports(&mut rotation, 2)), [0, 1]);
            }
            // After a proven connection, all servers of the ensemble come first again, wherever the
            // lap was interrupted.
            for tried in 0..5 {
                ports(&mut rotation, tried);
                rotation.succeeded();
                assert_eq!(sorted(ports(&mut rotation, 3)), [2, 3, 4], "after {tried}");
                rotation.succeeded();
            }
            assert_eq!((rotation.len(), rotation.left()), (5, 5));
            // The next list of the ensemble falls back to the same servers.
            rotation.follow(named(0..1), None);
            assert_eq!(ports(&mut rotation, 1), [0]);
            assert_eq!(sorted(ports(&mut rotation, 3)), [1, 2, 3]);
            // A list of the user replaces both.
            rotation.replace(named(7..8), None);
            assert_eq!(ports(&mut rotation, 3), [7, 7, 7]);
            rotation.follow(named(8..9), None);
            assert_eq!(ports(&mut rotation, 3), [8, 7, 8]);
        }
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
                let at = rotation.retry_at(now, stake(is_urgent));
                let pause = at.saturating_since(now);
                assert!(least <= pause && pause <= most, "{pause:?}, not {least:?} to {most:?}");
                now = at;
            }
            rotation.succeeded();
            assert!(rotation.retry_at(now, stake(is_urgent)).saturating_since(now) <= FIRST_MAX);
        }
    }

    /// Whenever an outage ends, the next attempt comes before half of what was left then has passed, or
    /// within the shortest pause.
    #[test]
    fn an_outage_that_is_shorter_than_the_lease_is_followed_by_an_attempt_in_time() {
        for lease in [1_000, 2_000, 5_000, 10_000, 25_000, 40_000].map(Duration::from_millis) {
            for (servers, seed) in
                [1, 3, 5].into_iter().flat_map(|it| (0..50).map(move |s| (it, s)))
            {
                let stake = Stake::Lease(Time::default() + lease);
                let mut ended = Duration::ZERO;
                for attempt in outage(Hosts::new(hosts(servers), seed), stake, 60) {
                    let half = lease.saturating_sub(ended) / LEFT_SHARE;
                    let pause = attempt.saturating_sub(ended);
                    if ended < lease {
                        assert!(
                            pause <= half.max(LEFT_PAUSE_MIN),
                            "{pause:?} at {ended:?} of {lease:?}"
                        );
                    }
                    ended = attempt;
                }
            }
        }
    }

    #[test]
    fn an_answer_is_followed_at_once_only_once_for_each_connection_of_use() {
        let mut rotation = Hosts::new(hosts(1), 7);
        for minute in 1..4 {
            let now = Time::from_start(Duration::from_secs(60 * minute));
            for _ in 0..5 {
                rotation.retry_at(now, Stake::Session);
            }
            assert_eq!(rotation.follow_at(now, Stake::Session), now);
            assert!(rotation.follow_at(now, Stake::Session) > now + Duration::from_millis(500));
            rotation.succeeded();
        }
    }

    #[test]
    fn no_way_of_success_and_failure_allows_more_than_one_attempt_a_second() {
        // The worst case is a server whose connections prove themselves at once and then end.
        for (count, failures) in [(1, 0), (1, 1), (5, 3), (16, 15), (50, 49)] {
            let mut rotation = Hosts::new(hosts(count), 9);
            let mut now = Time::default();
            let mut attempts = 0_u64;
            while now.since_start() < Duration::from_secs(1000) {
                for _ in 0..=failures {
                    now = rotation.retry_at(now, Stake::Session);
                    attempts += 1;
                }
                rotation.succeeded();
                now = rotation.follow_at(now, Stake::Session);
                attempts += 1;
            }
            let seconds = now.since_start().as_secs();
            let most = seconds + 2 + (usize::from(count).min(LAP_MAX) + BURST) as u64;
            assert!(attempts <= most, "{count} servers: {attempts} attempts in {seconds} s");
        }
    }

    /// Returns the number of attempts in each second of a minute, made by this many clients whose
    /// servers are all down.
    fn curve(clients: u64, servers: u16, is_urgent: bool) -> Vec<usize> {
        let mut seconds = vec![0; 60];
        for seed in 0..clients {
            for moment in outage(Hosts::new(hosts(servers), seed), stake(is_urgent), 60) {
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
