//! Tests of formulas for a lease against a model of an ensemble (`ensemble`). They run many random
//! histories with the faults that a formula must tolerate, alone, in pairs and together
//! (`histories`), and all histories of a coarse grid (`grid`). A formula is wrong if it promises a
//! deadline that is later than the moment when the ensemble ends the session.
//!
//! `LEASE_HISTORIES` sets the number of random histories. `LEASE_SEED` selects a history to print,
//! with the deadlines of all formulas.

#![expect(clippy::indexing_slicing, reason = "formulas are numbered by their place in the list")]

mod ensemble;
mod formulas;
mod grid;
mod histories;

use std::collections::BTreeMap;

use self::ensemble::{History, Micros, Plan, run};
use self::formulas::Formula;
use self::histories::{Fault, plan};

/// The claim about a formula that the tests check.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Claim {
    /// The formula is right in every history.
    Safe,
    /// The formula is wrong, and random histories show it.
    Refuted,
    /// The formula is right if the leader is paused at most this many times, and wrong in some
    /// history of the grid with one more pause.
    Pauses(usize),
    /// The formula is right if the leader is paused at most this many times.
    AtLeast(usize),
    /// Like `Pauses`, but only in the grid. Random histories refute the formula with fewer pauses,
    /// but seldom.
    PausesInGrid(usize),
}

impl Claim {
    /// Returns how many pauses the formula survives in the grid.
    fn in_grid(self) -> Option<usize> {
        match self {
            Self::Safe | Self::Refuted => None,
            Self::Pauses(most) | Self::AtLeast(most) | Self::PausesInGrid(most) => Some(most),
        }
    }
}

const FORMULAS: [(&str, Formula, Claim); 14] = [
    ("the newest acknowledgement", formulas::newest, Claim::Refuted),
    ("a resume alone", formulas::resume, Claim::Refuted),
    ("the window of pings, as it ships", formulas::window, Claim::Refuted),
    ("k - 1", formulas::k_minus_1, Claim::Refuted),
    ("k - 2", formulas::k_minus_2, Claim::Refuted),
    ("two gaps, a sync for the write", formulas::g2_with_a_sync, Claim::Refuted),
    ("resumes that a write has proven", formulas::handshakes_only, Claim::Safe),
    ("a bridge, no gap", formulas::g0, Claim::Pauses(0)),
    ("a bridge, one gap", formulas::g1, Claim::Pauses(1)),
    ("two short bridges", formulas::h, Claim::Pauses(1)),
    ("a bridge, two gaps", formulas::g2, Claim::Pauses(2)),
    ("a bridge, two gaps, as it ships", formulas::written, Claim::AtLeast(2)),
    ("two gaps between all answers", formulas::g2_with_pings, Claim::PausesInGrid(2)),
    ("a bridge, three gaps", formulas::g3, Claim::Pauses(3)),
];

/// The maximum number of pauses of a leader in random histories.
const PAUSES: usize = 2;

/// The results of one formula.
#[derive(Clone, Debug, Default)]
struct Judged {
    histories: u64,
    wrong: u64,
    latest: Micros,
    /// The first history that refutes the formula: a seed, or a description of a plan of the grid.
    refuted: Option<String>,
    /// The number of histories in which the formula promised more than the creation of the session
    /// did.
    renewed: u64,
}

impl Judged {
    fn judge(
        &mut self,
        formula: Formula,
        plan: &Plan,
        history: &History,
        name: impl FnOnce() -> String,
    ) {
        let end = formula(&history.seen, plan) * 1000 / plan.rate;
        let late = end.saturating_sub(history.over);
        self.histories += 1;
        self.renewed += u64::from(end > plan.timeout);
        self.latest = self.latest.max(late);
        if late > 0 {
            self.wrong += 1;
            self.refuted.get_or_insert_with(name);
        }
    }

    fn add(&mut self, other: &Self) {
        self.histories += other.histories;
        self.wrong += other.wrong;
        self.latest = self.latest.max(other.latest);
        self.renewed += other.renewed;
        self.refuted = self.refuted.take().or_else(|| other.refuted.clone());
    }
}

type Table = BTreeMap<usize, Judged>;

/// Judges these formulas on histories with these faults, on all processors.
fn judge(seeds: std::ops::Range<u64>, faults: &[Fault], formulas: &[usize]) -> Table {
    on_all_processors(|offset, threads| {
        let mut table = Table::new();
        for seed in (seeds.start + offset as u64..seeds.end).step_by(threads) {
            let plan = plan(seed, faults);
            let history = run(&plan, false);
            for index in formulas {
                let judged = table.entry(*index).or_default();
                let name = || format!("LEASE_SEED={seed}");
                judged.judge(FORMULAS[*index].1, &plan, &history, name);
            }
        }
        table
    })
}

/// Runs `part` in one thread per processor, and adds up the results. The arguments of `part` are
/// the number of its thread and the count of threads.
fn on_all_processors(part: impl Fn(usize, usize) -> Table + Sync) -> Table {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let part = &part;
    std::thread::scope(|scope| {
        let running: Vec<_> =
            (0..threads).map(|number| scope.spawn(move || part(number, threads))).collect();
        let mut all = Table::new();
        for thread in running {
            for (index, judged) in thread.join().expect("it does not panic") {
                all.entry(index).or_default().add(&judged);
            }
        }
        all
    })
}

fn show(table: &Table) {
    for (index, judged) in table {
        let Judged { histories, wrong, latest, refuted, renewed } = judged;
        let (name, ..) = FORMULAS[*index];
        let first = refuted.as_ref().map_or(String::new(), |name| format!(", as with {name}"));
        let latest = *latest / 1000;
        eprintln!(
            "{name}: wrong in {wrong} of {histories}, by up to {latest} ms{first}; \
             renewed in {renewed}"
        );
    }
}

fn histories(usual: u64) -> u64 {
    match std::env::var("LEASE_HISTORIES").map(|count| count.parse()) {
        Ok(count) => count.expect("LEASE_HISTORIES is a number"),
        Err(_) => usual,
    }
}

fn those(is_wanted: impl Fn(Claim) -> bool) -> Vec<usize> {
    (0..FORMULAS.len()).filter(|index| is_wanted(FORMULAS[*index].2)).collect()
}

/// Returns the formulas that must be right in random histories.
fn safe() -> Vec<usize> {
    those(|claim| match claim {
        Claim::Safe => true,
        Claim::Pauses(most) | Claim::AtLeast(most) => most >= PAUSES,
        Claim::PausesInGrid(_) | Claim::Refuted => false,
    })
}

#[test]
fn safe_formulas_end_before_the_session_with_every_fault() {
    let table = judge(0..histories(20_000), &Fault::ALL, &safe());
    show(&table);
    for (index, judged) in table {
        assert_eq!(judged.wrong, 0, "{}", FORMULAS[index].0);
        assert!(judged.renewed > judged.histories / 10, "{}: {judged:?}", FORMULAS[index].0);
    }
}

#[test]
fn safe_formulas_end_before_the_session_with_each_fault_and_each_pair() {
    let each = histories(20_000) / 50;
    for (at, one) in Fault::ALL.iter().enumerate() {
        for other in &Fault::ALL[at..] {
            for (index, judged) in judge(0..each, &[*one, *other], &safe()) {
                let name = FORMULAS[index].0;
                assert_eq!(judged.wrong, 0, "{name}, {one:?} and {other:?}: {judged:?}");
            }
        }
    }
}

/// The shipped lease remembers fewer answers than the formula, so it may promise less, but never
/// more. The tests above might miss a lease that promises more, because it need not be wrong in any
/// of their histories.
#[test]
fn no_more_is_promised_than_by_the_formula() {
    let mut renewed = 0;
    for seed in 0..histories(20_000) / 10 {
        let plan = plan(seed, &Fault::ALL);
        let seen = run(&plan, false).seen;
        let (end, most) = (formulas::written(&seen, &plan), formulas::g2_at_most(&seen, &plan));
        assert!(end <= most, "{} us too much; again with LEASE_SEED={seed}", end - most);
        renewed += u64::from(end > plan.timeout);
    }
    assert!(renewed > 100, "{renewed} renewed");
}

/// The histories prove something about safe formulas only if they refute the unsafe ones.
#[test]
fn formulas_that_are_not_safe_are_refuted() {
    const CHUNK: u64 = 4_000;
    const CHUNKS: u64 = 25;
    let mut left = those(|claim| claim == Claim::Refuted);
    for chunk in 0..CHUNKS {
        let table = judge(chunk * CHUNK..(chunk + 1) * CHUNK, &Fault::ALL, &left);
        show(&table);
        left.retain(|index| table[index].wrong == 0);
        if left.is_empty() {
            return;
        }
    }
    let names: Vec<_> = left.iter().map(|index| FORMULAS[*index].0).collect();
    panic!("no history refutes {names:?}");
}

/// A leader with the default configuration may hang in its ping thread, which closes the sockets of
/// learners that do not read, while commits go on. Only a resume tells the leader itself of a
/// session.
#[test]
fn resumes_alone_survive_a_ping_thread_that_stands_still() {
    let faults = [&Fault::ALL[..], &[Fault::PingStalls]].concat();
    let table = judge(0..histories(20_000), &faults, &safe());
    show(&table);
    for (index, judged) in table {
        let (name, _, claim) = FORMULAS[index];
        assert_eq!(judged.wrong == 0, claim == Claim::Safe, "{name}: {judged:?}");
    }
}

/// In the histories of the grid, each gap that a formula pays for lets it survive one more pause.
#[test]
fn a_bridge_survives_as_many_pauses_of_the_leader_as_it_pays_for() {
    for (pauses, longest) in [(1, 12), (2, 8), (3, 4)] {
        let is_near = |most| (pauses - 1..=pauses).contains(&most);
        let formulas = those(|claim| claim.in_grid().is_some_and(is_near));
        let table = on_all_processors(|number, threads| {
            let mut table = Table::new();
            let plans = grid::calm();
            // No shipped lease claims to survive three pauses. The plans with frequent writes
            // reveal the most, and all plans would take longer than the other suites together.
            let some = if pauses > 2 { 4 } else { plans.len() };
            for plan in plans.iter().take(some).skip(number).step_by(threads) {
                grid::each(plan, pauses, longest, &mut |plan| {
                    let history = run(plan, false);
                    for index in &formulas {
                        let judged = table.entry(*index).or_default();
                        let name = || grid::name(plan);
                        judged.judge(FORMULAS[*index].1, plan, &history, name);
                    }
                });
            }
            table
        });
        eprintln!("the leader stands still {pauses} times:");
        show(&table);
        for (index, judged) in table {
            let (name, _, claim) = FORMULAS[index];
            let is_survived = claim.in_grid() == Some(pauses);
            if is_survived || !matches!(claim, Claim::AtLeast(_)) {
                assert_eq!(judged.wrong == 0, is_survived, "{name}: {judged:?}");
            }
            assert!(judged.renewed > 0, "{}: {judged:?}", FORMULAS[index].0);
        }
    }
}

#[test]
fn a_history_can_be_read() {
    let seed = std::env::var("LEASE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let plan = plan(seed, &Fault::ALL);
    let history = run(&plan, true);
    eprintln!("{plan:?}");
    for (at, line) in &history.trace {
        eprintln!("{:10.3} {line}", *at as f64 / 1e6);
    }
    eprintln!("{:10.3} the session is over", history.over as f64 / 1e6);
    for (name, formula, _) in FORMULAS {
        let end = formula(&history.seen, &plan) * 1000 / plan.rate;
        eprintln!("{:10.3} ends the lease by {name}", end as f64 / 1e6);
    }
    assert!(history.trace.len() > 2);
}
