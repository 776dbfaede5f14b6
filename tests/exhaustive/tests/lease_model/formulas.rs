//! Formulas for a lease. From what the client has observed, each formula computes the latest
//! deadline that it has ever promised, by the client's clock.

#![expect(clippy::indexing_slicing, reason = "the places are there by construction")]

use std::time::Duration;

use zk_recipes::{Lease, Time};
use zk_session::LeaseClock;

use crate::ensemble::{Kind, Micros, Plan, Seen};

pub(crate) type Formula = fn(&[Seen], &Plan) -> Micros;

/// Returns the session timeout as a slow clock measures it.
fn lasts(plan: &Plan) -> Micros {
    plan.timeout / 20 * 19
}

/// Returns a duration of the servers' clock as a fast clock measures it.
fn fast(time: Micros) -> Micros {
    time + time / 20
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    kind: Kind,
    sent: Micros,
    got: Micros,
}

impl Answer {
    fn is_leaders(&self) -> bool {
        matches!(self.kind, Kind::Connect | Kind::Sync | Kind::Write)
    }
}

/// Returns the answers on each connection. The first is always the answer to the handshake.
fn connections(seen: &[Seen]) -> Vec<Vec<Answer>> {
    let mut all: Vec<Vec<Answer>> = Vec::new();
    for seen in seen {
        match *seen {
            Seen::Created { sent, got } | Seen::Resumed { sent, got } => {
                all.push(vec![Answer { kind: Kind::Connect, sent, got }]);
            }
            Seen::Answer { kind, sent, got } => {
                all.last_mut().expect("a handshake comes first").push(Answer { kind, sent, got });
            }
        }
    }
    all
}

/// Counts the creation of the session, and a resume if a later write on its connection was
/// committed.
fn handshakes(seen: &[Seen], plan: &Plan) -> Micros {
    let mut end = 0;
    for (number, answers) in connections(seen).iter().enumerate() {
        let is_proven = number == 0 || answers.iter().any(|answer| answer.kind == Kind::Write);
        if is_proven && let Some(first) = answers.first() {
            end = end.max(first.sent + lasts(plan));
        }
    }
    end
}

/// Counts the newest answer from any server.
pub(crate) fn newest(seen: &[Seen], plan: &Plan) -> Micros {
    let answers = connections(seen);
    let newest = answers.iter().flatten().map(|answer| answer.sent).max();
    newest.map_or(0, |sent| sent + lasts(plan))
}

/// Counts a resume even if no write follows it.
pub(crate) fn resume(seen: &[Seen], plan: &Plan) -> Micros {
    let firsts = connections(seen).into_iter().filter_map(|answers| answers.first().copied());
    firsts.map(|answer| answer.sent + lasts(plan)).max().unwrap_or_default()
}

/// Counts nothing but handshakes, which are safe without a bridge.
pub(crate) fn handshakes_only(seen: &[Seen], plan: &Plan) -> Micros {
    handshakes(seen, plan)
}

/// Counts the write that is `back` writes older than the newest committed one.
fn counted(seen: &[Seen], plan: &Plan, back: usize) -> Micros {
    let mut end = handshakes(seen, plan);
    for answers in connections(seen) {
        let writes: Vec<_> = answers.iter().filter(|answer| answer.kind == Kind::Write).collect();
        for window in writes.windows(back + 1) {
            end = end.max(window[0].sent + lasts(plan));
        }
    }
    end
}

pub(crate) fn k_minus_1(seen: &[Seen], plan: &Plan) -> Micros {
    counted(seen, plan, 1)
}

pub(crate) fn k_minus_2(seen: &[Seen], plan: &Plan) -> Micros {
    counted(seen, plan, 2)
}

/// The rules of the bridge from *b* to *a*: see docs/internals/lease.md.
#[derive(Clone, Copy, Debug)]
struct Bridge {
    /// How many of the longest gaps the formula pays for.
    gaps: usize,
    /// Whether *a* may be a sync.
    is_sync_enough: bool,
    /// Whether answers to pings also end a gap.
    counts_pings: bool,
    /// Whether a time that is in two gaps is paid for only once, because it cannot contain two
    /// pauses.
    counts_once: bool,
}

/// The maximum number of gaps that a formula pays for.
const GAPS_MAX: usize = 3;

const G2: Bridge =
    Bridge { gaps: 2, is_sync_enough: false, counts_pings: false, counts_once: false };

fn bridge(seen: &[Seen], plan: &Plan, rules: Bridge) -> Micros {
    let mut end = handshakes(seen, plan);
    for answers in connections(seen) {
        for (at, a) in answers.iter().enumerate() {
            let counts = a.kind == Kind::Write || rules.is_sync_enough && a.kind == Kind::Sync;
            if !counts {
                continue;
            }
            let before = answers.get(..at).unwrap_or_default();
            let is_before = |x: &&Answer| x.is_leaders() && x.got <= a.sent;
            let Some(second) = before.iter().rev().find(is_before) else { continue };
            let counted = end.saturating_sub(lasts(plan));
            if let Some(sent) = newest_bridged(before, second.sent, counted, plan, rules) {
                end = end.max(sent + lasts(plan));
            }
        }
    }
    end
}

/// Returns the latest deadline that any bridge with two gaps may promise. The shipped lease does
/// not remember every answer, so its *a'* may be an older one, and a forgotten answer merges two
/// gaps into one.
pub(crate) fn g2_at_most(seen: &[Seen], plan: &Plan) -> Micros {
    let rules = Bridge { counts_once: true, ..G2 };
    let mut end = handshakes(seen, plan);
    for answers in connections(seen) {
        let Some(a) = answers.iter().rfind(|answer| answer.kind == Kind::Write) else { continue };
        for (at, second) in answers.iter().enumerate() {
            if second.is_leaders()
                && second.got <= a.sent
                && let Some(sent) = newest_bridged(&answers[..at], second.sent, 0, plan, rules)
            {
                end = end.max(sent + lasts(plan));
            }
        }
    }
    end
}

/// Finds the newest *b* whose touch a ping of the leader has fetched by the time `to`. Returns when
/// *b* was sent, or `None` if that was not later than `counted`.
fn newest_bridged(
    before: &[Answer],
    to: Micros,
    counted: Micros,
    plan: &Plan,
    rules: Bridge,
) -> Option<Micros> {
    // The touch of *b* may be lost, but then the touch of the next request is not.
    for (index, pair) in before.windows(2).enumerate().rev() {
        let (b, from) = (pair[0], pair[1].got);
        if b.sent <= counted {
            break;
        }
        let Some(left) = to.checked_sub(from).and_then(|time| time.checked_sub(fast(plan.tick)))
        else {
            continue;
        };
        if left >= gaps(&before[index + 2..], from, to, rules) {
            return Some(b.sent);
        }
    }
    None
}

/// Returns the sum of the longest gaps between `from` and `to`, in which the leader may have been
/// paused. The client received these answers at `from` or later.
fn gaps(answers: &[Answer], from: Micros, to: Micros, rules: Bridge) -> Micros {
    if rules.counts_once {
        let mut gaps = Vec::new();
        each_gap(answers, from, to, rules, |start, end| gaps.push((start, end)));
        return longest_two(&gaps);
    }
    // This suite spends most of its time here, so nothing is allocated.
    let mut longest = [0; GAPS_MAX];
    each_gap(answers, from, to, rules, |start, end| {
        let mut gap = end.saturating_sub(start);
        for other in &mut longest {
            if gap > *other {
                std::mem::swap(&mut gap, other);
            }
        }
    });
    longest.iter().take(rules.gaps).sum()
}

/// Passes the start and the end of each gap to `look`, in order.
fn each_gap(
    answers: &[Answer],
    from: Micros,
    to: Micros,
    rules: Bridge,
    mut look: impl FnMut(Micros, Micros),
) {
    let mut last = from;
    for answer in answers.iter().filter(|answer| answer.is_leaders() || rules.counts_pings) {
        if answer.got <= from {
            // The client received this answer at `from`, so it ends no gap.
            continue;
        }
        look(last, answer.got.min(to));
        last = last.max(answer.sent);
        if last >= to {
            break;
        }
    }
    look(last, to);
}

/// Returns the longest time that two gaps cover. The gaps are in order.
fn longest_two(gaps: &[(Micros, Micros)]) -> Micros {
    let mut longest = 0;
    for (index, (start, end)) in gaps.iter().enumerate() {
        let first = end.saturating_sub(*start);
        longest = longest.max(first);
        for (next, end) in &gaps[index + 1..] {
            longest = longest.max(first + end.saturating_sub(*next.max(&(start + first))));
        }
    }
    longest
}

pub(crate) fn g0(seen: &[Seen], plan: &Plan) -> Micros {
    bridge(seen, plan, Bridge { gaps: 0, ..G2 })
}

pub(crate) fn g1(seen: &[Seen], plan: &Plan) -> Micros {
    bridge(seen, plan, Bridge { gaps: 1, ..G2 })
}

pub(crate) fn g2(seen: &[Seen], plan: &Plan) -> Micros {
    bridge(seen, plan, G2)
}

pub(crate) fn g3(seen: &[Seen], plan: &Plan) -> Micros {
    bridge(seen, plan, Bridge { gaps: 3, ..G2 })
}

pub(crate) fn g2_with_a_sync(seen: &[Seen], plan: &Plan) -> Micros {
    bridge(seen, plan, Bridge { is_sync_enough: true, ..G2 })
}

pub(crate) fn g2_with_pings(seen: &[Seen], plan: &Plan) -> Micros {
    bridge(seen, plan, Bridge { counts_pings: true, ..G2 })
}

/// Uses two bridges: *a'* is sent two thirds of a tick after the answer that follows the one to
/// *b*, *a''* an eighth of a tick after the answer to *a'*, and *a* after the answer to *a''*.
pub(crate) fn h(seen: &[Seen], plan: &Plan) -> Micros {
    let mut end = handshakes(seen, plan);
    for answers in connections(seen) {
        for (at, a) in answers.iter().enumerate().filter(|(_, a)| a.kind == Kind::Write) {
            let before = answers.get(..at).unwrap_or_default();
            let answered =
                |by: Micros| before.iter().rev().find(move |x| x.is_leaders() && x.got <= by);
            let Some(second) = answered(a.sent) else { continue };
            let Some(by) = second.sent.checked_sub(plan.tick * 13 / 100) else { continue };
            let Some(first) = answered(by) else { continue };
            let Some(by) = first.sent.checked_sub(plan.tick * 66 / 100) else { continue };
            let bridged = before.windows(2).rev().find(|pair| pair[1].got <= by);
            if let Some([b, _]) = bridged {
                end = end.max(b.sent + lasts(plan));
            }
        }
    }
    end
}

/// Runs the shipped lease that pings renew. It trusts servers to notice within `syncLimit` that
/// they are cut off, but the servers in these histories never notice.
pub(crate) fn window(seen: &[Seen], plan: &Plan) -> Micros {
    shipped(seen, plan, Lease::pings(5, Duration::from_micros(plan.tick)))
}

/// Runs the shipped lease that writes renew: a bridge with two gaps.
pub(crate) fn written(seen: &[Seen], plan: &Plan) -> Micros {
    shipped(seen, plan, Lease::default().tick(Duration::from_micros(plan.tick)))
}

fn shipped(seen: &[Seen], plan: &Plan, lease: Lease) -> Micros {
    let time = |micros| Time::from_start(Duration::from_micros(micros));
    let timeout = Duration::from_micros(plan.timeout);
    let mut lease = LeaseClock::new(Some(lease));
    for seen in seen {
        match *seen {
            Seen::Created { sent, got } => lease.created(time(sent), time(got), timeout),
            Seen::Resumed { sent, got } => lease.resumed(time(sent), time(got), timeout),
            Seen::Answer { kind, sent, got } => {
                lease.acknowledged(time(sent), time(got));
                match kind {
                    Kind::Write => lease.committed(time(sent), time(got)),
                    Kind::Sync => lease.synced(time(sent), time(got)),
                    Kind::Connect | Kind::Ping => {}
                }
            }
        }
    }
    let end = lease.deadline().map_or(Duration::ZERO, Time::since_start);
    u64::try_from(end.as_micros()).unwrap_or(Micros::MAX)
}
