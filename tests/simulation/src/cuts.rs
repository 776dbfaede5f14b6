//! What a run leaves out of its seed. Everything else stays as it was drawn.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser};

use crate::history::Who;
use crate::program::Program;
use crate::world::plan::{CLOCK_RATE, FAULT_KINDS, FaultKind, MORE_FAULT_KINDS, Plan};

/// What a run leaves out of its seed, as options of the program.
#[derive(Args, Clone, Debug, Default, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "the shrinking changes its parts")]
#[command(next_help_heading = "Parts of the seed that the run leaves out")]
pub struct Cuts {
    /// Leaves out these kinds of faults (cut, late-commit, ...) and these delays (latency, jitter,
    /// commit, service, lag, unapplied, leader-unapplied); drops: no call is dropped; clocks: all run at one
    /// speed; leases: they have their usual length; limits: no client permits few requests; access:
    /// nobody has an identity; ends: no client ends before the others; moves: no list of servers
    /// changes; mortals: all clients open another session after one has expired; blind: all clients
    /// may read everything.
    #[arg(long, value_name = "PART,...", requires = "seed")]
    pub without: Option<List<Part>>,
    /// Leaves out these faults, by their numbers in the trace.
    #[arg(long, value_name = "N,N-M,...", requires = "seed")]
    pub skip_faults: Option<Numbers>,
    /// Leaves out all tasks but these.
    #[arg(long, value_name = "cN.tM,...", requires = "seed")]
    pub tasks: Option<List<Who>>,
    /// Ends each task after this many steps.
    #[arg(long, value_name = "N", requires = "seed")]
    pub steps: Option<u64>,
    /// The number of servers.
    #[arg(long, value_name = "N", requires = "seed")]
    pub members: Option<usize>,
    /// Ends the faults this long after the beginning.
    #[arg(long, value_name = "MS", requires = "seed")]
    pub calm_at_ms: Option<u64>,
}

/// A part of a world that a run may leave out.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[allow(clippy::exhaustive_enums, reason = "each part can be left out")]
pub enum Part {
    /// Faults of this kind.
    Fault(FaultKind),
    /// The time that packets travel.
    Latency,
    /// Different times for packets.
    Jitter,
    /// The time that commits take.
    Commit,
    /// The time for a request that is sent with others.
    Service,
    /// Followers that learn of writes late.
    Lag,
    /// Followers that apply late what they have learned.
    Unapplied,
    /// A leader that applies its commits late.
    LeaderUnapplied,
    /// Calls that are dropped.
    Drops,
    /// A clock of the servers that runs faster or slower.
    Clocks,
    /// Leases that are longer than usual.
    Leases,
    /// Clients that permit few requests.
    Limits,
    /// The identity of the clients, and whoever lacks it.
    Access,
    /// Clients that end while others go on.
    Ends,
    /// Lists of servers that change.
    Moves,
    /// Clients that end when their session expires.
    Mortals,
    /// Clients that may not read what others create.
    Blind,
}

/// The parts that are not faults.
pub const CALM_PARTS: [Part; 16] = [
    Part::Clocks,
    Part::Leases,
    Part::Limits,
    Part::Access,
    Part::Ends,
    Part::Moves,
    Part::Mortals,
    Part::Blind,
    Part::Latency,
    Part::Jitter,
    Part::Commit,
    Part::Service,
    Part::Lag,
    Part::Unapplied,
    Part::LeaderUnapplied,
    Part::Drops,
];

/// A list of names, as in `a,b`.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "a set")]
pub struct List<T>(pub BTreeSet<T>);

/// A list of numbers, as in `3,5-9`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "a set")]
pub struct Numbers(pub BTreeSet<u64>);

/// The most numbers that a range may have: nobody has a world with more faults.
const RANGE_MAX: u64 = 100_000;

/// Returns all kinds of faults.
pub fn all_faults() -> impl Iterator<Item = FaultKind> {
    FAULT_KINDS.into_iter().chain(MORE_FAULT_KINDS)
}

impl Cuts {
    /// Reads the number of a seed and the options after it, as the program prints them.
    ///
    /// # Errors
    ///
    /// If it is not a number, or there is no such option.
    pub fn parse(line: &str) -> Result<(u64, Self), String> {
        let words = ["", "--seed"].into_iter().chain(line.split_whitespace());
        let read = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok((read.seed, read.cuts))
    }

    /// Returns whether the run leaves nothing out.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether the run leaves this out.
    pub fn has(&self, part: Part) -> bool {
        self.without.as_ref().is_some_and(|parts| parts.0.contains(&part))
    }

    /// Returns whether the run leaves out the fault of this number.
    pub fn skips(&self, fault: u64) -> bool {
        self.skip_faults.as_ref().is_some_and(|numbers| numbers.0.contains(&fault))
    }

    /// Takes what is left out away from what was drawn.
    pub fn apply(&self, plan: &mut Plan, program: &mut Program) {
        let members = self.members.unwrap_or(plan.members).clamp(1, plan.members);
        let is_alone = members == 1 && plan.members > 1;
        plan.members = members;
        let delays = [
            (Part::Latency, &mut plan.latency),
            (Part::Jitter, &mut plan.jitter),
            (Part::Commit, &mut plan.commit),
            (Part::Service, &mut plan.service),
            (Part::Lag, &mut plan.lag),
            (Part::Unapplied, &mut plan.unapplied),
            (Part::LeaderUnapplied, &mut plan.leader_unapplied),
        ];
        for (part, delay) in delays {
            let is_of_several = matches!(part, Part::Lag | Part::Unapplied | Part::LeaderUnapplied);
            if self.has(part) || (is_alone && is_of_several) {
                *delay = Duration::ZERO;
            }
        }
        let is_partition = |kind: FaultKind| is_alone && kind == FaultKind::Partition;
        plan.faults.retain(|kind| !self.has(Part::Fault(*kind)) && !is_partition(*kind));
        if self.has(Part::Access) {
            plan.is_protected = false;
            // Anybody may change what is not protected.
            plan.faults.retain(|kind| *kind != FaultKind::Intruder);
        }
        if self.has(Part::Clocks) {
            plan.clock_rate = CLOCK_RATE;
        }
        plan.leases.take_if(|_| self.has(Part::Leases));
        plan.outstanding.take_if(|_| self.has(Part::Limits));
        plan.mortals.take_if(|_| self.has(Part::Mortals));
        plan.blind.take_if(|_| self.has(Part::Blind));
        if let Some(ms) = self.calm_at_ms {
            plan.calm_at = plan.calm_at.min(Duration::from_millis(ms));
        }
        program.drops_nothing = self.has(Part::Drops);
        program.ends.take_if(|_| self.has(Part::Ends));
        program.moves.take_if(|_| self.has(Part::Moves));
        program.steps = self.steps.map_or(program.steps, |steps| steps.min(program.steps));
        let Some(kept) = &self.tasks else { return };
        for (client, tasks) in program.clients.iter_mut().enumerate() {
            for (task, jobs) in tasks.iter_mut().enumerate() {
                if !kept.0.contains(&Who { client, task }) {
                    jobs.clear();
                }
            }
        }
    }
}

impl fmt::Display for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { without, skip_faults, tasks, steps, members, calm_at_ms } = self;
        let options = [
            ("without", without.as_ref().map(ToString::to_string)),
            ("skip-faults", skip_faults.as_ref().map(ToString::to_string)),
            ("tasks", tasks.as_ref().map(ToString::to_string)),
            ("steps", steps.map(|steps| steps.to_string())),
            ("members", members.map(|members| members.to_string())),
            ("calm-at-ms", calm_at_ms.map(|ms| ms.to_string())),
        ];
        let mut words = options.into_iter().filter_map(|(name, value)| Some((name, value?)));
        words.try_for_each(|(name, value)| write!(f, " --{name} {value}"))
    }
}

#[derive(Parser)]
struct Line {
    #[arg(long)]
    seed: u64,
    #[command(flatten)]
    cuts: Cuts,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Fault(kind) => format!("{kind:?}"),
            other => format!("{other:?}"),
        };
        for (index, letter) in name.chars().enumerate() {
            if letter.is_uppercase() && index > 0 {
                f.write_str("-")?;
            }
            write!(f, "{}", letter.to_lowercase())?;
        }
        Ok(())
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let mut all = all_faults().map(Self::Fault).chain(CALM_PARTS);
        all.find(|part| part.to_string() == name).ok_or_else(|| format!("there is no {name}"))
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}.t{}", self.client, self.task)
    }
}

impl FromStr for Who {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let numbers = name.strip_prefix('c').and_then(|rest| rest.split_once(".t"));
        let who = numbers.and_then(|(client, task)| {
            Some(Self { client: client.parse().ok()?, task: task.parse().ok()? })
        });
        who.ok_or_else(|| format!("{name} is not a task, such as c0.t1"))
    }
}

impl<T: fmt::Display> fmt::Display for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&names.join(","))
    }
}

impl<T: FromStr<Err = String> + Ord> FromStr for List<T> {
    type Err = String;

    fn from_str(names: &str) -> Result<Self, String> {
        names.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for number in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *number => *last = *number,
                _ => ranges.push((*number, *number)),
            }
        }
        let text = |(first, last): &(u64, u64)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        f.write_str(&ranges.iter().map(text).collect::<Vec<_>>().join(","))
    }
}

impl FromStr for Numbers {
    type Err = String;

    fn from_str(ranges: &str) -> Result<Self, String> {
        let mut numbers = BTreeSet::new();
        for range in ranges.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) else {
                return Err(format!("{range} is neither a number nor a range, such as 5-9"));
            };
            if last < first || last - first > RANGE_MAX {
                return Err(format!("the range {range} is empty or too long"));
            }
            numbers.extend(first..=last);
        }
        Ok(Self(numbers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_again() {
        let line = "7 --without cut,late-commit,latency,drops --skip-faults 3,5-9 --tasks \
                    c0.t1,c2.t0 --steps 4 --members 1 --calm-at-ms 1500";
        let (seed, cuts) = Cuts::parse(line).unwrap();
        assert_eq!(format!("{seed}{cuts}"), line);
        assert!(cuts.has(Part::Fault(FaultKind::LateCommit)) && !cuts.has(Part::Jitter));
        assert!(cuts.skips(5) && cuts.skips(9) && !cuts.skips(4) && !cuts.skips(10));
        assert_eq!(Cuts::parse("7"), Ok((7, Cuts::default())));
    }

    #[test]
    fn what_does_not_exist_is_refused() {
        for line in ["x", "7 --without no", "7 --tasks c1", "7 --skip-faults 9-5", "7 --seeds 3"] {
            assert!(Cuts::parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn each_part_has_a_name() {
        for part in all_faults().map(Part::Fault).chain(CALM_PARTS) {
            assert_eq!(part.to_string().parse(), Ok(part));
        }
    }
}
