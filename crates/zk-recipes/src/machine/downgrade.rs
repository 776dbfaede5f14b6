//! A writer becomes a reader, without a moment at which anybody else could enter.
//!
//! 1. In one multi, create the reader's znode with the writer's own number, and delete the
//!    writer's. Whoever waits behind the writer now stands behind a reader of the same number:
//!    readers may enter, writers may not.
//! 2. Done: it happened. The znode of the writer is missing: the lock is lost. Otherwise refused:
//!    the writer holds as before.
//!
//! A lost connection leaves step 1 undecided. It is issued again: the name of the reader's znode
//! is unique, so it can be applied only once.
//!
//! 3. If the repetition is refused, whatever the reason, the first one may have been applied. The
//!    refusal is as good as a write barrier, so a read of the reader's znode decides: there and
//!    ours, done; missing, step 2 holds. If it is there and may not be read, it is ours: the name
//!    is unique, and its session is the only one in which the multi was sent.

use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::{CreateMode, CreateRequest, DeleteRequest, ErrorCode, MultiOp, Request, Response};
use zk_session::machine::{Flight, Operation, Reply};
use zk_session::{OpError, SessionId, Time};

use super::{
    Input, Patience, Profile, Verdict, View, Znode, child, flight, multi_refusal, read, replayable,
    verdict,
};
use crate::error::{LockError, LostReason};

/// What a downgrade asks for.
#[derive(Clone, Debug)]
#[must_use]
#[allow(clippy::exhaustive_enums, reason = "the closed vocabulary of the machine")]
pub enum DowngradeStep {
    /// The reader holds.
    Done {
        /// Its znode. The transaction that counts is still that of the writer's.
        znode: Znode,
        /// Connection on which that was decided.
        connection: u64,
    },
    /// The lock is lost.
    Lost(LostReason),
    /// The writer holds as before.
    Refused(LockError),
    /// Send this and hand in the answer.
    Submit(Flight),
    /// Wait for the next input, at most until a time.
    Wait(Option<Time>),
}

/// A downgrade under way.
#[derive(Clone, Debug)]
pub struct Downgrade {
    profile: Arc<Profile>,
    session: SessionId,
    writer: Znode,
    reader: ByteString,
    /// The multi may have been applied without our knowledge.
    is_tainted: bool,
    replays: u64,
    patience: Patience,
    paused_until: Option<Time>,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Step 1 is in flight.
    Committing,
    /// Step 3 is in flight; the refusal.
    Deciding(ErrorCode),
    /// A server is overloaded; go on with step 1 later.
    Pausing,
}

impl Downgrade {
    /// Of a writer that holds the lock. `None` if its name is not that of a writer.
    pub fn new(
        profile: impl Into<Arc<Profile>>,
        session: SessionId,
        writer: Znode,
    ) -> Option<Self> {
        let profile = profile.into();
        let reader = profile.names.downgraded(&writer.name)?.into();
        Some(Self {
            profile,
            session,
            writer,
            reader,
            is_tainted: false,
            replays: 0,
            patience: Patience::default(),
            paused_until: None,
            state: State::Committing,
        })
    }

    /// Names that the holder may have from now on, and until it is decided, in the order in which
    /// they have to be removed: without the writer's znode, a multi that comes late changes
    /// nothing, and leaves no reader behind.
    pub fn names(&self) -> Vec<ByteString> {
        vec![self.writer.name.clone(), self.reader.clone()]
    }

    /// How often a lost connection has left the outcome open.
    pub fn replays(&self) -> u64 {
        self.replays
    }

    /// Step 1.
    pub fn start(&mut self) -> DowngradeStep {
        self.state = State::Committing;
        let Profile { directory, identity, acl, .. } = &*self.profile;
        let create = CreateRequest {
            path: child(directory, &self.reader),
            data: Some(identity.clone()),
            acl: acl.clone(),
            mode: CreateMode::Ephemeral,
            with_stat: false,
        };
        let path = child(directory, &self.writer.name);
        let delete = DeleteRequest { path, version: -1 };
        let multi = Request::Multi(vec![MultiOp::Create(create), MultiOp::Delete(delete)]);
        let operation = Operation::new(multi);
        DowngradeStep::Submit(flight(Some(self.session), vec![operation]))
    }

    /// Advances by one input.
    pub fn handle(&mut self, view: View, input: Input) -> DowngradeStep {
        if matches!(input, Input::Timer) {
            self.paused_until = None;
        }
        match (self.state.clone(), input) {
            (_, Input::Ended(session)) if session == self.session => over(),
            (State::Committing, Input::Reply(reply)) => self.committed(view, reply),
            (State::Deciding(code), Input::Reply(reply)) => self.decided(view, code, reply),
            (State::Pausing, Input::Timer) => self.start(),
            // The own znode goes with the multi, so an event of its watch decides nothing.
            (_, Input::Reply(_) | Input::Timer | Input::Watch { .. })
            | (_, Input::Suspended | Input::Ended(_)) => DowngradeStep::Wait(self.paused_until),
        }
    }

    fn committed(&mut self, view: View, mut reply: Reply) -> DowngradeStep {
        let connection = reply.connection;
        let committed = reply.results.pop();
        let is_lost = matches!(&committed, Some(Err(error)) if error.is_connection_loss());
        match committed.map(verdict) {
            Some(Verdict::Done(response)) => match multi_refusal(&response) {
                None => self.done(connection),
                Some(code) => self.refused(code),
            },
            Some(Verdict::SessionOver) => over(),
            Some(Verdict::Later(_)) => self.pause(view),
            Some(Verdict::NotApplied) => {
                self.replays += 1;
                self.start()
            }
            Some(Verdict::Refused(error)) => match error.server_code() {
                Some(code) => self.refused(code),
                None => self.give_up(error),
            },
            Some(Verdict::Unknown) | None => {
                self.replays += 1;
                self.is_tainted = true;
                // A server that fails is given time; a lost connection has to be made anew anyway.
                if is_lost { self.start() } else { self.pause(view) }
            }
        }
    }

    fn refused(&mut self, code: ErrorCode) -> DowngradeStep {
        if self.is_tainted || code == ErrorCode::NODE_EXISTS {
            return self.decide(code);
        }
        self.conclude(code)
    }

    fn decide(&mut self, code: ErrorCode) -> DowngradeStep {
        self.state = State::Deciding(code);
        let path = child(&self.profile.directory, &self.reader);
        DowngradeStep::Submit(flight(Some(self.session), vec![read(path, None)]))
    }

    fn decided(&mut self, view: View, code: ErrorCode, mut reply: Reply) -> DowngradeStep {
        match reply.results.pop().map(replayable) {
            Some(Verdict::Done(Response::GetData(data)))
                if data.stat.ephemeral_owner == self.session.0 =>
            {
                self.done(reply.connection)
            }
            Some(Verdict::Done(_)) => self.conclude(code),
            Some(Verdict::Refused(OpError::Server(ErrorCode::NO_NODE))) => self.conclude(code),
            Some(Verdict::Refused(OpError::Server(ErrorCode::NO_AUTH)))
                if self.is_tainted && code == ErrorCode::NODE_EXISTS =>
            {
                self.done(reply.connection)
            }
            // Whoever may not read it cannot know. The multi is tried until something is clear.
            Some(Verdict::Refused(_) | Verdict::Later(_)) => self.pause(view),
            Some(Verdict::SessionOver) => over(),
            // On the next connection the multi has to be tried again before a read means anything.
            Some(Verdict::NotApplied | Verdict::Unknown) | None => {
                self.replays += 1;
                self.start()
            }
        }
    }

    /// The multi was refused, and never applied.
    fn conclude(&self, code: ErrorCode) -> DowngradeStep {
        if code == ErrorCode::NO_NODE {
            return DowngradeStep::Lost(LostReason::ZnodeDeleted);
        }
        let path = child(&self.profile.directory, &self.reader).to_string();
        DowngradeStep::Refused(LockError::Refused { code, operation: "create", path })
    }

    /// The client has stopped, or could not send it.
    fn give_up(&self, error: OpError) -> DowngradeStep {
        if error.is_session_over() || error == OpError::AuthFailed {
            return DowngradeStep::Lost(LostReason::Closed);
        }
        DowngradeStep::Refused(LockError::definite(error, "create", &self.profile.directory))
    }

    fn done(&self, connection: u64) -> DowngradeStep {
        let znode = Znode { name: self.reader.clone(), ..self.writer.clone() };
        DowngradeStep::Done { znode, connection }
    }

    fn pause(&mut self, view: View) -> DowngradeStep {
        self.state = State::Pausing;
        self.paused_until = Some(view.now + self.patience.pause());
        DowngradeStep::Wait(self.paused_until)
    }
}

fn over() -> DowngradeStep {
    DowngradeStep::Lost(LostReason::SessionExpired)
}
