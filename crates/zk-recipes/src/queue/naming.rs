//! Names of contender znodes: which children of a directory are contenders, in which order, and in
//! which role.
//!
//! A name consists of an id that is unique to one attempt, a mark that identifies the kind of lock,
//! and the ten-digit sequence number that the server appends. Contenders are ordered by that number
//! alone, never by the whole name.

use zk_session::{ConfigError, OptionDefect};

use crate::lock::role::Role;

/// The names in the queue of one lock, and the role of one of its contenders.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct QueueNames {
    exclusive: NameForm,
    shared: Option<NameForm>,
    role: Role,
}

/// The form of a name: `<before><id><after><sequence>`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct NameForm {
    before: String,
    after: String,
    /// The end of `after` that identifies a contender of any implementation: Curator also creates
    /// names without an id, and therefore without the dash after the id.
    mark: &'static str,
}

/// The marks of all kinds of locks: our semaphore; Curator's mutex, read/write lock, semaphore and
/// leader latch; kazoo's lock, read and write lock, and semaphore lease.
const KNOWN_MARKS: [&str; 9] = [
    "lock-",
    "permit-",
    "__READ__",
    "__WRIT__",
    "lease-",
    "latch-",
    "__lock__",
    "__rlock__",
    "__lease__",
];

/// The highest number that a server appends. At the end of the counter, servers repeat it (3.6 and
/// newer) or continue below zero (older ones). A contender with this number cannot be distinguished
/// from the next one, so it must not hold the lock. But it is behind every contender with a lower
/// number, and blocks none of them.
pub(crate) const SEQUENCE_MAX: u32 = i32::MAX as u32;
/// Number of digits of a sequence number.
const DIGITS: usize = 10;

impl QueueNames {
    /// Returns the names of a queue in which all contenders exclude each other.
    pub fn exclusive(form: NameForm) -> Self {
        Self { exclusive: form, shared: None, role: Role::Exclusive }
    }

    /// Returns the names of a queue of readers, which share the lock, and writers, which do not.
    pub fn shared(writer: NameForm, reader: NameForm, role: Role) -> Self {
        Self { exclusive: writer, shared: Some(reader), role }
    }

    /// Returns the role of the contender with these names.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns whether readers and writers share the queue. In such a queue, a znode can appear
    /// ahead of waiters: when a writer becomes a reader, the reader's znode takes the writer's
    /// number.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Returns the beginning of the names of an attempt: everything but the sequence.
    pub(crate) fn prefix(&self, id: u128) -> String {
        let form = match (self.role, &self.shared) {
            (Role::Shared, Some(form)) => form,
            (Role::Shared, None) | (Role::Exclusive, _) => &self.exclusive,
        };
        format!("{}{id:032x}{}", form.before, form.after)
    }

    /// Returns the name of a writer after it has become a reader, with the same number. Returns
    /// `None` if `name` is not the name of a writer.
    pub(crate) fn downgraded(&self, name: &str) -> Option<String> {
        let reader = self.shared.as_ref()?;
        let id = name.strip_prefix(self.exclusive.before.as_str())?;
        let (id, number) = id.rsplit_once(self.exclusive.after.as_str())?;
        Some(format!("{}{id}{}{number}", reader.before, reader.after))
    }

    /// Classifies a child of the directory.
    pub(crate) fn sibling(&self, name: &str) -> Sibling {
        // Most znodes that are not contenders have no number.
        let Some(name) = Numbered::new(name) else { return Sibling::Foreign };
        let named = |form: &NameForm, role| form.number(&name).map(|number| number.of(role));
        let shared = self.shared.as_ref().and_then(|form| named(form, Role::Shared));
        match shared.or_else(|| named(&self.exclusive, Role::Exclusive)) {
            Some(sibling) => sibling,
            None if is_known_lock(&name) => Sibling::OtherKind,
            None => Sibling::Foreign,
        }
    }
}

impl NameForm {
    /// Returns a form that another implementation also uses. `mark` is the end of `after` by which
    /// its contenders are recognised.
    pub fn known(after: &str, mark: &'static str) -> Self {
        Self { before: String::new(), after: after.into(), mark }
    }

    /// Parses a form such as `x-{id}-{sequence}`.
    ///
    /// # Errors
    ///
    /// Fails if the form cannot carry an id, or if the sequence cannot be separated from the text
    /// before it.
    pub(crate) fn custom(form: &str) -> Result<Self, ConfigError> {
        let Some(head) = form.strip_suffix("{sequence}") else {
            return refuse(
                form,
                "the form does not end with {sequence}, where servers append the number",
            );
        };
        let Some((before, after)) = head.split_once("{id}") else {
            return refuse(form, "the form has no {id}, so a lost create could not be found again");
        };
        if after.is_empty() || after.ends_with(|last: char| last.is_ascii_digit()) {
            return refuse(
                form,
                "there is nothing or a digit before {sequence}, so the number has no beginning",
            );
        }
        if before.contains('/') || after.contains('/') {
            return refuse(form, "the form contains /");
        }
        if [before, after].iter().any(|part| part.contains(['{', '}'])) {
            return refuse(form, "the form has braces besides {id} and {sequence}");
        }
        if zk_session::path::validate(&format!("/{before}0{after}")).is_err() {
            return refuse(form, "the form has a character that servers refuse");
        }
        Ok(Self { before: before.into(), after: after.into(), mark: "" })
    }

    /// Returns whether a name could have both this form and the other one.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let covers = |a: &Self, b: &Self| {
            a.after.ends_with(&b.after)
                && (a.before.starts_with(&b.before) || b.before.starts_with(&a.before))
        };
        covers(self, other) || covers(other, self)
    }

    /// Returns the number of a contender whose name has this form.
    fn number(&self, name: &Numbered<'_>) -> Option<Number> {
        if !self.mark.is_empty() {
            return known(name, self.mark);
        }
        let before = self.before.as_bytes();
        let after = self.after.as_bytes();
        name.behind(|head| head.strip_prefix(before).is_some_and(|rest| rest.ends_with(after)))
    }
}

pub(crate) fn refuse<T>(form: &str, reason: &'static str) -> Result<T, ConfigError> {
    let (value, defect) = (format!("{form:?}"), OptionDefect::Other(reason));
    Err(ConfigError::Option { option: "naming", value, defect })
}

/// What a child of a lock's directory is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sibling {
    /// A contender of this queue, with this number.
    Contender(u32, Role),
    /// A contender of this queue whose number is past the end of the directory's counter.
    Exhausted,
    /// Not a contender of any lock.
    Foreign,
    /// A contender of a lock of another kind or naming: the two locks would not see each other's
    /// holders.
    OtherKind,
}

/// The number that a server appended.
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

/// A name that ends as if a server had appended a number: ten digits, or for a negative number a
/// minus sign and nine or ten digits.
struct Numbered<'a> {
    /// The number that the last ten characters form; `None` if it is greater than any number that a
    /// server appends, so the name was not created by a server.
    number: Option<Number>,
    /// The text before those ten characters.
    head: &'a [u8],
    /// The text before the number, if the dash before the ten digits is a minus sign.
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

    /// Returns the number, if the text before it satisfies `is_marked`.
    fn behind(&self, is_marked: impl Fn(&[u8]) -> bool) -> Option<Number> {
        if is_marked(self.head) && self.number.is_some() {
            return self.number;
        }
        self.head_if_negative.is_some_and(is_marked).then_some(Number::Exhausted)
    }
}

/// Parses ten digits. Reading all ten bytes before the decision is faster than stopping at the
/// first byte that is not a digit.
fn value(digits: &[u8; DIGITS]) -> Option<u64> {
    let (mut value, mut is_number) = (0, true);
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        is_number &= digit < 10;
        value = value * 10 + u64::from(digit);
    }
    is_number.then_some(value)
}

/// Returns the number after a known mark. `lock-` counts only at the beginning of a name or after a
/// dash: `unlock-0000000001` is not a lock.
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
    use super::*;
    use crate::samples::Samples;

    fn curator() -> QueueNames {
        QueueNames::exclusive(NameForm::known("-lock-", "lock-"))
    }

    fn kazoo() -> QueueNames {
        QueueNames::exclusive(NameForm::known("__lock__", "__lock__"))
    }

    fn custom(form: &str) -> QueueNames {
        QueueNames::exclusive(NameForm::custom(form).unwrap())
    }

    fn readers_and_writers(role: Role) -> QueueNames {
        let writer = NameForm::known("-__WRIT__", "__WRIT__");
        let reader = NameForm::known("-__READ__", "__READ__");
        QueueNames::shared(writer, reader, role)
    }

    fn reader() -> QueueNames {
        readers_and_writers(Role::Shared)
    }

    fn writer() -> QueueNames {
        readers_and_writers(Role::Exclusive)
    }

    fn kazoo_rw(role: Role) -> QueueNames {
        let writer = NameForm::known("__lock__", "__lock__");
        let reader = NameForm::known("__rlock__", "__rlock__");
        QueueNames::shared(writer, reader, role)
    }

    #[track_caller]
    fn check(name: &str, expected: Sibling) {
        assert_eq!(curator().sibling(name), expected, "{name}");
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
        // These names have two signs, only nine digits, or a character that is not a digit.
        for foreign in ["a-lock---000000005", "a-lock-000000005", "a-lock-:000000005"] {
            check(foreign, Sibling::Foreign);
        }
    }

    #[test]
    fn readers_and_writers_are_told_apart() {
        for names in [reader(), writer()] {
            let reader = Sibling::Contender(3, Role::Shared);
            assert_eq!(names.sibling("_c_8d3a-__READ__0000000003"), reader);
            assert_eq!(names.sibling("_c_8d3a-__WRIT__0000000003"), exclusive(3));
            assert_eq!(names.sibling("a-lock-0000000003"), Sibling::OtherKind);
        }
        let kazoo = kazoo_rw(Role::Shared);
        assert_eq!(kazoo.sibling("ab__rlock__0000000004"), Sibling::Contender(4, Role::Shared));
        assert_eq!(kazoo.sibling("ab__lock__0000000004"), exclusive(4));
        assert_eq!(kazoo.sibling("ab-__READ__0000000004"), Sibling::OtherKind);
    }

    #[test]
    fn a_downgraded_writer_keeps_its_number() {
        let names = writer();
        let name = format!("{}0000000012", names.prefix(7));
        let renamed = names.downgraded(&name).expect("a writer's name");
        assert_eq!(renamed, format!("{:032x}-__READ__0000000012", 7));
        assert_eq!(names.sibling(&renamed), Sibling::Contender(12, Role::Shared));
        assert_eq!(reader().downgraded(&reader().prefix(7)), None);
        assert_eq!(curator().downgraded(&format!("{}0000000012", curator().prefix(7))), None);
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
        let kazoo = kazoo();
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
        let dashed = custom("x-{id}-{sequence}");
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
            assert!(matches!(NameForm::custom(form), Err(ConfigError::Option { .. })), "{form:?}");
        }
    }

    #[test]
    fn own_names_are_read_back_whatever_the_id() {
        let mut samples = Samples::new(2);
        for _ in 0..1_000 {
            let id = u128::from(samples.number()) << 64 | u128::from(samples.number());
            let number = u32::try_from(samples.below(SEQUENCE_MAX.into())).expect("it is below");
            for names in [
                curator(),
                kazoo(),
                custom("x-{id}~q~{sequence}"),
                reader(),
                writer(),
                kazoo_rw(Role::Shared),
                kazoo_rw(Role::Exclusive),
            ] {
                let name = format!("{}{number:010}", names.prefix(id));
                assert_eq!(names.sibling(&name), Sibling::Contender(number, names.role()));
            }
        }
    }

    #[test]
    fn foreign_names_never_panic() {
        let mut samples = Samples::new(3);
        for _ in 0..10_000 {
            let name = samples.text();
            let _ = curator().sibling(&name);
            let _ = kazoo_rw(Role::Shared).sibling(&name);
            // Such names come closer to those of contenders.
            let _ = curator().sibling(&format!("lock-{name}"));
            let _ = kazoo_rw(Role::Shared).sibling(&format!("__rlock__{name}"));
        }
    }
}
