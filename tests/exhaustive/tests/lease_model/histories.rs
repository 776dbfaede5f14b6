//! Random plans, each made from a seed, with some or all kinds of faults.

#![expect(clippy::indexing_slicing, reason = "the places are there by construction")]

use zk_tests::random::SplitMix64;

use crate::ensemble::{Connection, Epoch, Kind, Lag, Micros, NEVER, Pauses, Plan, Route};

/// A fault that may happen in a history.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// The clocks differ by up to 5 %.
    Clocks,
    ClientPauses,
    /// The leader is paused once or twice.
    LeaderPauses,
    /// The server of the connection is paused.
    ServerPauses,
    /// The ObserverMaster is paused.
    MasterPauses,
    /// The session's server is an observer behind an ObserverMaster.
    Observers,
    /// Threads note a touch in a table that has just been sent.
    LostTouches,
    /// The leader's ping thread is late.
    PingLag,
    /// A link is slow for a while.
    StalledLinks,
    /// The link between the server and the leader is cut in one direction before the other.
    OneWayCuts,
    /// The client resumes on other servers.
    Resumes,
    /// The leader is deposed, and does not notice for a while.
    Elections,
    /// The leader is paused up to six times, more often than a formula must tolerate.
    ManyLeaderPauses,
    /// The leader's ping thread stands still once while its process runs.
    PingStalls,
}

impl Fault {
    /// The faults that a formula must tolerate.
    pub(crate) const ALL: [Self; 12] = [
        Self::Clocks,
        Self::ClientPauses,
        Self::LeaderPauses,
        Self::ServerPauses,
        Self::MasterPauses,
        Self::Observers,
        Self::LostTouches,
        Self::PingLag,
        Self::StalledLinks,
        Self::OneWayCuts,
        Self::Resumes,
        Self::Elections,
    ];
}

pub(crate) struct Dice(SplitMix64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound.max(1))
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy, const N: usize>(&mut self, values: [T; N]) -> T {
        let index = self.below(N as u64) as usize;
        values.get(index).copied().expect("the index is below the length")
    }

    /// Returns a random length below half a tick, one tick, two ticks, half the session timeout, or
    /// the session timeout.
    fn length(&mut self, tick: Micros, timeout: Micros) -> Micros {
        let bound = self.pick([tick / 2, tick, tick * 2, timeout / 2, timeout]);
        self.below(bound)
    }
}

/// Returns the plan of a seed. Each of the faults may happen, but none must.
pub(crate) fn plan(seed: u64, faults: &[Fault]) -> Plan {
    let mut dice = Dice::new(seed);
    let has = |fault| faults.contains(&fault);
    let tick = dice.pick([500_000, 1_000_000, 2_000_000, 3_000_000]);
    let longest = dice.pick([6, 20]);
    let timeout = tick * (2 + dice.below(longest - 1));
    let rate = if has(Fault::Clocks) { dice.pick([950, 1000, 1050]) } else { 1000 };
    // The requests planned below end at this time, as if the client were cut off then.
    let end = timeout / 2 + dice.below(timeout * 3 / 2);

    let mut epochs = vec![Epoch::new(0)];
    if has(Fault::Elections) {
        while epochs.len() < 3 && dice.one_in(2) {
            let before = epochs.last_mut().expect("there is one");
            before.deposed = before.elected + dice.below(end);
            let gap = dice.length(tick, timeout);
            let elected = before.deposed + gap;
            epochs.push(Epoch::new(elected));
        }
    }

    let route = |dice: &mut Dice| match dice.below(8) {
        0 => Route::Leader,
        1..4 if has(Fault::Observers) => Route::Observer,
        _ => Route::Follower,
    };
    let mut starts = vec![0];
    if has(Fault::Resumes) {
        while starts.len() < 4 && dice.one_in(2) {
            starts.push(dice.below(end));
        }
    }
    starts.sort_unstable();
    starts.dedup();
    let mut connections = Vec::new();
    let interval = timeout / dice.pick([4, 8, 10, 20, 40]);
    let is_eager = dice.one_in(4);
    for (number, &at) in starts.iter().enumerate() {
        let until = starts.get(number + 1).copied().unwrap_or(end);
        let route = route(&mut dice);
        // A server of any epoch that has begun accepts the client, even if the leader of the epoch
        // is deposed.
        let begun = epochs.iter().filter(|epoch| epoch.elected <= at).count();
        let epoch = if number == 0 { 0 } else { dice.below(begun as u64) as usize };
        let deposed = epochs[epoch].deposed;
        let mut sends = sends(&mut dice, at, until, interval, is_eager);
        if dice.one_in(2) {
            // A write that is never committed would hold up the answers to everything behind it.
            for (at, kind) in &mut sends {
                if *kind == Kind::Write && *at + 10_000 > deposed {
                    *kind = Kind::Sync;
                }
            }
        }
        let mut leader_cut = [NEVER; 2];
        let cut = at + dice.below(until - at + 1);
        if route != Route::Leader && dice.one_in(2) {
            let later = dice.length(tick, timeout);
            leader_cut = match dice.below(3) {
                0 if has(Fault::OneWayCuts) => [cut, cut + later],
                1 if has(Fault::OneWayCuts) => [cut + later, cut],
                _ => [cut; 2],
            };
        }
        connections.push(Connection {
            at,
            route,
            epoch,
            sends,
            eagerness: if dice.one_in(2) { dice.below(40) as usize } else { 0 },
            client_cut: [NEVER; 2],
            leader_cut,
            server_pauses: Pauses::default(),
            master_pauses: Pauses::default(),
        });
    }

    let mut client_pauses = Pauses::default();
    if has(Fault::ClientPauses) {
        for _ in 0..dice.below(3) {
            client_pauses.add(dice.below(end), dice.length(tick, timeout));
        }
    }
    let critical: Vec<Micros> = connections
        .iter()
        .map(|connection| connection.leader_cut[0].min(connection.leader_cut[1]))
        .chain(epochs.iter().map(|epoch| epoch.deposed))
        .map(|at| at.min(end))
        .collect();
    let pauses = |dice: &mut Dice, most: u64| {
        let mut pauses = Pauses::default();
        for _ in 0..dice.below(most + 1) {
            let length = dice.length(tick, timeout);
            let start = if dice.one_in(2) {
                dice.below(end)
            } else {
                // The pause begins shortly before a cut or an election, so that it affects what
                // happens then.
                let index = dice.below(critical.len() as u64) as usize;
                critical[index].saturating_sub(dice.below(length * 2))
            };
            pauses.add(start, length);
        }
        pauses
    };
    for connection in &mut connections {
        if has(Fault::ServerPauses) {
            connection.server_pauses = pauses(&mut dice, 3);
        }
        if has(Fault::MasterPauses) {
            connection.master_pauses = pauses(&mut dice, 2);
        }
    }
    let most = match (has(Fault::ManyLeaderPauses), has(Fault::LeaderPauses)) {
        (true, _) => 6,
        (false, true) => 2,
        (false, false) => 0,
    };
    for epoch in &mut epochs {
        epoch.pauses = pauses(&mut dice, most);
    }
    if has(Fault::PingStalls) {
        for epoch in &mut epochs {
            epoch.ping_stalls = pauses(&mut dice, 1);
        }
    }
    if most > 0 && dice.one_in(2) {
        chain(&mut dice, most, tick, timeout, &mut epochs, &mut connections);
    }

    let seldom = if has(Fault::StalledLinks) { dice.length(tick, timeout) } else { 3_000 };
    Plan {
        timeout,
        tick,
        rate,
        epochs,
        connections,
        client_pauses,
        latency: [3_000, seldom],
        ping_phase: None,
        ping_lag: if has(Fault::PingLag) { Lag::UpTo(tick / 8) } else { Lag::Never },
        note_lag: if has(Fault::LostTouches) { 5_000 } else { 1 },
        seed: dice.below(NEVER),
    }
}

/// Pauses a leader repeatedly, lets it run too briefly in between to send a ping, and finally cuts
/// its link.
fn chain(
    dice: &mut Dice,
    most: u64,
    tick: Micros,
    timeout: Micros,
    epochs: &mut [Epoch],
    connections: &mut [Connection],
) {
    let index = dice.below(connections.len() as u64) as usize;
    let connection = &mut connections[index];
    let last = connection.sends.last().map_or(connection.at, |(at, _)| *at);
    let mut at = connection.at + dice.below(last - connection.at + 1);
    let mut pauses = Pauses::default();
    let count = 1 + dice.below(most);
    // The leader has not learned of these pings when its pause begins.
    for _ in 0..2 {
        let before = dice.below(tick / 4);
        connection.sends.push((at.saturating_sub(before).max(connection.at + 1), Kind::Ping));
    }
    if dice.one_in(2) {
        // The server answers pings throughout.
        let step = tick / dice.pick([4, 8, 16]);
        let pings = (0..40).map(|n| (at + n * step, Kind::Ping)).filter(|(at, _)| *at < last);
        connection.sends.extend(pings);
    }
    for _ in 0..count {
        let length = dice.length(tick, timeout);
        pauses.add(at, length);
        at += length;
        for _ in 0..dice.below(4) {
            // The client sends this request during the pause, so the leader has something to answer
            // when it resumes.
            let kind = dice.pick([Kind::Sync, Kind::Write, Kind::Ping]);
            connection.sends.push(((at - dice.below(length + 1)).max(connection.at + 1), kind));
        }
        at += dice.below(tick / 8) + 1;
    }
    connection.sends.sort_by_key(|(at, _)| *at);
    epochs[connection.epoch].pauses = pauses;
    if connection.route != Route::Leader {
        let cut = at + dice.below(tick / 8);
        connection.leader_cut = [cut; 2];
    }
}

/// Returns the requests of one connection: a ping and a write at regular intervals, and other
/// requests in between.
fn sends(
    dice: &mut Dice,
    from: Micros,
    until: Micros,
    interval: Micros,
    is_eager: bool,
) -> Vec<(Micros, Kind)> {
    let mut sends = Vec::new();
    let mut at = from + 1;
    while at < until {
        sends.push((at, Kind::Ping));
        sends.push((at, Kind::Write));
        at += interval - dice.below(interval / 8);
    }
    let others = if is_eager { dice.below(60) } else { dice.below(4) };
    for _ in 0..others {
        let kind = dice.pick([Kind::Ping, Kind::Ping, Kind::Sync, Kind::Write]);
        sends.push((from + 1 + dice.below(until - from), kind));
    }
    sends.sort_by_key(|(at, _)| *at);
    sends
}
