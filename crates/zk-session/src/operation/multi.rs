//! Writes that are committed together or not at all.

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{
    Acl, CheckRequest, DeleteRequest, ErrorCode, MultiOp, MultiResult, SetDataRequest,
};
use thiserror::Error;

use crate::error::{OpError, Outcome, Refusal, Target};
use crate::machine::subject::refusal;
use crate::operation::create::CreateOptions;
use crate::path;
use crate::types::{Stat, Version};

/// A list of writes and checks that a server executes in order, as one transaction.
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
    ops: Vec<MultiOp>,
    /// The indices of the creates that get the default list of the client that commits the multi.
    without_acl: Vec<usize>,
    pub(crate) invalid: Option<OpError>,
}

/// The result of one operation of a committed multi.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum MultiOutcome {
    /// The check passed.
    Checked,
    /// The znode was created.
    Created {
        /// Its path, with the number that a sequential mode appended.
        path: ByteString,
        /// Its metadata right after this operation. Servers older than 3.7.2 and 3.8.2 do not send
        /// it.
        stat: Option<Stat>,
    },
    /// The znode was deleted.
    Deleted,
    /// The data was replaced. The value is the znode's metadata right after this operation.
    DataSet(Stat),
}

/// Why a multi was not committed, or may not have been.
#[derive(Clone, Eq, Error, PartialEq)]
pub enum MultiError {
    /// The request as a whole failed. [`OpError::outcome`] returns what is known about its effect.
    #[error(transparent)]
    Op(#[from] OpError),
    /// The server refused an operation. None of them was applied.
    #[error(
        "{}; nothing was applied",
        Refusal {
            code: *code,
            target,
            place: Some(&format_args!("operation {index} of the multi (counted from 0)")),
            is_at_server: false,
        }
    )]
    Refused {
        /// Position of the operation, counted from 0.
        index: usize,
        /// Why it was refused.
        code: ErrorCode,
        /// The operation and its path.
        target: Target,
    },
}

jute_codec::debug_by_message!(MultiError);

impl Multi {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check, which fails the multi unless the znode exists and, if a version is given, has
    /// that version.
    pub fn check(self, path: &str, version: Option<Version>) -> Self {
        let version = version.unwrap_or(Version::ANY);
        self.push(path, false, MultiOp::Check(CheckRequest { path: path.into(), version }))
    }

    /// Adds the creation of a znode.
    pub fn create(
        mut self,
        path: &str,
        data: impl Into<Bytes>,
        options: impl Into<CreateOptions>,
    ) -> Self {
        let options = options.into();
        if options.acl.is_none() {
            self.without_acl.push(self.ops.len());
        }
        let request = options.request(path, data.into(), Vec::new);
        self.push(path, request.mode.is_sequential(), MultiOp::Create(request))
    }

    /// Adds the deletion of a znode. If a version is given, the znode must have that version.
    pub fn delete(self, path: &str, version: Option<Version>) -> Self {
        let version = version.unwrap_or(Version::ANY);
        self.push(path, false, MultiOp::Delete(DeleteRequest { path: path.into(), version }))
    }

    /// Adds a write of a znode's data. If a version is given, the znode must have that version.
    pub fn set_data(self, path: &str, data: impl Into<Bytes>, version: Option<Version>) -> Self {
        let version = version.unwrap_or(Version::ANY);
        let request = SetDataRequest { path: path.into(), data: Some(data.into()), version };
        self.push(path, false, MultiOp::SetData(request))
    }

    /// Appends the operations of another list.
    pub fn append(mut self, others: Self) -> Self {
        let first = self.ops.len();
        self.without_acl.extend(others.without_acl.into_iter().map(|index| first + index));
        self.ops.extend(others.ops);
        self.invalid = self.invalid.or(others.invalid);
        self
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Returns true if there are no operations.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Returns the operations. Creates without a list of their own get that of their path.
    pub(crate) fn into_ops(self, default_acl: impl Fn(&str) -> Vec<Acl>) -> Vec<MultiOp> {
        let Self { mut ops, without_acl, .. } = self;
        for index in without_acl {
            if let Some(MultiOp::Create(create)) = ops.get_mut(index) {
                create.acl = default_acl(&create.path);
            }
        }
        ops
    }

    /// Adds an operation. An invalid path is remembered and fails the commit, because the methods
    /// of the builder return no errors.
    fn push(mut self, path: &str, is_sequential: bool, op: MultiOp) -> Self {
        if let Err(error) = path::validate_for_create(path, is_sequential) {
            self.invalid.get_or_insert(error);
        }
        self.ops.push(op);
        self
    }
}

impl MultiError {
    /// Returns what is known about the effect of the multi.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Op(error) => error.outcome(),
            Self::Refused { .. } => Outcome::NotApplied,
        }
    }
}

/// Converts the results of a multi. The multi failed if any result is an error, even though the
/// header of the reply says `OK`. `refused` is the operation that made it fail.
pub(crate) fn outcomes(
    results: Vec<MultiResult>,
    refused: Option<Box<Target>>,
) -> Result<Vec<MultiOutcome>, MultiError> {
    if let Some((index, code)) = refusal(&results) {
        let target = refused.map(|target| *target).unwrap_or_default();
        return Err(MultiError::Refused { index, code, target });
    }
    Ok(executed(results))
}

/// Converts the results of a multi that was applied.
pub(crate) fn executed(results: Vec<MultiResult>) -> Vec<MultiOutcome> {
    let outcome = |result| {
        Some(match result {
            MultiResult::Check => MultiOutcome::Checked,
            MultiResult::Create { path } => MultiOutcome::Created { path, stat: None },
            MultiResult::Create2 { path, stat } => {
                MultiOutcome::Created { path, stat: Some(stat.into()) }
            }
            MultiResult::Delete => MultiOutcome::Deleted,
            MultiResult::SetData(stat) => MultiOutcome::DataSet(stat.into()),
            MultiResult::Error(_) => return None,
        })
    };
    results.into_iter().filter_map(outcome).collect()
}

#[cfg(test)]
mod tests {
    use jute_codec::{CreateMode, OpCode};

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
            let code = ErrorCode::BAD_VERSION;
            let target = Target::new(OpCode::CHECK, "/a");
            let refused = MultiError::Refused { index: failing, code, target: target.clone() };
            assert_eq!(outcomes(results, Some(Box::new(target))), Err(refused));
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
    fn only_creates_without_a_list_get_the_default() {
        let own = CreateOptions::from(CreateMode::Persistent).acl(Acl::read());
        let first = Multi::new().check("/a", None).create("/b", "", own.clone());
        let second = Multi::new().create("/c", "", CreateMode::Persistent).create("/d", "", own);
        let ops = first.append(second).into_ops(|_| Acl::creator_all());
        let lists: Vec<_> = ops
            .into_iter()
            .filter_map(|op| if let MultiOp::Create(it) = op { Some(it.acl) } else { None })
            .collect();
        assert_eq!(lists, [Acl::read(), Acl::creator_all(), Acl::read()]);
    }

    #[test]
    fn a_multi_of_errors_is_never_a_success() {
        let results = vec![MultiResult::Error(ErrorCode::OK); 2];
        assert!(matches!(outcomes(results, None), Err(MultiError::Refused { index: 0, .. })));
    }
}
