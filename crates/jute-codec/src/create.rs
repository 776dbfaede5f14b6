//! Create requests. There are four opcodes and seven flags, of which only some combinations are
//! legal.
//!
//! | opcode | flags | reply |
//! |---|---|---|
//! | create (1) | 0 to 3 | path |
//! | create2 (15) | 0 to 3 | path and stat |
//! | createContainer (19) | 4 | path and stat |
//! | createTTL (21) | 5, 6 | path and stat |
//!
//! Opcode 21 with any other flag makes servers 3.8.0 and 3.9.3 terminate, so these types cannot
//! express it.

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;

use crate::data::Acl;
use crate::error::{DecodeError, DecodeErrorKind};
use crate::numbers::OpCode;
use crate::wire::{Reader, Record};

/// The kind of znode to create.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CreateMode {
    /// Exists until it is deleted.
    Persistent,
    /// Deleted by the server when the session that created it ends.
    Ephemeral,
    /// Persistent, with a ten-digit number appended to its name.
    PersistentSequential,
    /// Ephemeral, with a ten-digit number appended to its name.
    EphemeralSequential,
    /// Deleted by the server some time after its last child was deleted (3.5.1).
    Container,
    /// Persistent, but deleted by the server once it has no children and has not changed for the
    /// given time (3.5.3, if enabled on the server).
    PersistentTtl(Ttl),
    /// Like [`PersistentTtl`](Self::PersistentTtl), with a ten-digit number appended to its name.
    PersistentSequentialTtl(Ttl),
}

impl CreateMode {
    /// Returns whether the server appends a number to the name.
    pub fn is_sequential(self) -> bool {
        matches!(
            self,
            Self::PersistentSequential
                | Self::EphemeralSequential
                | Self::PersistentSequentialTtl(_)
        )
    }

    fn flags(self) -> i32 {
        match self {
            Self::Persistent => 0,
            Self::Ephemeral => 1,
            Self::PersistentSequential => 2,
            Self::EphemeralSequential => 3,
            Self::Container => 4,
            Self::PersistentTtl(_) => 5,
            Self::PersistentSequentialTtl(_) => 6,
        }
    }
}

/// The time to live of a znode: 1 ms to 2^40 - 1 ms (34.8 years).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ttl(i64);

impl Ttl {
    /// Creates a TTL from milliseconds. Returns `None` if `ms` is outside the legal range.
    pub fn from_millis(ms: i64) -> Option<Self> {
        (1..1 << 40).contains(&ms).then_some(Self(ms))
    }

    /// Returns the TTL in milliseconds.
    pub fn as_millis(self) -> i64 {
        self.0
    }
}

/// Creates a znode.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct CreateRequest {
    /// The path; for sequential modes, the path before the server appends the number.
    pub path: ByteString,
    /// The data. Null and empty are different values.
    pub data: Option<Bytes>,
    /// The access control list.
    pub acl: Vec<Acl>,
    /// The kind of znode.
    pub mode: CreateMode,
    /// Whether the reply contains the stat. Replies for containers and TTL znodes always contain
    /// it.
    pub with_stat: bool,
}

impl CreateRequest {
    /// Returns the opcode that this request needs.
    pub fn op(&self) -> OpCode {
        match self.mode {
            CreateMode::Container => OpCode::CREATE_CONTAINER,
            CreateMode::PersistentTtl(_) | CreateMode::PersistentSequentialTtl(_) => {
                OpCode::CREATE_TTL
            }
            CreateMode::Persistent
            | CreateMode::Ephemeral
            | CreateMode::PersistentSequential
            | CreateMode::EphemeralSequential => {
                if self.with_stat {
                    OpCode::CREATE2
                } else {
                    OpCode::CREATE
                }
            }
        }
    }

    /// Appends the record, without its header.
    pub fn encode(&self, out: &mut BytesMut) {
        self.path.encode(out);
        self.data.encode(out);
        self.acl.encode(out);
        self.mode.flags().encode(out);
        if let CreateMode::PersistentTtl(ttl) | CreateMode::PersistentSequentialTtl(ttl) = self.mode
        {
            ttl.0.encode(out);
        }
    }

    /// Reads the record that belongs to `op`.
    ///
    /// Real servers accept some combinations that the table above does not list. This function
    /// decodes them as servers interpret them: opcodes 1 and 15 with flag 4 create a plain
    /// persistent znode, and opcode 19 with flag 0 or 1 creates a container.
    ///
    /// # Errors
    ///
    /// Returns [`DecodeErrorKind::IllegalFlags`] or [`DecodeErrorKind::IllegalTtl`] for requests
    /// that a server refuses with `BAD_ARGUMENTS`, and other kinds if the bytes are not a valid
    /// record.
    pub fn decode(op: OpCode, input: &mut Reader) -> Result<Self, DecodeError> {
        let path = input.field("CreateRequest", "path")?;
        let data = input.field("CreateRequest", "data")?;
        let acl = input.field("CreateRequest", "acl")?;
        let offset = input.position();
        let flags = input.field("CreateRequest", "flags")?;
        let mode = match (op, flags) {
            (OpCode::CREATE | OpCode::CREATE2, 0 | 4) => CreateMode::Persistent,
            (OpCode::CREATE | OpCode::CREATE2, 1) => CreateMode::Ephemeral,
            (OpCode::CREATE | OpCode::CREATE2, 2) => CreateMode::PersistentSequential,
            (OpCode::CREATE | OpCode::CREATE2, 3) => CreateMode::EphemeralSequential,
            (OpCode::CREATE_CONTAINER, 0 | 1 | 4) => CreateMode::Container,
            (OpCode::CREATE_TTL, 5 | 6) => {
                let ttl = decode_ttl(input)?;
                if flags == 5 {
                    CreateMode::PersistentTtl(ttl)
                } else {
                    CreateMode::PersistentSequentialTtl(ttl)
                }
            }
            _ => {
                let kind = DecodeErrorKind::IllegalFlags { op: op.0, flags };
                return Err(DecodeError::new(kind, offset).within("CreateRequest", "flags"));
            }
        };
        let with_stat = op != OpCode::CREATE;
        Ok(Self { path, data, acl, mode, with_stat })
    }
}

fn decode_ttl(input: &mut Reader) -> Result<Ttl, DecodeError> {
    let offset = input.position();
    let ms = input.field("CreateRequest", "ttl")?;
    Ttl::from_millis(ms).ok_or_else(|| {
        DecodeError::new(DecodeErrorKind::IllegalTtl(ms), offset).within("CreateRequest", "ttl")
    })
}
