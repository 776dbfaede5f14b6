//! Writes that happen together or not at all.

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{CheckRequest, DeleteRequest, ErrorCode, MultiOp, MultiResult, SetDataRequest};
use thiserror::Error;

use crate::create::CreateOptions;
use crate::error::{OpError, Outcome};
use crate::path;
use crate::types::{Stat, Version};

/// A list of writes and checks, executed in order and atomically.
///
/// ```
/// use zk_session::{CreateMode, Multi, Version};
///
/// let multi = Multi::new()
///     .check("/config", Some(Version(3)))
///     .create("/config/a", "1", CreateMode::Persistent)
///     .set_data("/config/b", "2", None);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a multi does nothing until it is committed"]
pub struct Multi {
    pub(crate) ops: Vec<MultiOp>,
    pub(crate) invalid: Option<OpError>,
}

/// Result of one operation of a committed multi, in the order of the operations.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum MultiOutcome {
    /// The check held.
    Checked,
    /// The znode was created.
    Created {
        /// Its path, with the number that a sequential mode appended.
        path: ByteString,
        /// Its stat right after this operation. Servers before 3.7.2 and 3.8.2 do not tell.
        stat: Option<Stat>,
    },
    /// The znode was deleted.
    Deleted,
    /// The data was replaced; the stat right after this operation.
    DataSet(Stat),
}

/// Why a multi was not committed, or may not have been.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "complete by definition")]
pub enum MultiError {
    /// The request as a whole failed; see [`OpError::outcome`].
    #[error(transparent)]
    Op(#[from] OpError),
    /// An operation was refused. Nothing was applied.
    #[error("operation {index} of the multi was refused: {code}")]
    Refused {
        /// Which operation, counted from 0.
        index: usize,
        /// Why.
        code: ErrorCode,
    },
}

impl Multi {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fails the multi unless the znode exists and has the version, if one is given.
    pub fn check(self, path: &str, version: Option<Version>) -> Self {
        let version = Version::to_wire(version);
        self.push(path, false, MultiOp::Check(CheckRequest { path: path.into(), version }))
    }

    /// Creates a znode.
    pub fn create(
        self,
        path: &str,
        data: impl Into<Bytes>,
        options: impl Into<CreateOptions>,
    ) -> Self {
        let request = options.into().request(path, data.into());
        self.push(path, request.mode.is_sequential(), MultiOp::Create(request))
    }

    /// Deletes a znode that has the version, if one is given.
    pub fn delete(self, path: &str, version: Option<Version>) -> Self {
        let version = Version::to_wire(version);
        self.push(path, false, MultiOp::Delete(DeleteRequest { path: path.into(), version }))
    }

    /// Replaces the data of a znode that has the version, if one is given.
    pub fn set_data(self, path: &str, data: impl Into<Bytes>, version: Option<Version>) -> Self {
        let (data, version) = (Some(data.into()), Version::to_wire(version));
        let request = SetDataRequest { path: path.into(), data, version };
        self.push(path, false, MultiOp::SetData(request))
    }

    /// Puts the operations of another list behind these.
    pub fn append(mut self, others: Self) -> Self {
        self.ops.extend(others.ops);
        self.invalid = self.invalid.or(others.invalid);
        self
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// True without operations.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// The first invalid path fails the commit, because a builder has no way to say so.
    fn push(mut self, path: &str, is_sequential: bool, op: MultiOp) -> Self {
        if let Err(error) = path::validate_for_create(path, is_sequential) {
            self.invalid.get_or_insert(error);
        }
        self.ops.push(op);
        self
    }
}

impl MultiError {
    /// What is known about the effect of the multi.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Op(error) => error.outcome(),
            Self::Refused { .. } => Outcome::NotApplied,
        }
    }
}

/// A multi failed if any result is an error; the first that is not `OK` is the reason. The header
/// of the reply says `OK` all the same.
pub(crate) fn outcomes(results: Vec<MultiResult>) -> Result<Vec<MultiOutcome>, MultiError> {
    let mut outcomes = Vec::with_capacity(results.len());
    let mut refused = None;
    for (index, result) in results.into_iter().enumerate() {
        outcomes.push(match result {
            MultiResult::Check => MultiOutcome::Checked,
            MultiResult::Create { path } => MultiOutcome::Created { path, stat: None },
            MultiResult::Create2 { path, stat } => {
                MultiOutcome::Created { path, stat: Some(stat.into()) }
            }
            MultiResult::Delete => MultiOutcome::Deleted,
            MultiResult::SetData(stat) => MultiOutcome::DataSet(stat.into()),
            MultiResult::Error(code) => {
                // `OK` only says that this one was not to blame.
                let is_explained = refused.is_some_and(|(_, code)| code != ErrorCode::OK);
                if !is_explained && (refused.is_none() || !code.is_ok()) {
                    refused = Some((index, code));
                }
                continue;
            }
        });
    }
    match refused {
        None => Ok(outcomes),
        Some((index, code)) => Err(MultiError::Refused { index, code }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_real_error_is_the_reason_at_every_index() {
        for failing in 0..3 {
            let code = |index: usize| match index.cmp(&failing) {
                std::cmp::Ordering::Less => ErrorCode::OK,
                std::cmp::Ordering::Equal => ErrorCode::BAD_VERSION,
                std::cmp::Ordering::Greater => ErrorCode::RUNTIME_INCONSISTENCY,
            };
            let results = (0..3).map(|index| MultiResult::Error(code(index))).collect();
            let refused = MultiError::Refused { index: failing, code: ErrorCode::BAD_VERSION };
            assert_eq!(outcomes(results), Err(refused));
        }
    }

    #[test]
    fn appending_keeps_the_order_and_the_first_invalid_path() {
        let invalid = |multi: &Multi| match &multi.invalid {
            Some(OpError::InvalidPath { path, .. }) => Some(path.clone()),
            _ => None,
        };
        let good = Multi::new().check("/a", None).append(Multi::new().delete("/b", None));
        assert!(matches!(good.ops.as_slice(), [MultiOp::Check(_), MultiOp::Delete(_)]));
        assert_eq!(invalid(&good), None);
        let late = good.append(Multi::new().check("b", None));
        assert_eq!(invalid(&late).as_deref(), Some("b"));
        assert_eq!(invalid(&late.append(Multi::new().check("c", None))).as_deref(), Some("b"));
    }

    #[test]
    fn a_multi_of_errors_is_never_a_success() {
        let results = vec![MultiResult::Error(ErrorCode::OK); 2];
        assert!(matches!(outcomes(results), Err(MultiError::Refused { index: 0, .. })));
    }
}
