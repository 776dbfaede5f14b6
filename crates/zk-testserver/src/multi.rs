//! The operations of a multi, decoded as servers decode them.
//!
//! Inside a multi, the opcode of a create only determines which record follows; the flags determine
//! what is created. Illegal flags and times to live fail the operation instead of the whole
//! request, as long as the record can be decoded.

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{
    Acl, CreateMode, CreateRequest, DecodeError, ErrorCode, MultiOp, OpCode, Reader, Record, Ttl,
};

use crate::config::ServerConfig;
use crate::version::ServerVersion;

/// One operation of a multi.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Op(MultiOp),
    /// Fails with this error when it is applied. The path is the one in the request.
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

/// Decodes all operations. Returns `None` if the server refuses the whole request as malformed.
pub(crate) fn decode(input: &mut Reader, config: &ServerConfig) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    loop {
        let (op, is_done, _error) = header(input).ok()?;
        if is_done {
            return Some(steps);
        }
        if !config.version.knows(op) {
            return None;
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
    if is_null && config.version >= ServerVersion::V3_9 {
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
        // The record has no time to live.
        (5 | 6, None) => return None,
        // Since versions 3.7.2 and 3.8.2, the whole request is malformed.
        _ if config.version.has_late_multi() => return None,
        _ => return Some(Step::Refused(ErrorCode::BAD_ARGUMENTS, path)),
    };
    Some(Step::Op(MultiOp::Create(CreateRequest { path, data, acl, mode, with_stat })))
}
