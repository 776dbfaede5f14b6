//! A lease that a lock relies on is kept while servers are prompt, whatever else its session writes.

use std::collections::VecDeque;
use std::time::Duration;

use crate::machine::lease::{Lease, LeaseClock};
use crate::time::Time;

fn at(ms: u64) -> Time {
    Time::from_start(Duration::from_millis(ms))
}

/// Replies to a write, and to a ping before it if there was one.
fn answer(lease: &mut LeaseClock, sent: u64, now: u64, has_ping: bool) {
    for _ in 0..=u8::from(has_ping) {
        lease.acknowledged(at(sent), at(now));
    }
    lease.committed(at(sent), at(now));
}

/// Returns numbers below a limit, which are the same in each run.
fn numbers() -> impl FnMut(u64) -> u64 {
    let mut random = 88_172_645_463_325_252_u64;
    move |limit| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % limit
    }
}

/// A lock is held until `until`. Renewals are sent, and other writes after these pauses. Each reply
/// takes `commit`. Returns whether there was a lease and whether it has ended, and the time.
fn hold(
    lease: &mut LeaseClock,
    (from, until): (u64, u64),
    commit: u64,
    mut pause: impl FnMut() -> u64,
) -> (bool, bool, u64) {
    let due = |lease: &LeaseClock, base: u64, now: u64| {
        let interval = lease.write_interval(at(now)).expect("writes keep it");
        let next = at(base) + interval;
        now.max(u64::try_from(next.since_start().as_millis()).expect("it is short"))
    };
    let mut in_flight = VecDeque::new();
    let mut renewal = Some(due(lease, from, from));
    let mut other = from + pause();
    let (mut now, mut is_leased) = (from, lease.deadline().is_some());
    while now < until {
        let reply = in_flight.front().map(|(sent, _)| sent + commit);
        now = renewal.into_iter().chain(reply).fold(other, u64::min);
        if lease.deadline().is_some_and(|end| end <= at(now.min(until))) {
            lease.lapse();
            return (true, true, now + commit);
        }
        if reply == Some(now) {
            let (sent, is_renewal) = in_flight.pop_front().expect("it was replied to");
            answer(lease, sent, now, is_renewal);
            let is_renewing = in_flight.iter().any(|(_, is_renewal)| *is_renewal);
            renewal = (!is_renewing).then(|| due(lease, sent, now));
        } else if renewal == Some(now) {
            in_flight.push_back((now, true));
            renewal = None;
        } else {
            in_flight.push_back((now, false));
            other = now + pause();
        }
        is_leased |= lease.deadline().is_some();
    }
    for (sent, is_renewal) in in_flight {
        now = sent + commit;
        answer(lease, sent, now, is_renewal);
    }
    (is_leased, false, now)
}

/// Locks are held and sessions are idle for random times, and all servers are prompt. The session
/// writes other things too, often or now and then, which move the renewals.
#[test]
fn a_lease_that_a_lock_relies_on_is_kept_while_servers_are_prompt() {
    // The timeout and the time of a commit in milliseconds, and the number of sessions. The last
    // ones have lost a lease of thousands when renewals were not sent sooner before its end.
    let cases = [
        (3_300, 1, 50),
        (4_000, 80, 50),
        (5_000, 5, 50),
        (6_000, 100, 50),
        (8_000, 20, 50),
        (3_500, 20, 400),
        (4_000, 5, 400),
        (4_000, 36, 400),
    ];
    for (timeout, commit, sessions) in cases {
        let mut below = numbers();
        let (mut leased, mut lost) = (0, 0);
        for _ in 0..sessions {
            let mut lease = LeaseClock::new(Some(Lease::default()));
            let mut now = 1_000;
            lease.created(at(now), at(now + commit), Duration::from_millis(timeout));
            for _ in 0..40 {
                now += commit;
                for _ in 0..=below(3) {
                    now += 1 + below(600);
                    answer(&mut lease, now, now + commit, true);
                    now += commit;
                }
                lease.needed(at(now));
                let until = now + below(2_000);
                let longest = [40, 200, 600, 10_000][usize::try_from(below(4)).unwrap()];
                let (is_leased, is_lost, end) =
                    hold(&mut lease, (now, until), commit, || 1 + below(longest));
                leased += u32::from(is_leased);
                lost += u32::from(is_lost);
                now = end;
            }
        }
        assert!(leased > 50, "{timeout} ms, {commit} ms: {leased} had a lease");
        assert_eq!(lost, 0, "{timeout} ms, {commit} ms: of {leased}");
    }
}
