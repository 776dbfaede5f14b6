//! Multi and multiRead: lists of headers and records that end with a header marked done.
//!
//! Source: `MultiOperationRecord` and `MultiResponse`. There is no count; only `type` and `done`
//! of a header are read, and the end is recognised by `done` alone.

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;

use crate::code::{ErrorCode, OpCode};
use crate::create::CreateRequest;
use crate::data::Stat;
use crate::error::{DecodeError, DecodeErrorKind};
use crate::names::NameList;
use crate::reply::{Create2Reply, DataReply};
use crate::request::{CheckRequest, DeleteRequest, ReadRequest, SetDataRequest};
use crate::wire::{Reader, Record};

record! {
    /// Stands before each operation and each result.
    #[derive(Copy)]
    struct MultiHeader {
        /// What follows.
        op: OpCode,
        /// Whether this is the end.
        done: bool,
        /// -1 in requests.
        err: ErrorCode,
    }
}

/// An operation inside a multi.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "the wire fixes what a multi may contain")]
pub enum MultiOp {
    /// Fails the multi unless the znode exists and has the version.
    Check(CheckRequest),
    /// Creates a znode.
    Create(CreateRequest),
    /// Deletes a znode.
    Delete(DeleteRequest),
    /// Replaces the data of a znode.
    SetData(SetDataRequest),
}

/// Result of an operation inside a multi.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "the wire fixes what a multi may answer")]
pub enum MultiResult {
    /// The version matches.
    Check,
    /// The znode was created. Servers before 3.7.2 and 3.8.2 answer create2 with this one.
    Create {
        /// Path with the number that a sequential mode appended.
        path: ByteString,
    },
    /// The znode was created.
    Create2 {
        /// Path with the number that a sequential mode appended.
        path: ByteString,
        /// Stat right after this operation.
        stat: Stat,
    },
    /// The znode was deleted.
    Delete,
    /// The multi failed, and with it this operation. `OK`: it would have succeeded;
    /// `RUNTIME_INCONSISTENCY`: it was not reached; any other code is the reason.
    Error(ErrorCode),
    /// The data was replaced; stat right after this operation.
    SetData(Stat),
}

/// A read inside a multiRead. Its watch flag is not here because servers ignore it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "the wire fixes what a multiRead may contain")]
pub enum ReadOp {
    /// Lists the children of the znode at this path.
    GetChildren(ByteString),
    /// Reads data and stat of the znode at this path.
    GetData(ByteString),
}

/// Result of a read inside a multiRead; one failure does not affect the others.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "the wire fixes what a multiRead may answer")]
pub enum ReadResult {
    /// The children, in no particular order.
    Children(NameList),
    /// Data and stat.
    Data {
        /// Data; null and empty are different values.
        data: Option<Bytes>,
        /// Stat.
        stat: Stat,
    },
    /// This read failed.
    Error(ErrorCode),
}

pub(crate) fn encode_ops(ops: &[MultiOp], out: &mut BytesMut) {
    for op in ops {
        match op {
            MultiOp::Check(check) => {
                begin(OpCode::CHECK, NO_ERROR_YET, out);
                check.encode(out);
            }
            MultiOp::Create(create) => {
                begin(create.op(), NO_ERROR_YET, out);
                create.encode(out);
            }
            MultiOp::Delete(delete) => {
                begin(OpCode::DELETE, NO_ERROR_YET, out);
                delete.encode(out);
            }
            MultiOp::SetData(set_data) => {
                begin(OpCode::SET_DATA, NO_ERROR_YET, out);
                set_data.encode(out);
            }
        }
    }
    end(out);
}

pub(crate) fn decode_ops(input: &mut Reader) -> Result<Vec<MultiOp>, DecodeError> {
    decode_list(input, |op, input| {
        Ok(Some(match op {
            OpCode::CHECK => MultiOp::Check(Record::decode(input)?),
            OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
                MultiOp::Create(CreateRequest::decode(op, input)?)
            }
            OpCode::DELETE => MultiOp::Delete(Record::decode(input)?),
            OpCode::SET_DATA => MultiOp::SetData(Record::decode(input)?),
            _ => return Ok(None),
        }))
    })
}

pub(crate) fn encode_results(results: &[MultiResult], out: &mut BytesMut) {
    for result in results {
        match result {
            MultiResult::Check => begin(OpCode::CHECK, ErrorCode::OK, out),
            MultiResult::Create { path } => {
                begin(OpCode::CREATE, ErrorCode::OK, out);
                path.encode(out);
            }
            MultiResult::Create2 { path, stat } => {
                begin(OpCode::CREATE2, ErrorCode::OK, out);
                path.encode(out);
                stat.encode(out);
            }
            MultiResult::Delete => begin(OpCode::DELETE, ErrorCode::OK, out),
            MultiResult::Error(code) => {
                begin(OpCode::ERROR, *code, out);
                code.encode(out);
            }
            MultiResult::SetData(stat) => {
                begin(OpCode::SET_DATA, ErrorCode::OK, out);
                stat.encode(out);
            }
        }
    }
    end(out);
}

pub(crate) fn decode_results(input: &mut Reader) -> Result<Vec<MultiResult>, DecodeError> {
    decode_list(input, |op, input| {
        Ok(Some(match op {
            OpCode::CHECK => MultiResult::Check,
            OpCode::CREATE => MultiResult::Create { path: input.field("CreateResponse", "path")? },
            OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
                let Create2Reply { path, stat } = Record::decode(input)?;
                MultiResult::Create2 { path, stat }
            }
            OpCode::DELETE => MultiResult::Delete,
            OpCode::ERROR => MultiResult::Error(input.field("ErrorResponse", "err")?),
            OpCode::SET_DATA => MultiResult::SetData(Record::decode(input)?),
            _ => return Ok(None),
        }))
    })
}

pub(crate) fn encode_reads(ops: &[ReadOp], out: &mut BytesMut) {
    for op in ops {
        let (code, path) = match op {
            ReadOp::GetChildren(path) => (OpCode::GET_CHILDREN, path),
            ReadOp::GetData(path) => (OpCode::GET_DATA, path),
        };
        begin(code, NO_ERROR_YET, out);
        ReadRequest { path: path.clone(), watch: false }.encode(out);
    }
    end(out);
}

pub(crate) fn decode_reads(input: &mut Reader) -> Result<Vec<ReadOp>, DecodeError> {
    decode_list(input, |op, input| match op {
        OpCode::GET_CHILDREN => Ok(Some(ReadOp::GetChildren(ReadRequest::decode(input)?.path))),
        OpCode::GET_DATA => Ok(Some(ReadOp::GetData(ReadRequest::decode(input)?.path))),
        _ => Ok(None),
    })
}

pub(crate) fn encode_read_results(results: &[ReadResult], out: &mut BytesMut) {
    for result in results {
        match result {
            ReadResult::Children(children) => {
                begin(OpCode::GET_CHILDREN, ErrorCode::OK, out);
                children.encode(out);
            }
            ReadResult::Data { data, stat } => {
                begin(OpCode::GET_DATA, ErrorCode::OK, out);
                data.encode(out);
                stat.encode(out);
            }
            ReadResult::Error(code) => {
                begin(OpCode::ERROR, *code, out);
                code.encode(out);
            }
        }
    }
    end(out);
}

pub(crate) fn decode_read_results(input: &mut Reader) -> Result<Vec<ReadResult>, DecodeError> {
    decode_list(input, |op, input| {
        Ok(Some(match op {
            OpCode::GET_CHILDREN => {
                ReadResult::Children(input.field("GetChildrenResponse", "children")?)
            }
            OpCode::GET_DATA => {
                let DataReply { data, stat } = Record::decode(input)?;
                ReadResult::Data { data, stat }
            }
            OpCode::ERROR => ReadResult::Error(input.field("ErrorResponse", "err")?),
            _ => return Ok(None),
        }))
    })
}

/// `err` of a header in a request.
const NO_ERROR_YET: ErrorCode = ErrorCode(-1);

fn begin(op: OpCode, err: ErrorCode, out: &mut BytesMut) {
    MultiHeader { op, done: false, err }.encode(out);
}

fn end(out: &mut BytesMut) {
    MultiHeader { op: OpCode::ERROR, done: true, err: NO_ERROR_YET }.encode(out);
}

/// Reads up to the end mark. `element` answers `None` to an opcode that may not stand there.
fn decode_list<T>(
    input: &mut Reader,
    mut element: impl FnMut(OpCode, &mut Reader) -> Result<Option<T>, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let mut elements = Vec::new();
    loop {
        let offset = input.position();
        let header = MultiHeader::decode(input)?;
        if header.done {
            return Ok(elements);
        }
        let Some(element) = element(header.op, input)? else {
            let kind = DecodeErrorKind::UnexpectedOp(header.op.0);
            return Err(DecodeError::new(kind, offset).within("MultiHeader", "op"));
        };
        elements.push(element);
    }
}
