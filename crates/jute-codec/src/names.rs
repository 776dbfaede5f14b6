//! Names of children: a list that is decoded as a whole.

use std::fmt;
use std::iter::FusedIterator;

use bytes::BytesMut;
use bytestring::ByteString;

use crate::error::{DecodeError, DecodeErrorKind};
use crate::wire::{Reader, Record, encode_buffer, length_prefix};

/// Names of the children of a znode.
///
/// Lists can be long, and callers often look for a single name. Decoding therefore validates the
/// whole list but allocates nothing per name: iterating borrows the names as `&str`. Iterating by
/// value returns reference-counted slices that keep the whole list in memory, so copy the names
/// that you keep for a long time.
///
/// ```
/// use bytestring::ByteString;
/// use jute_codec::NameList;
///
/// let names: NameList = ["b", "a"].into_iter().collect();
/// assert!(names.iter().any(|name| name == "a"));
///
/// let mut sorted: Vec<ByteString> = names.into();
/// sorted.sort();
/// assert_eq!(sorted, ["a", "b"]);
/// ```
#[derive(Clone, Default, Eq, Hash, PartialEq)]
pub struct NameList {
    /// Each name follows its length, which is written as four base-128 digits so that the whole
    /// buffer is valid text. If all names are shorter than 128 bytes, this is the wire format.
    text: ByteString,
    count: usize,
}

/// Iterates over the names of a [`NameList`] as borrowed text.
#[derive(Clone, Debug)]
pub struct Names<'a> {
    /// The rest of the list, in the same format.
    rest: &'a str,
    left: usize,
}

/// Iterates over the names of a [`NameList`] as slices of it.
#[derive(Clone, Debug)]
pub struct IntoNames {
    list: NameList,
    /// Where the remaining names begin.
    at: usize,
}

impl NameList {
    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the names in the order of the list.
    pub fn iter(&self) -> Names<'_> {
        Names { rest: &self.text, left: self.count }
    }

    /// Returns the same names, sorted. Servers list names in no particular order.
    #[must_use]
    pub fn sorted(&self) -> Self {
        let mut names: Vec<_> = self.iter().collect();
        names.sort_unstable();
        names.into_iter().collect()
    }
}

impl Record for NameList {
    fn encode(&self, out: &mut BytesMut) {
        length_prefix(self.count).encode(out);
        for name in self {
            encode_buffer(Some(name.as_bytes()), out);
        }
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        if let Some((count, length)) = short_names(input.rest())
            && let Some(text) = input.text(DIGITS, length)
        {
            return Ok(Self { text, count });
        }
        // The slow path handles long names, surrogate pairs, null, and malformed lists.
        let count = input.length()?.unwrap_or(0);
        let mut list = Builder::default();
        for _ in 0..count {
            let offset = input.position();
            let name = ByteString::decode(input)?;
            if !list.push(&name) {
                let kind = DecodeErrorKind::TooLong(name.len());
                return Err(DecodeError::new(kind, offset));
            }
        }
        Ok(list.finish())
    }
}

/// Returns how many names follow the count at the front, and how many bytes they take. Returns
/// `None` unless all names are complete and shorter than 128 bytes. Does not check that the names
/// are valid text.
fn short_names(wire: &[u8]) -> Option<(usize, usize)> {
    let (count, names) = wire.split_first_chunk()?;
    let count = usize::try_from(i32::from_be_bytes(*count)).ok()?;
    let mut left = count;
    let mut at = 0;
    while left > 0 {
        let prefix: &[u8; DIGITS] = names.get(at..)?.first_chunk()?;
        let &[0, 0, 0, length @ 0..BASE] = prefix else { return None };
        let step = DIGITS + usize::from(length);
        names.get(at..at + step)?;
        // The names in a queue usually have the same length. Comparing the prefix then suffices,
        // and the loads do not depend on each other.
        while left > 0
            && let Some(name) = names.get(at..at + step)
            && name.starts_with(prefix)
        {
            at += step;
            left -= 1;
        }
    }
    Some((count, at))
}

/// # Panics
///
/// Panics if a name is 256 MiB long, or longer.
impl<T: AsRef<str>> FromIterator<T> for NameList {
    fn from_iter<I: IntoIterator<Item = T>>(names: I) -> Self {
        let mut list = Builder::default();
        for name in names {
            assert!(list.push(name.as_ref()), "a name is 256 MiB long, or longer");
        }
        list.finish()
    }
}

impl From<NameList> for Vec<ByteString> {
    fn from(names: NameList) -> Self {
        names.into_iter().collect()
    }
}

impl IntoIterator for NameList {
    type Item = ByteString;
    type IntoIter = IntoNames;

    fn into_iter(self) -> IntoNames {
        IntoNames { list: self, at: 0 }
    }
}

impl<'a> IntoIterator for &'a NameList {
    type Item = &'a str;
    type IntoIter = Names<'a>;

    fn into_iter(self) -> Names<'a> {
        self.iter()
    }
}

// Prints the list of names instead of its encoding.
impl fmt::Debug for NameList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl<'a> Iterator for Names<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.left = self.left.checked_sub(1)?;
        let (name, rest) = first(self.rest).expect("a list is validated when it is created");
        self.rest = rest;
        Some(name)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Names<'_> {}

impl FusedIterator for Names<'_> {}

impl Iterator for IntoNames {
    type Item = ByteString;

    fn next(&mut self) -> Option<ByteString> {
        self.list.count = self.list.count.checked_sub(1)?;
        let (name, rest) = self
            .list
            .text
            .get(self.at..)
            .and_then(first)
            .expect("a list is validated when it is created");
        self.at = self.list.text.len() - rest.len();
        Some(self.list.text.slice_ref(name))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.list.count, Some(self.list.count))
    }
}

impl ExactSizeIterator for IntoNames {}

impl FusedIterator for IntoNames {}

/// Splits the text of a list into its first name and the rest.
fn first(text: &str) -> Option<(&str, &str)> {
    let digits: &[u8; DIGITS] = text.as_bytes().first_chunk()?;
    let length = digits.iter().fold(0, |length, digit| length << 7 | usize::from(*digit));
    text.get(DIGITS..)?.split_at_checked(length)
}

/// Builds the text of a list.
#[derive(Default)]
struct Builder {
    text: String,
    count: usize,
}

impl Builder {
    /// Appends a name. Returns false if its length does not fit into the digits.
    #[must_use]
    fn push(&mut self, name: &str) -> bool {
        if name.len() >> (7 * DIGITS) != 0 {
            return false;
        }
        for digit in (0..DIGITS).rev() {
            self.text.push(char::from((name.len() >> (7 * digit)) as u8 % BASE));
        }
        self.text.push_str(name);
        self.count += 1;
        true
    }

    fn finish(self) -> NameList {
        NameList { text: self.text.into(), count: self.count }
    }
}

/// Number of digits of a length in the text of a list. It is also the number of bytes of a length
/// on the wire.
const DIGITS: usize = 4;
/// The base of the digits.
const BASE: u8 = 128;
