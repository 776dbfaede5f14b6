//! Names of contender znodes: who stands in the queue, where, and as what.
//!
//! A contender is called `<id>-lock-<sequence>`: the id is unique to one attempt, the sequence is
//! the ten-digit number that the server appends. Readers and writers are called
//! `<id>-__READ__<sequence>` and `<id>-__WRIT__<sequence>`. Curator's mutex and read/write lock
//! use the same forms, so both can share a directory. Contenders are ordered by the number alone,
//! never by the whole name.

use zk_session::ConfigError;

/// The form of contender names in the directory of a [`FairLock`](crate::FairLock). All who share
/// a lock must use the same.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Naming {
    form: Form,
}

/// The forms of contender names in the directory of a [`RwLock`](crate::RwLock). All who share a
/// lock must use the same.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct RwNaming {
    read: Form,
    write: Form,
}

/// The names of a queue, and which of them a contender bears.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "the public recipes choose one")]
pub enum Names {
    /// Everybody excludes everybody.
    Fair(Naming),
    /// A reader among readers and writers.
    Reader(RwNaming),
    /// A writer among readers and writers.
    Writer(RwNaming),
}

/// Whom a contender tolerates.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[allow(clippy::exhaustive_enums, reason = "complete by definition")]
pub enum Role {
    /// Nobody.
    Exclusive,
    /// Other shared ones: a reader.
    Shared,
}

/// `<before><id><after><sequence>`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Form {
    before: String,
    after: String,
    /// The end of `after` by which a contender is known, whoever has named it: Curator also makes
    /// names without an id, and so without the dash behind it.
    mark: &'static str,
}

/// Marks by which locks of any kind are known: Curator's mutex, its read/write lock, its
/// semaphore and its leader latch; kazoo's lock, read and write lock, and its semaphore's lease.
const KNOWN_MARKS: [&str; 8] =
    ["lock-", "__READ__", "__WRIT__", "lease-", "latch-", "__lock__", "__rlock__", "__lease__"];

/// The highest number a server can append. At the end of the counter servers repeat it (3.6 and
/// newer) or go on below zero (older ones). Whoever is given it cannot be told from the next one, and
/// must not hold the lock; but it is behind everybody with a lower number, and in nobody's way.
pub(crate) const SEQUENCE_MAX: u32 = i32::MAX as u32;
/// Digits of a number.
const DIGITS: usize = 10;

impl Naming {
    /// `<id>-lock-<sequence>`, as Curator's `InterProcessMutex`. The default.
    pub fn curator() -> Self {
        Self { form: Form::known("-lock-", "lock-") }
    }

    /// `<id>__lock__<sequence>`, as kazoo's `Lock`.
    pub fn kazoo() -> Self {
        Self { form: Form::known("__lock__", "__lock__") }
    }

    /// A form of one's own, such as `x-{id}-{sequence}`: to share a queue with programs whose
    /// names can carry our id. Whatever begins and ends like this stands in the queue.
    ///
    /// ```
    /// # fn main() -> Result<(), zk_recipes::ConfigError> {
    /// use zk_recipes::Naming;
    ///
    /// let naming = Naming::custom("x-{id}-{sequence}")?;
    /// assert!(Naming::custom("x-{sequence}").is_err());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The form cannot carry an id, or no sequence could be told from what stands before it.
    pub fn custom(form: &str) -> Result<Self, ConfigError> {
        Ok(Self { form: Form::custom(form)? })
    }
}

impl Default for Naming {
    fn default() -> Self {
        Self::curator()
    }
}

impl RwNaming {
    /// `<id>-__READ__<sequence>` and `<id>-__WRIT__<sequence>`, as Curator's
    /// `InterProcessReadWriteLock`. The default.
    pub fn curator() -> Self {
        Self {
            read: Form::known("-__READ__", "__READ__"),
            write: Form::known("-__WRIT__", "__WRIT__"),
        }
    }

    /// `<id>__rlock__<sequence>` and `<id>__lock__<sequence>`, as kazoo's `ReadLock` and
    /// `WriteLock`. Never let a kazoo `Lock` use the same directory: it does not see readers.
    pub fn kazoo() -> Self {
        Self {
            read: Form::known("__rlock__", "__rlock__"),
            write: Form::known("__lock__", "__lock__"),
        }
    }

    /// Forms of one's own for readers and writers, such as `{id}-r-{sequence}` and
    /// `{id}-w-{sequence}`; see [`Naming::custom`].
    ///
    /// # Errors
    ///
    /// As [`Naming::custom`]; or the two could not be told apart.
    pub fn custom(read: &str, write: &str) -> Result<Self, ConfigError> {
        let (read, write) = (Form::custom(read)?, Form::custom(write)?);
        let is_alike = |a: &Form, b: &Form| {
            a.after.ends_with(&b.after)
                && (a.before.starts_with(&b.before) || b.before.starts_with(&a.before))
        };
        if is_alike(&read, &write) || is_alike(&write, &read) {
            return refuse("readers and writers cannot be told apart by their names");
        }
        Ok(Self { read, write })
    }
}

impl Default for RwNaming {
    fn default() -> Self {
        Self::curator()
    }
}

impl Names {
    /// Whom the contender that bears these names tolerates.
    pub fn role(&self) -> Role {
        match self {
            Self::Fair(_) | Self::Writer(_) => Role::Exclusive,
            Self::Reader(_) => Role::Shared,
        }
    }

    /// True if readers and writers share the queue. There a znode may appear ahead of those who
    /// wait, when a writer becomes a reader.
    pub fn is_read_write(&self) -> bool {
        matches!(self, Self::Reader(_) | Self::Writer(_))
    }

    /// What the names of an attempt begin with: all but the sequence.
    pub(crate) fn prefix(&self, id: u128) -> String {
        self.own().prefix(id)
    }

    /// The name of a writer when it has become a reader, at the same place in the queue.
    pub(crate) fn downgraded(&self, name: &str) -> Option<String> {
        let Self::Writer(naming) = self else { return None };
        let id = name.strip_prefix(naming.write.before.as_str())?;
        let (id, number) = id.rsplit_once(naming.write.after.as_str())?;
        Some(format!("{}{id}{}{number}", naming.read.before, naming.read.after))
    }

    /// What a child of the directory is.
    pub(crate) fn sibling(&self, name: &str) -> Sibling {
        // Most of what is no lock bears no number either.
        let Some(name) = Numbered::new(name) else { return Sibling::Foreign };
        let named = |form: &Form, role| form.number(&name).map(|number| number.of(role));
        let found = match self {
            Self::Fair(naming) => named(&naming.form, Role::Exclusive),
            Self::Reader(naming) | Self::Writer(naming) => {
                named(&naming.read, Role::Shared).or_else(|| named(&naming.write, Role::Exclusive))
            }
        };
        match found {
            Some(sibling) => sibling,
            None if is_known_lock(&name) => Sibling::OtherKind,
            None => Sibling::Foreign,
        }
    }

    fn own(&self) -> &Form {
        match self {
            Self::Fair(naming) => &naming.form,
            Self::Reader(naming) => &naming.read,
            Self::Writer(naming) => &naming.write,
        }
    }
}

impl Form {
    fn known(after: &str, mark: &'static str) -> Self {
        Self { before: String::new(), after: after.into(), mark }
    }

    fn custom(form: &str) -> Result<Self, ConfigError> {
        let Some(head) = form.strip_suffix("{sequence}") else {
            return refuse(
                "the form does not end with {sequence}, where servers append the number",
            );
        };
        let Some((before, after)) = head.split_once("{id}") else {
            return refuse("the form has no {id}, so that a lost create could not be found again");
        };
        if after.is_empty() || after.ends_with(|last: char| last.is_ascii_digit()) {
            return refuse("nothing but a digit stands before {sequence}, so it cannot be told");
        }
        if before.contains('/') || after.contains('/') {
            return refuse("the form contains /");
        }
        if [before, after].iter().any(|part| part.contains(['{', '}'])) {
            return refuse("the form has braces besides {id} and {sequence}");
        }
        if zk_session::path::validate(&format!("/{before}0{after}")).is_err() {
            return refuse("the form has a character that servers refuse");
        }
        Ok(Self { before: before.into(), after: after.into(), mark: "" })
    }

    fn prefix(&self, id: u128) -> String {
        format!("{}{id:032x}{}", self.before, self.after)
    }

    /// The number of a contender that is named in this form.
    fn number(&self, name: &Numbered<'_>) -> Option<Number> {
        if !self.mark.is_empty() {
            return known(name, self.mark);
        }
        let (before, after) = (self.before.as_bytes(), self.after.as_bytes());
        name.behind(|head| head.strip_prefix(before).is_some_and(|rest| rest.ends_with(after)))
    }
}

fn refuse<T>(reason: &'static str) -> Result<T, ConfigError> {
    Err(ConfigError::Option { option: "naming", reason })
}

/// What a child of a lock's directory is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sibling {
    /// Stands in this queue, at this number.
    Contender(u32, Role),
    /// Stands in this queue, but the directory's counter has gone past its end.
    Exhausted,
    /// No lock.
    Foreign,
    /// A lock of another kind or naming: the two would not see each other's holders.
    OtherKind,
}

/// What a server has appended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Number {
    Is(u32),
    Exhausted,
}

impl Number {
    fn of(self, role: Role) -> Sibling {
        match self {
            Self::Is(number) => Sibling::Contender(number, role),
            Self::Exhausted => Sibling::Exhausted,
        }
    }
}

/// A name that ends as if a server had appended a number: ten digits, or below zero a minus sign
/// and nine or ten.
struct Numbered<'a> {
    /// The number, if it begins with the last ten characters, and what stands before it. `None` if
    /// it is greater than any that a server appends, so that somebody has made up the name.
    number: Option<Number>,
    head: &'a [u8],
    /// What stands before it if a dash in front of ten digits is its minus sign.
    head_if_negative: Option<&'a [u8]>,
}

impl<'a> Numbered<'a> {
    fn new(name: &'a str) -> Option<Self> {
        let (head, tail) = name.as_bytes().split_last_chunk()?;
        if let Some(value) = value(tail) {
            let number = u32::try_from(value).ok().filter(|number| *number <= SEQUENCE_MAX);
            let number = number.map(Number::Is);
            return Some(Self { number, head, head_if_negative: head.strip_suffix(b"-") });
        }
        let digits = tail.strip_prefix(b"-")?;
        let is_number = digits.iter().all(u8::is_ascii_digit);
        is_number.then_some(Self { number: Some(Number::Exhausted), head, head_if_negative: None })
    }

    /// The number, if what stands before it is as it should be.
    fn behind(&self, is_marked: impl Fn(&[u8]) -> bool) -> Option<Number> {
        if is_marked(self.head) && self.number.is_some() {
            return self.number;
        }
        self.head_if_negative.is_some_and(is_marked).then_some(Number::Exhausted)
    }
}

/// Looks at every digit before it decides, which is quicker than to stop at the first that is none.
fn value(digits: &[u8; DIGITS]) -> Option<u64> {
    let (mut value, mut is_number) = (0, true);
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        is_number &= digit < 10;
        value = value * 10 + u64::from(digit);
    }
    is_number.then_some(value)
}

/// The number behind a known mark. `lock-` counts alone or behind a dash; `unlock-0000000001` is no
/// lock.
fn known(name: &Numbered<'_>, mark: &str) -> Option<Number> {
    let is_separate = mark.as_bytes().first().is_some_and(u8::is_ascii_alphabetic);
    name.behind(|head| {
        let id = head.strip_suffix(mark.as_bytes());
        id.is_some_and(|id| !is_separate || id.is_empty() || id.ends_with(b"-"))
    })
}

fn is_known_lock(name: &Numbered<'_>) -> bool {
    KNOWN_MARKS.iter().any(|mark| known(name, mark).is_some())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fair(naming: Naming) -> Names {
        Names::Fair(naming)
    }

    #[track_caller]
    fn check(name: &str, expected: Sibling) {
        assert_eq!(fair(Naming::curator()).sibling(name), expected, "{name}");
    }

    fn exclusive(number: u32) -> Sibling {
        Sibling::Contender(number, Role::Exclusive)
    }

    #[test]
    fn contenders_are_known_by_mark_and_ten_digits() {
        check("0123456789abcdef0123456789abcdef-lock-0000000007", exclusive(7));
        check("_c_8d3a1f6e-b8f0-4a0e-9f53-2d6a6f3f8c11-lock-0000000010", exclusive(10));
        check("lock-0000000001", exclusive(1));
        for foreign in ["config", "lock-", "lock-12", "unlock-0000000001", "x-0000000001é", "", "é"]
        {
            check(foreign, Sibling::Foreign);
        }
        // Two signs are one too many, and nine digits too few.
        for foreign in ["a-lock---000000005", "a-lock-000000005", "a-lock-:000000005"] {
            check(foreign, Sibling::Foreign);
        }
    }

    #[test]
    fn readers_and_writers_are_told_apart() {
        for names in [Names::Reader(RwNaming::curator()), Names::Writer(RwNaming::curator())] {
            let reader = Sibling::Contender(3, Role::Shared);
            assert_eq!(names.sibling("_c_8d3a-__READ__0000000003"), reader);
            assert_eq!(names.sibling("_c_8d3a-__WRIT__0000000003"), exclusive(3));
            assert_eq!(names.sibling("a-lock-0000000003"), Sibling::OtherKind);
        }
        let kazoo = Names::Reader(RwNaming::kazoo());
        assert_eq!(kazoo.sibling("ab__rlock__0000000004"), Sibling::Contender(4, Role::Shared));
        assert_eq!(kazoo.sibling("ab__lock__0000000004"), exclusive(4));
        assert_eq!(kazoo.sibling("ab-__READ__0000000004"), Sibling::OtherKind);
    }

    #[test]
    fn a_downgraded_writer_keeps_its_number() {
        let names = Names::Writer(RwNaming::curator());
        let name = format!("{}0000000012", names.prefix(7));
        let reader = names.downgraded(&name).expect("a writer's name");
        assert_eq!(reader, format!("{:032x}-__READ__0000000012", 7));
        assert_eq!(names.sibling(&reader), Sibling::Contender(12, Role::Shared));
        assert_eq!(Names::Reader(RwNaming::curator()).downgraded(&name), None);
    }

    #[test]
    fn locks_of_other_kinds_are_recognised() {
        for other in [
            "a-__READ__0000000001",
            "a-__WRIT__0000000001",
            "abc__lock__0000000001",
            "abc__rlock__0000000001",
            "a-lease-0000000001",
            "a-latch-0000000001",
        ] {
            check(other, Sibling::OtherKind);
        }
        let kazoo = fair(Naming::kazoo());
        assert_eq!(kazoo.sibling("a-lock-0000000001"), Sibling::OtherKind);
        assert_eq!(kazoo.sibling("a__rlock__0000000001"), Sibling::OtherKind);
        assert_eq!(kazoo.sibling("a__lock__0000000001"), exclusive(1));
    }

    #[test]
    fn numbers_below_zero_order_nobody_and_those_that_no_server_appends_count_for_nothing() {
        for exhausted in ["a-lock--2147483648", "a-lock--000000005"] {
            check(exhausted, Sibling::Exhausted);
        }
        check("a-lock-2147483647", exclusive(SEQUENCE_MAX));
        check("a-lock-9999999999", Sibling::Foreign);
        let dashed = fair(Naming::custom("x-{id}-{sequence}").unwrap());
        assert_eq!(dashed.sibling("x-backup-2147483647"), exclusive(SEQUENCE_MAX));
        assert_eq!(dashed.sibling("x-backup-9999999999"), Sibling::Foreign);
        for exhausted in ["x-1--2147483648", "x-1--000000005"] {
            assert_eq!(dashed.sibling(exhausted), Sibling::Exhausted, "{exhausted}");
        }
    }

    #[test]
    fn forms_that_cannot_carry_an_id_are_refused_with_the_reason() {
        for form in [
            "",
            "x-{id}",
            "x-{sequence}",
            "{sequence}-{id}",
            "{id}{sequence}",
            "{id}1{sequence}",
            "a/{id}-{sequence}",
            "{id}-{id}-{sequence}",
            "\u{1}{id}-{sequence}",
        ] {
            assert!(matches!(Naming::custom(form), Err(ConfigError::Option { .. })), "{form:?}");
        }
        let custom = RwNaming::custom;
        assert!(custom("{id}-r-{sequence}", "{id}-w-{sequence}").is_ok());
        for (read, write) in [
            ("{id}-{sequence}", "{id}-{sequence}"),
            ("{id}-{sequence}", "{id}-w-{sequence}"),
            ("x{id}-{sequence}", "{id}-{sequence}"),
        ] {
            assert!(custom(read, write).is_err(), "{read} {write}");
        }
        assert!(custom("r{id}-{sequence}", "w{id}-{sequence}").is_ok());
    }

    proptest! {
        #[test]
        fn own_names_are_read_back_whatever_the_id(id: u128, number in 0..SEQUENCE_MAX) {
            let custom = || Naming::custom("x-{id}~q~{sequence}").unwrap();
            for names in [
                fair(Naming::curator()),
                fair(Naming::kazoo()),
                fair(custom()),
                Names::Reader(RwNaming::curator()),
                Names::Writer(RwNaming::curator()),
                Names::Reader(RwNaming::kazoo()),
                Names::Writer(RwNaming::kazoo()),
            ] {
                let name = format!("{}{number:010}", names.prefix(id));
                prop_assert_eq!(names.sibling(&name), Sibling::Contender(number, names.role()));
            }
        }

        #[test]
        fn foreign_names_never_panic(name: String) {
            let _ = fair(Naming::curator()).sibling(&name);
            let _ = Names::Reader(RwNaming::kazoo()).sibling(&name);
        }
    }
}
