//! The reads of a cache, and what is left to read of each path.

use bytestring::ByteString;
use jute_codec::{ReadRequest, Request};
use zk_session::recipe::{Operation, WatchNumber};

use super::super::unreadable::Aspect;

/// A read to send.
#[derive(Clone, Debug)]
pub(in crate::cache) struct Read {
    pub(in crate::cache) path: ByteString,
    pub(in crate::cache) aspect: Aspect,
    /// The watch that it sets.
    pub(super) watch: Option<WatchNumber>,
    /// Asks only whether the znode exists, because a read of a missing znode sets no watch.
    pub(super) is_exists: bool,
}

impl Read {
    /// Returns the operation that reads.
    pub(in crate::cache) fn operation(&self) -> Operation {
        let read = ReadRequest { path: self.path.clone(), watch: self.watch.is_some() };
        let request = match self.aspect {
            Aspect::Data if self.is_exists => Request::Exists(read),
            Aspect::Data => Request::GetData(read),
            Aspect::List => Request::GetChildren(read),
        };
        match self.watch {
            Some(number) => Operation::watched(request, number),
            None => Operation::new(request),
        }
    }
}

/// How far a read has progressed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Progress {
    #[default]
    Idle,
    Queued,
    InFlight {
        /// Something has changed since it was sent.
        again: bool,
        /// The znode was deleted since, so the reply may be older than the deletion.
        discard: bool,
        /// Everything was requested again since.
        is_late: bool,
    },
}

impl Progress {
    /// Records that the reply, if one is to come, may be too old.
    pub(super) fn discard(&mut self) {
        if let Self::InFlight { again, discard, .. } = self {
            (*again, *discard) = (true, true);
        }
    }
}

/// What the cache still has to read of one path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub(super) data: Progress,
    pub(super) list: Progress,
    /// Everything below is read too.
    pub(super) is_deep: bool,
    /// The next read asks only whether the znode exists.
    pub(super) awaits_creation: bool,
}

impl Work {
    pub(super) fn of(&mut self, aspect: Aspect) -> &mut Progress {
        match aspect {
            Aspect::Data => &mut self.data,
            Aspect::List => &mut self.list,
        }
    }

    pub(super) fn of_ref(&self, aspect: Aspect) -> Progress {
        match aspect {
            Aspect::Data => self.data,
            Aspect::List => self.list,
        }
    }
}

/// Returns the path of a child.
pub(super) fn child(path: &str, name: &str) -> ByteString {
    match path {
        "/" => ByteString::from(format!("/{name}")),
        path => ByteString::from(format!("{path}/{name}")),
    }
}
