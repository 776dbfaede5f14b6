//! A counter is the sum of the additions that were applied, and of some of those whose outcome is
//! not known.

use std::collections::{BTreeMap, BTreeSet};

use super::is_tampered;
use crate::history::{Event, Told, What};

/// Returns how the promise was broken. All additions are positive.
pub fn judge(events: &[Event], deleted: &BTreeSet<String>) -> Vec<String> {
    let mut sums: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    let mut violations = Vec::new();
    for event in events {
        match &event.what {
            What::Added { counter, delta, told } => {
                let (known, unknown) = sums.entry(counter).or_default();
                match told {
                    Told::Applied => *known += delta,
                    Told::Unknown => *unknown += delta,
                    Told::NotApplied => {}
                }
            }
            What::Total { counter, sum } if !is_tampered(deleted, counter) => {
                let (known, unknown) = sums.get(counter.as_str()).copied().unwrap_or_default();
                if !(known..=known + unknown).contains(sum) {
                    violations.push(format!(
                        "{counter} is {sum}, and the additions are {known} and at most {unknown} \
                         more"
                    ));
                }
            }
            _ => {}
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::tests::history;

    fn count(additions: &[(i64, Told)], sum: i64) -> usize {
        let counter = || "/counter".to_owned();
        let added = |(delta, told): &(i64, Told)| What::Added {
            counter: counter(),
            delta: *delta,
            told: *told,
        };
        let mut whats: Vec<What> = additions.iter().map(added).collect();
        whats.push(What::Total { counter: counter(), sum });
        judge(&history(whats), &BTreeSet::new()).len()
    }

    #[test]
    fn sums_outside_of_the_possible_ones_are_seen() {
        let additions = [(5, Told::Applied), (3, Told::Unknown), (100, Told::NotApplied)];
        for (sum, violations) in [(4, 1), (5, 0), (8, 0), (9, 1), (105, 1)] {
            assert_eq!(count(&additions, sum), violations, "{sum}");
        }
    }
}
