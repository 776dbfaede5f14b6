//! What remains of an encoded request until its reply arrives, for the watch and for messages.

use std::mem;

use bytestring::ByteString;
use jute_codec::{ErrorCode, MultiOp, MultiResult, OpCode, Request, Response};

use super::flight::Operation;
use crate::error::Target;

/// The paths of a request in flight. They are moved here from the request, so that successful
/// requests pay nothing for the messages of others.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// The path of the operation; empty if it has none.
    Path(ByteString),
    /// The operations of a multi, without their data.
    Multi(Vec<MultiOp>),
}

impl Subject {
    /// Returns the paths of an operation that was encoded.
    pub(crate) fn of(mut operation: Operation) -> Self {
        if let Request::Multi(mut operations) = operation.request {
            operations.iter_mut().for_each(discard_data);
            return Self::Multi(operations);
        }
        Self::Path(operation.request.path_mut().map(mem::take).unwrap_or_default())
    }

    /// Returns the path; empty for a multi.
    pub(crate) fn path(&self) -> &str {
        if let Self::Path(path) = self { path } else { "" }
    }

    /// Returns the operation and the path that an error of this request names.
    pub(crate) fn target(&self, op: OpCode) -> Target {
        Target::new(
            op,
            match self {
                Self::Path(path) => path.clone(),
                Self::Multi(operations) => {
                    operations.first().map(|first| Target::part(first).path).unwrap_or_default()
                }
            },
        )
    }

    /// Returns the operation that made a server refuse a multi.
    pub(crate) fn refused(&self, response: &Response) -> Option<Box<Target>> {
        let (Self::Multi(operations), Response::Multi(results)) = (self, response) else {
            return None;
        };
        let (index, _) = refusal(results)?;
        operations.get(index).map(|operation| Box::new(Target::part(operation)))
    }
}

/// Frees the data of an operation, which may be large, while its reply is outstanding.
fn discard_data(operation: &mut MultiOp) {
    match operation {
        MultiOp::Check(_) | MultiOp::Delete(_) => {}
        MultiOp::Create(create) => {
            create.data = None;
            create.acl = Vec::new();
        }
        MultiOp::SetData(write) => write.data = None,
    }
}

/// Returns the index and the error code of the operation that made a server refuse a multi, or
/// `None` if the multi was committed. The header of the reply says OK in both cases. The reason is
/// the first code other than `OK`, because `OK` as an error means that another operation failed.
pub(crate) fn refusal(results: &[MultiResult]) -> Option<(usize, ErrorCode)> {
    let errors = || {
        results.iter().enumerate().filter_map(|(index, result)| match result {
            MultiResult::Error(code) => Some((index, *code)),
            MultiResult::Check
            | MultiResult::Create { .. }
            | MultiResult::Create2 { .. }
            | MultiResult::Delete
            | MultiResult::SetData(_) => None,
        })
    };
    errors().find(|(_, code)| !code.is_ok()).or_else(|| errors().next())
}
