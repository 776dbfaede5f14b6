//! The rules of a mixed queue: contenders of several implementations compete for one lock, and
//! report to a referee.
//!
//! A contender sends `enter` after it was granted the lock, and begins its work when the referee
//! acknowledges the message. It sends `leave` when the work is done, and releases the lock when the
//! referee acknowledges the message. So the contender holds the lock for the whole time between the
//! two messages, and does all its work in that time: overlaps that the referee sees are real, and
//! it misses no overlap of work. For the same reason a writer sends `downgrade` before it becomes a
//! reader.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Requirements for a queue.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Directory of the lock.
    pub directory: String,
    /// Number of contenders.
    pub contenders: usize,
    /// Minimum number of hand-offs between implementations.
    pub hand_offs_min: usize,
    /// Minimum number of grants of each contender and each kind.
    pub grants_min: usize,
    /// Further requirements if the lock has readers.
    pub readers: Option<Readers>,
}

/// Requirements for a lock with readers.
#[derive(Clone, Copy, Debug)]
pub struct Readers {
    /// Minimum number of times that readers of each implementation joined a reader of another
    /// implementation that is ahead of them in the queue. A reader that waits for other readers
    /// never joins them.
    pub joins_min: usize,
    /// Minimum number of writers that became readers without releasing the lock in between.
    pub downgrades_min: usize,
}

/// Which other contenders may hold the lock at the same time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "there is no third kind")]
pub enum Kind {
    /// No other contenders.
    Exclusive,
    /// Other contenders that share the lock.
    Shared,
}

/// A message of a contender.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "complete by definition")]
pub enum Word {
    /// The contender is connected, and belongs to this implementation.
    Hello(String),
    /// The contender was granted the lock, with this znode.
    Enter(Kind, String),
    /// The contender is about to share the lock.
    Downgrade,
    /// The contender is about to release the lock.
    Leave,
    /// The contender gave up waiting, as planned.
    Missed,
    /// The contender has released everything, and its session is still alive.
    Done,
}

/// Follows the contenders, and checks the rules.
#[derive(Debug)]
pub struct Referee {
    rules: Rules,
    contenders: Vec<Contender>,
    inside: Vec<Inside>,
    last: Option<(String, Kind)>,
    /// The highest sequence number that has entered, among all contenders and among exclusive ones.
    highest: Option<u32>,
    highest_exclusive: Option<u32>,
    figures: Figures,
    problems: Vec<String>,
}

/// Figures of a queue.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Figures {
    /// Exclusive grants.
    pub exclusive: usize,
    /// Shared grants.
    pub shared: usize,
    /// Grants to a different implementation than the previous grant, if at least one of the two
    /// grants is exclusive.
    pub hand_offs: usize,
    /// Readers that joined a reader of another implementation that is ahead of them in the queue.
    pub joins: usize,
    /// Writers that became readers.
    pub downgrades: usize,
    /// Acquires that gave up waiting.
    pub missed: usize,
}

#[derive(Debug)]
struct Contender {
    implementation: String,
    phase: Phase,
    exclusive: usize,
    shared: usize,
    joins: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Outside,
    Inside,
    Done,
    Gone,
}

#[derive(Debug)]
struct Inside {
    contender: usize,
    kind: Kind,
    znode: String,
    sequence: Option<u32>,
}

impl Referee {
    /// Creates a referee without contenders.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            contenders: Vec::new(),
            inside: Vec::new(),
            last: None,
            highest: None,
            highest_exclusive: None,
            figures: Figures::default(),
            problems: Vec::new(),
        }
    }

    /// Registers a contender that has said hello, and returns its number.
    pub fn admit(&mut self, implementation: &str) -> usize {
        let number = self.contenders.len();
        if number >= self.rules.contenders {
            self.problem(format!("one more than {number} contenders"));
        }
        self.contenders.push(Contender {
            implementation: implementation.to_owned(),
            phase: Phase::Outside,
            exclusive: 0,
            shared: 0,
            joins: 0,
        });
        number
    }

    /// Handles a message of a contender.
    pub fn hear(&mut self, number: usize, word: &Word) {
        let Some(contender) = self.contenders.get_mut(number) else {
            return self.problem(format!("{word:?} of {number}, who never came"));
        };
        let before = contender.phase;
        let (expected, after) = match word {
            Word::Hello(_) => (None, before),
            Word::Enter(..) => (Some(Phase::Outside), Phase::Inside),
            Word::Downgrade => (Some(Phase::Inside), Phase::Inside),
            Word::Leave => (Some(Phase::Inside), Phase::Outside),
            Word::Missed => (Some(Phase::Outside), Phase::Outside),
            Word::Done => (Some(Phase::Outside), Phase::Done),
        };
        contender.phase = after;
        if expected != Some(before) {
            return self.problem(format!("out of turn, {before:?}: {word:?} of {number}"));
        }
        match word {
            Word::Hello(_) | Word::Done => {}
            Word::Enter(kind, znode) => self.enter(number, *kind, znode),
            Word::Downgrade => self.downgrade(number),
            Word::Leave => self.inside.retain(|one| one.contender != number),
            Word::Missed => self.figures.missed += 1,
        }
    }

    /// Handles the end of a contender's connection.
    pub fn hung_up(&mut self, number: usize) {
        let Some(contender) = self.contenders.get_mut(number) else { return };
        let before = std::mem::replace(&mut contender.phase, Phase::Gone);
        if before != Phase::Done {
            self.problem(format!("{number} went away, {before:?}"));
        }
        self.inside.retain(|one| one.contender != number);
    }

    /// Reports another problem.
    pub fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    /// Returns whether all contenders have connected.
    pub fn all_are_here(&self) -> bool {
        self.contenders.len() >= self.rules.contenders
    }

    /// Returns whether no contender still competes for the lock.
    pub fn all_are_done(&self) -> bool {
        let is_over = |one: &Contender| matches!(one.phase, Phase::Done | Phase::Gone);
        self.all_are_here() && self.contenders.iter().all(is_over)
    }

    /// Returns whether all contenders have disconnected.
    pub fn all_are_gone(&self) -> bool {
        self.all_are_here() && self.contenders.iter().all(|one| one.phase == Phase::Gone)
    }

    /// Returns whether the queue may end: all requirements are met, or a rule was violated.
    pub fn is_enough(&self) -> bool {
        !self.problems.is_empty() || self.missing().is_empty()
    }

    /// Returns the requirements that are not met yet.
    pub fn missing(&self) -> Vec<String> {
        let Rules { contenders, hand_offs_min, grants_min, readers, .. } = self.rules;
        let mut missing = Vec::new();
        let mut demand = |what: &str, number: usize, least: usize| {
            if number < least {
                missing.push(format!("{what}: {number}, not {least}"));
            }
        };
        demand("contenders", self.contenders.len(), contenders);
        demand("hand-offs between implementations", self.figures.hand_offs, hand_offs_min);
        let mut joins: BTreeMap<&str, usize> = BTreeMap::new();
        for (number, one) in self.contenders.iter().enumerate() {
            *joins.entry(&one.implementation).or_default() += one.joins;
            let name = self.name(number);
            demand(&format!("exclusive grants of {name}"), one.exclusive, grants_min);
            if readers.is_some() {
                demand(&format!("shared grants of {name}"), one.shared, grants_min);
            }
        }
        if let Some(Readers { joins_min, downgrades_min }) = readers {
            for (implementation, joins) in joins {
                demand(&format!("times that {implementation} joined a reader"), joins, joins_min);
            }
            demand("downgrades", self.figures.downgrades, downgrades_min);
        }
        missing
    }

    /// Returns the figures of the queue.
    ///
    /// # Errors
    ///
    /// All violations, and all requirements that are not met.
    pub fn verdict(&self) -> Result<Figures, Vec<String>> {
        let mut problems = self.problems.clone();
        if problems.is_empty() {
            problems = self.missing();
        }
        if !self.all_are_done() {
            let phases: Vec<Phase> = self.contenders.iter().map(|one| one.phase).collect();
            problems.push(format!("not over: {phases:?}, {:?}", self.inside));
        }
        if problems.is_empty() { Ok(self.figures) } else { Err(problems) }
    }

    fn enter(&mut self, number: usize, kind: Kind, znode: &str) {
        for other in &self.inside {
            if kind == Kind::Exclusive || other.kind == Kind::Exclusive {
                let (name, others) = (self.name(number), self.name(other.contender));
                self.problems.push(format!(
                    "together: {name} by {znode} ({kind:?}), {others} by {} ({:?})",
                    other.znode, other.kind
                ));
            }
        }
        let sequence = self.check_order(kind, znode);
        let joins = sequence.is_some() && self.is_behind_another(number, sequence);
        self.inside.push(Inside { contender: number, kind, znode: znode.to_owned(), sequence });
        let Some(contender) = self.contenders.get_mut(number) else { return };
        match kind {
            Kind::Exclusive => contender.exclusive += 1,
            Kind::Shared => contender.shared += 1,
        }
        contender.joins += usize::from(joins);
        self.figures.joins += usize::from(joins);
        let implementation = contender.implementation.clone();
        self.count(implementation, kind);
    }

    /// Checks that no contender enters after a contender behind it that it excludes. Returns the
    /// sequence number.
    fn check_order(&mut self, kind: Kind, znode: &str) -> Option<u32> {
        let Some(sequence) = sequence(znode, &self.rules.directory) else {
            self.problem(format!("no contender in {}: {znode}", self.rules.directory));
            return None;
        };
        let highest = match kind {
            Kind::Exclusive => self.highest,
            Kind::Shared => self.highest_exclusive,
        };
        if highest.is_some_and(|highest| sequence <= highest) {
            self.problem(format!("out of order ({kind:?}), {highest:?} was before: {znode}"));
        }
        self.highest = self.highest.max(Some(sequence));
        if kind == Kind::Exclusive {
            self.highest_exclusive = self.highest_exclusive.max(Some(sequence));
        }
        Some(sequence)
    }

    /// Returns whether a contender of another implementation holds the lock, and is ahead in the
    /// queue.
    fn is_behind_another(&self, number: usize, sequence: Option<u32>) -> bool {
        let implementation = |number: usize| self.contenders.get(number).map(|c| &c.implementation);
        let own = implementation(number);
        self.inside
            .iter()
            .any(|one| implementation(one.contender) != own && one.sequence < sequence)
    }

    fn count(&mut self, implementation: String, kind: Kind) {
        match kind {
            Kind::Exclusive => self.figures.exclusive += 1,
            Kind::Shared => self.figures.shared += 1,
        }
        let is_hand_off = self.last.as_ref().is_some_and(|(last, last_kind)| {
            *last != implementation && (kind == Kind::Exclusive || *last_kind == Kind::Exclusive)
        });
        self.figures.hand_offs += usize::from(is_hand_off);
        self.last = Some((implementation, kind));
    }

    fn downgrade(&mut self, number: usize) {
        let Some(one) = self.inside.iter_mut().find(|one| one.contender == number) else { return };
        if one.kind == Kind::Shared {
            return self.problem(format!("a reader is downgraded: {}", self.name(number)));
        }
        one.kind = Kind::Shared;
        self.figures.downgrades += 1;
    }

    fn name(&self, number: usize) -> String {
        let implementation = self.contenders.get(number).map_or("?", |one| &one.implementation);
        format!("{implementation} {number}")
    }
}

/// Returns the sequence number of a znode, if it is a child of the directory.
fn sequence(znode: &str, directory: &str) -> Option<u32> {
    let name = znode.strip_prefix(directory)?.strip_prefix('/')?;
    let digits = name.get(name.len().checked_sub(SEQUENCE_DIGITS)?..)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && !name.contains('/') { digits.parse().ok() } else { None }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { exclusive, shared, hand_offs, joins, downgrades, missed } = self;
        write!(f, "{hand_offs} hand-offs between them, {} grants", exclusive + shared)?;
        if *shared > 0 {
            write!(f, " ({shared} to readers, {joins} joined one of the other)")?;
            write!(f, ", {downgrades} downgrades")?;
        }
        write!(f, ", {missed} gave up")
    }
}

impl FromStr for Word {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields[..] {
            ["hello", implementation] => Ok(Self::Hello(implementation.to_owned())),
            ["enter", "exclusive", znode] => Ok(Self::Enter(Kind::Exclusive, znode.to_owned())),
            ["enter", "shared", znode] => Ok(Self::Enter(Kind::Shared, znode.to_owned())),
            ["downgrade"] => Ok(Self::Downgrade),
            ["leave"] => Ok(Self::Leave),
            ["missed"] => Ok(Self::Missed),
            ["done"] => Ok(Self::Done),
            _ => Err(format!("no word of a contender: {line:?}")),
        }
    }
}

const SEQUENCE_DIGITS: usize = 10;
