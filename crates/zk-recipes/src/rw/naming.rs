//! Names of the readers and writers of a read/write lock.

use zk_session::ConfigError;

use crate::lock::role::Role;
use crate::queue::naming::{NameForm, QueueNames, refuse};

/// The forms of contender names in the directory of a [`RwLock`](crate::RwLock). All contenders
/// that share a lock must use the same forms.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct RwNaming {
    reader: NameForm,
    writer: NameForm,
}

impl RwNaming {
    /// Returns the forms `<id>-__READ__<sequence>` and `<id>-__WRIT__<sequence>`, which Curator's
    /// `InterProcessReadWriteLock` uses. This is the default.
    pub fn curator() -> Self {
        Self {
            reader: NameForm::known("-__READ__", "__READ__"),
            writer: NameForm::known("-__WRIT__", "__WRIT__"),
        }
    }

    /// Returns the forms `<id>__rlock__<sequence>` and `<id>__lock__<sequence>`, which kazoo's
    /// `ReadLock` and `WriteLock` use. Never let a kazoo `Lock` use the same directory, because it
    /// ignores readers.
    pub fn kazoo() -> Self {
        Self {
            reader: NameForm::known("__rlock__", "__rlock__"),
            writer: NameForm::known("__lock__", "__lock__"),
        }
    }

    /// Returns forms of your own for readers and writers, such as `{id}-r-{sequence}` and
    /// `{id}-w-{sequence}`; see [`Naming::custom`](crate::Naming::custom).
    ///
    /// # Errors
    ///
    /// Fails if a form is invalid, as for `Naming::custom`, or if a name could have both forms.
    pub fn custom(reader: &str, writer: &str) -> Result<Self, ConfigError> {
        let form = writer;
        let reader = NameForm::custom(reader)?;
        let writer = NameForm::custom(writer)?;
        if reader.overlaps(&writer) {
            return refuse(form, "some names could be those of a reader and of a writer");
        }
        Ok(Self { reader, writer })
    }

    /// Returns the names of the queue, for a contender with this role.
    pub(crate) fn names(&self, role: Role) -> QueueNames {
        QueueNames::shared(self.writer.clone(), self.reader.clone(), role)
    }
}

impl Default for RwNaming {
    fn default() -> Self {
        Self::curator()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_that_overlap_are_refused() {
        let custom = RwNaming::custom;
        assert!(custom("{id}-r-{sequence}", "{id}-w-{sequence}").is_ok());
        for (read, write) in [
            ("{id}-{sequence}", "{id}-{sequence}"),
            ("{id}-{sequence}", "{id}-w-{sequence}"),
            ("x{id}-{sequence}", "{id}-{sequence}"),
        ] {
            assert!(custom(read, write).is_err(), "{read} {write}");
        }
        assert!(custom("r{id}-{sequence}", "w{id}-{sequence}").is_ok());
    }
}
