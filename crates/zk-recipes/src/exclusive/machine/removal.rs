//! Removing the znode of an exclusive lock, and never that of another holder.
//!
//! 1. If the create is still pending, wait for its reply.
//! 2. If we certainly hold the lock, delete the znode: no other contender can replace it while our
//!    session lives. This is true for the first delete only, because ZooKeeper has no "delete if it
//!    is mine".
//! 3. In case of any doubt (a lost connection, a guard that was lost or at risk), pass a write
//!    barrier and read the znode. Delete it only if it belongs to our session, and was created by
//!    our transaction, or has our id if the transaction is not known. Otherwise there is nothing to
//!    do.
//!
//! When the session ends, the removal ends too: the ensemble deletes our znode, and the next
//! session must not touch the znode of another holder.

use bytestring::ByteString;
use jute_codec::{DataReply, ErrorCode, Response};
use zk_session::recipe::Reply;
use zk_session::{OpError, SessionId, Zxid};

use super::id::AttemptId;
use crate::lock::outcome::{Refusal, Released, Znode, is_created_by};
use crate::lock::recipe::Removal;
use crate::machine::{
    Input, Machine, Pauses, SessionView, Step, Verdict, barrier, delete, flight, read, replayable,
    take, verdict,
};

/// The removal of the znode that an attempt may have left.
#[derive(Clone, Debug)]
pub struct ExclusiveRemoval {
    path: ByteString,
    id: AttemptId,
    session: Option<SessionId>,
    /// The transaction that created the znode, once the attempt was granted.
    czxid: Option<Zxid>,
    /// The znode is certainly ours.
    is_certain: bool,
    /// The znode was certainly ours, but may no longer be.
    is_doubted: bool,
    /// A create may still take effect, or may have taken effect without our knowledge.
    is_tainted: bool,
    has_sent_delete: bool,
    pauses: Pauses,
    replays: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Not started.
    Idle,
    /// Step 1: the flight with the create is pending.
    Draining,
    /// The delete is in flight.
    Deleting,
    /// Step 3 is in flight.
    Probing,
    /// A server is overloaded; continue with step 3 after a pause.
    Pausing,
}

type RemovalStep = Step<Result<Released, Refusal>>;

impl ExclusiveRemoval {
    pub(crate) fn new(
        path: ByteString,
        id: AttemptId,
        session: Option<SessionId>,
        czxid: Option<Zxid>,
        is_tainted: bool,
    ) -> Self {
        Self {
            path,
            id,
            session,
            czxid,
            is_certain: czxid.is_some(),
            is_doubted: false,
            is_tainted,
            has_sent_delete: false,
            pauses: Pauses::default(),
            replays: 0,
            state: State::Idle,
        }
    }

    fn proceed(&mut self) -> RemovalStep {
        if self.is_certain {
            return self.delete();
        }
        if self.is_tainted || self.is_doubted {
            return self.probe();
        }
        self.done()
    }

    fn created(&mut self, reply: Reply) -> RemovalStep {
        self.session = self.session.or(reply.session);
        let [created, _look] = take(reply);
        match verdict(created) {
            Verdict::Done(Response::Create2(created)) => {
                self.czxid = Some(created.stat.czxid);
                self.is_certain = true;
            }
            Verdict::SessionOver => return ended_with_session(),
            Verdict::Unknown => self.is_tainted = true,
            Verdict::Done(_) | Verdict::Later(_) | Verdict::NotApplied | Verdict::Refused(_) => {}
        }
        self.proceed()
    }

    fn delete(&mut self) -> RemovalStep {
        // A second delete could hit the znode of the next holder, so a read must precede it.
        self.is_certain = false;
        self.state = State::Deleting;
        Step::Submit(flight(self.session, vec![delete(self.path.clone())]))
    }

    fn deleted(&mut self, view: SessionView, reply: Reply) -> RemovalStep {
        let [deleted] = take(reply);
        let is_connection_lost = matches!(&deleted, Err(error) if error.is_connection_loss());
        match verdict(deleted) {
            Verdict::Done(_) => {
                self.has_sent_delete = true;
                self.done()
            }
            Verdict::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => self.done(),
            Verdict::Refused(error) => self.refused(error),
            Verdict::SessionOver => ended_with_session(),
            Verdict::Later(_) => self.pause(view),
            Verdict::NotApplied => {
                self.replays += 1;
                self.probe()
            }
            Verdict::Unknown => {
                self.has_sent_delete = true;
                self.replays += 1;
                // Give a server that failed time to recover. After a lost connection, the flight
                // waits for the next connection anyway.
                if is_connection_lost { self.probe() } else { self.pause(view) }
            }
        }
    }

    fn probe(&mut self) -> RemovalStep {
        self.state = State::Probing;
        let operations = vec![barrier(self.path.clone()), read(self.path.clone(), None)];
        Step::Submit(flight(self.session, operations))
    }

    fn probed(&mut self, view: SessionView, reply: Reply) -> RemovalStep {
        self.session = self.session.or(reply.session);
        let [barrier, look] = take(reply).map(replayable);
        match (barrier, look) {
            (Verdict::SessionOver, _) | (_, Verdict::SessionOver) => ended_with_session(),
            (Verdict::Later(_), _) | (_, Verdict::Later(_)) => self.pause(view),
            // Any definite result shows that the barrier was passed.
            (Verdict::Done(_) | Verdict::Refused(_), Verdict::Done(Response::GetData(found))) => {
                if self.is_own(&found) {
                    self.delete()
                } else {
                    self.done()
                }
            }
            (Verdict::Done(_) | Verdict::Refused(_), Verdict::Refused(error)) => {
                if error.is_no_node() {
                    return self.done();
                }
                self.refused(error)
            }
            _ => {
                self.replays += 1;
                self.probe()
            }
        }
    }

    /// Returns whether a znode that was read is ours. The transaction proves more than the id,
    /// which another client may have overwritten or copied. But after a lost create, we know only
    /// the id.
    fn is_own(&self, found: &DataReply) -> bool {
        let Some(session) = self.session else { return false };
        match self.czxid {
            Some(czxid) => is_created_by(found, session, czxid),
            None => self.id.is_in(session, found),
        }
    }

    fn done(&self) -> RemovalStep {
        Step::Done(Ok(if self.has_sent_delete {
            Released::Released
        } else {
            Released::AlreadyGone
        }))
    }

    fn refused(&self, error: OpError) -> RemovalStep {
        Step::Done(Err(Refusal { path: self.path.clone(), error }))
    }

    fn pause(&mut self, view: SessionView) -> RemovalStep {
        self.state = State::Pausing;
        Step::Wait(self.pauses.begin(view))
    }
}

impl Machine for ExclusiveRemoval {
    type Output = Result<Released, Refusal>;

    fn start(&mut self, _: SessionView) -> RemovalStep {
        if self.state == State::Draining {
            return Step::Wait(None);
        }
        self.proceed()
    }

    fn handle(&mut self, view: SessionView, input: Input) -> RemovalStep {
        let is_pause_over = self.pauses.end_with(&input);
        match (self.state, input) {
            // While draining, the end of any session proves nothing: only the reply to the create
            // shows in which session it was sent.
            (State::Draining, Input::Reply(reply)) => self.created(reply),
            (State::Draining, _) => Step::Wait(None),
            (_, Input::Ended(session)) if self.session == Some(session) => ended_with_session(),
            (State::Deleting, Input::Reply(reply)) => self.deleted(view, reply),
            (State::Probing, Input::Reply(reply)) => self.probed(view, reply),
            (State::Pausing, Input::Timer | Input::Suspended) if is_pause_over => self.probe(),
            (_, Input::Reply(_) | Input::Timer | Input::Watch { .. })
            | (_, Input::Suspended | Input::Ended(_)) => Step::Wait(self.pauses.until()),
        }
    }
}

impl Removal for ExclusiveRemoval {
    fn expect_create(&mut self) {
        self.state = State::Draining;
    }

    fn doubt(&mut self) {
        self.is_doubted |= std::mem::take(&mut self.is_certain);
    }

    fn retry(&mut self) {
        self.is_certain = false;
        self.is_doubted = true;
    }

    fn sweep_again(&mut self) {
        self.retry();
        // The znode of that transaction is gone. A lost create takes effect in another one.
        self.czxid = None;
    }

    fn is_tainted(&self) -> bool {
        self.is_tainted
    }

    fn replays(&self) -> u64 {
        self.replays
    }

    fn place(&self) -> &ByteString {
        &self.path
    }

    fn path_of(&self, _: &Znode) -> ByteString {
        self.path.clone()
    }
}

fn ended_with_session() -> RemovalStep {
    Step::Done(Ok(Released::EndedWithSession))
}
