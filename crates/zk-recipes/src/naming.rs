//! Names of contender znodes: who stands in the queue, and where.
//!
//! A contender is called `<id>-lock-<sequence>`: the id is unique to one attempt, the sequence is
//! the ten-digit number that the server appends. Curator's mutex uses the same form, so both can
//! share a directory. Contenders are ordered by the number alone, never by the whole name.

use zk_session::ConfigError;

/// The form of contender names in a lock's directory. All who share a lock must use the same.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Naming {
    infix: String,
}

/// Infixes by which locks of any kind are known: Curator's mutex, its read/write lock, its
/// semaphore and its leader latch; kazoo's lock, read and write lock, and its semaphore's lease.
const KNOWN_INFIXES: [&str; 8] =
    ["lock-", "__READ__", "__WRIT__", "lease-", "latch-", "__lock__", "__rlock__", "__lease__"];

/// The highest number a server can append. At the end of the counter servers repeat it (3.6 and
/// newer) or go on below zero (older ones), so it can order nobody any more.
const SEQUENCE_MAX: u32 = i32::MAX as u32;

impl Naming {
    /// `<id>-lock-<sequence>`, as Curator's `InterProcessMutex`. The default.
    pub fn curator() -> Self {
        Self { infix: "lock-".into() }
    }

    /// `<id>__lock__<sequence>`, as kazoo's `Lock`.
    pub fn kazoo() -> Self {
        Self { infix: "__lock__".into() }
    }

    /// `<id><infix><sequence>`.
    ///
    /// # Errors
    ///
    /// The infix cannot separate an id from a sequence.
    pub fn custom(infix: impl Into<String>) -> Result<Self, ConfigError> {
        let infix = infix.into();
        let error = |reason| Err(ConfigError::Option { option: "naming", reason });
        if infix.is_empty() {
            return error("the infix is empty");
        }
        if infix.contains('/') {
            return error("the infix contains /");
        }
        if infix.ends_with(|last: char| last.is_ascii_digit()) {
            return error("the infix ends with a digit, so that no sequence can be told from it");
        }
        if zk_session::path::validate(&format!("/{infix}")).is_err() {
            return error("the infix has a character that servers refuse");
        }
        Ok(Self { infix })
    }

    /// What the names of an attempt begin with: all but the sequence.
    pub(crate) fn prefix(&self, id: u128) -> String {
        // Curator separates its id with a dash; other infixes separate by themselves.
        let dash = if self.infix == "lock-" { "-" } else { "" };
        format!("{id:032x}{dash}{}", self.infix)
    }

    /// What a child of the directory is.
    pub(crate) fn sibling(&self, name: &str) -> Sibling {
        match self.split(name) {
            Some(sibling) => sibling,
            None if is_other_kind(name, &self.infix) => Sibling::OtherKind,
            None => Sibling::Foreign,
        }
    }

    fn split(&self, name: &str) -> Option<Sibling> {
        let (head, tail) = name.rsplit_once(self.infix.as_str())?;
        // `lock-` counts alone or behind a dash; `unlock-0000000001` is no lock.
        if self.infix == "lock-" && !(head.is_empty() || head.ends_with('-')) {
            return None;
        }
        sequence(tail)
    }
}

impl Default for Naming {
    fn default() -> Self {
        Self::curator()
    }
}

/// What a child of a lock's directory is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sibling {
    /// Stands in this queue, at this number.
    Contender(u32),
    /// Stands in this queue, but the directory's counter has come to its end.
    Exhausted,
    /// No lock.
    Foreign,
    /// A lock of another kind or naming: the two would not see each other's holders.
    OtherKind,
}

/// Reads the suffix that a server appended: ten digits, or fewer behind a minus sign.
fn sequence(tail: &str) -> Option<Sibling> {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match tail.strip_prefix('-') {
        Some(digits) if (9..=10).contains(&digits.len()) && is_number(digits) => {
            Some(Sibling::Exhausted)
        }
        None if tail.len() == 10 && is_number(tail) => Some(match tail.parse() {
            Ok(number) if number < SEQUENCE_MAX => Sibling::Contender(number),
            Ok(_) | Err(_) => Sibling::Exhausted,
        }),
        Some(_) | None => None,
    }
}

fn is_other_kind(name: &str, own: &str) -> bool {
    KNOWN_INFIXES.iter().filter(|infix| **infix != own).any(|infix| {
        name.rsplit_once(infix).is_some_and(|(head, tail)| {
            let is_separate = infix.starts_with('_') || head.is_empty() || head.ends_with('-');
            is_separate && sequence(tail).is_some()
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(name: &str, expected: Sibling) {
        assert_eq!(Naming::curator().sibling(name), expected, "{name}");
    }

    #[test]
    fn contenders_are_known_by_infix_and_ten_digits() {
        check("0123456789abcdef0123456789abcdef-lock-0000000007", Sibling::Contender(7));
        check("_c_8d3a1f6e-b8f0-4a0e-9f53-2d6a6f3f8c11-lock-0000000010", Sibling::Contender(10));
        check("lock-0000000001", Sibling::Contender(1));
        for foreign in ["config", "lock-", "lock-12", "unlock-0000000001", "x-0000000001é", "", "é"]
        {
            check(foreign, Sibling::Foreign);
        }
    }

    #[test]
    fn locks_of_other_kinds_are_recognised() {
        for other in [
            "a-__READ__0000000001",
            "a-__WRIT__0000000001",
            "abc__lock__0000000001",
            "a-lease-0000000001",
            "a-latch-0000000001",
        ] {
            check(other, Sibling::OtherKind);
        }
        assert_eq!(Naming::kazoo().sibling("a-lock-0000000001"), Sibling::OtherKind);
        assert_eq!(Naming::kazoo().sibling("a__lock__0000000001"), Sibling::Contender(1));
    }

    #[test]
    fn a_counter_at_its_end_orders_nobody() {
        for exhausted in
            ["a-lock-2147483647", "a-lock--2147483648", "a-lock--000000005", "a-lock-9999999999"]
        {
            check(exhausted, Sibling::Exhausted);
        }
        check("a-lock-2147483646", Sibling::Contender(2_147_483_646));
    }

    #[test]
    fn infixes_that_cannot_separate_are_refused_with_the_reason() {
        for infix in ["", "a/b", "lock1", "\u{1}"] {
            assert!(matches!(Naming::custom(infix), Err(ConfigError::Option { .. })), "{infix:?}");
        }
        assert!(Naming::custom("-mine-").is_ok());
    }

    proptest! {
        #[test]
        fn own_names_are_read_back_whatever_the_id(id: u128, number in 0..SEQUENCE_MAX) {
            for naming in [Naming::curator(), Naming::kazoo(), Naming::custom("~q~").unwrap()] {
                let name = format!("{}{number:010}", naming.prefix(id));
                prop_assert_eq!(naming.sibling(&name), Sibling::Contender(number));
            }
        }

        #[test]
        fn foreign_names_never_panic(name: String) {
            let _ = Naming::curator().sibling(&name);
        }
    }
}
