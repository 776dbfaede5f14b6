//! Several reads in one request.

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{DecodeError, DecodeErrorKind, OpCode, ReadOp, ReadResult};

use crate::error::{OpError, Target};
use crate::path;
use crate::types::Stat;

/// A list of reads that a server executes in one request; see
/// [`Client::multi_read`](crate::Client::multi_read).
///
/// ```
/// use zk_session::MultiRead;
///
/// let reads = MultiRead::new().get_data("/config/a").get_data("/config/b").get_children("/jobs");
/// assert_eq!(reads.len(), 3);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "reads do nothing until they are sent"]
pub struct MultiRead {
    pub(crate) ops: Vec<ReadOp>,
    pub(crate) invalid: Option<OpError>,
}

/// The result of one read.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ReadOutcome {
    /// The names of the children, in no particular order.
    Children(Vec<ByteString>),
    /// The data and the metadata.
    Data {
        /// The data. Data that is null on the server is empty here.
        data: Bytes,
        /// The metadata.
        stat: Stat,
    },
}

impl MultiRead {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a read of a znode's data and metadata.
    pub fn get_data(self, path: &str) -> Self {
        self.push(path, ReadOp::GetData(path.into()))
    }

    /// Adds a list of the names of a znode's children.
    pub fn get_children(self, path: &str) -> Self {
        self.push(path, ReadOp::GetChildren(path.into()))
    }

    /// Returns the number of reads.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Returns true if there are no reads.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Adds a read. An invalid path is remembered and fails the request, because the methods of the
    /// builder return no errors.
    fn push(mut self, path: &str, op: ReadOp) -> Self {
        if let Err(error) = path::validate(path) {
            self.invalid.get_or_insert(error);
        }
        self.ops.push(op);
        self
    }
}

/// Converts the results of the server, given the reads with the client's paths.
pub(crate) fn outcomes(
    reads: &[ReadOp],
    results: Vec<ReadResult>,
) -> Result<Vec<Result<ReadOutcome, OpError>>, OpError> {
    if reads.len() != results.len() {
        // The reply is from a peer, so it may contain anything.
        return Err(mismatch(reads.len(), results.len()));
    }
    reads.iter().zip(results).map(|(read, result)| outcome(read, result)).collect()
}

fn outcome(read: &ReadOp, result: ReadResult) -> Result<Result<ReadOutcome, OpError>, OpError> {
    let (op, path) = match read {
        ReadOp::GetChildren(path) => (OpCode::GET_CHILDREN, path),
        ReadOp::GetData(path) => (OpCode::GET_DATA, path),
    };
    match (op, result) {
        (OpCode::GET_CHILDREN, ReadResult::Children(names)) => {
            Ok(Ok(ReadOutcome::Children(names.into())))
        }
        (OpCode::GET_DATA, ReadResult::Data { data, stat }) => {
            Ok(Ok(ReadOutcome::Data { data: data.unwrap_or_default(), stat: stat.into() }))
        }
        (_, ReadResult::Error(code)) => {
            Ok(Err(OpError::server(code).about(Target::new(op, path.clone()))))
        }
        (_, ReadResult::Children(_) | ReadResult::Data { .. }) => Err(mismatch(1, 0)),
    }
}

/// Returns the error of a reply that does not have the results that were requested.
fn mismatch(need: usize, have: usize) -> OpError {
    let kind = DecodeErrorKind::UnexpectedEnd { need, have };
    let error = DecodeError { kind, offset: 0, record: "MultiReadResponse", field: "results" };
    OpError::Undecodable { error: Box::new(error), target: Target::new(OpCode::MULTI_READ, "") }
}

#[cfg(test)]
mod tests {
    use jute_codec::ErrorCode;

    use super::*;

    #[test]
    fn each_result_belongs_to_its_read() {
        let MultiRead { ops, .. } = MultiRead::new().get_data("/a").get_children("/b");
        let results = vec![
            ReadResult::Error(ErrorCode::NO_NODE),
            ReadResult::Children(["c"].into_iter().collect()),
        ];
        let refused =
            OpError::server(ErrorCode::NO_NODE).about(Target::new(OpCode::GET_DATA, "/a"));
        let children = ReadOutcome::Children(vec!["c".into()]);
        assert_eq!(outcomes(&ops, results), Ok(vec![Err(refused), Ok(children)]));
    }

    #[test]
    fn a_reply_with_other_results_than_requested_is_undecodable() {
        let MultiRead { ops, .. } = MultiRead::new().get_data("/a").get_data("/b");
        let names = || ReadResult::Children(["c"].into_iter().collect());
        for results in [vec![], vec![names()], vec![names(), names()]] {
            assert!(matches!(outcomes(&ops, results), Err(OpError::Undecodable { .. })));
        }
    }

    #[test]
    fn an_invalid_path_is_remembered() {
        let MultiRead { invalid, .. } = MultiRead::new().get_data("a").get_data("b");
        assert!(matches!(invalid, Some(OpError::InvalidPath { path, .. }) if path == "a"));
    }
}
