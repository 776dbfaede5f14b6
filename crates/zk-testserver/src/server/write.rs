//! Writes: the log, late commits, watch events, and answers matched by session and xid.
//!
//! Real servers look for the request that a commit answers by session and xid. So does this one:
//! if a late commit meets a later request of its session with the same xid, that request gets
//! the old result, and its own commit answers nobody.

use std::collections::BTreeSet;
use std::time::Duration;

use bytestring::ByteString;
use jute_codec::{
    Create2Reply, ErrorCode, EventType, KeeperState, OpCode, Permissions, ReplyHeader,
    RequestHeader, Response, WatcherEvent, xid,
};

use crate::commit::{self, Change, Committed, Proposal, Write};
use crate::config::Version;
use crate::connection::{frame_of, head};
use crate::fault::{Action, Until};
use crate::journal::CommitRecord;
use crate::path;
use crate::tree::SharedAcl;
use crate::watch::Table;

use super::Server;
use super::request::Processed;

/// A request that waits for the commit with its session and xid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) connection: u64,
    pub(super) session: i64,
    pub(super) xid: i32,
    pub(super) op: OpCode,
}

impl Waiting {
    pub(super) fn new(connection: u64, session: i64, header: RequestHeader) -> Self {
        Self { connection, session, xid: header.xid, op: header.op }
    }
}

/// A proposal whose commit is late. There is one at most: the next proposal releases it.
#[derive(Debug)]
pub(super) struct Held {
    proposal: Proposal,
    until: Until,
    /// Reads of the session that have missed it.
    reads: usize,
    since: Duration,
}

impl Held {
    /// When it is committed, if time decides.
    pub(super) fn due(&self) -> Option<Duration> {
        match self.until {
            Until::After(delay) => Some(self.since + delay),
            Until::NextWrite | Until::Reads(_) => None,
        }
    }

    pub(super) fn is_due(&self, now: Duration) -> bool {
        match self.until {
            Until::NextWrite => false,
            Until::Reads(number) => self.reads >= number,
            Until::After(delay) => self.since + delay <= now,
        }
    }
}

impl Server {
    /// Commits a request and answers it, after what has a place in the log before it.
    pub(super) fn write(
        &mut self,
        waiting: Waiting,
        proposal: &Proposal,
        now: Duration,
    ) -> Processed {
        let older = self.release(Some(waiting), now);
        if let Some(older) = &older {
            self.answer(waiting, older);
        }
        let committed = self.commit(proposal, now);
        if older.is_none() {
            self.answer(waiting, &committed);
        }
        if waiting.op == OpCode::CLOSE_SESSION {
            self.close(waiting.connection);
        }
        Processed { error: committed.error, zxid: Some(committed.zxid) }
    }

    /// Takes no zxid, but comes after everything in the log.
    pub(super) fn sync(&mut self, waiting: Waiting, path: ByteString, now: Duration) -> Processed {
        let older = self.release(Some(waiting), now);
        let error = older.map_or(ErrorCode::OK, |older| older.error);
        let result = if error.is_ok() { Ok(Response::Sync(path)) } else { Err(error) };
        self.reply(waiting.connection, waiting.xid, result);
        Processed::read(error)
    }

    /// Puts a proposal into the log without committing it.
    pub(super) fn hold(&mut self, proposal: Proposal, until: Until, now: Duration) {
        self.release(None, now);
        if let Write::CloseSession(session) = proposal.write
            && let Some(session) = self.sessions.get_mut(session)
        {
            session.is_closing = true;
        }
        let held = Held { proposal, until, reads: 0, since: now };
        let is_due = held.is_due(now);
        self.held = Some(held);
        if is_due {
            self.release(None, now);
        }
    }

    /// A read of a session has been answered.
    pub(super) fn count_read(&mut self, session: i64, op: OpCode, now: Duration) {
        let is_read = matches!(
            op,
            OpCode::EXISTS
                | OpCode::GET_ACL
                | OpCode::GET_ALL_CHILDREN_NUMBER
                | OpCode::GET_CHILDREN
                | OpCode::GET_CHILDREN2
                | OpCode::GET_DATA
                | OpCode::GET_EPHEMERALS
                | OpCode::MULTI_READ
        );
        let Some(held) = self.held.as_mut().filter(|held| held.proposal.session == session) else {
            return;
        };
        held.reads += usize::from(is_read);
        if held.is_due(now) {
            self.release(None, now);
        }
    }

    /// Commits the held proposal. Returns what it did if that is the answer to `waiting`.
    pub(super) fn release(&mut self, waiting: Option<Waiting>, now: Duration) -> Option<Committed> {
        let held = self.held.take()?;
        let committed = self.commit(&held.proposal, now);
        let is_answer = waiting.is_some_and(|waiting| {
            waiting.session == held.proposal.session && waiting.xid == held.proposal.xid
        });
        is_answer.then_some(committed)
    }

    /// Applies a proposal and notifies who watches.
    pub(super) fn commit(&mut self, proposal: &Proposal, now: Duration) -> Committed {
        self.zxid += 1;
        let committed = commit::commit(&mut self.tree, &self.config, proposal, self.zxid);
        for (op, path) in &committed.steps {
            self.journal.commit(CommitRecord {
                zxid: self.zxid,
                session: proposal.session,
                op: *op,
                path: path.clone(),
                error: committed.error,
            });
        }
        let zxid = match self.config.version {
            Version::V3_8 => -1,
            Version::V3_9 => self.zxid,
        };
        for change in &committed.changes {
            self.notify(change, zxid, now);
        }
        if let Write::CloseSession(session) = proposal.write {
            self.sessions.remove(session);
        }
        committed
    }

    fn notify(&mut self, change: &Change, zxid: i64, now: Duration) {
        let Change { event, path, acl, parent_acl, bytes: _ } = change;
        let first = self.watches.trigger(Table::Data, path, *event);
        self.send_events(&first, *event, path, acl, zxid, now);
        if *event == EventType::NODE_DATA_CHANGED {
            return;
        }
        if *event == EventType::NODE_DELETED {
            let second = self.watches.trigger(Table::Child, path, *event);
            let second = second.difference(&first).copied().collect();
            self.send_events(&second, *event, path, acl, zxid, now);
        }
        if let Some(parent) = path::parent(path) {
            let event = EventType::NODE_CHILDREN_CHANGED;
            let third = self.watches.trigger(Table::Child, parent, event);
            self.send_events(&third, event, parent, parent_acl, zxid, now);
        }
    }

    fn send_events(
        &mut self,
        connections: &BTreeSet<u64>,
        event: EventType,
        path: &str,
        acl: &SharedAcl,
        zxid: i64,
        now: Duration,
    ) {
        for id in connections {
            let may_know = self.connections.get(*id).is_some_and(|connection| {
                connection.identities.may(Permissions::READ, acl.as_deref())
            });
            if may_know {
                self.send_event(*id, event, path, zxid, now);
            }
        }
    }

    /// Sends one event, unless a fault keeps it.
    pub(super) fn send_event(
        &mut self,
        id: u64,
        kind: EventType,
        path: &str,
        zxid: i64,
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
        let fault = self.faults.at_event(session, path);
        match self.begin_fault(fault, now) {
            Some(Action::CutBefore) => self.close(id),
            Some(Action::CutAfter) => {
                self.send(id, &bytes);
                self.close(id);
            }
            Some(Action::CutAtReplyByte(length)) => {
                self.send(id, &head(bytes, length));
                self.close(id);
            }
            Some(Action::Expire) => {
                self.close(id);
                self.condemned.push(session);
            }
            Some(Action::Freeze) => self.freeze(id),
            Some(Action::Delay(duration)) => {
                self.stall(id, now + duration);
                self.send(id, &bytes);
            }
            // `Faults::inject` has refused these here.
            Some(
                Action::LateCommit(_)
                | Action::Error(_)
                | Action::SwapSession
                | Action::CutOff(_)
                | Action::Pause(_),
            )
            | None => {
                self.send(id, &bytes);
            }
        }
    }

    /// Answers a request with the result of a commit, which need not be its own.
    fn answer(&mut self, waiting: Waiting, committed: &Committed) {
        let result = if committed.results.is_none() && !committed.error.is_ok() {
            Err(committed.error)
        } else {
            match response(waiting.op, committed) {
                Some(response) => Ok(response),
                // 3.8.0 has no answer to a check that succeeds, and never sends one.
                None if waiting.op == OpCode::CHECK => return,
                None => Err(ErrorCode::MARSHALLING_ERROR),
            }
        };
        self.reply(waiting.connection, waiting.xid, result);
    }
}

/// The answer to a request with this opcode. The result may be that of another one, and then
/// lack what the answer needs.
fn response(op: OpCode, committed: &Committed) -> Option<Response> {
    let path = || committed.path.as_deref().map(ByteString::from);
    Some(match op {
        OpCode::CLOSE_SESSION | OpCode::DELETE | OpCode::DELETE_CONTAINER => Response::Empty,
        OpCode::CREATE => Response::Create(path()?),
        OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
            Response::Create2(Create2Reply { path: path()?, stat: committed.stat? })
        }
        OpCode::MULTI => Response::Multi(committed.results.clone()?),
        OpCode::SET_ACL => Response::SetAcl(committed.stat?),
        OpCode::SET_DATA => Response::SetData(committed.stat?),
        _ => return None,
    })
}
