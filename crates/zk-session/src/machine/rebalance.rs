//! Which server a client uses after the list of servers has changed.
//!
//! If all clients use the same rule, they end up spread evenly over the new list, and as few as
//! possible have to move. The rule is that of the official client, so that both kinds of clients
//! can share an ensemble. Source: `StaticHostProvider.updateServerList`.

use crate::host::Host;
use crate::random::SplitMix;

/// What a client does after the list has changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Rebalanced {
    /// It stays with its server.
    Stay,
    /// It moves to the first of these servers that accepts it.
    Move(Vec<Host>),
}

/// Decides for a client that is connected to `current`.
pub(super) fn rebalance(
    old: &[Host],
    new: &[Host],
    current: &Host,
    random: &mut SplitMix,
) -> Rebalanced {
    let (mut kept, mut added): (Vec<Host>, Vec<Host>) =
        new.iter().cloned().partition(|host| old.contains(host));
    let [before, after, common] = [old.len(), new.len(), kept.len()].map(|count| count as f64);
    let is_kept = new.contains(current);
    if is_kept && (after <= before || fraction(random) >= 1.0 - before / after) {
        return Rebalanced::Stay;
    }
    // The share of the clients that move to one of the old servers. If the list has grown, each of
    // these has too many clients already.
    let to_kept =
        if after >= before { 0.0 } else { common * (before - after) / (after * (before - common)) };
    shuffle(&mut kept, random);
    shuffle(&mut added, random);
    kept.retain(|host| host != current);
    let mut order = Vec::with_capacity(new.len());
    loop {
        let is_kept_next = added.is_empty() || fraction(random) < to_kept;
        let next = if is_kept_next { kept.pop().or_else(|| added.pop()) } else { added.pop() };
        match next {
            Some(host) => order.push(host),
            None => break,
        }
    }
    // The current server is the last resort.
    order.extend(is_kept.then(|| current.clone()));
    Rebalanced::Move(order)
}

/// Brings the servers into a random order.
pub(super) fn shuffle(hosts: &mut [Host], random: &mut SplitMix) {
    for end in (1..hosts.len()).rev() {
        hosts.swap(end, random.below(end as u64 + 1) as usize);
    }
}

/// Draws a number from 0 to 1, excluding 1.
fn fraction(random: &mut SplitMix) -> f64 {
    (random.next() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn hosts(ports: std::ops::Range<u16>) -> Vec<Host> {
        ports.map(|port| Host { name: "zk".into(), port }).collect()
    }

    /// Returns the number of clients per server after a change, if each server had 10,000, and the
    /// number of clients that moved.
    fn spread(old: &[Host], new: &[Host]) -> (BTreeMap<u16, u32>, u32) {
        let (mut counts, mut moved) = (BTreeMap::new(), 0);
        let mut random = SplitMix(7);
        for current in old {
            for _ in 0..10_000 {
                let port = match rebalance(old, new, current, &mut random) {
                    Rebalanced::Stay => current.port,
                    Rebalanced::Move(order) => {
                        assert_eq!(order.len(), new.len(), "every server is tried");
                        moved += 1;
                        order[0].port
                    }
                };
                *counts.entry(port).or_default() += 1;
            }
        }
        (counts, moved)
    }

    #[test]
    fn clients_are_spread_evenly_and_no_more_than_necessary_move() {
        for (old, new, moving) in [
            // Grown: 3 of 9 servers' worth of clients move.
            (hosts(0..6), hosts(0..9), 20_000),
            // Shrunk: only the clients of the servers that left move.
            (hosts(0..6), hosts(0..4), 20_000),
            // Replaced.
            (hosts(0..3), hosts(3..6), 30_000),
            // Some left, and more joined.
            (hosts(0..4), hosts(2..8), 26_667),
            // More left than joined.
            (hosts(0..6), hosts(4..7), 40_000),
            // Unchanged.
            (hosts(0..3), hosts(0..3), 0),
        ] {
            let (counts, moved) = spread(&old, &new);
            let expected = (old.len() * 10_000 / new.len()) as f64;
            assert_eq!(counts.len(), new.len(), "{counts:?}");
            for (port, count) in &counts {
                let error = (f64::from(*count) - expected).abs() / expected;
                assert!(error < 0.05, "server {port} has {count}, expected {expected}");
            }
            let error = (f64::from(moved) - f64::from(moving)).abs();
            assert!(error <= 600.0, "{moved} moved, expected {moving}");
        }
    }

    #[test]
    fn a_server_that_left_is_never_used() {
        let (old, new) = (hosts(0..3), hosts(1..3));
        for seed in 0..100 {
            let order = match rebalance(&old, &new, &old[0], &mut SplitMix(seed)) {
                Rebalanced::Move(order) => order,
                Rebalanced::Stay => panic!("the server has left"),
            };
            assert!(!order.contains(&old[0]) && order.len() == 2);
        }
    }
}
