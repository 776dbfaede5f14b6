//! The rules of a mixed queue: several implementations contend for one lock, and tell a referee.
//!
//! A contender says `enter` after it was granted the lock, and begins its work when that is
//! acknowledged; it says `leave` when the work is done, and releases when that is acknowledged.
//! So the time between the words is less than the time of holding, and more than that of the work:
//! overlaps seen here are overlaps indeed, and none that matters is missed. For the same reason a
//! writer says `downgrade` before it becomes a reader.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// What a queue must keep to, and reach.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Directory of the lock.
    pub directory: String,
    /// Number of contenders.
    pub contenders: usize,
    /// Least number of hand-offs between implementations.
    pub hand_offs_min: usize,
    /// Least number of grants of each contender and each kind.
    pub grants_min: usize,
    /// What there must be if the lock has readers.
    pub readers: Option<Readers>,
}

/// What a lock with readers must reach.
#[derive(Clone, Copy, Debug)]
pub struct Readers {
    /// Least number of times readers of each implementation joined one of another that is ahead
    /// of them in the queue. Who waits for readers never does.
    pub joins_min: usize,
    /// Least number of writers that became readers without a gap.
    pub downgrades_min: usize,
}

/// Who else may be inside.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "there is no third kind")]
pub enum Kind {
    /// Nobody.
    Exclusive,
    /// Others that share.
    Shared,
}

/// What a contender says.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "complete by definition")]
pub enum Word {
    /// It is there, and of this implementation.
    Hello(String),
    /// It was granted the lock, by this znode.
    Enter(Kind, String),
    /// It is about to share what it holds.
    Downgrade,
    /// It is about to release.
    Leave,
    /// It gave up waiting, as it had meant to.
    Missed,
    /// It has released everything, and its session still lives.
    Done,
}

/// Follows the contenders.
#[derive(Debug)]
pub struct Referee {
    rules: Rules,
    contenders: Vec<Contender>,
    inside: Vec<Inside>,
    last: Option<(String, Kind)>,
    /// The highest sequence that has entered, and the highest of those that share with nobody.
    highest: Option<u32>,
    highest_exclusive: Option<u32>,
    figures: Figures,
    problems: Vec<String>,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Figures {
    /// Grants that exclude everybody else.
    pub exclusive: usize,
    /// Grants that others may share.
    pub shared: usize,
    /// Grants to another implementation than the one before, of which at least one is exclusive.
    pub hand_offs: usize,
    /// Readers that joined one of another implementation, ahead of them in the queue.
    pub joins: usize,
    /// Writers that became readers.
    pub downgrades: usize,
    /// Times somebody gave up waiting.
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
    /// Nobody has come yet.
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

    /// Takes in one who has said hello, and gives it its number.
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

    /// Takes in what a contender says.
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

    /// A contender is there no more.
    pub fn hung_up(&mut self, number: usize) {
        let Some(contender) = self.contenders.get_mut(number) else { return };
        let before = std::mem::replace(&mut contender.phase, Phase::Gone);
        if before != Phase::Done {
            self.problem(format!("{number} went away, {before:?}"));
        }
        self.inside.retain(|one| one.contender != number);
    }

    /// Something else is wrong.
    pub fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    /// True if the queue may begin.
    pub fn all_are_here(&self) -> bool {
        self.contenders.len() >= self.rules.contenders
    }

    /// True if nobody contends any more.
    pub fn all_are_done(&self) -> bool {
        let is_over = |one: &Contender| matches!(one.phase, Phase::Done | Phase::Gone);
        self.all_are_here() && self.contenders.iter().all(is_over)
    }

    /// True if nobody listens any more.
    pub fn all_are_gone(&self) -> bool {
        self.all_are_here() && self.contenders.iter().all(|one| one.phase == Phase::Gone)
    }

    /// True if there is nothing more to be seen: everything is reached, or something is wrong.
    pub fn is_enough(&self) -> bool {
        !self.problems.is_empty() || self.missing().is_empty()
    }

    /// What the queue has not reached yet.
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

    /// The figures, or everything that is wrong or missing.
    ///
    /// # Errors
    ///
    /// There is something.
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

    /// First come, first served: a znode is behind all that have entered, but among readers.
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

    /// True if somebody of another implementation is inside, and ahead in the queue.
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

/// The number that the server appended, if the znode is a child of the directory.
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
