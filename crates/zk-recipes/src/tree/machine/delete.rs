//! Deleting a znode with all its descendants.
//!
//! 1. List the children of the znode.
//! 2. Delete each child. One that has children is kept, and becomes a directory: it is emptied in
//!    the same way, beginning with 1.
//! 3. When all children of a directory are gone, delete it. If it has children again, continue
//!    with 1.
//!
//! The requests of all directories share flights, so that a tree of many small directories takes as
//! few round trips as a flat one. A flight consists of what is deepest in the tree: first deletes,
//! and lists only if it has room, so that few names are kept. The znode at the top is deleted last,
//! in a flight of its own.
//!
//! A missing znode is what the caller wants, so every request may be repeated after a lost
//! connection. The last delete is a write of the session that sent the others, so it is their
//! barrier: no delete that was delayed follows its reply.

use std::collections::BTreeMap;

use bytestring::ByteString;
use jute_codec::{ErrorCode, Response};

use crate::action::FailedAction;
use crate::machine::{
    Answers, Failure, Input, Machine, Needs, SessionView, Step, child, delete, flight, list,
    owned_copy,
};

/// Maximum number of requests in flight.
const BATCH: usize = 64;
/// Maximum number of names that the lists of one flight return together, if no directory has more
/// children than the largest one of the last flight with lists.
const NAMES_MAX: usize = 16_384;
/// Number of times that a directory is listed before the machine gives up. It reaches this number
/// only if others create children as fast as they are deleted.
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
    directories: BTreeMap<DirectoryId, Directory>,
    next_id: DirectoryId,
    /// The work that is left, except for what is in flight. The newest is the deepest.
    children: Vec<Child>,
    unlisted: Vec<DirectoryId>,
    /// Children that have children. They become directories when they are listed.
    kept: Vec<Child>,
    emptied: Vec<DirectoryId>,
    /// The requests in flight, in their order.
    in_flight: Vec<Request>,
    /// Maximum number of lists in the next flight with lists.
    lists_max: usize,
    deleted: u64,
}

type DirectoryId = u64;

/// The znode at the top.
const TOP: DirectoryId = 0;

/// A znode that has children, or had some.
#[derive(Debug)]
struct Directory {
    path: ByteString,
    /// `None` for the znode at the top.
    parent: Option<DirectoryId>,
    /// Number of times that its children were listed.
    passes: u32,
    /// Number of children that were listed and are not gone.
    children: usize,
}

/// A child of a directory, by name.
#[derive(Clone, Debug)]
struct Child {
    parent: DirectoryId,
    name: ByteString,
}

#[derive(Clone, Debug)]
enum Request {
    DeleteChild(Child),
    DeleteDirectory(DirectoryId),
    List(DirectoryId),
}

impl DeleteTree {
    pub(crate) fn new(path: ByteString) -> Self {
        let top = Directory { path, parent: None, passes: 0, children: 0 };
        Self {
            directories: BTreeMap::from([(TOP, top)]),
            next_id: TOP + 1,
            children: Vec::new(),
            unlisted: vec![TOP],
            kept: Vec::new(),
            emptied: Vec::new(),
            in_flight: Vec::new(),
            lists_max: 1,
            deleted: 0,
        }
    }

    /// Returns the number of names and directories that the machine keeps.
    #[cfg(test)]
    fn kept(&self) -> usize {
        self.children.len() + self.kept.len() + self.directories.len()
    }

    fn batch(&self) -> DeleteStep {
        Step::Done(Ok(Batch { deleted: self.deleted, is_last: self.directories.is_empty() }))
    }

    fn next(&mut self) -> DeleteStep {
        if self.directories.is_empty() {
            return self.batch();
        }
        let mut requests = Vec::new();
        while requests.len() < BATCH {
            if let Some(id) = self.emptied.pop() {
                requests.push(Request::DeleteDirectory(id));
            } else if let Some(child) = self.children.pop() {
                requests.push(Request::DeleteChild(child));
            } else {
                break;
            }
        }
        for _ in 0..self.lists_max.min(BATCH - requests.len()) {
            let Some(id) = self.next_to_list() else { break };
            requests.push(Request::List(id));
        }
        debug_assert!(!requests.is_empty(), "a directory that is left has work left");
        let operation = |request: &Request| {
            let path = self.path_of(request);
            if let Request::List(_) = request { list(&path, None) } else { delete(path) }
        };
        let operations = requests.iter().map(operation).collect();
        self.in_flight = requests;
        Step::Submit(flight(None, operations), Needs::Each)
    }

    /// Takes the next directory to list.
    fn next_to_list(&mut self) -> Option<DirectoryId> {
        if let Some(id) = self.unlisted.pop() {
            return Some(id);
        }
        let child = self.kept.pop()?;
        let path = self.path_of_child(&child);
        let id = self.next_id;
        self.next_id += 1;
        let directory = Directory { path, parent: Some(child.parent), passes: 0, children: 0 };
        self.directories.insert(id, directory);
        Some(id)
    }

    fn path(&self, id: DirectoryId) -> ByteString {
        self.directories.get(&id).map(|directory| directory.path.clone()).unwrap_or_default()
    }

    fn path_of_child(&self, of: &Child) -> ByteString {
        child(&self.path(of.parent), &of.name)
    }

    fn path_of(&self, request: &Request) -> ByteString {
        match request {
            Request::DeleteChild(child) => self.path_of_child(child),
            Request::DeleteDirectory(id) | Request::List(id) => self.path(*id),
        }
    }

    fn replied(&mut self, answers: Answers) -> DeleteStep {
        let before = self.deleted;
        let mut largest = None;
        let requests = std::mem::take(&mut self.in_flight);
        for (request, answer) in requests.into_iter().zip(answers.results) {
            let is_list = matches!(request, Request::List(_));
            match answer.response() {
                Ok(Response::GetChildren(names)) if is_list => {
                    // A slice of the reply would keep the whole list in memory.
                    let names: Vec<_> = names.iter().map(owned_copy).collect();
                    largest = largest.max(Some(names.len()));
                    self.listed(&request, names);
                }
                Ok(_) => {
                    self.deleted += 1;
                    self.gone(&request);
                }
                // The delete of the znode at the top is still needed as a barrier.
                Err(error) if error.is_no_node() && is_list => self.listed(&request, Vec::new()),
                Err(error) if error.is_no_node() => self.gone(&request),
                Err(error)
                    if error.server_code() == Some(ErrorCode::NOT_EMPTY)
                        && self.may_list_again(&request) =>
                {
                    match request {
                        Request::DeleteChild(child) => self.kept.push(child),
                        Request::DeleteDirectory(id) | Request::List(id) => self.unlisted.push(id),
                    }
                }
                Err(error) => {
                    let action = if is_list { FailedAction::List } else { FailedAction::Delete };
                    let path = self.path_of(&request);
                    return Step::Done(Err(Failure::new(action, path, error)));
                }
            }
        }
        if let Some(largest) = largest {
            // The sizes of other directories are unknown, so more of them are listed at a time only
            // by and by.
            let fitting = NAMES_MAX / largest.max(1);
            self.lists_max = fitting.clamp(1, self.lists_max * 4).min(BATCH);
        }
        if self.deleted > before || self.directories.is_empty() {
            self.batch()
        } else {
            self.next()
        }
    }

    /// Handles the children of a directory.
    fn listed(&mut self, request: &Request, names: Vec<ByteString>) {
        let Request::List(id) = request else { return };
        let Some(directory) = self.directories.get_mut(id) else { return };
        directory.passes += 1;
        directory.children = names.len();
        if names.is_empty() {
            self.emptied.push(*id);
        }
        self.children.extend(names.into_iter().map(|name| Child { parent: *id, name }));
    }

    /// Handles the end of a znode.
    fn gone(&mut self, request: &Request) {
        let parent = match request {
            Request::DeleteChild(child) => Some(child.parent),
            Request::DeleteDirectory(id) | Request::List(id) => {
                self.directories.remove(id).and_then(|directory| directory.parent)
            }
        };
        let Some(id) = parent else { return };
        let Some(directory) = self.directories.get_mut(&id) else { return };
        directory.children -= 1;
        if directory.children == 0 {
            self.emptied.push(id);
        }
    }

    /// Returns whether a znode that has children may be listed once more.
    fn may_list_again(&self, request: &Request) -> bool {
        match request {
            Request::DeleteChild(_) => true,
            Request::DeleteDirectory(id) | Request::List(id) => {
                self.directories.get(id).is_some_and(|directory| directory.passes < PASSES_MAX)
            }
        }
    }
}

impl Machine for DeleteTree {
    type Output = Result<Batch, Failure>;

    fn start(&mut self, _: SessionView) -> DeleteStep {
        self.next()
    }

    fn handle(&mut self, _: SessionView, input: Input) -> DeleteStep {
        let Input::Answered(answers) = input else { return Step::Wait(None) };
        self.replied(answers)
    }
}

#[cfg(test)]
#[expect(clippy::wildcard_enum_match_arm, reason = "anything else is a failure")]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use jute_codec::Request as Sent;
    use zk_session::OpError;
    use zk_session::recipe::Reply;

    use super::*;
    use crate::machine::Repeating;

    /// Children of the znodes that a server has.
    type Tree = BTreeMap<String, BTreeSet<String>>;

    fn answer(tree: &mut Tree, request: &Sent) -> Result<Response, OpError> {
        match request {
            Sent::GetChildren(read) => {
                Ok(Response::GetChildren(tree[&*read.path].iter().collect()))
            }
            Sent::Delete(delete) => {
                let path = &*delete.path;
                if !tree[path].is_empty() {
                    return Err(OpError::server(ErrorCode::NOT_EMPTY));
                }
                tree.remove(path);
                if let Some((parent, name)) = path.rsplit_once('/')
                    && let Some(siblings) = tree.get_mut(parent)
                {
                    siblings.remove(name);
                }
                Ok(Response::Empty)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Deletes a tree. Returns the number of flights, and the most that the machine has kept.
    fn run(tree: &mut Tree, top: &str) -> (usize, usize) {
        let now = zk_session::Time::from_start(std::time::Duration::ZERO);
        let (connection, has_expired) = (Some(1), false);
        let view = SessionView {
            now,
            connection,
            alive: Some(1),
            is_running_out: false,
            lapses: 0,
            has_expired,
            has_left_session: false,
            seed: 0,
        };
        let mut machine = Repeating::new(DeleteTree::new(top.into()));
        let (mut flights, mut most) = (0, 0);
        let mut step = machine.start(view);
        loop {
            step = match step {
                Step::Submit(flight, _) => {
                    flights += 1;
                    assert!(flight.operations.len() <= BATCH);
                    let answers = flight.operations.iter().map(|it| answer(tree, &it.request));
                    let results = answers.collect();
                    let reply = Reply { session: None, connection: 1, results, refused: None };
                    let step = machine.handle(view, Input::Reply(reply));
                    most = most.max(machine.machine.kept());
                    step
                }
                Step::Done(batch) if batch.as_ref().is_ok_and(|batch| batch.is_last) => {
                    return (flights, most);
                }
                Step::Done(Ok(_)) => machine.start(view),
                other => panic!("{other:?}"),
            }
        }
    }

    fn grow(tree: &mut Tree, path: &str, widths: &[usize]) {
        let width = widths.first().copied().unwrap_or(0);
        let names: BTreeSet<_> = (0..width).map(|index| index.to_string()).collect();
        for name in &names {
            grow(tree, &format!("{path}/{name}"), widths.get(1..).unwrap_or_default());
        }
        tree.insert(path.to_owned(), names);
    }

    #[test]
    fn large_directories_are_listed_a_few_at_a_time() {
        const DIRECTORIES: usize = 40;
        const CHILDREN: usize = 5_000;
        let mut tree = Tree::new();
        grow(&mut tree, "/a", &[DIRECTORIES, CHILDREN]);
        let (flights, most) = run(&mut tree, "/a");
        assert!(tree.is_empty());
        let requests = DIRECTORIES * (CHILDREN + 3) + 2;
        assert!(flights <= requests / BATCH + DIRECTORIES, "{flights}");
        assert!(most < 5 * CHILDREN, "{most} of {} names at a time", DIRECTORIES * CHILDREN);
    }

    #[test]
    fn small_directories_share_flights() {
        let mut tree = Tree::new();
        grow(&mut tree, "/a", &[1_000, 2]);
        let (flights, most) = run(&mut tree, "/a");
        assert!(tree.is_empty());
        // Each directory takes two deletes and a list, and each of its children a delete.
        assert!(flights <= 5_000 / BATCH + 16, "{flights}");
        assert!(most < 1_500, "{most}");
    }

    #[test]
    fn a_deep_tree_is_deleted_from_the_bottom() {
        let mut tree = Tree::new();
        grow(&mut tree, "/a", &[3, 1, 2, 1, 4, 1, 1]);
        run(&mut tree, "/a");
        assert!(tree.is_empty());
    }
}
