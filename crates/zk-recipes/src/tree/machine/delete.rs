//! Deleting a znode with all its descendants.
//!
//! 1. List the children of the znode.
//! 2. Delete them, a limited number at a time. A child that has children is kept for later.
//! 3. Continue with 1 for each child that was kept.
//! 4. Delete the znode itself. If it has children again, continue with 1.
//!
//! A missing znode is what the caller wants, so every request may be repeated after a lost
//! connection. The last delete is a write of the session that sent the others, so it is their
//! barrier: no delete that was delayed follows its reply.

use std::collections::VecDeque;

use bytestring::ByteString;
use jute_codec::{ErrorCode, Response};
use zk_session::recipe::Reply;
use zk_session::{OpError, Outcome};

use crate::action::FailedAction;
use crate::machine::{
    Failure, Input, Machine, Pauses, SessionView, Step, Verdict, child, delete, flight, list,
    owned_copy, replayable,
};

/// Maximum number of requests in flight.
const BATCH: usize = 64;
/// Number of times that a znode is listed before the machine gives up. It reaches this number only
/// if others create children as fast as they are deleted.
const PASSES_MAX: u32 = 16;

type DeleteStep = Step<Result<Batch, Failure>>;

/// What a batch of requests has achieved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Batch {
    /// Number of znodes deleted so far.
    pub(crate) deleted: u64,
    /// The znode and all its descendants are gone.
    pub(crate) is_last: bool,
}

/// Deletes a subtree. Each run of the machine ends with a batch that has deleted something; the next
/// run continues.
#[derive(Debug)]
pub(crate) struct DeleteTree {
    /// The znode that is being emptied, and its ancestors up to the root of the subtree.
    levels: Vec<Level>,
    deleted: u64,
    /// The paths of the deletes in flight.
    in_flight: Vec<ByteString>,
    state: State,
    pauses: Pauses,
}

#[derive(Debug)]
struct Level {
    path: ByteString,
    /// Number of times that its children were listed.
    passes: u32,
    /// Its children were listed, and those that are left are in `left` and `kept`.
    is_listed: bool,
    /// Names of children to delete.
    left: VecDeque<ByteString>,
    /// Names of children that have children.
    kept: Vec<ByteString>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Step 1 is in flight.
    Listing,
    /// Step 2 is in flight.
    DeletingChildren,
    /// Step 4 is in flight.
    DeletingLevel,
    /// A server is overloaded.
    Pausing,
}

impl Level {
    fn new(path: ByteString) -> Self {
        Self { path, passes: 0, is_listed: false, left: VecDeque::new(), kept: Vec::new() }
    }
}

impl DeleteTree {
    pub(crate) fn new(path: ByteString) -> Self {
        Self {
            levels: vec![Level::new(path)],
            deleted: 0,
            in_flight: Vec::new(),
            state: State::Listing,
            pauses: Pauses::default(),
        }
    }

    fn batch(&self) -> DeleteStep {
        Step::Done(Ok(Batch { deleted: self.deleted, is_last: self.levels.is_empty() }))
    }

    fn next(&mut self) -> DeleteStep {
        let Some(level) = self.levels.last_mut() else { return self.batch() };
        if !level.is_listed {
            self.state = State::Listing;
            return Step::Submit(flight(None, vec![list(&level.path, None)]));
        }
        if !level.left.is_empty() {
            let names = level.left.drain(..BATCH.min(level.left.len()));
            let paths: Vec<_> = names.map(|name| child(&level.path, &name)).collect();
            return self.delete(State::DeletingChildren, paths);
        }
        if let Some(name) = level.kept.pop() {
            let path = child(&level.path, &name);
            self.levels.push(Level::new(path));
            return self.next();
        }
        let path = level.path.clone();
        self.delete(State::DeletingLevel, vec![path])
    }

    fn delete(&mut self, state: State, paths: Vec<ByteString>) -> DeleteStep {
        self.state = state;
        let operations = paths.iter().cloned().map(delete).collect();
        self.in_flight = paths;
        Step::Submit(flight(None, operations))
    }

    fn listed(&mut self, view: SessionView, mut reply: Reply) -> DeleteStep {
        let Some(level) = self.levels.last_mut() else { return self.batch() };
        let lost = || Err(OpError::connection_loss(Outcome::Unknown));
        match replayable(reply.results.pop().unwrap_or_else(lost)) {
            Verdict::Done(Response::GetChildren(names)) => {
                self.pauses.reset();
                level.passes += 1;
                level.is_listed = true;
                // A slice of the reply would keep the whole list in memory.
                level.left = names.iter().map(owned_copy).collect();
                self.next()
            }
            Verdict::Refused(error) if error.is_no_node() => {
                // The delete of the znode is still needed as a barrier.
                level.is_listed = true;
                self.next()
            }
            Verdict::Done(_) | Verdict::NotApplied | Verdict::Unknown => self.next(),
            Verdict::SessionOver => self.session_over(view, FailedAction::List),
            Verdict::Refused(error) => Self::failed(FailedAction::List, level.path.clone(), error),
            Verdict::Later(error) => self.later(view, FailedAction::List, error),
        }
    }

    fn deleted(&mut self, view: SessionView, reply: Reply) -> DeleteStep {
        let paths = std::mem::take(&mut self.in_flight);
        let before = self.deleted;
        let mut setback = None;
        let mut results = reply.results.into_iter();
        for path in paths {
            // A result that is missing counts as a lost connection.
            let lost = || Err(OpError::connection_loss(Outcome::Unknown));
            let verdict = replayable(results.next().unwrap_or_else(lost));
            match verdict {
                Verdict::Done(_) => {
                    self.deleted += 1;
                    self.gone();
                }
                Verdict::Refused(error) if error.is_no_node() => self.gone(),
                Verdict::Refused(error) if error.server_code() == Some(ErrorCode::NOT_EMPTY) => {
                    if let Some(failed) = self.not_empty(&path, error) {
                        return failed;
                    }
                }
                Verdict::Refused(error) => return Self::failed(FailedAction::Delete, path, error),
                Verdict::NotApplied
                | Verdict::Unknown
                | Verdict::SessionOver
                | Verdict::Later(_) => {
                    self.again(&path);
                    setback = Some(verdict);
                }
            }
        }
        match setback {
            Some(Verdict::SessionOver) => self.session_over(view, FailedAction::Delete),
            Some(Verdict::Later(error)) => self.later(view, FailedAction::Delete, error),
            _ if self.deleted > before || self.levels.is_empty() => {
                self.pauses.reset();
                self.batch()
            }
            _ => self.next(),
        }
    }

    /// Handles the end of a znode.
    fn gone(&mut self) {
        if self.state == State::DeletingLevel {
            self.levels.pop();
        }
    }

    /// Handles a znode that has children. Returns a step if it has had children too often.
    fn not_empty(&mut self, path: &ByteString, error: OpError) -> Option<DeleteStep> {
        let level = self.levels.last_mut()?;
        if self.state == State::DeletingChildren {
            level.kept.push(owned_copy(path.rsplit_once('/').map_or("", |(_, name)| name)));
            return None;
        }
        if level.passes >= PASSES_MAX {
            return Some(Self::failed(FailedAction::Delete, path.clone(), error));
        }
        level.is_listed = false;
        None
    }

    /// Plans to delete a znode once more.
    fn again(&mut self, path: &ByteString) {
        // The znode of a level is deleted again anyway, because the level is still there.
        if self.state == State::DeletingChildren
            && let Some(level) = self.levels.last_mut()
            && let Some((_, name)) = path.rsplit_once('/')
        {
            level.left.push_back(owned_copy(name));
        }
    }

    fn later(&mut self, view: SessionView, action: FailedAction, error: OpError) -> DeleteStep {
        if self.pauses.is_too_many(&error) {
            return Self::failed(action, self.path(), error);
        }
        self.state = State::Pausing;
        Step::Wait(self.pauses.begin(view))
    }

    fn session_over(&mut self, view: SessionView, action: FailedAction) -> DeleteStep {
        if view.has_stopped {
            // No session follows, so every later flight would fail at once.
            let error = OpError::session_expired(Outcome::Unknown);
            return Self::failed(action, self.path(), error);
        }
        self.next()
    }

    fn path(&self) -> ByteString {
        self.levels.last().map(|level| level.path.clone()).unwrap_or_default()
    }

    fn failed(action: FailedAction, path: ByteString, error: OpError) -> DeleteStep {
        Step::Done(Err(Failure::new(action, path, error)))
    }
}

impl Machine for DeleteTree {
    type Output = Result<Batch, Failure>;

    fn start(&mut self, _: SessionView) -> DeleteStep {
        self.next()
    }

    fn handle(&mut self, view: SessionView, input: Input) -> DeleteStep {
        match (self.state, input) {
            (State::Listing, Input::Reply(reply)) => self.listed(view, reply),
            (State::DeletingChildren | State::DeletingLevel, Input::Reply(reply)) => {
                self.deleted(view, reply)
            }
            (State::Pausing, Input::Timer | Input::Suspended) => {
                self.pauses.end();
                self.next()
            }
            (
                _,
                Input::Reply(_)
                | Input::Timer
                | Input::Suspended
                | Input::Ended(_)
                | Input::Watch { .. },
            ) => Step::Wait(self.pauses.until()),
        }
    }
}
