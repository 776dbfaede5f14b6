//! The decisions of the recipes, without a socket, a clock or a random number.
//!
//! A machine takes one input at a time (the answer to its flight, an event of one of its watches,
//! a change of the session, a time that has come) and returns one step: a flight, a wait, or the
//! end. It has at most one flight under way. Cancellation is an input too: it turns a machine
//! into a release ([`Removal`]), which removes whatever the machine may have left.

pub mod claim;
pub mod contender;
pub(crate) mod directory;
pub mod downgrade;
pub mod exclusive;
pub(crate) mod patience;
pub mod queue;
pub mod release;

use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{
    Acl, CheckRequest, CreateMode, CreateRequest, DataReply, DeleteRequest, ErrorCode, EventType,
    MultiOp, MultiResult, ReadRequest, Request, Response,
};
use zk_session::machine::{Flight, Operation, Reply, WatchId};
use zk_session::{OpError, Outcome, SessionId, Time};

use self::contender::Contender;
use self::exclusive::{Exclusive, ExclusiveRelease};
#[cfg(feature = "tokio")]
pub(crate) use self::patience::PAUSE;
pub(crate) use self::patience::Patience;
use self::release::{Release, ReleaseStep};
use crate::error::LockError;
use crate::naming::Names;

/// What all machines of a lock know.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "the public recipes fill it in")]
pub struct Profile {
    /// Directory of the contenders.
    pub directory: ByteString,
    /// Their names, and the contender's own.
    pub names: Names,
    /// Access control list of contender znodes.
    pub acl: Vec<Acl>,
    /// Data of contender znodes.
    pub identity: Bytes,
    /// How often a waiter checks for missed watches although nothing has happened.
    pub safety_relist: Option<Duration>,
}

/// What a machine has met since it was last asked.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "the runner adds it up")]
pub struct Tally {
    /// Duplicates of the own znode that were found and removed.
    pub duplicates: u64,
    /// Flights issued again because a lost connection had left their outcome open.
    pub replays: u64,
    /// Changes found by the periodic check that no watch reported.
    pub watches_missed: u64,
}

/// What a machine is told of the session, with every input.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "the runner fills it in")]
pub struct View {
    /// The time.
    pub now: Time,
    /// Number of the connection, if the session is connected.
    pub connection: Option<u64>,
    /// The same, if the guard deadline lies ahead too. After an outage longer than the lease a
    /// session may be connected and not alive: only a committed write makes a new lease at once.
    pub alive: Option<u64>,
    /// Guard deadlines of the client that have passed.
    pub lapses: u64,
}

/// An attempt at a lock of whatever kind.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_enums, clippy::large_enum_variant, reason = "complete; one per acquire")]
pub enum Attempt {
    /// In a queue.
    Contender(Contender),
    /// At the one znode of an exclusive lock.
    Exclusive(Exclusive),
}

/// The removal of what an attempt may have left.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_enums, clippy::large_enum_variant, reason = "complete; one per guard")]
pub enum Removal {
    /// From a queue.
    Contender(Release),
    /// The one znode of an exclusive lock.
    Exclusive(ExclusiveRelease),
}

impl View {
    /// The session is connected, but its guard deadline has passed.
    pub(crate) fn has_lapsed(&self) -> bool {
        self.connection.is_some() && self.alive.is_none()
    }
}

impl Attempt {
    /// The first step.
    pub fn start(&mut self) -> Step {
        match self {
            Self::Contender(contender) => contender.start(),
            Self::Exclusive(exclusive) => exclusive.start(),
        }
    }

    /// Advances by one input.
    pub fn handle(&mut self, view: View, input: Input) -> Step {
        match self {
            Self::Contender(contender) => contender.handle(view, input),
            Self::Exclusive(exclusive) => exclusive.handle(view, input),
        }
    }

    /// Contenders ahead, as far as that is known. An exclusive lock knows its holder only.
    pub fn ahead(&self) -> Option<usize> {
        match self {
            Self::Contender(contender) => contender.ahead(),
            Self::Exclusive(exclusive) => exclusive.is_waiting().then_some(1),
        }
    }

    /// What it has met since the last call.
    pub fn take_tally(&mut self) -> Tally {
        match self {
            Self::Contender(contender) => contender.take_tally(),
            Self::Exclusive(exclusive) => exclusive.take_tally(),
        }
    }

    /// Cancellation: what has to be removed. `true` if the flight that is under way holds the
    /// create, so that its answer has to be handed to the removal.
    pub fn abandon(self) -> (Removal, bool) {
        match self {
            Self::Contender(contender) => {
                let (release, is_creating) = contender.abandon();
                (Removal::Contender(release), is_creating)
            }
            Self::Exclusive(exclusive) => {
                let (release, is_creating) = exclusive.abandon();
                (Removal::Exclusive(release), is_creating)
            }
        }
    }
}

impl Removal {
    /// Starts. `create_pending`: the flight that holds the create has no answer yet, and its
    /// answer will be handed in.
    pub fn start(&mut self, create_pending: bool) -> ReleaseStep {
        match self {
            Self::Contender(release) => release.start(create_pending),
            Self::Exclusive(release) => release.start(create_pending),
        }
    }

    /// Tries again after a server has refused the removal.
    pub fn try_again(&mut self) -> ReleaseStep {
        match self {
            Self::Contender(release) => release.try_again(),
            Self::Exclusive(release) => release.try_again(),
        }
    }

    /// Advances by one input.
    pub fn handle(&mut self, view: View, input: Input) -> ReleaseStep {
        match self {
            Self::Contender(release) => release.handle(view, input),
            Self::Exclusive(release) => release.handle(view, input),
        }
    }

    /// True if a create of the attempt had an unknown outcome, so that another look after the
    /// next reconnect is worth its price.
    pub fn is_tainted(&self) -> bool {
        match self {
            Self::Contender(release) => release.is_tainted(),
            Self::Exclusive(release) => release.is_tainted(),
        }
    }

    /// Looks once more for what a lost request may have left.
    pub fn sweep_again(&mut self) -> ReleaseStep {
        match self {
            Self::Contender(release) => release.sweep_again(),
            Self::Exclusive(release) => release.sweep_again(),
        }
    }

    /// Whether the znode is still ours is not certain any more. A name that is unique can be
    /// deleted all the same.
    pub fn doubt(&mut self) {
        match self {
            Self::Contender(_) => {}
            Self::Exclusive(release) => release.doubt(),
        }
    }

    /// Flights issued again because a lost connection had left their outcome open.
    pub fn replays(&self) -> u64 {
        match self {
            Self::Contender(release) => release.replays(),
            Self::Exclusive(release) => release.replays(),
        }
    }
}

/// What happens to a machine.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_enums, reason = "the closed vocabulary of the machines")]
pub enum Input {
    /// The machine's flight was answered.
    Reply(Reply),
    /// The connection ended.
    Suspended,
    /// The session has ended.
    Ended(SessionId),
    /// The time that the machine waits for has come.
    Timer,
    /// One of the machine's watches fired.
    Watch {
        /// Which.
        local: u64,
        /// What happened.
        kind: EventType,
    },
}

/// What a recipe's machine asks for.
#[derive(Clone, Debug)]
#[must_use]
#[allow(clippy::exhaustive_enums, reason = "the closed vocabulary of the machines")]
pub enum Step {
    /// The lock is taken, and the machine was told not to queue.
    Busy,
    /// It cannot be done. What the machine may have left has to be released.
    Failed(LockError),
    /// The lock is held.
    Held(Held),
    /// Start again with a new machine and a new id; release what this one may have left.
    Restart(Restart),
    /// Send this and hand in the answer.
    Submit(Flight),
    /// Wait for the next input, at most until a time.
    Wait(Option<Time>),
}

/// Why an attempt starts again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "complete by definition")]
pub enum Restart {
    /// The session has ended: the next attempt runs in the next one.
    SessionOver,
    /// The contender znode is gone although the session is not.
    ZnodeGone,
}

/// A lock that is held.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "complete by definition")]
pub struct Held {
    /// The contender znode.
    pub znode: Znode,
    /// The session that owns it.
    pub session: SessionId,
    /// The connection on which the grant was decided.
    pub connection: u64,
    /// The watch on the own znode, if there is one.
    pub own_watch: Option<u64>,
    /// Guard deadlines of the client that had passed when the grant was decided.
    pub lapses: u64,
}

/// A contender znode of ours.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "complete by definition")]
pub struct Znode {
    /// Its name in the directory.
    pub name: ByteString,
    /// Its number.
    pub sequence: u32,
    /// Transaction that created it.
    pub czxid: i64,
}

/// How the outcome of an operation matters to a recipe.
pub(crate) enum Verdict {
    /// It was executed, with this answer.
    Done(Response),
    /// A server refused it for a reason that stays.
    Refused(OpError),
    /// A server, or the client, could not take it now, for this reason; nothing happened.
    Later(OpError),
    /// It was not applied, and may be issued again.
    NotApplied,
    /// It may have been applied, or may still be.
    Unknown,
    /// The session is over, and all that belongs to it.
    SessionOver,
}

/// Sorts an outcome. Which replies prove that nothing happened is decided in
/// [`OpError::outcome`].
pub(crate) fn verdict(result: Result<Response, OpError>) -> Verdict {
    match result {
        Ok(response) => Verdict::Done(response),
        Err(OpError::SessionExpired(_)) => Verdict::SessionOver,
        Err(
            error @ (OpError::Server(ErrorCode::THROTTLED_OP | ErrorCode::NOT_READ_ONLY)
            | OpError::QueueFull(_)),
        ) => Verdict::Later(error),
        Err(OpError::ConnectionLoss(Outcome::NotApplied) | OpError::Recalled) => {
            Verdict::NotApplied
        }
        Err(error) if error.is_session_over() => Verdict::Refused(error),
        Err(error) if error.outcome() == Outcome::Unknown => Verdict::Unknown,
        Err(error) => Verdict::Refused(error),
    }
}

/// Sorts the outcome of an operation that may be issued any number of times: a read, or the delete
/// of a unique name. Here only a lost connection leaves a doubt that issuing it again resolves.
pub(crate) fn replayable(result: Result<Response, OpError>) -> Verdict {
    match result {
        Err(error @ (OpError::ResponseTooLarge(_) | OpError::Undecodable(_))) => {
            Verdict::Refused(error)
        }
        Err(error @ OpError::Server(_)) if error.outcome() == Outcome::Unknown => {
            Verdict::Later(error)
        }
        result => verdict(result),
    }
}

/// A name that is kept for long. A part of a reply would keep all of it in memory, and a list of
/// a thousand contenders is long.
pub(crate) fn kept(name: &str) -> ByteString {
    name.into()
}

/// Between one and one and a quarter of an interval, by the id.
pub(crate) fn spread(interval: Duration, id: u128) -> Duration {
    interval.saturating_add((interval / 4 / 255).saturating_mul(u32::from(id as u8)))
}

/// Path of a child.
pub(crate) fn child(directory: &str, name: &str) -> ByteString {
    // In one piece of the right size: some are kept for long.
    if directory == "/" {
        ["/", name].concat().into()
    } else {
        [directory, "/", name].concat().into()
    }
}

pub(crate) fn flight(session: Option<SessionId>, operations: Vec<Operation>) -> Flight {
    Flight { operations, session, deadline: None }
}

pub(crate) fn create(path: ByteString, data: Bytes, acl: Vec<Acl>, mode: CreateMode) -> Operation {
    let request = CreateRequest { path, data: Some(data), acl, mode, with_stat: true };
    Operation::new(Request::Create(request))
}

/// The data of a znode and its stat say that it is the one that we created: by whom, and by which
/// transaction. A name alone proves nothing, because somebody may have created it again.
pub(crate) fn is_created_by(found: &DataReply, session: SessionId, czxid: i64) -> bool {
    found.stat.ephemeral_owner == session.0 && found.stat.czxid == czxid
}

pub(crate) fn delete(path: ByteString) -> Operation {
    Operation::new(Request::Delete(DeleteRequest { path, version: -1 }))
}

/// A list without a watch is shared with other attempts of the client.
pub(crate) fn list(directory: &ByteString, watch: Option<u64>) -> Operation {
    match watch {
        None => Operation::shared_list(directory.clone()),
        Some(watch) => {
            let request = ReadRequest { path: directory.clone(), watch: true };
            Operation::watched(Request::GetChildren(request), local(watch))
        }
    }
}

pub(crate) fn read(path: ByteString, watch: Option<u64>) -> Operation {
    let request = ReadRequest { path, watch: watch.is_some() };
    Operation { request: Request::GetData(request), watch: watch.map(local), is_shared: false }
}

/// Without a watch, and without the right to read.
pub(crate) fn exists(path: ByteString) -> Operation {
    let request = ReadRequest { path, watch: false };
    Operation::new(Request::Exists(request))
}

/// A multi of one check. It changes nothing, but it is a write: when its answer comes, everything
/// this session sent before has been applied or never will be, and this server shows it.
///
/// A `sync` is no replacement: a leader may answer it before earlier writes of other servers'
/// sessions are committed, and a deposed one answers it too.
pub(crate) fn barrier(path: ByteString) -> Operation {
    let check = MultiOp::Check(CheckRequest { path, version: -1 });
    Operation::new(Request::Multi(vec![check]))
}

/// The code of a multi's failed operation, which its header does not tell.
pub(crate) fn multi_refusal(response: &Response) -> Option<ErrorCode> {
    let Response::Multi(results) = response else { return None };
    results.iter().find_map(|result| {
        if let MultiResult::Error(code) = result
            && !code.is_ok()
        {
            Some(*code)
        } else {
            None
        }
    })
}

fn local(local: u64) -> WatchId {
    WatchId { owner: 0, local }
}
