//! The formula of a lease, checked with a model of an ensemble: many random histories in which the
//! client's server is cut off or the leader is deposed, with pauses, late messages, reconnects, and
//! clocks that run at different speeds. Other formulas are checked with the same histories, and
//! fail.
//!
//! Times are microseconds of true time, except for the inputs of the formulas.

use std::time::Duration;

use zk_recipes::{Lease, Time};
use zk_session::LeaseClock;
use zk_tests::random::SplitMix64;

/// Number of histories.
const HISTORIES: u64 = 300_000;
/// Number of histories for formulas that are known to be wrong.
const HISTORIES_OF_OTHERS: u64 = 100_000;
/// Longest delay of an acknowledgement that the older formulas tolerate.
const PROMPT: u64 = 1_000_000;

/// Observations of the client, on its own clock.
#[derive(Clone, Copy, Debug)]
enum Seen {
    Created { sent: u64, now: u64 },
    Resumed { sent: u64, now: u64 },
    Acknowledged { sent: u64, now: u64 },
    Committed,
}

/// A history, and when the ensemble expires the session.
#[derive(Debug)]
struct History {
    timeout: u64,
    tick: u64,
    sync_limit: u64,
    rate: u64,
    seen: Vec<Seen>,
    /// When the ensemble expires the session, in true time.
    over: u64,
}

/// The periods in which a process is paused. They do not overlap.
#[derive(Debug, Default)]
struct Pauses(Vec<(u64, u64)>);

impl Pauses {
    /// Returns when the process handles a message that arrives at `at`.
    fn awake(&self, at: u64) -> u64 {
        let pause = self.0.iter().find(|(start, end)| (*start..*end).contains(&at));
        pause.map_or(at, |(_, end)| *end)
    }

    fn add(&mut self, start: u64, length: u64) {
        let end = start + length;
        if !self.0.iter().any(|(a, b)| start <= *b && *a <= end) {
            self.0.push((start, end));
        }
    }
}

struct Dice(SplitMix64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound.max(1))
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn pick<const N: usize>(&mut self, values: [u64; N]) -> u64 {
        let index = self.below(N as u64) as usize;
        values.get(index).copied().expect("the index is below the length")
    }

    /// Returns a random delay, which is usually short.
    fn latency(&mut self) -> u64 {
        let bound = if self.one_in(50) { 900_000 } else { 3_000 };
        self.below(bound)
    }
}

fn seconds(seconds: u64) -> u64 {
    seconds * 1_000_000
}

fn config(tick: u64, sync_limit: u64) -> Lease {
    let sync_limit = u32::try_from(sync_limit).unwrap_or(u32::MAX);
    Lease::pings(sync_limit, Duration::from_micros(tick))
}

/// Generates a history from a seed, with pauses.
fn history(seed: u64) -> History {
    make_history(seed, true)
}

fn make_history(seed: u64, has_pauses: bool) -> History {
    let mut dice = Dice(SplitMix64::new(seed));
    let (timeout, tick, sync_limit, ping_interval) = loop {
        let timeout = seconds(10 + dice.below(51));
        let tick = dice.pick([500_000, 1_000_000, 2_000_000, 3_000_000]);
        let sync_limit = 2 + dice.below(19);
        let interval = config(tick, sync_limit).ping_interval(Duration::from_micros(timeout));
        if let Some(interval) = interval {
            break (timeout, tick, sync_limit, interval.as_micros() as u64);
        }
    };
    let rate = dice.pick([950, 1000, 1050]);
    let noticing = tick * sync_limit;
    // The client is connected to the leader, which is deposed, or to a follower, which is cut off.
    let is_leader = dice.one_in(3);
    let cut = dice.below(timeout * 2);
    let patience = if is_leader { noticing + tick * 3 / 2 } else { noticing };

    let (mut server, mut client) = (Pauses::default(), Pauses::default());
    let lengths = ping_interval + ping_interval / 5;
    if dice.one_in(2) {
        let length = dice.below(lengths);
        server.add(cut.saturating_sub(dice.below(length)), length);
    }
    if let Some((start, _)) = server.0.first().copied()
        && dice.one_in(2)
    {
        // A message that arrives during a pause is handled late, and forwarded with the next
        // message.
        let length = dice.below(lengths);
        let apart = 1 + dice.below(tick / 2);
        server.add(start.saturating_sub(length + apart), length);
    }
    if dice.one_in(2) {
        let length = dice.below(lengths);
        let end = server.awake(cut) + patience + dice.below(length);
        server.add(end.saturating_sub(length), length);
    }
    for _ in 0..dice.below(3) {
        server.add(dice.below(cut + patience), dice.below(timeout / 3));
    }
    for _ in 0..dice.below(2) {
        client.add(dice.below(cut + patience), dice.below(timeout / 2));
    }
    if !has_pauses {
        (server, client) = (Pauses::default(), Pauses::default());
    }
    // A server that was paused when it would have noticed may reply once more before it notices.
    let closes = server.awake(server.awake(cut) + patience) + dice.below(5_000);

    let mut connections = vec![0];
    while dice.one_in(3) {
        let last = connections.last().copied().unwrap_or_default();
        connections.push(last + dice.below(timeout));
    }
    // A follower asks the leader about each session that is resumed, and gets no reply when it is
    // cut off. A deposed leader that has not noticed accepts all sessions.
    let latest = if is_leader { closes } else { cut };
    connections.retain(|at| *at < latest);
    if connections.len() < 2 && dice.one_in(3) && latest > 0 {
        connections.push(latest - 1 - dice.below(latest.min(ping_interval)));
    }

    let mut seen = Vec::new();
    // When the leader itself last learned of activity of the session.
    let mut known = 0;
    let clock = |at: u64| at * rate / 1000;
    let last = connections.len() - 1;
    for (index, &start) in connections.iter().enumerate() {
        let start = client.awake(start);
        let end = connections.get(index + 1).copied().unwrap_or(closes).min(closes);
        // Only the server of the last connection is modelled in detail.
        let calm = Pauses::default();
        let pauses = if index == last || is_leader { &server } else { &calm };
        let arrived = pauses.awake(start + dice.latency());
        if arrived >= latest || arrived >= end {
            continue;
        }
        known = known.max(if is_leader { arrived.min(cut) } else { arrived });
        let mut received = client.awake(arrived + dice.latency());
        if received >= end || (index == 0 && arrived >= cut) {
            if index == 0 {
                break;
            }
            continue;
        }
        if index == 0 {
            seen.push(Seen::Created { sent: clock(start), now: clock(received) });
        } else if seen.is_empty() {
            break;
        } else {
            seen.push(Seen::Resumed { sent: clock(start), now: clock(received) });
        }

        let mut requests = Vec::new();
        let mut at = received;
        while at < end {
            at = client.awake(at + ping_interval * 1000 / rate);
            requests.push(at);
        }
        // If the client sends many other messages, the gaps are short.
        let others = match dice.below(16) {
            0 => (end - received) / 200_000,
            1..8 => dice.below(30),
            _ => 0,
        };
        for _ in 0..others {
            requests.push(client.awake(received + dice.below(end - received)));
        }
        for (_, awake) in &pauses.0 {
            if dice.one_in(2) && *awake > received {
                requests.push(client.awake((awake - dice.below(20_000).min(*awake)).max(received)));
            }
        }
        requests.sort_unstable();
        let writes = if index > 0 && dice.one_in(2) { 1 } else { 0 };

        let (mut arrival, mut processed) = (arrived, arrived);
        let mut touches = Vec::new();
        for (number, &sent) in requests.iter().enumerate() {
            arrival = arrival.max(sent + dice.latency());
            processed = processed.max(pauses.awake(arrival));
            if processed >= end {
                break;
            }
            touches.push(processed);
            received = received.max(client.awake(processed + dice.latency()));
            if received < end || index == last {
                seen.push(Seen::Acknowledged { sent: clock(sent), now: clock(received) });
                if number < writes && processed < cut {
                    seen.push(Seen::Committed);
                }
            }
        }
        if !is_leader {
            // Followers report touches in their replies to the leader's pings, twice a tick.
            let mut sent = dice.below(tick / 2);
            let mut before = 0;
            while sent < cut {
                let read = pauses.awake(sent);
                let is_answered = read < cut;
                if is_answered && touches.iter().any(|touch| (before..read).contains(touch)) {
                    known = known.max(read);
                }
                if is_answered {
                    before = before.max(read);
                }
                sent += tick / 2;
            }
        }
    }
    // The next leader restarts the timeout of every session at its election.
    let over = timeout + if is_leader { cut } else { known };
    History { timeout, tick, sync_limit, rate, seen, over }
}

/// A formula, which returns the last moment, in true time, at which it considers the lock held.
type Formula = fn(&History) -> u64;

/// Runs the formula that the library uses.
fn shipped(history: &History) -> u64 {
    let time = |micros| Time::from_start(Duration::from_micros(micros));
    let timeout = Duration::from_micros(history.timeout);
    let mut lease = LeaseClock::new(Some(config(history.tick, history.sync_limit)));
    for seen in &history.seen {
        match *seen {
            Seen::Created { sent, now } => lease.created(time(sent), time(now), timeout),
            Seen::Resumed { sent, now } => lease.resumed(time(sent), time(now), timeout),
            Seen::Acknowledged { sent, now } => lease.acknowledged(time(sent), time(now)),
            // For a lease that pings renew, the time makes no difference.
            Seen::Committed => lease.committed(Time::default(), Time::default()),
        }
    }
    let end = lease.deadline().map_or(Duration::ZERO, Time::since_start);
    end.as_micros() as u64 * 1000 / history.rate
}

/// Computes `sent(last acknowledgement) + timeout - syncLimit - A - half a tick - 5 %`.
fn old(history: &History) -> u64 {
    let History { timeout, tick, sync_limit, rate, .. } = *history;
    let less = tick * sync_limit + PROMPT + tick / 2 + timeout / 20;
    let mut end = 0;
    for seen in &history.seen {
        match *seen {
            Seen::Created { sent, .. } => end = sent + timeout * 19 / 20,
            Seen::Acknowledged { sent, now } if now - sent <= PROMPT => {
                end = end.max((sent + timeout).saturating_sub(less));
            }
            Seen::Acknowledged { .. } | Seen::Resumed { .. } | Seen::Committed => {}
        }
    }
    end * 1000 / rate
}

/// Adds the whole timeout to the newest acknowledgement, as a client without a lease does.
fn naive(history: &History) -> u64 {
    let sent = |seen: &Seen| match *seen {
        Seen::Created { sent, .. } | Seen::Acknowledged { sent, .. } => sent,
        Seen::Resumed { .. } | Seen::Committed => 0,
    };
    let newest = history.seen.iter().map(sent).max().unwrap_or_default();
    if newest == 0 && history.seen.is_empty() {
        return 0;
    }
    (newest + history.timeout) * 1000 / history.rate
}

/// Computes the shipped formula with only one gap, and without the delay of *b*.
fn one_gap(history: &History) -> u64 {
    let unnoticed = history.tick * (history.sync_limit + 2) * 21 / 20;
    let lasts = history.timeout * 19 / 20;
    let mut entries: Vec<(u64, u64)> = vec![];
    let (mut end, mut resumed, mut newest) = (0, None, 0);
    for seen in &history.seen {
        match *seen {
            Seen::Created { sent, .. } => {
                entries.push((sent, 0));
                (end, newest) = (sent + lasts, sent);
            }
            Seen::Resumed { sent, .. } => (resumed, newest) = (Some(sent), sent),
            Seen::Committed => end = end.max(resumed.take().map_or(0, |sent| sent + lasts)),
            Seen::Acknowledged { sent, now } => {
                entries.push((sent, now - newest));
                newest = sent;
                let mut worst = 0;
                for (b, gap) in entries.iter().rev() {
                    if b + unnoticed + worst <= sent {
                        end = end.max(b + lasts);
                        break;
                    }
                    worst = worst.max(*gap);
                }
            }
        }
    }
    end * 1000 / history.rate
}

/// Returns the number of histories in which a formula is wrong, and its largest error.
fn judge(formula: Formula, has_pauses: bool) -> (u64, Duration) {
    let (mut wrong, mut latest) = (0, 0);
    for seed in 0..HISTORIES_OF_OTHERS {
        let history = make_history(seed, has_pauses);
        let late = formula(&history).saturating_sub(history.over);
        wrong += u64::from(late > 0);
        latest = latest.max(late);
    }
    (wrong, Duration::from_micros(latest))
}

fn seeds() -> std::ops::Range<u64> {
    match std::env::var("LEASE_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..HISTORIES,
    }
}

#[test]
fn the_lease_ends_before_the_session_in_every_history() {
    let mut least = u64::MAX;
    for seed in seeds() {
        let history = history(seed);
        let end = shipped(&history);
        assert!(
            end <= history.over,
            "{} us too late; again with LEASE_SEED={seed}\n{history:?}",
            end - history.over
        );
        if end > 0 {
            least = least.min(history.over - end);
        }
    }
    let least = Duration::from_micros(least);
    eprintln!("{HISTORIES} histories, the lease ends at least {least:?} before the session");
}

#[test]
fn other_formulas_end_after_the_session() {
    let formulas: [(&str, Formula, bool); 4] = [
        ("naive, no pauses", naive, false),
        ("old, no pauses", old, false),
        ("old", old, true),
        ("with one gap", one_gap, true),
    ];
    for (name, formula, has_pauses) in formulas {
        let (wrong, latest) = judge(formula, has_pauses);
        eprintln!(
            "{name}: wrong in {wrong} of {HISTORIES_OF_OTHERS} histories, by up to {latest:?}"
        );
        assert!(wrong > 0, "the histories do not tell {name} from the shipped formula");
    }
}

/// The model proves something only if its histories let formulas hold a lock.
#[test]
fn the_histories_are_worth_something() {
    let (mut renewed, mut resumed, mut lasting) = (0, 0, 0);
    for seed in 0..10_000 {
        let history = history(seed);
        let end = shipped(&history);
        renewed += u64::from(end > history.timeout);
        resumed += u64::from(history.seen.iter().any(|seen| matches!(seen, Seen::Resumed { .. })));
        let wasted = history.over.saturating_sub(end);
        lasting += u64::from(end > 0 && wasted < history.timeout / 2);
    }
    eprintln!("of 10,000: {renewed} renewed, {resumed} resumed, {lasting} with half the timeout");
    assert!(renewed > 2_000 && resumed > 2_000 && lasting > 2_000);
}
