//! Multi and multiRead: lists of headers and records. A header with `done` set ends the list.
//!
//! Source: `MultiOperationRecord` and `MultiResponse`. A list has no count. Servers read `type` and
//! `done` of a header, and recognize the end by `done` alone.

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;

use crate::create::CreateRequest;
use crate::data::Stat;
use crate::error::DecodeError;
use crate::names::NameList;
use crate::numbers::{ErrorCode, OpCode};
use crate::operation::{
    CheckRequest, Create2Reply, DataReply, DeleteRequest, ReadRequest, SetDataRequest,
};
use crate::wire::{Reader, Record};

record! {
    /// Precedes each operation and each result.
    #[derive(Copy)]
    struct MultiHeader {
        /// The kind of record that follows.
        op: OpCode,
        /// Whether the list ends here.
        done: bool,
        /// The result of the operation; -1 in requests.
        err: ErrorCode,
    }
}

/// An operation inside a multi.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum MultiOp {
    /// Fails the multi unless the znode exists and has the expected version.
    Check(CheckRequest),
    /// Creates a znode.
    Create(CreateRequest),
    /// Deletes a znode.
    Delete(DeleteRequest),
    /// Replaces the data of a znode.
    SetData(SetDataRequest),
}

/// The result of an operation inside a multi.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum MultiResult {
    /// The version matches.
    Check,
    /// The znode was created. Servers older than 3.7.2 and 3.8.2 reply to create2 with this
    /// variant.
    Create {
        /// The path, with the number that the server appended for a sequential mode.
        path: ByteString,
    },
    /// The znode was created.
    Create2 {
        /// The path, with the number that the server appended for a sequential mode.
        path: ByteString,
        /// The stat right after this operation.
        stat: Stat,
    },
    /// The znode was deleted.
    Delete,
    /// The multi failed, and nothing was applied. `OK` means that this operation would have
    /// succeeded, and `RUNTIME_INCONSISTENCY` means that it was not reached. Any other code is the
    /// reason for the failure.
    Error(ErrorCode),
    /// The data was replaced. Contains the stat right after this operation.
    SetData(Stat),
}

/// A read inside a multiRead. It has no watch flag, because servers ignore the flag.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum ReadOp {
    /// Lists the children of the znode at this path.
    GetChildren(ByteString),
    /// Reads the data and stat of the znode at this path.
    GetData(ByteString),
}

/// The result of a read inside a multiRead. A failed read does not affect the others.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum ReadResult {
    /// The children, in no particular order.
    Children(NameList),
    /// The data and stat.
    Data {
        /// The data. Null and empty are different values.
        data: Option<Bytes>,
        /// The stat.
        stat: Stat,
    },
    /// This read failed.
    Error(ErrorCode),
}

pub(crate) fn encode_ops(ops: &[MultiOp], out: &mut BytesMut) {
    for op in ops {
        match op {
            MultiOp::Check(check) => {
                begin(OpCode::CHECK, NO_RESULT, out);
                check.encode(out);
            }
            MultiOp::Create(create) => {
                begin(create.op(), NO_RESULT, out);
                create.encode(out);
            }
            MultiOp::Delete(delete) => {
                begin(OpCode::DELETE, NO_RESULT, out);
                delete.encode(out);
            }
            MultiOp::SetData(set_data) => {
                begin(OpCode::SET_DATA, NO_RESULT, out);
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
        begin(code, NO_RESULT, out);
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

/// The value of the field `err` in headers of requests, and in headers that end a list.
const NO_RESULT: ErrorCode = ErrorCode(-1);

fn begin(op: OpCode, err: ErrorCode, out: &mut BytesMut) {
    MultiHeader { op, done: false, err }.encode(out);
}

fn end(out: &mut BytesMut) {
    MultiHeader { op: OpCode::ERROR, done: true, err: NO_RESULT }.encode(out);
}

/// Reads a list up to its end. `element` returns `None` for an opcode that the list may not
/// contain.
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
            let error = DecodeError::unexpected_op(header.op.0, offset);
            return Err(error.within("MultiHeader", "op"));
        };
        elements.push(element);
    }
}
