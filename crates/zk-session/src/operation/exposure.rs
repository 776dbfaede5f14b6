//! What strangers may do with a znode, by the access control lists on its path.

use bytestring::ByteString;
use jute_codec::{Acl, Id, Permissions};

/// Something that a client may do with a znode.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Touch {
    /// Change the access control list of the znode, and so get all other permissions.
    ChangeAcl,
    /// Create children.
    CreateChildren,
    /// Delete the znode, as soon as it has no children. The list of its parent decides.
    Delete,
    /// Delete children, whatever their own lists are.
    DeleteChildren,
    /// Read the data and list the children.
    Read,
    /// Create another znode in its place, while there is none. The list of its parent decides, or of
    /// the nearest ancestor that exists.
    Replace,
    /// Change the data.
    Write,
}

/// Whether somebody may do something.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Answer {
    /// None of them may.
    No,
    /// The client may not read a list that decides this, or does not know a scheme in it.
    Unknown,
    /// Somebody may.
    Yes,
}

/// What strangers may do with a znode: clients without credentials. Returned by
/// [`Client::exposure`](crate::Client::exposure).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Exposure {
    /// The znode and its ancestors, from the znode up to the root of the server.
    levels: Vec<Level>,
}

/// A znode on the path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Level {
    pub(crate) path: ByteString,
    pub(crate) list: List,
}

/// What the client knows of an access control list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum List {
    Known(Vec<Acl>),
    /// The znode does not exist.
    Missing,
    /// The znode exists, but the client may read its list neither by READ nor by ADMIN.
    Unreadable,
}

impl Exposure {
    pub(crate) fn new(levels: Vec<Level>) -> Self {
        Self { levels }
    }

    /// Returns whether strangers may do anything but read: the maximum of the answers to all other
    /// questions. While the answer is [`Answer::No`], a lock at this znode is safe from strangers.
    pub fn strangers_may_touch(&self) -> Answer {
        let touches = [
            Touch::ChangeAcl,
            Touch::CreateChildren,
            Touch::Delete,
            Touch::DeleteChildren,
            Touch::Replace,
            Touch::Write,
        ];
        touches.map(|touch| self.strangers_may(touch)).into_iter().max().unwrap_or(Answer::No)
    }

    /// Returns whether strangers may do this. Nobody can do anything but [`Touch::Replace`] to a
    /// znode that does not exist.
    pub fn strangers_may(&self, touch: Touch) -> Answer {
        let Some((level, permissions)) = self.deciding(touch) else { return Answer::No };
        level.list.strangers_have(permissions)
    }

    /// Returns the identities that may do this, in the order of the list that decides it; `None` if
    /// the client may not read that list. Superusers of the servers are not among them.
    pub fn who_may(&self, touch: Touch) -> Option<Vec<Id>> {
        let Some((level, permissions)) = self.deciding(touch) else { return Some(Vec::new()) };
        match &level.list {
            List::Known(acl) => {
                let may = |entry: &&Acl| entry.perms.intersects(permissions);
                Some(acl.iter().filter(may).map(|entry| entry.id.clone()).collect())
            }
            List::Missing => Some(Vec::new()),
            List::Unreadable => None,
        }
    }

    /// Returns whether the znode exists.
    pub fn exists(&self) -> bool {
        self.levels.first().is_some_and(|level| level.list != List::Missing)
    }

    /// Returns the ancestors in which strangers may create or delete znodes, or may do so as far as
    /// the client knows, from the nearest one up. The ancestor that decides [`Touch::Replace`] is not
    /// among them. The paths are those on the server.
    ///
    /// As long as the znodes below such an ancestor exist and are not empty, nobody can use this. A
    /// stranger can delete one that is empty for a moment, and create another one with a list of its
    /// own.
    pub fn open_ancestors(&self) -> impl Iterator<Item = (&str, Answer)> {
        let nearest = self.nearest_ancestor().unwrap_or(self.levels.len());
        let change = Permissions::CREATE | Permissions::DELETE | Permissions::ADMIN;
        let above = self.levels.iter().skip(nearest + 1);
        above
            .map(move |level| (&*level.path, level.list.strangers_have(change)))
            .filter(|(_, answer)| *answer != Answer::No)
    }

    /// Returns the znode whose list decides this, and the permissions of which one is enough.
    fn deciding(&self, touch: Touch) -> Option<(&Level, Permissions)> {
        let at = match touch {
            Touch::Delete => self.exists().then_some(1)?,
            Touch::Replace => self.nearest_ancestor()?,
            Touch::ChangeAcl
            | Touch::CreateChildren
            | Touch::DeleteChildren
            | Touch::Read
            | Touch::Write => 0,
        };
        let permission = match touch {
            Touch::ChangeAcl => Permissions::ADMIN,
            Touch::CreateChildren | Touch::Replace => Permissions::CREATE,
            Touch::Delete | Touch::DeleteChildren => Permissions::DELETE,
            Touch::Read => Permissions::READ,
            Touch::Write => Permissions::WRITE,
        };
        // An identity that may change the list may grant itself the rest.
        self.levels.get(at).map(|level| (level, permission | Permissions::ADMIN))
    }

    fn nearest_ancestor(&self) -> Option<usize> {
        (1..self.levels.len())
            .find(|at| self.levels.get(*at).is_some_and(|level| level.list != List::Missing))
    }
}

impl List {
    /// Returns whether somebody without credentials has one of these permissions.
    fn strangers_have(&self, permissions: Permissions) -> Answer {
        let acl = match self {
            Self::Known(acl) => acl,
            Self::Missing => return Answer::No,
            Self::Unreadable => return Answer::Unknown,
        };
        let granted = acl.iter().filter(|entry| entry.perms.intersects(permissions));
        let answers = granted.map(|entry| match &*entry.id.scheme {
            // Everybody on these hosts is let in.
            "world" | "ip" => Answer::Yes,
            "auth" | "digest" | "sasl" | "super" | "x509" => Answer::No,
            // A provider of the servers' own decides whom it means.
            _ => Answer::Unknown,
        });
        answers.max().unwrap_or(Answer::No)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(path: &str, list: List) -> Level {
        Level { path: path.into(), list }
    }

    fn known(permissions: Permissions, scheme: &str) -> List {
        List::Known(vec![
            Acl::new(Permissions::ALL, "digest", "me:x"),
            Acl::new(permissions, scheme, "x"),
        ])
    }

    #[test]
    fn a_list_that_cannot_be_read_or_understood_is_not_taken_for_safe() {
        let safe = || known(Permissions::NONE, "world");
        for (list, expected) in [
            (safe(), Answer::No),
            (known(Permissions::WRITE, "sasl"), Answer::No),
            (known(Permissions::WRITE, "ip"), Answer::Yes),
            (known(Permissions::ADMIN, "world"), Answer::Yes),
            (known(Permissions::READ, "world"), Answer::No),
            (known(Permissions::WRITE, "custom"), Answer::Unknown),
            (List::Unreadable, Answer::Unknown),
        ] {
            let found = Exposure::new(vec![level("/a", list.clone()), level("/", safe())]);
            assert_eq!(found.strangers_may_touch(), expected, "{list:?}");
            assert_eq!(found.strangers_may(Touch::Delete), Answer::No, "{list:?}");
            assert_eq!(found.who_may(Touch::Write).is_none(), list == List::Unreadable);
            let below = vec![level("/a/b", safe()), level("/a", list.clone()), level("/", safe())];
            let below = Exposure::new(below);
            let may_delete = list.strangers_have(Permissions::DELETE | Permissions::ADMIN);
            assert_eq!(below.strangers_may(Touch::Delete), may_delete, "{list:?}");
        }
    }

    #[test]
    fn a_missing_znode_is_as_safe_as_its_nearest_ancestor() {
        let open = || known(Permissions::ALL, "world");
        let found = Exposure::new(vec![
            level("/a/b/c", List::Missing),
            level("/a/b", List::Missing),
            level("/a", known(Permissions::CREATE, "world")),
            level("/", open()),
        ]);
        assert!(!found.exists());
        assert_eq!(found.strangers_may(Touch::Delete), Answer::No);
        assert_eq!(found.strangers_may(Touch::Write), Answer::No);
        assert_eq!(found.strangers_may(Touch::Replace), Answer::Yes);
        assert_eq!(found.open_ancestors().collect::<Vec<_>>(), [("/", Answer::Yes)]);
        let root = Exposure::new(vec![level("/", open())]);
        assert_eq!(root.strangers_may(Touch::Delete), Answer::No);
        assert_eq!(root.strangers_may(Touch::Replace), Answer::No);
        assert_eq!(root.strangers_may(Touch::CreateChildren), Answer::Yes);
    }
}
