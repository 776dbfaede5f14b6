//! Shrinking: finds a smaller run of a seed that breaks the same promise.
//!
//! The search is greedy: it leaves out one part after the other, keeps what still fails, and begins
//! again until nothing more can be left out. It draws nothing, so the same seed shrinks in the same
//! way.

use std::collections::BTreeSet;
use std::mem;

use crate::cuts::{CALM_PARTS, Cuts, List, Numbers, Part, all_faults};
use crate::draw::Draw;
use crate::history::Who;
use crate::run::{Report, drawn, run, run_again};
use crate::world::faults::Struck;
use crate::world::plan::{CLOCK_RATE, FaultKind};

/// The smallest run that was found.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "programs read it")]
pub struct Shrunk {
    /// What it leaves out.
    pub cuts: Cuts,
    /// What happens in it.
    pub report: Report,
    /// The promise that it breaks.
    pub promise: &'static str,
    /// How many runs the search has taken.
    pub runs: u64,
}

/// Shrinks the run of a seed that leaves this out already, with at most this many runs. Tells the
/// progress to somebody. Returns `None` if the run breaks no promise.
pub fn shrink(
    seed: u64,
    cuts: &Cuts,
    runs_max: u64,
    tell: impl FnMut(&str),
) -> Option<Box<Shrunk>> {
    shrink_by(seed, cuts, runs_max, tell, |report| {
        report.violations.iter().map(|violation| violation.promise).collect()
    })
}

/// Returns the promises that a run breaks.
type Judge = fn(&Report) -> Vec<&'static str>;

fn shrink_by(
    seed: u64,
    cuts: &Cuts,
    runs_max: u64,
    tell: impl FnMut(&str),
    judge: Judge,
) -> Option<Box<Shrunk>> {
    let whole = run(seed);
    let faults = whole.faults.clone();
    let report = if cuts.is_empty() { whole } else { run_again(seed, cuts, &faults) };
    let promise = *judge(&report).first()?;
    let shrunk = Shrunk { cuts: cuts.clone(), report, promise, runs: 0 };
    let mut search = Search { seed, faults, runs_max, tell, judge, shrunk };
    let mut before = None;
    while before.as_ref() != Some(&search.shrunk.cuts) && search.shrunk.runs < runs_max {
        before = Some(search.shrunk.cuts.clone());
        search.leave_out_tasks();
        search.leave_out_parts();
        search.lower_numbers();
        search.leave_out_faults();
    }
    Some(Box::new(search.shrunk))
}

struct Search<T> {
    seed: u64,
    /// The faults of the whole seed.
    faults: Vec<Struck>,
    runs_max: u64,
    tell: T,
    judge: Judge,
    shrunk: Shrunk,
}

impl<T: FnMut(&str)> Search<T> {
    /// Keeps this if it breaks the same promise. Returns whether it does.
    fn keeps(&mut self, cuts: Cuts) -> bool {
        // There must be a task.
        let has_tasks = cuts.tasks.as_ref().is_none_or(|tasks| !tasks.0.is_empty());
        if cuts == self.shrunk.cuts || !has_tasks || self.shrunk.runs >= self.runs_max {
            return false;
        }
        self.shrunk.runs += 1;
        let report = run_again(self.seed, &cuts, &self.faults);
        let is_broken = (self.judge)(&report).contains(&self.shrunk.promise);
        if is_broken {
            self.shrunk.report = report;
            self.shrunk.cuts = cuts;
        }
        (self.tell)(&self.shrunk.size(self.seed));
        is_broken
    }

    /// Leaves out as many of these as possible: first halves of them, then smaller parts, in the end
    /// single ones.
    fn leave_out<I: Copy + Ord>(&mut self, all: Vec<I>, cut: impl Fn(&mut Cuts, &BTreeSet<I>)) {
        let mut left = all;
        let mut size = left.len();
        while size > 0 {
            for part in left.clone().chunks(size) {
                let part: BTreeSet<I> = part.iter().copied().collect();
                let mut cuts = self.shrunk.cuts.clone();
                cut(&mut cuts, &part);
                if self.keeps(cuts) {
                    left.retain(|one| !part.contains(one));
                }
            }
            size = if size == 1 { 0 } else { size.min(left.len()).div_ceil(2) };
        }
    }

    fn leave_out_tasks(&mut self) {
        let (_, program) = drawn(self.seed, &mut Draw::new(self.seed), &self.shrunk.cuts);
        let mut tasks = Vec::new();
        for (client, jobs) in program.clients.iter().enumerate() {
            let used = jobs.iter().enumerate().filter(|(_, jobs)| !jobs.is_empty());
            tasks.extend(used.map(|(task, _)| Who { client, task }));
        }
        let all: BTreeSet<Who> = tasks.iter().copied().collect();
        let cut = |cuts: &mut Cuts, part: &BTreeSet<Who>| {
            let kept = cuts.tasks.as_ref().map_or(&all, |list| &list.0);
            cuts.tasks = Some(List(kept.difference(part).copied().collect()));
        };
        // A client at a time first.
        for client in 0..program.clients.len() {
            let part = tasks.iter().copied().filter(|who| who.client == client).collect();
            let mut cuts = self.shrunk.cuts.clone();
            cut(&mut cuts, &part);
            if self.keeps(cuts) {
                tasks.retain(|who| who.client != client);
            }
        }
        self.leave_out(tasks, cut);
    }

    fn leave_out_parts(&mut self) {
        let (plan, program) = drawn(self.seed, &mut Draw::new(self.seed), &self.shrunk.cuts);
        let is_there = |part: &Part| match part {
            Part::Fault(kind) => plan.faults.contains(kind),
            Part::Latency => !plan.latency.is_zero(),
            Part::Jitter => !plan.jitter.is_zero(),
            Part::Commit => !plan.commit.is_zero(),
            Part::Service => !plan.service.is_zero(),
            Part::Lag => !plan.lag.is_zero(),
            Part::Unapplied => !plan.unapplied.is_zero(),
            Part::LeaderUnapplied => !plan.leader_unapplied.is_zero(),
            Part::Drops => program.drops > 0 && !program.drops_nothing,
            Part::Clocks => plan.clock_rate != CLOCK_RATE,
            Part::Leases => plan.leases.is_some(),
            Part::Limits => plan.outstanding.is_some(),
            Part::Access => plan.is_protected,
            Part::Ends => program.ends.is_some(),
            Part::Moves => program.moves.is_some(),
            Part::Mortals => plan.mortals.is_some(),
            Part::Blind => plan.blind.is_some(),
        };
        let cut = |cuts: &mut Cuts, part: &BTreeSet<Part>| {
            cuts.without.get_or_insert_with(|| List(BTreeSet::new())).0.extend(part);
        };
        let kinds = all_faults().map(Part::Fault).filter(is_there).collect();
        self.leave_out(kinds, cut);
        self.leave_out(CALM_PARTS.into_iter().filter(is_there).collect(), cut);
    }

    fn lower_numbers(&mut self) {
        let (plan, program) = drawn(self.seed, &mut Draw::new(self.seed), &self.shrunk.cuts);
        for members in [1, 3] {
            let cuts = Cuts { members: Some(members), ..self.shrunk.cuts.clone() };
            if members < plan.members && self.keeps(cuts) {
                break;
            }
        }
        self.lower(program.steps, |cuts, steps| cuts.steps = Some(steps));
        let calm_at_ms = u64::try_from(plan.calm_at.as_millis()).unwrap_or(u64::MAX);
        self.lower(calm_at_ms, |cuts, ms| cuts.calm_at_ms = Some(ms));
    }

    /// Finds a small number that still breaks the promise, by halves.
    fn lower(&mut self, number: u64, set: impl Fn(&mut Cuts, u64)) {
        let (mut works, mut fails) = (number, 0);
        // A sixteenth is close enough.
        while works - fails > 1.max(number / 16) {
            let middle = fails + (works - fails) / 2;
            let mut cuts = self.shrunk.cuts.clone();
            set(&mut cuts, middle);
            if self.keeps(cuts) {
                works = middle;
            } else {
                fails = middle;
            }
        }
    }

    fn leave_out_faults(&mut self) {
        let numbers = self.shrunk.report.fault_numbers();
        self.leave_out(numbers, |cuts, part| {
            let mut skipped = mem::take(&mut cuts.skip_faults).unwrap_or_default();
            skipped.0.extend(part);
            cuts.skip_faults = Some(skipped);
        });
        self.tidy();
    }

    /// Names no fault that would not happen anyway.
    fn tidy(&mut self) {
        let (plan, _) = drawn(self.seed, &mut Draw::new(self.seed), &self.shrunk.cuts);
        let is_left = |kind: &FaultKind| plan.faults.contains(kind);
        let possible = (1..)
            .zip(&self.faults)
            .filter(|(_, fault)| is_left(&fault.kind()) && fault.at() < plan.calm_at);
        let possible: BTreeSet<u64> = possible.map(|(number, _)| number).collect();
        let skipped = self.shrunk.cuts.skip_faults.take().unwrap_or_default();
        let needed: BTreeSet<u64> = skipped.0.intersection(&possible).copied().collect();
        self.shrunk.cuts.skip_faults = (!needed.is_empty()).then_some(Numbers(needed));
    }
}

impl Shrunk {
    /// Returns how large the run is, for people.
    pub fn size(&self, seed: u64) -> String {
        let (plan, program) = drawn(seed, &mut Draw::new(seed), &self.cuts);
        format!(
            "{} runs: {} tasks, {} steps, {} members, {} faults, calm at {:?}",
            self.runs,
            program.tasks().count(),
            program.steps,
            plan.members,
            self.report.faults.len(),
            plan.calm_at,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::What;
    use crate::sample;

    /// Two tasks and a fault, of which there are many more in the world.
    fn needs_two_tasks_and_a_cut(report: &Report) -> Vec<&'static str> {
        let begins = |client: usize, task: usize| {
            let who = Some(Who { client, task });
            let begun = |what: &What| matches!(what, What::Begun { .. });
            report.events.iter().any(|event| event.who == who && begun(&event.what))
        };
        let cuts = report.faults.iter().filter(|fault| fault.kind() == FaultKind::Cut).count();
        let is_broken = begins(0, 1) && begins(2, 2) && cuts > 1;
        if is_broken { vec!["planted"] } else { vec![] }
    }

    #[test]
    fn what_a_violation_does_not_need_is_left_out() {
        let judge: Judge = needs_two_tasks_and_a_cut;
        let seed = (1..1_000).find(|seed| !judge(&run(*seed)).is_empty()).unwrap();
        let shrunk = shrink_by(seed, &Cuts::default(), 1_000, |_| (), judge).unwrap();
        let (plan, program) = drawn(seed, &mut Draw::new(seed), &shrunk.cuts);
        assert_eq!(program.tasks().count(), 2);
        assert_eq!(plan.faults, [FaultKind::Cut]);
        assert_eq!((plan.members, program.steps), (1, 1));
        assert_eq!(shrunk.report.faults.len(), 2);
        assert!(shrunk.runs < 200, "{} runs", shrunk.runs);
        // What it prints means the same run.
        let (_, read) = Cuts::parse(&format!("{seed}{}", shrunk.cuts)).unwrap();
        assert_eq!(run_again(seed, &read, &run(seed).faults).hash, shrunk.report.hash);
    }

    #[test]
    fn the_number_of_runs_is_bounded() {
        let judge: Judge = |_| vec!["planted"];
        let shrunk = shrink_by(1, &Cuts::default(), 3, |_| (), judge).unwrap();
        assert_eq!(shrunk.runs, 3);
    }

    #[test]
    fn a_seed_that_breaks_nothing_is_not_shrunk() {
        assert!(shrink(1, &Cuts::default(), 10, |_| ()).is_none());
    }

    #[test]
    fn a_run_with_the_faults_of_the_whole_seed_is_the_whole_seed() {
        for whole in sample::newest().iter().take(16) {
            let again = run_again(whole.seed, &Cuts::default(), &whole.faults);
            assert_eq!(again.hash, whole.hash, "{}", whole.seed);
        }
    }
}
