//! The order of what has none: children, ephemerals, identities.
//!
//! Real servers list them as their hash tables have them. A client that forgets to sort works as
//! long as the order happens to suit it, so here it never is that of the names.

use std::collections::BTreeSet;

/// In which order a server lists what has no order: children, the ephemerals of a session, the
/// identities of a connection, and the events when several ephemerals end with their session.
///
/// What a test asks of the server itself is sorted, whatever this says.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "as servers do, or as readers like it")]
pub enum Order {
    /// As chance has it, as on real servers, but the same for the same seed and the same names.
    /// Two names or more never come sorted.
    Seeded(u64),
    /// Sorted by name, as no real server does.
    Sorted,
}

impl Default for Order {
    fn default() -> Self {
        Self::Seeded(0)
    }
}

impl Order {
    /// Puts things into this order, by their names.
    pub(crate) fn arrange<T: Ord>(self, things: &mut [T], name: impl Fn(&T) -> String) {
        things.sort();
        if let Self::Seeded(_) = self {
            things.sort_by_cached_key(|thing| self.rank(&name(thing)));
            if things.len() > 1 && things.is_sorted() {
                things.rotate_left(1);
            }
        }
    }

    /// Where a name stands among others: FNV-1a, and a final stir so that the last byte matters.
    fn rank(self, name: &str) -> u64 {
        let Self::Seeded(seed) = self else { return 0 };
        let stir = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let hash = name.as_bytes().iter().fold(seed ^ 0xcbf2_9ce4_8422_2325, stir);
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^ (hash >> 33)
    }
}

/// Names in such an order.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    order: Order,
    names: BTreeSet<(u64, String)>,
}

impl Names {
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

    /// The same order until a name comes or goes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        let names = || self.names.iter().map(|(_, name)| name.as_str());
        let is_by_chance = self.order != Order::Sorted && self.len() > 1 && names().is_sorted();
        let first = usize::from(is_by_chance);
        names().skip(first).chain(names().take(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(order: Order, names: &[&str]) -> Vec<String> {
        let mut all = Names::new(order);
        for name in names {
            all.insert(name);
        }
        all.iter().map(str::to_owned).collect()
    }

    #[test]
    fn two_names_or_more_never_come_sorted() {
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
    fn the_order_is_that_of_the_seed_and_not_that_of_coming() {
        let (names, back) = (["a", "b", "c", "d", "e"], ["e", "d", "c", "b", "a"]);
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
    fn a_name_that_goes_leaves_the_others_where_they_are() {
        let mut names = Names::new(Order::Sorted);
        for name in ["b", "a", "c"] {
            names.insert(name);
        }
        names.remove("b");
        assert_eq!(names.iter().collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!((names.len(), names.is_empty()), (2, false));
    }
}
