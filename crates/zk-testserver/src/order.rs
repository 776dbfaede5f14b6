//! The order of lists without a defined order: children, ephemerals, identities.
//!
//! Real servers return them in the order of their hash tables. A client that forgets to sort them
//! works as long as they happen to be sorted. On this server, they never are.

use std::collections::BTreeSet;

/// The order of lists without a defined order: children, the ephemerals of a session, the
/// identities of a connection, and the watch events for the ephemerals that are deleted with their
/// session.
///
/// Lists that a test requests from the server itself are always sorted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Order {
    /// Pseudo-random, but the same for the same seed and the same names. Lists of two or more names
    /// are never sorted.
    Seeded(u64),
    /// Sorted by name. No real server does this.
    Sorted,
}

impl Default for Order {
    fn default() -> Self {
        Self::Seeded(0)
    }
}

impl Order {
    /// Sorts items into this order, by their names.
    pub(crate) fn arrange<T: Ord>(self, things: &mut [T], name: impl Fn(&T) -> String) {
        things.sort();
        if let Self::Seeded(_) = self {
            things.sort_by_cached_key(|thing| self.rank(&name(thing)));
            if things.len() > 1 && things.is_sorted() {
                things.rotate_left(1);
            }
        }
    }

    /// Returns the sort key of a name: FNV-1a with a final mix, so that the last byte affects all
    /// bits.
    fn rank(self, name: &str) -> u64 {
        let Self::Seeded(seed) = self else { return 0 };
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let hash = name.as_bytes().iter().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix);
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^ (hash >> 33)
    }
}

/// A set of names that are listed in an [`Order`].
#[derive(Clone, Debug)]
pub(crate) struct NameSet {
    order: Order,
    names: BTreeSet<(u64, String)>,
}

impl NameSet {
    pub(crate) fn new(order: Order) -> Self {
        Self { order, names: BTreeSet::new() }
    }

    pub(crate) fn insert(&mut self, name: &str) {
        self.names.insert((self.order.rank(name), name.to_owned()));
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.names.remove(&(self.order.rank(name), name.to_owned()));
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the names. Their order stays the same until a name is inserted or removed.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        let names = || self.names.iter().map(|(_, name)| name.as_str());
        let is_sorted_by_chance =
            self.order != Order::Sorted && self.len() > 1 && names().is_sorted();
        let first = usize::from(is_sorted_by_chance);
        names().skip(first).chain(names().take(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(order: Order, names: &[&str]) -> Vec<String> {
        let mut all = NameSet::new(order);
        for name in names {
            all.insert(name);
        }
        all.iter().map(str::to_owned).collect()
    }

    #[test]
    fn two_names_or_more_are_never_sorted() {
        let names: Vec<String> = (0..8).map(|number| format!("lock-{number:010}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for seed in 0..200 {
            for number in 2..=names.len() {
                let listed = listed(Order::Seeded(seed), &names[..number]);
                assert!(!listed.is_sorted(), "{seed}: {listed:?}");
                let mut sorted = listed;
                sorted.sort();
                assert_eq!(sorted, names[..number], "none is missing");
            }
        }
    }

    #[test]
    fn the_order_depends_on_the_seed_and_not_on_insertion() {
        let names = ["a", "b", "c", "d", "e"];
        let back = ["e", "d", "c", "b", "a"];
        let mut orders = BTreeSet::new();
        for seed in 0..20 {
            let order = Order::Seeded(seed);
            assert_eq!(listed(order, &names), listed(order, &back));
            let mut arranged = names;
            order.arrange(&mut arranged, |name| (*name).to_owned());
            assert_eq!(listed(order, &names), arranged);
            orders.insert(listed(order, &names));
        }
        assert!(orders.len() > 10, "{orders:?}");
        assert_eq!(listed(Order::Sorted, &back), names);
    }

    #[test]
    fn removing_a_name_keeps_the_order_of_the_others() {
        let mut names = NameSet::new(Order::Sorted);
        for name in ["b", "a", "c"] {
            names.insert(name);
        }
        names.remove("b");
        assert_eq!(names.iter().collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!((names.len(), names.is_empty()), (2, false));
    }
}
