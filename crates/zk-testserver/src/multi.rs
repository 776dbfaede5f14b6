//! The operations of a multi, read as servers read them.
//!
//! Inside a multi, the opcode of a create says only which record follows: what is created is for
//! the flags to say. Flags and times to live that are illegal fail the operation, and not the
//! whole request, as long as the record can be read.

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{
    Acl, CreateMode, CreateRequest, DecodeError, ErrorCode, MultiOp, OpCode, Reader, Record, Ttl,
};

use crate::config::{ServerConfig, Version};

/// One operation of a multi.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Op(MultiOp),
    /// Fails with this error when its turn comes; the path is as asked for.
    Refused(ErrorCode, ByteString),
}

impl Step {
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Op(MultiOp::Check(check)) => &check.path,
            Self::Op(MultiOp::Create(create)) => &create.path,
            Self::Op(MultiOp::Delete(delete)) => &delete.path,
            Self::Op(MultiOp::SetData(set_data)) => &set_data.path,
            Self::Refused(_, path) => path,
        }
    }
}

/// Reads all of them; `None` if the whole request is to be refused as garbled.
pub(crate) fn decode(input: &mut Reader, config: &ServerConfig) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    loop {
        let (op, is_done, _error) = header(input).ok()?;
        if is_done {
            return Some(steps);
        }
        steps.push(match op {
            OpCode::CHECK => Step::Op(MultiOp::Check(Record::decode(input).ok()?)),
            OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
                create(op, input, config)?
            }
            OpCode::DELETE => Step::Op(MultiOp::Delete(Record::decode(input).ok()?)),
            OpCode::SET_DATA => Step::Op(MultiOp::SetData(Record::decode(input).ok()?)),
            _ => return None,
        });
    }
}

fn header(input: &mut Reader) -> Result<(OpCode, bool, ErrorCode), DecodeError> {
    Ok((OpCode::decode(input)?, bool::decode(input)?, ErrorCode::decode(input)?))
}

fn create(op: OpCode, input: &mut Reader, config: &ServerConfig) -> Option<Step> {
    let path = ByteString::decode(input).ok()?;
    let data = Option::<Bytes>::decode(input).ok()?;
    let is_null = i32::decode(&mut input.clone()).ok()? == -1;
    if is_null && config.version == Version::V3_9 {
        return None;
    }
    let acl = Vec::<Acl>::decode(input).ok()?;
    let flags = i32::decode(input).ok()?;
    let ttl = match op {
        OpCode::CREATE_TTL => Some(i64::decode(input).ok()?),
        _ => None,
    };
    let with_stat = op != OpCode::CREATE && op != OpCode::CREATE_TTL;
    let mode = match (flags, ttl) {
        (0 | 1, _) if op == OpCode::CREATE_CONTAINER => CreateMode::Container,
        (0, _) => CreateMode::Persistent,
        (1, _) => CreateMode::Ephemeral,
        (2, _) => CreateMode::PersistentSequential,
        (3, _) => CreateMode::EphemeralSequential,
        (4, _) => CreateMode::Container,
        (5 | 6, Some(ttl)) => match Ttl::from_millis(ttl) {
            Some(ttl) if flags == 5 => CreateMode::PersistentTtl(ttl),
            Some(ttl) => CreateMode::PersistentSequentialTtl(ttl),
            None if config.extended_types => {
                return Some(Step::Refused(ErrorCode::BAD_ARGUMENTS, path));
            }
            None => return Some(Step::Refused(ErrorCode::UNIMPLEMENTED, path)),
        },
        // The time to live is missing.
        (5 | 6, None) => return None,
        // From 3.7.2 and 3.8.2 on there is no such operation.
        _ if config.version == Version::V3_9 => return None,
        _ => return Some(Step::Refused(ErrorCode::BAD_ARGUMENTS, path)),
    };
    Some(Step::Op(MultiOp::Create(CreateRequest { path, data, acl, mode, with_stat })))
}
