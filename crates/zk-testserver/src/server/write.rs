//! Writes: the log, late commits, watch events, and replies matched by session and xid.
//!
//! Like real servers, this one matches a commit to a pending request by session and xid. If a late
//! commit meets a later request of its session with the same xid, that request gets the old result,
//! and the result of its own commit is discarded.

use std::collections::BTreeSet;
use std::time::Duration;

use bytestring::ByteString;
use jute_codec::{
    Create2Reply, DataReply, ErrorCode, EventType, KeeperState, OpCode, Permissions, ReplyHeader,
    Response, SessionId, WatcherEvent, Zxid, xid,
};

use crate::commit::{Committed, Proposal, Write};
use crate::connection::{frame_of, head};
use crate::fault::{Action, Until};
use crate::journal::{CommitRecord, EventRecord};
use crate::path;
use crate::tree::{Change, SharedAcl};
use crate::watch::Table;

use super::Server;
use super::held::{Held, Pending, Processed};
use super::members::LEADER;

impl Server {
    /// Commits a request after everything that is in the log before it, and replies.
    pub(super) fn write(
        &mut self,
        pending: Pending,
        proposal: &Proposal,
        now: Duration,
    ) -> Processed {
        let older = self.release(Some(pending), now);
        if let Some(older) = &older {
            self.reply_with(pending, older, now);
        }
        let committed = self.commit(proposal, now);
        if older.is_none() {
            self.reply_with(pending, &committed, now);
        }
        if pending.op == OpCode::CLOSE_SESSION {
            self.close(pending.connection);
        }
        Processed { error: committed.error, zxid: Some(committed.zxid) }
    }

    /// Processes a sync. It takes no zxid, but commits everything that is in the log before it. The
    /// leader replies to its own clients without waiting for its commits to be applied.
    pub(super) fn sync(&mut self, pending: Pending, path: ByteString, now: Duration) -> Processed {
        let older = self.release(Some(pending), now);
        let member = self.member_of(pending.connection);
        if member != LEADER {
            self.catch_up(member, now);
        }
        let error = older.map_or(ErrorCode::OK, |older| older.error);
        let result = if error.is_ok() { Ok(Response::Sync(path)) } else { Err(error) };
        self.reply(pending.connection, pending.xid, result);
        Processed::read(error)
    }

    /// Logs a proposal without committing it.
    pub(super) fn hold(&mut self, proposal: Proposal, until: Until, now: Duration) {
        self.release(None, now);
        if let Write::CloseSession(session) = proposal.write
            && let Some(session) = self.sessions.get_mut(session)
        {
            // The close is in the log: it will be committed, so the session must not be renewed.
            session.is_closing = true;
        }
        debug_assert!(self.held.is_none(), "the log holds at most one uncommitted proposal");
        let held = Held { proposal, until, reads: 0, since: now };
        let is_due = held.is_due(now);
        self.held = Some(held);
        if is_due {
            self.release(None, now);
        }
    }

    /// Counts a read of a session. Releases the held proposal if it has waited for enough reads.
    pub(super) fn count_read(&mut self, session: SessionId, op: OpCode, now: Duration) {
        let reads_no_znode = matches!(
            op,
            OpCode::ADD_WATCH
                | OpCode::CHECK_WATCHES
                | OpCode::REMOVE_WATCHES
                | OpCode::SET_WATCHES
                | OpCode::SET_WATCHES2
                | OpCode::WHO_AM_I
        );
        let Some(held) = self.held.as_mut().filter(|held| held.proposal.session == session) else {
            return;
        };
        held.reads += usize::from(!reads_no_znode);
        if held.is_due(now) {
            self.release(None, now);
        }
    }

    /// Commits the held proposal. Returns the result if `pending` matches the proposal and so gets
    /// this result as its reply.
    pub(super) fn release(&mut self, pending: Option<Pending>, now: Duration) -> Option<Committed> {
        let held = self.held.take()?;
        let committed = self.commit(&held.proposal, now);
        let is_match = pending.is_some_and(|pending| {
            pending.session == held.proposal.session && pending.xid == held.proposal.xid
        });
        is_match.then_some(committed)
    }

    /// Applies a proposal and sends the watch events.
    pub(super) fn commit(&mut self, proposal: &Proposal, now: Duration) -> Committed {
        let zxid = Zxid(self.leader.zxid.0 + 1);
        let committed = self.decide(proposal, zxid, now);
        for (op, path) in &committed.steps {
            self.journal.commit(CommitRecord {
                zxid,
                session: proposal.session,
                op: *op,
                path: path.clone(),
                error: committed.error,
            });
        }
        if let Write::CloseSession(session) = proposal.write {
            debug_assert!(
                self.leader.tree.ephemerals_of(session).next().is_none(),
                "the session ends together with its ephemerals"
            );
            self.sessions.remove(session);
        }
        self.replicate(proposal, zxid, now);
        committed
    }

    /// Sends the events of a change to the connections of a member.
    pub(super) fn notify(&mut self, member: usize, change: &Change, zxid: Zxid, now: Duration) {
        let Change { event, path, acl, parent_acl, bytes: _ } = change;
        let first = self.member_mut(member).watches.trigger(Table::Data, path, *event);
        self.send_events(&first, *event, path, acl, zxid, now);
        if *event == EventType::NODE_DATA_CHANGED {
            return;
        }
        if *event == EventType::NODE_DELETED {
            let second = self.member_mut(member).watches.trigger(Table::Child, path, *event);
            let second = second.difference(&first).copied().collect();
            self.send_events(&second, *event, path, acl, zxid, now);
        }
        if let Some(parent) = path::parent(path) {
            let event = EventType::NODE_CHILDREN_CHANGED;
            let third = self.member_mut(member).watches.trigger(Table::Child, parent, event);
            self.send_events(&third, event, parent, parent_acl, zxid, now);
        }
    }

    fn send_events(
        &mut self,
        connections: &BTreeSet<u64>,
        event: EventType,
        path: &str,
        acl: &SharedAcl,
        zxid: Zxid,
        now: Duration,
    ) {
        for id in connections {
            let can_read = !self.config.version.withholds_events()
                || self.connections.get(*id).is_some_and(|connection| {
                    connection.identities.is_allowed(Permissions::READ, acl.as_deref())
                });
            if can_read {
                self.send_event(*id, event, path, zxid, now);
            }
        }
    }

    /// Sends one event, unless a fault suppresses it.
    pub(super) fn send_event(
        &mut self,
        id: u64,
        kind: EventType,
        path: &str,
        zxid: Zxid,
        now: Duration,
    ) {
        let Some(connection) = self.connections.get(id).filter(|c| c.is_open()) else { return };
        let Some(session) = connection.session() else { return };
        let header = ReplyHeader { xid: xid::NOTIFICATION, zxid, err: ErrorCode::OK };
        let state = KeeperState::SYNC_CONNECTED;
        let Some(bytes) = frame_of(&header, &WatcherEvent { kind, state, path: path.into() })
        else {
            return;
        };
        let record = EventRecord {
            session,
            connection: id,
            kind,
            path: path.to_owned(),
            // The journal sets it.
            requests_before: 0,
            at: now,
        };
        let fault = self.faults.at_event(session, path);
        match self.begin_fault(fault, now) {
            Some(Action::CutBefore) => self.close(id),
            Some(Action::CutAfter) => {
                self.send(id, &bytes);
                self.journal.event(record);
                self.close(id);
            }
            Some(Action::CutAtReplyByte(length)) => {
                self.send(id, &head(bytes, length));
                self.close(id);
            }
            Some(Action::Expire) => {
                self.close(id);
                self.to_expire.push(session);
            }
            Some(Action::Freeze) => self.freeze(id),
            Some(Action::Delay(duration)) => {
                self.stall(id, now.saturating_add(duration));
                self.send(id, &bytes);
                self.journal.event(record);
            }
            // `Faults::inject` refuses these actions at events.
            Some(
                Action::LateCommit(_)
                | Action::Error(_)
                | Action::ErrorAfter(_)
                | Action::SwapSession
                | Action::CutOff(_)
                | Action::Pause(_),
            )
            | None => {
                self.send(id, &bytes);
                self.journal.event(record);
            }
        }
    }

    /// Replies to a request with the result of a commit, which may be the commit of another
    /// request.
    fn reply_with(&mut self, pending: Pending, committed: &Committed, now: Duration) {
        // A member has applied a write before it replies to it.
        self.catch_up(self.member_of(pending.connection), now);
        let result = if committed.results.is_none() && !committed.error.is_ok() {
            Err(committed.error)
        } else {
            match response(pending.op, committed) {
                Some(response) => Ok(response),
                // 3.8.0 does not reply to a successful check outside of a multi.
                None if pending.op == OpCode::CHECK => return,
                None => Err(ErrorCode::MARSHALLING_ERROR),
            }
        };
        self.reply(pending.connection, pending.xid, result);
    }
}

/// Converts a result to the reply to a request with this opcode. Returns `None` if the result
/// belongs to another kind of request and lacks what the reply needs.
fn response(op: OpCode, committed: &Committed) -> Option<Response> {
    let path = || committed.path.as_deref().map(ByteString::from);
    Some(match op {
        OpCode::CLOSE_SESSION | OpCode::DELETE | OpCode::DELETE_CONTAINER => Response::Empty,
        OpCode::CREATE => Response::Create(path()?),
        OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
            Response::Create2(Create2Reply { path: path()?, stat: committed.stat? })
        }
        OpCode::MULTI => Response::Multi(committed.results.clone()?),
        OpCode::RECONFIG => {
            Response::Reconfig(DataReply { data: committed.data.clone(), stat: committed.stat? })
        }
        OpCode::SET_ACL => Response::SetAcl(committed.stat?),
        OpCode::SET_DATA => Response::SetData(committed.stat?),
        _ => return None,
    })
}
