//! Records that are part of others: stats, access control lists, identities.

use bytes::BytesMut;
use bytestring::ByteString;

use crate::error::DecodeError;
use crate::ids::{SessionId, Version, Zxid};
use crate::numbers::Permissions;
use crate::wire::{Reader, Record};

record! {
    /// Metadata of a znode; 68 bytes on the wire.
    #[derive(Copy, Default)]
    pub struct Stat {
        /// The transaction that created the znode.
        czxid: Zxid,
        /// The transaction that last changed the data, or created the znode.
        mzxid: Zxid,
        /// When the znode was created, in milliseconds since 1970, by the leader's wall clock.
        ctime: i64,
        /// When the data last changed, by the same clock.
        mtime: i64,
        /// How many times the data changed.
        version: Version,
        /// How many times a child was created or deleted.
        cversion: Version,
        /// How many times the access control list changed.
        aversion: Version,
        /// The session that owns the znode; [`SessionId::NONE`] if the znode is not ephemeral.
        ephemeral_owner: SessionId,
        /// Length of the data in bytes; 0 for null.
        data_length: i32,
        /// Number of children.
        num_children: i32,
        /// The transaction that last created or deleted a child, or that created the znode if it
        /// never had a child.
        pzxid: Zxid,
    }
}

/// An identity. The scheme determines what the id means.
///
/// Null decodes as empty: some clients, such as kazoo in its `CREATOR_ALL_ACL`, write empty text as
/// null, and servers accept it. Encoding never writes null.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Id {
    /// `world`, `digest`, `ip`, `sasl`, `x509`, `auth`, ...
    pub scheme: ByteString,
    /// The id; its meaning depends on the scheme.
    pub id: ByteString,
}

impl Record for Id {
    fn encode(&self, out: &mut BytesMut) {
        self.scheme.encode(out);
        self.id.encode(out);
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let scheme: Option<ByteString> = input.field("Id", "scheme")?;
        let id: Option<ByteString> = input.field("Id", "id")?;
        Ok(Self { scheme: scheme.unwrap_or_default(), id: id.unwrap_or_default() })
    }
}

record! {
    /// An entry of an access control list.
    pub struct Acl {
        /// The permissions that the entry grants.
        perms: Permissions,
        /// The identity that receives these permissions.
        id: Id,
    }
}

impl Acl {
    /// Grants everything to everyone: `world:anyone:cdrwa`.
    pub fn open() -> Vec<Self> {
        vec![Self::new(Permissions::ALL, "world", "anyone")]
    }

    /// Grants everything to the authenticated identities of the connection that creates the znode.
    pub fn creator_all() -> Vec<Self> {
        vec![Self::new(Permissions::ALL, "auth", "")]
    }

    /// Grants read access to everyone.
    pub fn read() -> Vec<Self> {
        vec![Self::new(Permissions::READ, "world", "anyone")]
    }

    /// Creates one entry.
    pub fn new(
        perms: Permissions,
        scheme: impl Into<ByteString>,
        id: impl Into<ByteString>,
    ) -> Self {
        Self { perms, id: Id { scheme: scheme.into(), id: id.into() } }
    }
}

record! {
    /// An identity of the connection, as reported by whoAmI.
    pub struct ClientInfo {
        /// The scheme of the identity.
        auth_scheme: ByteString,
        /// The user part of the identity.
        user: ByteString,
    }
}
