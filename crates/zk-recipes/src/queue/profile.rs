//! What the machines of a queue know about the queue.

use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::Acl;

use super::naming::QueueNames;

/// How much of unexpected data an error shows.
const SHOWN_MAX: usize = 32;

/// What the machines of a queue know about the queue.
#[derive(Clone, Debug)]
pub struct QueueProfile {
    /// Directory of the contenders.
    pub directory: ByteString,
    /// The names of the contenders, and the role of this contender.
    pub names: QueueNames,
    /// Access control list of contender znodes.
    pub acl: Vec<Acl>,
    /// Data of contender znodes.
    pub identity: Bytes,
    /// How often a waiter checks for missed watches when no event arrives.
    pub watch_check: Option<Duration>,
    /// How many contenders hold the lock together, if it is a semaphore.
    pub permits: Option<Permits>,
}

/// The number of permits of a semaphore, as one client knows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Permits {
    /// The number that the client expects, and stores in the directory if it has none.
    pub count: u32,
    /// The client accepts any stored number.
    pub accepts_stored: bool,
}

impl Default for Permits {
    fn default() -> Self {
        Self { count: 1, accepts_stored: false }
    }
}

impl Permits {
    /// The number as the data of the directory: decimal digits, as kazoo stores it.
    pub(crate) fn encode(self) -> Bytes {
        self.count.to_string().into()
    }

    /// Reads the data of a directory: the number, or `None` if none is stored.
    ///
    /// # Errors
    ///
    /// Returns the data as text if it is not a positive number.
    pub(crate) fn decode(data: Option<&Bytes>) -> Result<Option<u32>, String> {
        let data = data.map_or(&[][..], |data| data);
        if data.is_empty() {
            return Ok(None);
        }
        let shown = || {
            let beginning = data.get(..SHOWN_MAX).unwrap_or(data);
            String::from_utf8_lossy(beginning).into_owned()
        };
        let text = std::str::from_utf8(data).map_err(|_| shown())?;
        match text.parse() {
            Ok(count) if count > 0 && text.starts_with(|first: char| first.is_ascii_digit()) => {
                Ok(Some(count))
            }
            _ => Err(shown()),
        }
    }
}
