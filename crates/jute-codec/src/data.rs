//! Records that stand inside others: stat, access control list, identities.

use bytes::BytesMut;
use bytestring::ByteString;

use crate::code::Permissions;
use crate::error::DecodeError;
use crate::wire::{Reader, Record};

record! {
    /// What a server knows of a znode besides its data. 68 bytes on the wire.
    #[derive(Copy, Default)]
    pub struct Stat {
        /// zxid of the create.
        czxid: i64,
        /// zxid of the last change of the data; the create counts.
        mzxid: i64,
        /// Time of the create, in milliseconds since 1970, by the leader's wall clock.
        ctime: i64,
        /// Time of the last change of the data, likewise.
        mtime: i64,
        /// Number of changes of the data.
        version: i32,
        /// Number of creates and deletes of children.
        cversion: i32,
        /// Number of changes of the access control list.
        aversion: i32,
        /// Session that owns an ephemeral; 0 for every other kind.
        ephemeral_owner: i64,
        /// Length of the data in bytes; 0 for null.
        data_length: i32,
        /// Number of children.
        num_children: i32,
        /// zxid of the last create or delete of a child; of the own create before that.
        pzxid: i64,
    }
}

/// An identity: the scheme says how to read the id.
///
/// Null is read as empty: some clients write an empty text as null (kazoo does, in its
/// `CREATOR_ALL_ACL`), and servers take it. It is never written.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "the wire fixes the fields")]
pub struct Id {
    /// `world`, `digest`, `ip`, `sasl`, `x509`, `auth`, ...
    pub scheme: ByteString,
    /// Meaning depends on the scheme.
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
        /// What is granted.
        perms: Permissions,
        /// To whom.
        id: Id,
    }
}

impl Acl {
    /// Everything to everyone: `world:anyone:cdrwa`.
    pub fn open() -> Vec<Self> {
        vec![Self::new(Permissions::ALL, "world", "anyone")]
    }

    /// Everything to the authenticated identities of the connection that creates the znode.
    pub fn creator_all() -> Vec<Self> {
        vec![Self::new(Permissions::ALL, "auth", "")]
    }

    /// Read access to everyone.
    pub fn read() -> Vec<Self> {
        vec![Self::new(Permissions::READ, "world", "anyone")]
    }

    /// One entry.
    pub fn new(
        perms: Permissions,
        scheme: impl Into<ByteString>,
        id: impl Into<ByteString>,
    ) -> Self {
        Self { perms, id: Id { scheme: scheme.into(), id: id.into() } }
    }
}

record! {
    /// An identity of the connection, as whoAmI reports it.
    pub struct ClientInfo {
        /// Scheme of the identity.
        auth_scheme: ByteString,
        /// User part of the identity.
        user: ByteString,
    }
}
