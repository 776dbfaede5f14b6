//! The exclusive lock: whoever creates the one znode holds it.
//!
//! One *attempt* is one try in one session, with one id of its own, which is in the data of the
//! znode:
//!
//! 1. In one flight, create the ephemeral znode, and read and watch it. Created: held. Ancestors
//!    missing: make them, and try again.
//! 2. The name is taken: the read says by whom. By nobody any more: to 1. By something that is not
//!    ephemeral: that is no lock, and would be waited for for ever.
//! 3. Wait. When the znode is deleted, all who wait go to 1, and one of them gets it. When its
//!    data has changed, read and watch it again.
//! 4. The session ends while waiting: start a new attempt in the next session.
//!
//! A lost connection leaves the create of step 1 undecided, so:
//!
//! 5. In one flight, pass a write barrier, and read and watch the znode. It is ours if it has our
//!    id *and* belongs to our session: then it is held. Nobody's: to 1. Somebody else's: to 3.

mod release;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{Acl, CreateMode, DataReply, ErrorCode, EventType, Response};
use zk_session::machine::Reply;
use zk_session::{OpError, SessionId, Time};

pub use self::release::ExclusiveRelease;
use super::directory::{Directory, Made};
use super::release::name_of;
use super::{
    Held, Input, Patience, Restart, Step, Tally, Verdict, View, Znode, barrier, create, flight,
    read, replayable, spread, verdict,
};
use crate::error::LockError;

/// Hexadecimal digits of an id.
const ID_LENGTH: usize = 32;

/// What all machines of an exclusive lock know.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "the public recipe fills it in")]
pub struct ExclusiveProfile {
    /// The znode.
    pub path: ByteString,
    /// Its access control list.
    pub acl: Vec<Acl>,
    /// What stands behind the id in its data.
    pub identity: Bytes,
    /// How often a waiter looks again although nothing has happened.
    pub safety_relist: Option<Duration>,
}

/// One attempt.
#[derive(Clone, Debug)]
pub struct Exclusive {
    profile: Arc<ExclusiveProfile>,
    mark: Mark,
    may_wait: bool,
    session: Option<SessionId>,
    directory: Directory,
    /// A create had an unknown outcome.
    is_tainted: bool,
    /// No barrier has been passed since.
    is_undecided: bool,
    znode: Option<Znode>,
    watch: Option<u64>,
    next_watch: u64,
    /// The look in flight was asked for by the safety timer alone.
    is_safety_look: bool,
    tally: Tally,
    patience: Patience,
    paused_until: Option<Time>,
    /// The interval of the safety look, spread so that waiters do not look together.
    safety_relist: Option<Duration>,
    /// When to look again although nothing has happened.
    look_at: Option<Time>,
    is_waiting: bool,
    state: State,
}

/// The id of an attempt, as the data of its znode begins.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mark(Bytes);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Step 1 is in flight.
    Creating,
    /// The ancestors are being made.
    MakingDirectory,
    /// Step 5 is in flight.
    Probing,
    /// Step 3: the read is in flight.
    Looking,
    /// Step 3: waiting.
    Waiting,
    /// A server is overloaded; go on with step 1 or 5.
    Pausing,
    /// Granted on this connection, and not yet handed to anybody.
    Granted(u64),
}

impl Mark {
    /// Of an id.
    pub fn new(id: u128) -> Self {
        Self(format!("{id:032x}").into())
    }

    /// What stands behind the id in the data of a znode; all of it if there is no id.
    pub(crate) fn without(data: &Bytes) -> Bytes {
        match data.split_at_checked(ID_LENGTH) {
            Some((id, [])) if id.iter().all(u8::is_ascii_hexdigit) => Bytes::new(),
            Some((id, [b' ', rest @ ..])) if id.iter().all(u8::is_ascii_hexdigit) => {
                data.slice_ref(rest)
            }
            Some(_) | None => data.clone(),
        }
    }

    /// Whether a znode is the one that the attempt has made in this session.
    pub fn is_in(&self, session: SessionId, found: &DataReply) -> bool {
        let data = found.data.as_deref().unwrap_or_default();
        found.stat.ephemeral_owner == session.0 && data.starts_with(&self.0)
    }
}

impl Exclusive {
    /// An attempt with an id of its own. Without `may_wait` it ends when the lock is taken.
    pub fn new(profile: impl Into<Arc<ExclusiveProfile>>, id: u128, may_wait: bool) -> Self {
        let profile = profile.into();
        Self {
            directory: Directory::default(),
            mark: Mark::new(id),
            safety_relist: profile.safety_relist.map(|pause| spread(pause, id)),
            profile,
            may_wait,
            session: None,
            is_tainted: false,
            is_undecided: false,
            znode: None,
            watch: None,
            next_watch: 0,
            is_safety_look: false,
            tally: Tally::default(),
            patience: Patience::default(),
            paused_until: None,
            look_at: None,
            is_waiting: false,
            state: State::Creating,
        }
    }

    /// Step 1.
    pub fn start(&mut self) -> Step {
        self.state = State::Creating;
        let mut data = self.mark.0.to_vec();
        if !self.profile.identity.is_empty() {
            data.push(b' ');
            data.extend_from_slice(&self.profile.identity);
        }
        let path = self.profile.path.clone();
        let acl = self.profile.acl.clone();
        let create = create(path, data.into(), acl, CreateMode::Ephemeral);
        let operations = vec![create, self.watched_read()];
        Step::Submit(flight(self.session, operations))
    }

    /// True once somebody else was found to hold the lock.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// What it has met since the last call.
    pub fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    /// Cancellation: what has to be removed. `true` if the flight that is under way holds the
    /// create, so that its answer has to be handed to the release.
    pub fn abandon(self) -> (ExclusiveRelease, bool) {
        let is_creating = self.state == State::Creating;
        let is_certain = self.znode.is_some() && matches!(self.state, State::Granted(_));
        let (path, session) = (self.profile.path.clone(), self.session);
        let czxid = self.znode.map(|znode| znode.czxid);
        let mut release = ExclusiveRelease::new(path, self.mark, session, czxid, self.is_tainted);
        if !is_certain {
            release.doubt();
        }
        (release, is_creating)
    }

    /// Advances by one input.
    pub fn handle(&mut self, view: View, input: Input) -> Step {
        if matches!(input, Input::Timer) {
            self.paused_until = None;
        }
        match (self.state, input) {
            (_, Input::Ended(session)) if self.session == Some(session) => {
                Step::Restart(Restart::SessionOver)
            }
            (State::Creating, Input::Reply(reply)) => self.created(view, reply),
            (State::MakingDirectory, Input::Reply(reply)) => {
                match self.directory.made(&self.parent(), reply) {
                    Made::Perhaps => self.start(),
                    Made::Again => self.make_directory(),
                    Made::Failed(error) => Step::Failed(error),
                    Made::Later(error) => self.later(view, error, "create"),
                    Made::SessionOver => Step::Restart(Restart::SessionOver),
                }
            }
            (State::Probing, Input::Reply(reply)) => self.probed(view, reply),
            (State::Looking, Input::Reply(mut reply)) => {
                let look = reply.results.pop();
                self.looked(view, reply.connection, look)
            }
            (State::Waiting, Input::Timer) => {
                self.is_safety_look = true;
                self.look()
            }
            (State::Pausing, Input::Timer) => self.go_on(),
            (_, Input::Watch { local, kind }) => self.event(view, local, kind),
            // What was decided on a connection that has ended has to be found out again.
            (State::Granted(_), Input::Suspended) => self.probe(),
            // Another server may serve at once what this one had no time for.
            (State::Pausing, Input::Suspended) => {
                self.paused_until = None;
                self.go_on()
            }
            (_, Input::Reply(_) | Input::Timer | Input::Suspended | Input::Ended(_)) => {
                self.wait(view)
            }
        }
    }

    fn created(&mut self, view: View, mut reply: Reply) -> Step {
        let look = reply.results.pop();
        let created = reply.results.pop();
        let refusal = created.as_ref().and_then(|created| created.as_ref().err().cloned());
        self.session = self.session.or(reply.session);
        match created.map(verdict) {
            Some(Verdict::Done(Response::Create2(created))) => {
                match look {
                    Some(Ok(Response::GetData(found)))
                        if found.stat.czxid == created.stat.czxid => {}
                    // Somebody has deleted it between the two.
                    Some(Ok(Response::GetData(_)) | Err(OpError::Server(ErrorCode::NO_NODE))) => {
                        return Step::Restart(Restart::ZnodeGone);
                    }
                    Some(_) | None => self.watch = None,
                }
                self.session = reply.session;
                self.grant(view, reply.connection, created.stat.czxid)
            }
            Some(Verdict::Refused(OpError::Server(ErrorCode::NODE_EXISTS))) => {
                self.looked(view, reply.connection, look)
            }
            Some(Verdict::Refused(OpError::Server(ErrorCode::NO_NODE))) => self.make_directory(),
            Some(Verdict::Refused(error)) => {
                Step::Failed(LockError::definite(error, "create", &self.profile.path))
            }
            Some(Verdict::Later(error)) => self.later(view, error, "create"),
            Some(Verdict::NotApplied) => {
                self.tally.replays += 1;
                self.start()
            }
            Some(Verdict::SessionOver) => Step::Restart(Restart::SessionOver),
            Some(Verdict::Unknown | Verdict::Done(_)) | None => {
                self.tally.replays += 1;
                self.is_tainted = true;
                self.is_undecided = true;
                self.session = reply.session;
                // A server that fails is given time; a lost connection has to be made anew anyway.
                match refusal {
                    Some(error) if !error.is_connection_loss() => self.later(view, error, "create"),
                    Some(_) | None => self.probe(),
                }
            }
        }
    }

    /// What the read of the znode has shown.
    fn looked(
        &mut self,
        view: View,
        connection: u64,
        look: Option<Result<Response, OpError>>,
    ) -> Step {
        let is_safety_look = std::mem::take(&mut self.is_safety_look);
        match look.map(replayable) {
            Some(Verdict::Done(Response::GetData(found))) => {
                if self.session.is_some_and(|own| self.mark.is_in(own, &found)) {
                    return self.grant(view, connection, found.stat.czxid);
                }
                if found.stat.ephemeral_owner == 0 {
                    let name = name_of(&self.profile.path).unwrap_or_default().to_string();
                    return Step::Failed(LockError::MixedKinds { name });
                }
                self.is_waiting = true;
                self.znode = None;
                if !self.may_wait {
                    return Step::Busy;
                }
                if self.watch.is_none() {
                    // The watch has fired before the answer was looked at.
                    return self.start();
                }
                self.state = State::Waiting;
                self.patience.reset();
                self.look_at = self.safety_relist.map(|interval| view.now + interval);
                self.wait(view)
            }
            Some(Verdict::Refused(OpError::Server(ErrorCode::NO_NODE))) => {
                self.tally.watches_missed += u64::from(is_safety_look);
                self.start()
            }
            Some(Verdict::Refused(error)) => {
                Step::Failed(LockError::definite(error, "read", &self.profile.path))
            }
            Some(Verdict::SessionOver) => Step::Restart(Restart::SessionOver),
            Some(Verdict::Later(error)) => self.later(view, error, "read"),
            Some(Verdict::Done(_) | Verdict::NotApplied | Verdict::Unknown) | None => {
                self.tally.replays += 1;
                self.go_on()
            }
        }
    }

    /// Step 5.
    fn probe(&mut self) -> Step {
        self.state = State::Probing;
        let operations = vec![barrier(self.profile.path.clone()), self.watched_read()];
        Step::Submit(flight(self.session, operations))
    }

    fn probed(&mut self, view: View, mut reply: Reply) -> Step {
        let look = reply.results.pop();
        match reply.results.pop().map(replayable) {
            // A refused barrier was executed all the same.
            Some(Verdict::Done(_) | Verdict::Refused(_)) => {
                let is_gone = matches!(look, Some(Err(OpError::Server(ErrorCode::NO_NODE))));
                if is_gone && self.znode.take().is_some() {
                    return Step::Restart(Restart::ZnodeGone);
                }
                if !matches!(&look, Some(Err(error)) if error.is_connection_loss()) {
                    self.is_undecided = false;
                }
                self.looked(view, reply.connection, look)
            }
            Some(Verdict::SessionOver) => Step::Restart(Restart::SessionOver),
            Some(Verdict::Later(error)) => self.later(view, error, "read"),
            Some(Verdict::NotApplied | Verdict::Unknown) | None => {
                self.tally.replays += 1;
                self.probe()
            }
        }
    }

    fn look(&mut self) -> Step {
        self.state = State::Looking;
        let operations = vec![self.watched_read()];
        Step::Submit(flight(self.session, operations))
    }

    /// The read of the znode. A contender that does not wait needs no watch. A watch that is pending
    /// keeps its name, so that the registry does not hold two for one znode.
    fn watched_read(&mut self) -> zk_session::machine::Operation {
        if self.watch.is_none() {
            self.next_watch += 1;
            self.watch = Some(self.next_watch);
        }
        let watch = self.watch.filter(|_| self.may_wait);
        read(self.profile.path.clone(), watch)
    }

    fn make_directory(&mut self) -> Step {
        match self.directory.make(&self.parent()) {
            Ok(operations) => {
                self.state = State::MakingDirectory;
                Step::Submit(flight(self.session, operations))
            }
            Err(error) => Step::Failed(error),
        }
    }

    fn parent(&self) -> ByteString {
        match self.profile.path.rsplit_once('/') {
            None | Some(("", _)) => "/".into(),
            Some((parent, _)) => self.profile.path.slice_ref(parent),
        }
    }

    fn event(&mut self, view: View, local: u64, kind: EventType) -> Step {
        if self.watch != Some(local) {
            return self.wait(view);
        }
        self.watch = None;
        match self.state {
            State::Waiting if kind == EventType::NODE_DELETED => self.start(),
            State::Waiting => self.look(),
            // Somebody else has deleted it. It may be theirs by now.
            State::Granted(_) if kind == EventType::NODE_DELETED => {
                self.znode = None;
                Step::Restart(Restart::ZnodeGone)
            }
            State::Creating
            | State::MakingDirectory
            | State::Probing
            | State::Looking
            | State::Pausing
            | State::Granted(_) => self.wait(view),
        }
    }

    fn grant(&mut self, view: View, connection: u64, czxid: i64) -> Step {
        let name = name_of(&self.profile.path).unwrap_or_default();
        let znode = Znode { name, sequence: 0, czxid };
        self.znode = Some(znode.clone());
        if view.alive != Some(connection) {
            // Step 5 commits a write, which makes a new lease, should the old one have ended. If it
            // has made none, the session gives up the connection, and asking at once changes
            // nothing.
            let is_in_vain = self.state == State::Probing && view.connection == Some(connection);
            return if is_in_vain { self.pause(view) } else { self.probe() };
        }
        self.state = State::Granted(connection);
        Step::Held(Held {
            znode,
            session: self.session.expect("a create or a read was answered in a session"),
            connection,
            own_watch: self.watch.filter(|_| self.may_wait),
            lapses: view.lapses,
        })
    }

    fn go_on(&mut self) -> Step {
        if self.is_undecided || self.znode.is_some() { self.probe() } else { self.start() }
    }

    /// Asks again later, or gives up.
    fn later(&mut self, view: View, error: OpError, operation: &'static str) -> Step {
        if self.patience.is_over(&error) {
            return Step::Failed(LockError::definite(error, operation, &self.profile.path));
        }
        self.pause(view)
    }

    fn pause(&mut self, view: View) -> Step {
        self.state = State::Pausing;
        self.paused_until = Some(view.now + self.patience.pause());
        Step::Wait(self.paused_until)
    }

    /// Goes on as before. A grant that something else has arrived with is repeated, unless its
    /// connection has ended, or its deadline has passed: then it has to be found out again.
    fn wait(&mut self, view: View) -> Step {
        match self.state {
            State::Granted(connection) => match &self.znode {
                Some(znode) if view.alive == Some(connection) => {
                    let czxid = znode.czxid;
                    self.grant(view, connection, czxid)
                }
                Some(_) | None => self.probe(),
            },
            State::Waiting => Step::Wait(self.look_at),
            State::Creating
            | State::MakingDirectory
            | State::Probing
            | State::Looking
            | State::Pausing => Step::Wait(self.paused_until),
        }
    }
}
