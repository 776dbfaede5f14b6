//! The znodes of a work queue, and the names of its items.

use std::time::Duration;

use bytestring::ByteString;
use jute_codec::Acl;

use crate::machine::{child, owned_copy};

/// The beginning of the name of an item, as kazoo's `LockingQueue` has it.
const PREFIX: &str = "entry-";
/// The largest number of items in one put or take.
pub(crate) const BATCH_MAX: usize = 128;
/// Number of digits of a priority.
const PRIORITY_DIGITS: usize = 3;

/// The znodes and the options of a work queue.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The path of the queue.
    pub(crate) directory: ByteString,
    /// The parent of the items.
    pub(crate) entries: ByteString,
    /// The parent of the leases. A lease has the name of its item.
    pub(crate) leases: ByteString,
    /// The parent of the markers, one for each put that has not ended.
    pub(crate) puts: ByteString,
    /// The parent of the takers, which form a queue.
    pub(crate) takers: ByteString,
    /// The access control list of all znodes.
    pub(crate) acl: Vec<Acl>,
    /// The largest number of items that the caller has set.
    pub(crate) limit: Option<usize>,
    /// How often a taker that waits looks for items although no watch has fired.
    pub(crate) watch_check: Option<Duration>,
    /// How long the takers of a queue pass over an item that one of them has given back.
    pub(crate) redelivery_delay: Duration,
    /// How long an item may be leased.
    pub(crate) lease_for: Option<Duration>,
}

/// The name of an item, in the order in which items are delivered.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct ItemName {
    pub(crate) priority: u16,
    sequence: u32,
    name: ByteString,
}

impl Layout {
    pub(crate) fn new(directory: &str, acl: Vec<Acl>) -> Self {
        let below = |name| child(directory, name);
        Self {
            entries: below("entries"),
            leases: below("taken"),
            puts: below("puts"),
            takers: below("takers"),
            directory: directory.into(),
            acl,
            limit: None,
            watch_check: None,
            redelivery_delay: Duration::ZERO,
            lease_for: None,
        }
    }

    /// Returns the path of a new item, to which servers append the sequence number.
    pub(crate) fn new_item(&self, priority: u16) -> ByteString {
        child(&self.entries, &format!("{PREFIX}{priority:0PRIORITY_DIGITS$}-"))
    }

    /// Returns the path of the marker of a put.
    pub(crate) fn marker(&self, id: u128) -> ByteString {
        child(&self.puts, &format!("{id:032x}"))
    }

    pub(crate) fn item(&self, item: &ItemName) -> ByteString {
        child(&self.entries, &item.name)
    }

    /// Returns the path of the pin of an acknowledgement.
    pub(crate) fn pin(&self, item: &ItemName, id: u128) -> ByteString {
        child(&self.item(item), &format!("{id:032x}"))
    }

    /// Returns whether a child of an item has the name of a pin. Others are not ours.
    pub(crate) fn is_pin(name: &str) -> bool {
        name.len() == 32 && u128::from_str_radix(name, 16).is_ok()
    }

    pub(crate) fn lease(&self, item: &ItemName) -> ByteString {
        child(&self.leases, &item.name)
    }
}

impl ItemName {
    /// Reads the name of an item; `None` if it is not one.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (priority, sequence) = name.strip_prefix(PREFIX)?.split_at_checked(PRIORITY_DIGITS)?;
        let sequence = sequence.strip_prefix('-')?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(priority) || !is_number(sequence.strip_prefix('-').unwrap_or(sequence)) {
            return None;
        }
        // The counter of the server has a sign, and continues with negative numbers after 2^31
        // creates. Without the sign, the order continues.
        let sequence = sequence.parse::<i32>().ok()?.cast_unsigned();
        Some(Self { priority: priority.parse().ok()?, sequence, name: owned_copy(name) })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_ordered_by_priority_and_then_by_number() {
        let in_order = [
            "entry-000-2147483647",
            "entry-000--2147483648",
            "entry-000--0000000001",
            "entry-005-0000000003",
            "entry-100-0000000000",
            "entry-100-0000000020",
            "entry-999-0000000001",
        ];
        let items: Vec<_> = in_order.iter().map(|name| ItemName::parse(name)).collect();
        assert!(items.iter().all(Option::is_some), "{items:?}");
        assert!(items.is_sorted(), "{items:?}");
    }

    #[test]
    fn other_names_are_not_items() {
        for name in [
            "entry-",
            "entry-1-0000000001",
            "entry-100",
            "entry-100-",
            "entry-100-x",
            "qn-1",
            "",
            "entry-+10-0000000001",
            "entry-100-+000000001",
            "entry-100---1",
            "entry-1é0-1",
        ] {
            assert_eq!(ItemName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn the_names_are_those_of_kazoo() {
        let layout = Layout::new("/jobs", Acl::open());
        assert_eq!(layout.new_item(7), "/jobs/entries/entry-007-");
        let item = ItemName::parse("entry-007-0000000012").expect("an item");
        assert_eq!(layout.item(&item), "/jobs/entries/entry-007-0000000012");
        assert_eq!(layout.lease(&item), "/jobs/taken/entry-007-0000000012");
        assert_eq!(item.as_str(), "entry-007-0000000012");
    }
}
