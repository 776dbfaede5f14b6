//! Records that stand inside others: stat, access control list, identities.

use bytestring::ByteString;

use crate::code::Permissions;

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

record! {
    /// An identity: the scheme says how to read the id.
    pub struct Id {
        /// `world`, `digest`, `ip`, `sasl`, `x509`, `auth`, ...
        scheme: ByteString,
        /// Meaning depends on the scheme.
        id: ByteString,
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
