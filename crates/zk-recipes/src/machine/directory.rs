//! Creating a directory that is missing, with its ancestors.
//!
//! One flight creates all of them, as containers, which servers remove after they have been
//! emptied. A server without containers (before 3.5.1) gets plain znodes.
//!
//! All of them have the access control list of the recipe's znodes, because servers check the
//! permission to delete a znode at its parent: below an open directory, anybody can delete a
//! contender, whatever its own list is. The ancestors have it too: a directory that is empty for a
//! moment could be deleted and created again with another list.
//!
//! There is one exception. A list that lets nobody create and delete children makes sense for a
//! contender, which has none, but not for a directory: nobody could use it, or ever delete it. Such
//! directories have the client's default list.

use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{Acl, CreateMode, ErrorCode, Permissions};
use zk_session::recipe::Operation;
use zk_session::{OpError, Time};

use super::answer::{Answer, Answers};
use super::failure::Failure;
use super::operation::create;
use crate::action::FailedAction;

/// Number of rounds in a row that create the directory before a machine gives up. A machine reaches
/// this number only if somebody deletes the directory after each round.
const ROUNDS_MAX: u32 = 5;
/// Number of times that the rounds may begin again.
const RESTARTS_MAX: u8 = 8;
/// Maximum time between two rounds in a row. Servers remove empty directories, so a machine that
/// waits for long, or whose connections are lost again and again, may create its directory often.
const ROW: Duration = Duration::from_millis(200);

/// A directory that may have to be created during the life of an attempt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    /// The server does not support containers, or the caller does not want them.
    has_no_containers: bool,
    rounds: u32,
    /// Number of times that the rounds began again.
    restarts: u8,
    /// When the last round began.
    last_round: Option<Time>,
}

/// The result of a round.
#[derive(Debug)]
pub(crate) enum Round {
    /// Retry the operation that needs the directory. The directory exists, unless somebody deletes
    /// it as fast as we create it. The retry will show whether it exists.
    Retry,
    /// The server does not support containers: create the directory once more.
    Repeat,
    Failed(Failure),
    SessionEnded,
}

impl Directory {
    /// Creates a directory that is created as a persistent znode, as are its ancestors.
    pub(crate) fn persistent() -> Self {
        Self { has_no_containers: true, ..Self::default() }
    }

    /// Returns the operations of a round, for the directory at this path. The directory gets this
    /// data; its ancestors get none. All of them get this access control list.
    pub(crate) fn create(
        &mut self,
        now: Time,
        path: &ByteString,
        data: &Bytes,
        acl: &[Acl],
    ) -> Result<Vec<Operation>, Failure> {
        if self.last_round.is_none_or(|last| last + ROW < now) {
            self.rounds = 0;
        }
        self.last_round = Some(now);
        // The root always exists. If a server still reports that the parent of one of its children
        // is missing, there is nothing left to create.
        if self.rounds == ROUNDS_MAX || path == "/" {
            let error = OpError::server(ErrorCode::NO_NODE);
            return Err(Failure::new(FailedAction::Create, path.clone(), error));
        }
        let mode = self.mode();
        let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
        let acl = acl_of_directory(acl);
        let operation = |end| -> Option<Operation> {
            let data = if end == path.len() { data.clone() } else { Bytes::new() };
            let path = path.slice_ref(path.get(..end)?);
            Some(create(path, data, acl.clone(), mode))
        };
        Ok(ends.filter_map(operation).collect())
    }

    /// Returns an operation that creates the directory itself, without data, and assumes that its
    /// parent exists. It does not count as a round.
    pub(crate) fn create_last(&self, path: &ByteString, acl: &[Acl]) -> Operation {
        create(path.clone(), Bytes::new(), acl_of_directory(acl), self.mode())
    }

    /// Evaluates the result of [`create_last`](Self::create_last). Whether the directory exists
    /// shows when it is used.
    pub(crate) fn created_last(&mut self, result: &Answer) {
        self.has_no_containers |= is_unsupported(result);
    }

    /// Allows as many rounds as at the beginning, unless that was allowed too often. Returns whether
    /// it does.
    pub(crate) fn begin_again(&mut self) -> bool {
        self.rounds = 0;
        self.restarts += 1;
        self.restarts <= RESTARTS_MAX
    }

    fn mode(&self) -> CreateMode {
        if self.has_no_containers { CreateMode::Persistent } else { CreateMode::Container }
    }

    /// Evaluates the results of a round.
    ///
    /// The result for the directory itself decides, because an ancestor may already exist even if
    /// we lack the permission to create it. If the directory could not be created because an
    /// ancestor is missing, the result for the first missing ancestor decides: the one before the
    /// first result that says so. Those above it exist, even if they may not be created either.
    pub(crate) fn created(&mut self, path: &str, answers: Answers) -> Round {
        let mut results = answers.results;
        if results.iter().any(is_unsupported) {
            self.has_no_containers = true;
            return Round::Repeat;
        }
        let mut path = path.to_owned();
        let mut deciding = results.pop();
        if deciding.as_ref().is_some_and(Answer::is_no_node) {
            let first = results.iter().position(Answer::is_no_node).unwrap_or(results.len());
            if let Some(depth) = first.checked_sub(1) {
                deciding = Some(results.swap_remove(depth));
                path = path.split('/').take(depth + 2).collect::<Vec<_>>().join("/");
            }
        }
        let round = match deciding {
            // Another contender was faster, or somebody deletes what we create.
            Some(Answer::Refused(OpError::Server {
                code: ErrorCode::NODE_EXISTS | ErrorCode::NO_NODE,
                ..
            })) => Round::Retry,
            Some(Answer::Refused(error)) => {
                Round::Failed(Failure::new(FailedAction::Create, path, error))
            }
            Some(Answer::SessionEnded) => Round::SessionEnded,
            Some(Answer::Done(_) | Answer::Unknown { .. }) | None => Round::Retry,
        };
        self.rounds += u32::from(matches!(round, Round::Retry));
        round
    }
}

fn is_unsupported(result: &Answer) -> bool {
    matches!(result, Answer::Refused(OpError::Unsupported { .. }))
}

/// Returns the list of a directory whose contents have this list. An empty one means the default of
/// the client.
fn acl_of_directory(acl: &[Acl]) -> Vec<Acl> {
    let may = |permission| acl.iter().any(|entry| entry.perms.intersects(permission));
    if may(Permissions::CREATE) && may(Permissions::DELETE) { acl.to_vec() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use zk_session::recipe::Reply;

    use super::*;

    /// Creates a directory that is removed again before it is used.
    fn round(directory: &mut Directory, millis: u64) -> Result<(), Failure> {
        let path = ByteString::from_static("/a");
        let now = Time::from_start(Duration::from_millis(millis));
        directory.create(now, &path, &Bytes::new(), &Acl::open())?;
        let exists = Err(OpError::server(ErrorCode::NODE_EXISTS));
        let reply = Reply { session: None, connection: 1, results: vec![exists], refused: None };
        assert!(matches!(directory.created(&path, reply.into()), Round::Retry));
        Ok(())
    }

    #[test]
    fn the_first_ancestor_that_is_missing_decides() {
        use ErrorCode as Code;
        let cases = [
            (vec![Code::NO_AUTH], Some("/a")),
            (vec![Code::NO_AUTH, Code::NO_NODE], Some("/a")),
            (vec![Code::NO_AUTH, Code::NO_AUTH, Code::NO_NODE, Code::NO_NODE], Some("/a/b")),
            (vec![Code::NODE_EXISTS, Code::NO_AUTH, Code::NO_NODE], Some("/a/b")),
            (vec![Code::NO_AUTH, Code::NO_AUTH, Code::NO_AUTH], Some("/a/b/c")),
            // It was created and deleted in between.
            (vec![Code::NO_AUTH, Code::NODE_EXISTS, Code::NO_NODE], None),
            (vec![Code::NO_NODE, Code::NO_NODE], None),
        ];
        for (codes, expected) in cases {
            let path = ["/a", "/b", "/c", "/d"][..codes.len()].concat();
            let refused = |code: &Code| Err(OpError::server(*code));
            let results = codes.iter().map(refused).collect();
            let reply = Reply { session: None, connection: 1, results, refused: None };
            let failed = match Directory::default().created(&path, reply.into()) {
                Round::Failed(failure) => Some(failure.path),
                Round::Retry | Round::Repeat | Round::SessionEnded => None,
            };
            assert_eq!(failed.as_deref(), expected, "{codes:?}");
        }
    }

    #[test]
    fn a_directory_that_is_removed_now_and_then_is_created_each_time() {
        let mut directory = Directory::default();
        for seconds in 0..100 {
            round(&mut directory, seconds * 1_000).expect("no rounds follow each other");
        }
    }

    #[test]
    fn a_directory_that_is_removed_after_each_round_is_given_up() {
        let mut directory = Directory::default();
        for number in 0..5 {
            round(&mut directory, number * 100).expect("it is created up to five times");
        }
        let failure = round(&mut directory, 500).expect_err("it is removed each time");
        assert!(failure.error.is_no_node(), "{failure:?}");
    }
}
