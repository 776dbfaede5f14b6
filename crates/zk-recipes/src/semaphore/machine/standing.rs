//! Evaluating a list of the contenders of a semaphore.

use jute_codec::NameList;

use crate::lock::error::LockError;
use crate::queue::machine::standing::Standing;
use crate::queue::naming::SEQUENCE_MAX;
use crate::queue::profile::QueueProfile;

/// Finds the position of the znode `name` with number `own` among the contenders for this many
/// permits.
///
/// A contender is entitled once fewer than `permits` are ahead of it. As long as the nearest
/// `permits` predecessors are all there, it is not. So it needs to watch only those.
///
/// # Errors
///
/// The list contains a lock of another kind, or numbers that define no order.
pub(crate) fn standing(
    profile: &QueueProfile,
    names: &NameList,
    name: &str,
    own: u32,
    permits: u32,
) -> Result<Standing<Vec<Box<str>>>, LockError> {
    let mut is_listed = false;
    let mut has_twin = false;
    let mut before = Vec::new();
    for sibling in names {
        match profile.contender(sibling)? {
            Some((number, _)) if number == own && sibling == name => is_listed = true,
            Some((number, _)) if number == own => has_twin = true,
            Some((number, _)) if number < own => before.push((number, sibling)),
            Some(_) | None => {}
        }
    }
    // In a directory that was deleted and created again, a stranger may have our number.
    if !is_listed {
        return Ok(Standing::Missing);
    }
    // Nothing orders two contenders with the same number.
    if has_twin {
        return Err(profile.exhausted());
    }
    let ahead = before.len();
    let permits = usize::try_from(permits).unwrap_or(usize::MAX);
    if ahead < permits {
        return Ok(Standing::Entitled { ahead });
    }
    before.sort_unstable();
    let nearest = before.split_off(ahead - permits);
    Ok(Standing::Behind {
        ahead,
        nearest: nearest.iter().map(|(_, name)| (*name).into()).collect(),
    })
}

/// True if a new contender would have to wait.
///
/// # Errors
///
/// As [`standing`].
pub(crate) fn is_taken(
    profile: &QueueProfile,
    names: &NameList,
    permits: u32,
) -> Result<bool, LockError> {
    let mut contenders = 0_u32;
    for name in names {
        // A contender with the last number gives up, so it does not count.
        let found = profile.contender(name)?;
        contenders += u32::from(found.is_some_and(|(number, _)| number < SEQUENCE_MAX));
    }
    Ok(contenders >= permits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::options::LockOptions;
    use crate::queue::naming::{NameForm, QueueNames};

    const OWN: &str = "m-permit-0000000005";

    fn profile() -> QueueProfile {
        let names = QueueNames::exclusive(NameForm::known("-permit-", "permit-"));
        QueueProfile::new(LockOptions { path: "/s".into(), ..LockOptions::default() }, names)
    }

    fn names(numbers: &[u32]) -> NameList {
        numbers.iter().map(|number| format!("x-permit-{number:010}")).chain([OWN.into()]).collect()
    }

    #[track_caller]
    fn check(ahead: &[u32], permits: u32, nearest: Option<&[u32]>) {
        let found = standing(&profile(), &names(ahead), OWN, 5, permits);
        let ahead = ahead.iter().filter(|number| **number < 5).count();
        let expected = match nearest {
            None => Standing::Entitled { ahead },
            Some(numbers) => Standing::Behind {
                ahead,
                nearest: numbers.iter().map(|n| format!("x-permit-{n:010}").into()).collect(),
            },
        };
        assert_eq!(found, Ok(expected));
    }

    #[test]
    fn fewer_ahead_than_permits_are_entitled_and_others_watch_as_many_as_there_are_permits() {
        check(&[], 1, None);
        check(&[6, 7, 8], 1, None);
        check(&[4], 1, Some(&[4]));
        check(&[4], 2, None);
        check(&[4, 2], 2, Some(&[2, 4]));
        check(&[1, 4, 0, 2], 3, Some(&[1, 2, 4]));
        check(&[1, 4, 0, 2], 4, Some(&[0, 1, 2, 4]));
        check(&[1, 4, 0, 2], 5, None);
        check(&[1, 4, 0, 2, 9], u32::MAX, None);
    }

    #[test]
    fn a_contender_that_is_not_listed_is_never_entitled() {
        let list: NameList = ["x-permit-0000000007"].into_iter().collect();
        assert_eq!(standing(&profile(), &list, OWN, 5, 3), Ok(Standing::Missing));
    }

    #[test]
    fn numbers_that_define_no_order_and_other_locks_are_errors() {
        for other in ["z-permit-0000000005", "z-permit--2147483648"] {
            let list: NameList = [OWN, other].into_iter().collect();
            let found = standing(&profile(), &list, OWN, 5, 9);
            assert!(matches!(found, Err(LockError::QueueExhausted { .. })), "{other}");
        }
        let list: NameList = [OWN, "z-lock-0000000001"].into_iter().collect();
        let found = standing(&profile(), &list, OWN, 5, 9);
        assert!(matches!(found, Err(LockError::MixedKinds { .. })));
        assert!(is_taken(&profile(), &list, 9).is_err());
    }

    #[test]
    fn a_semaphore_is_taken_by_as_many_contenders_as_it_has_permits() {
        for (permits, expected) in [(1, true), (3, true), (4, false)] {
            assert_eq!(is_taken(&profile(), &names(&[1, 2]), permits), Ok(expected), "{permits}");
        }
        let list: NameList = ["x-permit-2147483647", "config"].into_iter().collect();
        assert_eq!(is_taken(&profile(), &list, 1), Ok(false));
    }
}
