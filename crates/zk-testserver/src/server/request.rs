//! Requests: decoding, faults, dispatch, replies.

use std::time::Duration;

use bytes::Bytes;
use jute_codec::{
    ErrorCode, OpCode, Reader, Record as _, ReplyHeader, Request, RequestHeader, Response,
    SessionId, Zxid, xid,
};

use crate::commit::{Proposal, Write};
use crate::connection::{Connection, Fate, frame, head};
use crate::fault::Action;
use crate::journal::{Outcome, RequestRecord};

use super::Server;
use super::body::{Body, decode};
use super::held::{Pending, Processed};

/// How many bytes of a frame say how long the rest is.
const LENGTH_BYTES: usize = 4;

impl Server {
    /// Handles a frame of a connection that belongs to a session.
    pub(super) fn handle_request(
        &mut self,
        id: u64,
        session: SessionId,
        payload: Bytes,
        now: Duration,
    ) {
        if self.connections.get(id).is_some_and(|connection| connection.cut_off.is_some()) {
            return self.handle_as_follower(id, session, payload, now);
        }
        let frame = payload.clone();
        if self.delays(id, &frame, now) {
            return;
        }
        let mut reader = Reader::new(payload);
        let Ok(header) = RequestHeader::decode(&mut reader) else { return self.close(id) };
        let body = decode(header.op, &mut reader, &self.config);
        let paths = body.paths();
        let path = paths.first().map(|path| (*path).to_owned());
        let fault = self.faults.at_request(session, header.op, &paths);
        let mut action = self.begin_fault(fault, now);
        if action.is_none() && self.throttles(&body, now) {
            action = Some(Action::Error(ErrorCode::THROTTLED_OP));
        }
        if action.is_none() && self.fails(header.op) {
            action = Some(Action::Error(ErrorCode::API_ERROR));
        }
        let mut zxid = None;
        let outcome = match action {
            Some(Action::CutBefore) => {
                self.close(id);
                Outcome::Dropped
            }
            Some(Action::Freeze) => {
                self.freeze(id);
                Outcome::Dropped
            }
            Some(Action::Expire) => {
                self.expire(session, now);
                Outcome::Dropped
            }
            Some(Action::CutOff(cut_off)) => {
                self.cut_off(session, cut_off, now);
                return self.handle_as_follower(id, session, frame, now);
            }
            Some(Action::Pause(duration)) => {
                self.pause_connection(session, duration, now);
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.put_back(&frame);
                }
                return;
            }
            Some(Action::Error(error)) => {
                self.touch(id, session, now);
                // Real servers decide in the order of the transactions what a write may do, and the
                // reply follows all of them that are earlier.
                let is_of_the_tree =
                    error < ErrorCode::API_ERROR && error != ErrorCode::THROTTLED_OP;
                if is_of_the_tree && body.is_write(self.config.version) {
                    self.release(None, now);
                    self.catch_up(self.member_of(id), now);
                }
                self.reply_error(id, header.xid, self.replica(id).zxid, error);
                Outcome::Refused(error)
            }
            Some(Action::LateCommit(until))
                if body.is_write(self.config.version)
                    && !self.is_partitioned(self.member_of(id)) =>
            {
                if self.sessions.touch(session, now) {
                    let proposal = self.proposal(id, session, header, body, now);
                    self.hold(proposal, until, now);
                    self.close(id);
                    Outcome::Held
                } else {
                    self.close(id);
                    Outcome::Dropped
                }
            }
            Some(Action::Delay(_) | Action::CutAfter | Action::LateCommit(_))
            | Some(Action::CutAtReplyByte(_) | Action::ErrorAfter(_) | Action::SwapSession)
            | None => {
                let fate = match action {
                    None if self.withholds(header.op) => Fate::Withhold,
                    action => self.fate(id, action, now),
                };
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.fate = fate;
                }
                match self.process(id, session, header, body, now) {
                    None => Outcome::Dropped,
                    Some(Processed { error: result, zxid: of_write }) => {
                        zxid = of_write;
                        match fate {
                            Fate::Deliver => Outcome::Applied(result),
                            Fate::Fail(reported) => Outcome::Misreported { result, reported },
                            Fate::CutAt(_) | Fate::Withhold => Outcome::AppliedUnanswered(result),
                        }
                    }
                }
            }
        };
        self.apply_fate(id);
        if header.op != OpCode::PING {
            let RequestHeader { xid, op } = header;
            let record =
                RequestRecord { session, connection: id, xid, op, path, outcome, zxid, at: now };
            self.journal.request(record);
        }
    }

    /// Returns whether the server refuses to execute a request because it is overloaded.
    fn throttles(&self, body: &Body, now: Duration) -> bool {
        let is_exempt = match body {
            Body::Fatal | Body::UnknownOp => true,
            Body::Known(request) => matches!(
                request,
                Request::Auth(_) | Request::CloseSession | Request::Ping | Request::Sasl(_)
            ),
            Body::BareCheck(_)
            | Body::DeleteContainer(_)
            | Body::Failed(_)
            | Body::Malformed
            | Body::Multi(_)
            | Body::Refused(_) => false,
        };
        now < self.throttled_until && !is_exempt
    }

    /// Returns what will happen to the reply.
    fn fate(&mut self, id: u64, action: Option<Action>, now: Duration) -> Fate {
        match action {
            Some(Action::CutAfter | Action::LateCommit(_)) => Fate::CutAt(0),
            Some(Action::CutAtReplyByte(length)) => Fate::CutAt(length),
            Some(Action::ErrorAfter(error)) => Fate::Fail(error),
            Some(Action::Delay(duration)) => {
                self.stall(id, now.saturating_add(duration));
                Fate::Deliver
            }
            Some(
                Action::CutBefore
                | Action::Freeze
                | Action::Expire
                | Action::Error(_)
                | Action::SwapSession
                | Action::CutOff(_)
                | Action::Pause(_),
            )
            | None => Fate::Deliver,
        }
    }

    /// Closes a connection that a fault cuts at its reply, even if there was no reply. Later replies
    /// are delivered.
    fn apply_fate(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if matches!(std::mem::replace(&mut connection.fate, Fate::Deliver), Fate::CutAt(_)) {
            self.close(id);
        }
    }

    /// Processes a request. Returns `None` if the session has ended. In that case, there is no
    /// reply.
    fn process(
        &mut self,
        id: u64,
        session: SessionId,
        header: RequestHeader,
        body: Body,
        now: Duration,
    ) -> Option<Processed> {
        if let Body::Fatal = &body {
            self.close(id);
            return Some(Processed::read(ErrorCode::MARSHALLING_ERROR));
        }
        // Auth and SASL neither renew the session nor wait for earlier requests.
        if let Body::Known(Request::Auth(auth)) = &body {
            return Some(Processed::read(self.authenticate(id, header.xid, auth)));
        }
        if let Body::Known(Request::Sasl(token)) = &body {
            return Some(Processed::read(self.sasl(id, header.xid, token.0.as_ref())));
        }
        if self.lacks_authentication(id) {
            let error = ErrorCode::SESSION_CLOSED_REQUIRE_SASL_AUTH;
            self.reply_error(id, header.xid, Zxid(0), error);
            self.close(id);
            return Some(Processed::read(error));
        }
        // A session that has ended, or whose end is in the log, must neither write nor be renewed.
        if !self.touch(id, session, now) {
            return None;
        }
        if let Some(refused) = self.refuse_on_island(id, session, header.xid, &body) {
            return Some(refused);
        }
        if body.is_write(self.config.version) {
            let proposal = self.proposal(id, session, header, body, now);
            return Some(self.write(Pending::new(id, session, header), &proposal, now));
        }
        Some(match body {
            Body::UnknownOp => {
                self.reply_error(id, header.xid, Zxid::NONE, ErrorCode::UNIMPLEMENTED);
                self.close(id);
                Processed::read(ErrorCode::UNIMPLEMENTED)
            }
            Body::Known(Request::Sync(path)) => {
                self.sync(Pending::new(id, session, header), path, now)
            }
            Body::Known(Request::Ping) => {
                self.reply(id, xid::PING, Ok(Response::Empty));
                Processed::read(ErrorCode::OK)
            }
            Body::Known(request) => {
                let result = self.read(id, session, &request, now);
                let error = result.as_ref().err().copied().unwrap_or(ErrorCode::OK);
                self.reply(id, header.xid, result);
                // A fault at an event of setWatches may have closed the connection before all
                // watches were set.
                if !self.connections.get(id).is_some_and(Connection::is_open) {
                    self.replica_mut(id).watches.forget(id);
                }
                self.count_read(session, header.op, now);
                Processed::read(error)
            }
            Body::Failed(error) => {
                self.reply_error(id, header.xid, self.replica(id).zxid, error);
                Processed::read(error)
            }
            Body::Malformed
            | Body::Refused(_)
            | Body::BareCheck(_)
            | Body::DeleteContainer(_)
            | Body::Multi(_)
            | Body::Fatal => {
                self.reply_error(
                    id,
                    header.xid,
                    self.replica(id).zxid,
                    ErrorCode::MARSHALLING_ERROR,
                );
                Processed::read(ErrorCode::MARSHALLING_ERROR)
            }
        })
    }

    /// Converts a body for which `is_write` holds to a proposal.
    fn proposal(
        &self,
        id: u64,
        session: SessionId,
        header: RequestHeader,
        body: Body,
        now: Duration,
    ) -> Proposal {
        let path = body.paths().first().map(|path| (*path).to_owned());
        let write = match body {
            Body::BareCheck(check) => Write::Check(check),
            Body::DeleteContainer(path) => Write::DeleteContainer(path),
            Body::Multi(steps) => Write::Multi(steps),
            Body::Refused(error) => Write::Refused(error, path),
            Body::Known(Request::CloseSession) => Write::CloseSession(session),
            Body::Known(Request::Create(create)) => Write::Create(create),
            Body::Known(Request::Delete(delete)) => Write::Delete(delete),
            Body::Known(Request::SetAcl(set_acl)) => Write::SetAcl(set_acl),
            Body::Known(Request::SetData(set_data)) => Write::SetData(set_data),
            Body::Known(Request::Reconfig(reconfig)) => Write::Reconfig(reconfig),
            Body::Known(_) | Body::Failed(_) | Body::Malformed | Body::Fatal | Body::UnknownOp => {
                Write::Refused(ErrorCode::MARSHALLING_ERROR, path)
            }
        };
        let identities = match self.connections.get(id) {
            Some(connection) => connection.identities.clone(),
            None => unreachable!("the connection of a request exists"),
        };
        let time_ms = self.time_ms(now);
        Proposal { session, xid: header.xid, op: header.op, write, identities, time_ms }
    }

    /// Replies with the last zxid.
    pub(super) fn reply(&mut self, id: u64, xid: i32, result: Result<Response, ErrorCode>) {
        let err = result.as_ref().err().copied().unwrap_or(ErrorCode::OK);
        let header = ReplyHeader { xid, zxid: self.replica(id).zxid, err };
        let bytes = frame(|out| {
            header.encode(out);
            if let Ok(response) = result {
                response.encode(out);
            }
        });
        self.send_reply(id, bytes);
    }

    /// Replies without a record.
    pub(super) fn reply_error(&mut self, id: u64, xid: i32, zxid: Zxid, err: ErrorCode) {
        let bytes = frame(|out| ReplyHeader { xid, zxid, err }.encode(out));
        self.send_reply(id, bytes);
    }

    pub(super) fn send_reply(&mut self, id: u64, bytes: Option<Bytes>) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        // The reply is too long for a frame.
        let Some(bytes) = bytes else { return self.close(id) };
        match connection.fate {
            Fate::Deliver => connection.send(&bytes),
            Fate::Withhold => {}
            Fate::Fail(err) => {
                let mut reader = Reader::new(bytes.slice(LENGTH_BYTES..));
                let Ok(header) = ReplyHeader::decode(&mut reader) else { return };
                if let Some(bytes) = frame(|out| ReplyHeader { err, ..header }.encode(out)) {
                    connection.send(&bytes);
                }
            }
            Fate::CutAt(length) => {
                connection.send(&head(bytes, length));
                self.close(id);
            }
        }
    }
}
