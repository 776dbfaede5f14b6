//! What the machines of a queue know about the queue.

use bytes::Bytes;
use bytestring::ByteString;

use super::naming::{QueueNames, Sibling};
use crate::lock::error::LockError;
use crate::lock::options::LockOptions;
use crate::lock::role::Role;

/// How much of unexpected data an error shows.
const SHOWN_MAX: usize = 32;

/// What the machines of a queue know about the queue.
#[derive(Clone, Debug)]
pub struct QueueProfile {
    /// The options that all locks have. The path is the directory of the contenders.
    pub options: LockOptions,
    /// The names of the contenders, and the role of this contender.
    pub names: QueueNames,
    /// How many contenders hold the lock together, if it is a semaphore.
    pub permits: Option<Permits>,
    /// Each attempt removes the directory if it leaves it empty, and creates it together with its
    /// contender.
    pub removes_directory: bool,
}

impl QueueProfile {
    /// Returns the profile of a queue in which one contender at a time holds the lock, or all that
    /// share it, and which keeps its directory.
    pub(crate) fn new(options: LockOptions, names: QueueNames) -> Self {
        Self { options, names, permits: None, removes_directory: false }
    }

    /// Returns the directory of the contenders.
    pub(crate) fn directory(&self) -> &ByteString {
        &self.options.path
    }

    /// Returns the number and the role of the contender with this znode name, or `None` if the
    /// znode is not a contender.
    ///
    /// # Errors
    ///
    /// The znode belongs to a lock of another kind, or its number defines no order.
    #[inline]
    pub(crate) fn contender(&self, name: &str) -> Result<Option<(u32, Role)>, LockError> {
        match self.names.sibling(name) {
            Sibling::Contender(number, role) => Ok(Some((number, role))),
            Sibling::Foreign => Ok(None),
            Sibling::OtherKind => {
                let path = format!("{}/{name}", self.directory());
                Err(LockError::MixedKinds { path })
            }
            Sibling::Exhausted => Err(self.exhausted()),
        }
    }

    /// Returns the error for numbers that define no order.
    pub(crate) fn exhausted(&self) -> LockError {
        LockError::QueueExhausted { directory: self.directory().to_string() }
    }
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
