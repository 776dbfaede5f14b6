//! Reading a list of contenders.

use bytestring::ByteString;

use super::Profile;
use crate::error::LockError;
use crate::naming::Sibling;

/// Where a contender stands in a list.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "complete by definition")]
pub enum Standing {
    /// Nobody is ahead.
    First,
    /// Somebody is ahead.
    Behind {
        /// How many.
        ahead: usize,
        /// The last of them.
        nearest: ByteString,
    },
    /// The contender is not in the list.
    Missing,
}

/// Finds the place of the znode `name` with number `own` in a list of the directory. Others that
/// carry the attempt's `prefix` count like anybody else; see [`with_prefix`].
///
/// # Errors
///
/// The list holds a lock of another kind, or numbers that order nobody.
pub fn standing(
    profile: &Profile,
    names: &[ByteString],
    name: &str,
    own: u32,
) -> Result<Standing, LockError> {
    let mut is_listed = false;
    let mut ahead = 0;
    let mut nearest: Option<(u32, &ByteString)> = None;
    for sibling in names {
        match profile.naming.sibling(sibling) {
            Sibling::Foreign => {}
            Sibling::OtherKind => {
                return Err(LockError::MixedKinds { name: sibling.to_string() });
            }
            Sibling::Exhausted => return Err(exhausted(profile)),
            Sibling::Contender(_) if *sibling == name => is_listed = true,
            // Two holders of one number cannot be told apart in order.
            Sibling::Contender(number) if number == own => return Err(exhausted(profile)),
            Sibling::Contender(number) if number < own => {
                ahead += 1;
                if nearest.is_none_or(|(highest, _)| highest < number) {
                    nearest = Some((number, sibling));
                }
            }
            Sibling::Contender(_) => {}
        }
    }
    Ok(match nearest {
        _ if !is_listed => Standing::Missing,
        None => Standing::First,
        Some((_, nearest)) => Standing::Behind { ahead, nearest: nearest.clone() },
    })
}

/// True if anybody stands in the queue.
///
/// # Errors
///
/// As [`standing`].
pub fn is_taken(profile: &Profile, names: &[ByteString]) -> Result<bool, LockError> {
    let mut is_taken = false;
    for name in names {
        match profile.naming.sibling(name) {
            Sibling::Foreign => {}
            Sibling::OtherKind => return Err(LockError::MixedKinds { name: name.to_string() }),
            Sibling::Exhausted => return Err(exhausted(profile)),
            Sibling::Contender(_) => is_taken = true,
        }
    }
    Ok(is_taken)
}

/// Contenders that carry an attempt's prefix, lowest number first.
pub fn with_prefix(
    profile: &Profile,
    names: &[ByteString],
    prefix: &str,
) -> Vec<(u32, ByteString)> {
    let mut own: Vec<_> = names
        .iter()
        .filter(|name| name.starts_with(prefix))
        .filter_map(|name| match profile.naming.sibling(name) {
            Sibling::Contender(number) => Some((number, name.clone())),
            // It still has to be removed, whatever its number.
            Sibling::Exhausted => Some((u32::MAX, name.clone())),
            Sibling::Foreign | Sibling::OtherKind => None,
        })
        .collect();
    own.sort();
    own
}

fn exhausted(profile: &Profile) -> LockError {
    LockError::QueueExhausted { directory: profile.directory.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naming::Naming;

    fn profile() -> Profile {
        Profile {
            directory: "/l".into(),
            naming: Naming::curator(),
            acl: vec![],
            identity: bytes::Bytes::new(),
            safety_relist: None,
        }
    }

    fn names(names: &[&str]) -> Vec<ByteString> {
        names.iter().map(|name| ByteString::from(*name)).collect()
    }

    #[track_caller]
    fn check(list: &[&str], expected: &Standing) {
        assert_eq!(
            standing(&profile(), &names(list), "m-lock-0000000005", 5).as_ref(),
            Ok(expected)
        );
    }

    #[test]
    fn order_is_by_number_whatever_the_prefix() {
        let behind = |ahead, nearest: &str| Standing::Behind { ahead, nearest: nearest.into() };
        check(&["m-lock-0000000005"], &Standing::First);
        check(&["a-lock-0000000006", "m-lock-0000000005"], &Standing::First);
        check(
            &["z-lock-0000000001", "a-lock-0000000003", "m-lock-0000000005", "b-lock-0000000002"],
            &behind(3, "a-lock-0000000003"),
        );
        check(&["config", "m-lock-0000000005"], &Standing::First);
    }

    #[test]
    fn a_contender_that_is_not_listed_is_never_first() {
        check(&[], &Standing::Missing);
        check(&["z-lock-0000000001"], &Standing::Missing);
        check(&["z-lock-0000000009"], &Standing::Missing);
    }

    #[test]
    fn equal_numbers_and_spent_counters_are_errors() {
        for other in ["z-lock-0000000005", "z-lock-2147483647", "z-lock--2147483648"] {
            let list = names(&["m-lock-0000000005", other]);
            assert!(matches!(
                standing(&profile(), &list, "m-lock-0000000005", 5),
                Err(LockError::QueueExhausted { .. })
            ));
        }
    }
}
