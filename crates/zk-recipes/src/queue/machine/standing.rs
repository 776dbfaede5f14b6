//! Evaluating a list of contenders.

use bytestring::ByteString;
use jute_codec::NameList;

use crate::lock::error::LockError;
use crate::lock::role::Role;
use crate::machine::owned_copy;
use crate::queue::naming::{SEQUENCE_MAX, Sibling};
use crate::queue::profile::QueueProfile;

/// The position of a contender in a list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Standing<N> {
    /// The contender has to wait for nobody.
    Entitled {
        /// Number of predecessors.
        ahead: usize,
    },
    /// The contender has to wait.
    Behind {
        /// Number of all predecessors, including those that do not exclude it.
        ahead: usize,
        /// The predecessors to wait for.
        nearest: N,
    },
    /// The contender is not in the list.
    Missing,
}

/// The nearest predecessors that exclude a contender.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Nearest {
    pub(crate) nearest: Box<str>,
    /// The second nearest one, with its number.
    pub(crate) second: Option<(u32, Box<str>)>,
}

/// Finds the position of the znode `name` with number `own` in a list of the directory. Other
/// znodes with the attempt's prefix count like the znodes of other attempts; see [`with_prefix`].
///
/// A reader waits only for the writers ahead, and every other contender waits for all predecessors.
/// Two other contenders with the same number both count: while a Curator writer becomes a reader,
/// both its znodes have the same number.
///
/// # Errors
///
/// Fails if the list contains a lock of another kind, or numbers that define no order.
pub(crate) fn standing(
    profile: &QueueProfile,
    names: &NameList,
    name: &str,
    own: u32,
) -> Result<Standing<Nearest>, LockError> {
    let mut is_listed = false;
    let mut has_twin = false;
    let mut ahead = 0;
    let mut nearest: Option<(u32, &str)> = None;
    let mut second = None;
    for sibling in names {
        match profile.contender(sibling)? {
            Some((number, _)) if number == own && sibling == name => is_listed = true,
            Some((number, _)) if number == own => has_twin = true,
            Some((number, role)) if number < own => {
                ahead += 1;
                if !excludes(profile, role) {
                    continue;
                }
                if nearest.is_none_or(|(highest, _)| highest < number) {
                    second = nearest.replace((number, sibling));
                } else if second.is_none_or(|(highest, _)| highest < number) {
                    second = Some((number, sibling));
                }
            }
            Some(_) | None => {}
        }
    }
    Ok(match nearest {
        // In a directory that was deleted and created again, another contender may have our number.
        _ if !is_listed => Standing::Missing,
        // There is no order between two contenders with the same number.
        _ if has_twin => return Err(profile.exhausted()),
        // A reader does not wait for the readers ahead.
        None => Standing::Entitled { ahead: 0 },
        Some((_, nearest)) => {
            let second = second.map(|(number, second)| (number, second.into()));
            Standing::Behind { ahead, nearest: Nearest { nearest: nearest.into(), second } }
        }
    })
}

/// Returns whether a new contender would have to wait for one that is in the queue.
///
/// # Errors
///
/// The errors are those of [`standing`].
pub(crate) fn is_taken(profile: &QueueProfile, names: &NameList) -> Result<bool, LockError> {
    let mut is_taken = false;
    for name in names {
        // A contender with the last number gives up, so it blocks no other contender.
        is_taken |= profile
            .contender(name)?
            .is_some_and(|(number, role)| number < SEQUENCE_MAX && excludes(profile, role));
    }
    Ok(is_taken)
}

/// Returns whether our contender and one with this role exclude each other.
fn excludes(profile: &QueueProfile, role: Role) -> bool {
    role == Role::Exclusive || profile.names.role() == Role::Exclusive
}

/// Returns the contenders with an attempt's prefix, lowest number first. The names are copies, so
/// keeping them does not keep the list in memory.
pub(crate) fn with_prefix(
    profile: &QueueProfile,
    names: &NameList,
    prefix: &str,
) -> Vec<(u32, ByteString)> {
    let mut own: Vec<_> = names
        .iter()
        .filter(|name| name.starts_with(prefix))
        .filter_map(|name| match profile.names.sibling(name) {
            Sibling::Contender(number, _) => Some((number, owned_copy(name))),
            // The znode still has to be removed, whatever its number is.
            Sibling::Exhausted => Some((u32::MAX, owned_copy(name))),
            Sibling::Foreign | Sibling::OtherKind => None,
        })
        .collect();
    own.sort();
    own
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::options::LockOptions;
    use crate::queue::naming::{NameForm, QueueNames};

    fn fair() -> QueueProfile {
        profile(QueueNames::exclusive(NameForm::known("-lock-", "lock-")))
    }

    fn readers_and_writers(role: Role) -> QueueProfile {
        let writer = NameForm::known("-__WRIT__", "__WRIT__");
        let reader = NameForm::known("-__READ__", "__READ__");
        profile(QueueNames::shared(writer, reader, role))
    }

    fn reader() -> QueueProfile {
        readers_and_writers(Role::Shared)
    }

    fn writer() -> QueueProfile {
        readers_and_writers(Role::Exclusive)
    }

    fn profile(names: QueueNames) -> QueueProfile {
        QueueProfile::new(LockOptions { path: "/l".into(), ..LockOptions::default() }, names)
    }

    fn names(names: &[&str]) -> NameList {
        names.iter().collect()
    }

    const FIRST: Standing<Nearest> = Standing::Entitled { ahead: 0 };

    fn behind(ahead: usize, nearest: &str, second: Option<&str>) -> Standing<Nearest> {
        let second = second.map(|second| (second[second.len() - 10..].parse().unwrap(), second));
        let second = second.map(|(number, second)| (number, second.into()));
        Standing::Behind { ahead, nearest: Nearest { nearest: nearest.into(), second } }
    }

    #[track_caller]
    fn check(list: &[&str], expected: &Standing<Nearest>) {
        assert_eq!(standing(&fair(), &names(list), "m-lock-0000000005", 5).as_ref(), Ok(expected));
    }

    #[test]
    fn order_is_by_number_whatever_the_prefix() {
        check(&["m-lock-0000000005"], &FIRST);
        check(&["a-lock-0000000006", "m-lock-0000000005"], &FIRST);
        let mut list =
            ["z-lock-0000000001", "a-lock-0000000003", "m-lock-0000000005", "b-lock-0000000002"];
        for _ in &list.clone() {
            check(&list, &behind(3, "a-lock-0000000003", Some("b-lock-0000000002")));
            list.rotate_left(1);
        }
        check(
            &["a-lock-0000000003", "m-lock-0000000005", "b-lock-0000000007"],
            &behind(1, "a-lock-0000000003", None),
        );
        check(&["config", "m-lock-0000000005"], &FIRST);
    }

    #[test]
    fn a_contender_that_is_not_listed_is_never_first() {
        check(&[], &Standing::Missing);
        check(&["z-lock-0000000001"], &Standing::Missing);
        check(&["z-lock-0000000005"], &Standing::Missing);
        check(&["z-lock-0000000009"], &Standing::Missing);
    }

    #[test]
    fn equal_numbers_and_spent_counters_are_errors() {
        for other in ["z-lock-0000000005", "z-lock--2147483648"] {
            let list = names(&["m-lock-0000000005", other]);
            let profile = fair();
            assert!(matches!(
                standing(&profile, &list, "m-lock-0000000005", 5),
                Err(LockError::QueueExhausted { .. })
            ));
        }
    }

    #[test]
    fn a_reader_waits_for_writers_only_and_a_writer_for_everybody() {
        let queue = |own: &'static str, others: &[&'static str]| {
            let mut list = vec![own];
            list.extend(others);
            names(&list)
        };
        let reader = reader();
        let writer = writer();
        let (read, write) = ("m-__READ__0000000005", "m-__WRIT__0000000005");
        let others = ["a-__READ__0000000004", "b-__WRIT__0000000002", "c-__READ__0000000001"];
        assert_eq!(
            standing(&reader, &queue(read, &others), read, 5),
            Ok(behind(3, "b-__WRIT__0000000002", None))
        );
        assert_eq!(
            standing(&writer, &queue(write, &others), write, 5),
            Ok(behind(3, "a-__READ__0000000004", Some("b-__WRIT__0000000002")))
        );
        let readers = ["a-__READ__0000000004", "z-__WRIT__0000000006"];
        assert_eq!(standing(&reader, &queue(read, &readers), read, 5), Ok(FIRST));
        assert_eq!(is_taken(&reader, &names(&["a-__READ__0000000004"])), Ok(false));
        assert_eq!(is_taken(&writer, &names(&["a-__READ__0000000004"])), Ok(true));
        assert_eq!(is_taken(&reader, &names(&["a-__WRIT__0000000004"])), Ok(true));
    }

    /// While a Curator writer becomes a reader, both of these znodes exist for one holder.
    #[test]
    fn a_reader_and_a_writer_of_one_number_both_count() {
        let pair = ["a-__READ__0000000003", "b-__WRIT__0000000003"];
        let (read, write) = ("m-__READ__0000000005", "m-__WRIT__0000000005");
        for others in [[pair[0], pair[1]], [pair[1], pair[0]]] {
            let reader = reader();
            let list = names(&[others[0], read, others[1]]);
            assert_eq!(standing(&reader, &list, read, 5), Ok(behind(2, pair[1], None)));
            let writer = writer();
            let list = names(&[others[0], write, others[1]]);
            assert_eq!(
                standing(&writer, &list, write, 5),
                Ok(behind(2, others[0], Some(others[1])))
            );
        }
        let own = names(&["x-__WRIT__0000000005", read]);
        assert!(standing(&reader(), &own, read, 5).is_err());
    }
}
