//! Removing the znode of an exclusive lock, and never that of somebody else.
//!
//! 1. If the create is still under way, wait for its answer.
//! 2. While we certainly hold the lock, delete the znode: nobody replaces it while our session
//!    lives. There is no "delete if mine", so this holds for the first delete only.
//! 3. If there is any doubt (a lost connection, a guard that was lost or at risk), pass a write
//!    barrier and read: delete the znode only if it belongs to our session, and was created by our
//!    transaction, or has our id if that is not known. Otherwise there is nothing to do.
//!
//! The end of the session ends the release too: the znode goes with it, and the next session must
//! not touch what stands in its place.

use bytestring::ByteString;
use jute_codec::{DataReply, ErrorCode, Response};
use zk_session::machine::Reply;
use zk_session::{OpError, SessionId, Time};

use super::Mark;
use crate::machine::release::{ReleaseStep, Released};
use crate::machine::{
    Input, Patience, Verdict, View, barrier, delete, flight, read, replayable, verdict,
};

/// What an attempt may have left behind.
#[derive(Clone, Debug)]
pub struct ExclusiveRelease {
    path: ByteString,
    mark: Mark,
    session: Option<SessionId>,
    /// The transaction that created the znode, once we hold the lock.
    czxid: Option<i64>,
    /// The znode is ours, without doubt.
    is_certain: bool,
    /// It was, and may not be any more.
    is_doubted: bool,
    /// A create may still take effect, or has without our knowledge.
    is_tainted: bool,
    has_sent_delete: bool,
    patience: Patience,
    paused_until: Option<Time>,
    replays: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Step 1.
    Draining,
    /// The delete is in flight.
    Deleting,
    /// Step 3 is in flight.
    Probing,
    /// A server is overloaded; go on with step 3 later.
    Pausing,
}

impl ExclusiveRelease {
    pub(super) fn new(
        path: ByteString,
        mark: Mark,
        session: Option<SessionId>,
        czxid: Option<i64>,
        is_tainted: bool,
    ) -> Self {
        Self {
            path,
            mark,
            session,
            czxid,
            is_certain: czxid.is_some(),
            is_doubted: false,
            is_tainted,
            has_sent_delete: false,
            patience: Patience::default(),
            paused_until: None,
            replays: 0,
            state: State::Probing,
        }
    }

    /// Starts. `create_pending`: the flight that holds the create has no answer yet, and its
    /// answer will be handed in.
    pub fn start(&mut self, create_pending: bool) -> ReleaseStep {
        if create_pending {
            self.state = State::Draining;
            return ReleaseStep::Wait(None);
        }
        self.proceed()
    }

    /// The znode.
    pub fn path(&self) -> &ByteString {
        &self.path
    }

    /// Whether the znode is still ours has to be found out.
    pub fn doubt(&mut self) {
        self.is_doubted |= std::mem::take(&mut self.is_certain);
    }

    /// True if a create of this attempt had an unknown outcome, so that another look after the
    /// next reconnect is worth its price.
    pub fn is_tainted(&self) -> bool {
        self.is_tainted
    }

    /// Flights issued again because a lost connection had left their outcome open.
    pub fn replays(&self) -> u64 {
        self.replays
    }

    /// Tries again after a server has refused the removal.
    pub fn try_again(&mut self) -> ReleaseStep {
        self.probe()
    }

    /// Looks once more.
    pub fn sweep_again(&mut self) -> ReleaseStep {
        self.probe()
    }

    /// Advances by one input.
    pub fn handle(&mut self, view: View, input: Input) -> ReleaseStep {
        if matches!(input, Input::Timer) {
            self.paused_until = None;
        }
        match (self.state, input) {
            // While draining, the answer of the create tells in which session it was sent.
            (State::Draining, Input::Reply(reply)) => self.created(reply),
            (State::Draining, _) => ReleaseStep::Wait(None),
            (_, Input::Ended(session)) if self.session == Some(session) => over(),
            (State::Deleting, Input::Reply(reply)) => self.deleted(view, reply),
            (State::Probing, Input::Reply(reply)) => self.probed(view, reply),
            (State::Pausing, Input::Timer) => self.probe(),
            (_, Input::Reply(_) | Input::Timer | Input::Watch { .. })
            | (_, Input::Suspended | Input::Ended(_)) => ReleaseStep::Wait(self.paused_until),
        }
    }

    fn proceed(&mut self) -> ReleaseStep {
        if self.is_certain {
            return self.delete();
        }
        if self.is_tainted || self.is_doubted {
            return self.probe();
        }
        self.done()
    }

    fn created(&mut self, mut reply: Reply) -> ReleaseStep {
        self.session = self.session.or(reply.session);
        match verdict(reply.results.swap_remove(0)) {
            Verdict::Done(Response::Create2(created)) => {
                self.czxid = Some(created.stat.czxid);
                self.is_certain = true;
            }
            Verdict::SessionOver => return over(),
            Verdict::Unknown => self.is_tainted = true,
            Verdict::Done(_) | Verdict::Later(_) | Verdict::NotApplied | Verdict::Refused(_) => {}
        }
        self.proceed()
    }

    fn delete(&mut self) -> ReleaseStep {
        self.is_certain = false;
        self.state = State::Deleting;
        ReleaseStep::Submit(flight(self.session, vec![delete(self.path.clone())]))
    }

    fn deleted(&mut self, view: View, mut reply: Reply) -> ReleaseStep {
        let is_lost =
            matches!(reply.results.last(), Some(Err(error)) if error.is_connection_loss());
        match reply.results.pop().map(verdict) {
            Some(Verdict::Done(_)) => {
                self.has_sent_delete = true;
                self.done()
            }
            Some(Verdict::Refused(OpError::Server(ErrorCode::NO_NODE))) => self.done(),
            Some(Verdict::Refused(error)) => {
                ReleaseStep::Refused { path: self.path.clone(), error }
            }
            Some(Verdict::SessionOver) => over(),
            Some(Verdict::Later(_)) => self.pause(view),
            Some(Verdict::NotApplied) => {
                self.replays += 1;
                self.probe()
            }
            Some(Verdict::Unknown) | None => {
                self.has_sent_delete = true;
                self.replays += 1;
                // A server that fails is given time; a lost connection has to be made anew anyway.
                if is_lost { self.probe() } else { self.pause(view) }
            }
        }
    }

    fn probe(&mut self) -> ReleaseStep {
        self.state = State::Probing;
        let operations = vec![barrier(self.path.clone()), read(self.path.clone(), None)];
        ReleaseStep::Submit(flight(self.session, operations))
    }

    fn probed(&mut self, view: View, mut reply: Reply) -> ReleaseStep {
        self.session = self.session.or(reply.session);
        let look = reply.results.pop().map(replayable);
        match (reply.results.pop().map(replayable), look) {
            (Some(Verdict::SessionOver), _) | (_, Some(Verdict::SessionOver)) => over(),
            (Some(Verdict::Later(_)), _) | (_, Some(Verdict::Later(_))) => self.pause(view),
            // Any definite answer shows that the barrier was passed.
            (
                Some(Verdict::Done(_) | Verdict::Refused(_)),
                Some(Verdict::Done(Response::GetData(found))),
            ) => {
                if self.is_own(&found) {
                    self.delete()
                } else {
                    self.done()
                }
            }
            (Some(Verdict::Done(_) | Verdict::Refused(_)), Some(Verdict::Refused(error))) => {
                if error == OpError::Server(ErrorCode::NO_NODE) {
                    return self.done();
                }
                ReleaseStep::Refused { path: self.path.clone(), error }
            }
            _ => {
                self.replays += 1;
                self.probe()
            }
        }
    }

    /// The transaction tells more than the id, which somebody may have overwritten, or copied. But
    /// a lost create has told us no transaction.
    fn is_own(&self, found: &DataReply) -> bool {
        let Some(session) = self.session else { return false };
        match self.czxid {
            Some(czxid) => found.stat.czxid == czxid && found.stat.ephemeral_owner == session.0,
            None => self.mark.is_in(session, found),
        }
    }

    fn done(&self) -> ReleaseStep {
        ReleaseStep::Done(if self.has_sent_delete {
            Released::Released
        } else {
            Released::AlreadyGone
        })
    }

    fn pause(&mut self, view: View) -> ReleaseStep {
        self.state = State::Pausing;
        self.paused_until = Some(view.now + self.patience.pause());
        ReleaseStep::Wait(self.paused_until)
    }
}

fn over() -> ReleaseStep {
    ReleaseStep::Done(Released::EndedWithSession)
}
