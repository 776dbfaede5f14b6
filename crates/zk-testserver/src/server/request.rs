//! Requests: decoding, faults, dispatch, replies.

use std::time::Duration;

use bytes::Bytes;
use jute_codec::{
    AuthPacket, CheckRequest, DecodeErrorKind, ErrorCode, OpCode, ReadOp, Reader, Record as _,
    ReplyHeader, Request, RequestHeader, Response, SaslToken, WatcherType, xid,
};

use crate::commit::{Proposal, Write};
use crate::config::{ServerConfig, Version};
use crate::connection::{Connection, Fate, frame, head};
use crate::fault::Action;
use crate::journal::{Outcome, RequestRecord};
use crate::multi::{self, Step};

use super::Server;
use super::read::is_watcher_type;
use super::write::Waiting;

/// A request as far as it could be understood.
pub(super) enum Body {
    /// A check outside a multi.
    BareCheck(CheckRequest),
    /// Asks for what servers do by themselves.
    DeleteContainer(String),
    /// A read that is answered with this error.
    Failed(ErrorCode),
    /// Not the record that the opcode asks for.
    Garbled,
    Known(Request),
    Multi(Vec<Step>),
    /// Refused with this error, and logged as a write.
    Refused(ErrorCode),
    /// Ends the connection without an answer.
    Unanswerable,
    UnknownOp,
}

/// What processing a request came to.
pub(super) struct Processed {
    pub(super) error: ErrorCode,
    pub(super) zxid: Option<i64>,
}

impl Processed {
    pub(super) fn read(error: ErrorCode) -> Self {
        Self { error, zxid: None }
    }
}

impl Server {
    /// Handles a frame of a connection that belongs to a session.
    pub(super) fn handle_request(&mut self, id: u64, session: i64, payload: Bytes, now: Duration) {
        if self.connections.get(id).is_some_and(|connection| connection.cut_off.is_some()) {
            return self.handle_as_follower(id, session, payload, now);
        }
        let whole = payload.clone();
        let mut reader = Reader::new(payload);
        let Ok(header) = RequestHeader::decode(&mut reader) else { return self.close(id) };
        let body = decode(header.op, &mut reader, &self.config);
        let paths = body.paths();
        let path = paths.first().map(|path| (*path).to_owned());
        let fault = self.faults.at_request(session, header.op, &paths);
        let action = self.begin_fault(fault, now);
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
                return self.handle_as_follower(id, session, whole, now);
            }
            Some(Action::Pause(duration)) => {
                self.pause_connection(session, duration, now);
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.put_back(&whole);
                }
                return;
            }
            Some(Action::Error(error)) => {
                self.sessions.touch(session, now);
                self.reply_error(id, header.xid, self.zxid, error);
                Outcome::Refused(error)
            }
            Some(Action::LateCommit(until)) if body.is_write(self.config.version) => {
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
            | Some(Action::CutAtReplyByte(_) | Action::SwapSession)
            | None => {
                let cut_at = self.decide_fate(id, action, now);
                match self.process(id, session, header, body, now) {
                    None => Outcome::Dropped,
                    Some(processed) => {
                        zxid = processed.zxid;
                        match cut_at {
                            true => Outcome::AppliedUnanswered(processed.error),
                            false => Outcome::Applied(processed.error),
                        }
                    }
                }
            }
        };
        self.apply_fate(id);
        if header.op != OpCode::PING {
            let (connection, xid, op) = (id, header.xid, header.op);
            let record =
                RequestRecord { session, connection, xid, op, path, outcome, zxid, at: now };
            self.journal.request(record);
        }
    }

    /// Arranges what happens to the reply; true if it will not leave whole.
    fn decide_fate(&mut self, id: u64, action: Option<Action>, now: Duration) -> bool {
        let fate = match action {
            Some(Action::CutAfter | Action::LateCommit(_)) => Fate::CutAt(0),
            Some(Action::CutAtReplyByte(length)) => Fate::CutAt(length),
            Some(Action::Delay(duration)) => {
                self.stall(id, now + duration);
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
        };
        if let Some(connection) = self.connections.get_mut(id) {
            connection.fate = fate;
        }
        fate != Fate::Deliver
    }

    /// A connection to be cut at its reply is cut even if there was no reply.
    fn apply_fate(&mut self, id: u64) {
        if self.connections.get(id).is_some_and(|connection| connection.fate != Fate::Deliver) {
            self.close(id);
        }
    }

    /// Processes a request; `None` if the session is over, in which case nothing is answered.
    fn process(
        &mut self,
        id: u64,
        session: i64,
        header: RequestHeader,
        body: Body,
        now: Duration,
    ) -> Option<Processed> {
        if let Body::Unanswerable = &body {
            self.close(id);
            return Some(Processed::read(ErrorCode::MARSHALLING_ERROR));
        }
        // Neither of these touches the session or waits for its turn.
        if let Body::Known(Request::Auth(auth)) = &body {
            return Some(Processed::read(self.authenticate(id, header.xid, auth)));
        }
        if let Body::Known(Request::Sasl(token)) = &body {
            return Some(Processed::read(self.sasl(id, header.xid, token.0.as_ref())));
        }
        if !self.sessions.touch(session, now) {
            return None;
        }
        if body.is_write(self.config.version) {
            let proposal = self.proposal(id, session, header, body, now);
            return Some(self.write(Waiting::new(id, session, header), &proposal, now));
        }
        Some(match body {
            Body::UnknownOp => {
                self.reply_error(id, header.xid, -1, ErrorCode::UNIMPLEMENTED);
                self.close(id);
                Processed::read(ErrorCode::UNIMPLEMENTED)
            }
            Body::Known(Request::Sync(path)) => {
                self.sync(Waiting::new(id, session, header), path, now)
            }
            Body::Known(Request::Ping) => {
                self.reply(id, xid::PING, Ok(Response::Empty));
                Processed::read(ErrorCode::OK)
            }
            Body::Known(request) => {
                let result = self.read(id, session, &request, now);
                let error = result.as_ref().err().copied().unwrap_or(ErrorCode::OK);
                self.reply(id, header.xid, result);
                // A fault at an event of setWatches may have ended the connection half-way.
                if !self.connections.get(id).is_some_and(Connection::is_open) {
                    self.watches.forget(id);
                }
                self.count_read(session, header.op, now);
                Processed::read(error)
            }
            Body::Failed(error) => {
                self.reply_error(id, header.xid, self.zxid, error);
                Processed::read(error)
            }
            Body::Garbled
            | Body::Refused(_)
            | Body::BareCheck(_)
            | Body::DeleteContainer(_)
            | Body::Multi(_)
            | Body::Unanswerable => {
                self.reply_error(id, header.xid, self.zxid, ErrorCode::MARSHALLING_ERROR);
                Processed::read(ErrorCode::MARSHALLING_ERROR)
            }
        })
    }

    /// The write in a body for which `is_write` holds.
    fn proposal(
        &self,
        id: u64,
        session: i64,
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
            Body::Known(Request::Reconfig(_)) => Write::Refused(ErrorCode::RECONFIG_DISABLED, path),
            Body::Known(_)
            | Body::Failed(_)
            | Body::Garbled
            | Body::Unanswerable
            | Body::UnknownOp => Write::Refused(ErrorCode::MARSHALLING_ERROR, path),
        };
        let identities = match self.connections.get(id) {
            Some(connection) => connection.identities.clone(),
            None => unreachable!("requests come from connections"),
        };
        let time_ms = self.time_ms(now);
        Proposal { session, xid: header.xid, op: header.op, write, identities, time_ms }
    }

    fn authenticate(&mut self, id: u64, xid: i32, auth: &AuthPacket) -> ErrorCode {
        let super_digest = self.config.super_digest.as_deref();
        let is_accepted = self.connections.get_mut(id).is_some_and(|connection| {
            connection.identities.authenticate(&auth.scheme, auth.auth.as_deref(), super_digest)
        });
        let error = if is_accepted { ErrorCode::OK } else { ErrorCode::AUTH_FAILED };
        self.reply_error(id, xid, 0, error);
        if !is_accepted {
            self.close(id);
        }
        error
    }

    /// As a server without SASL configuration.
    fn sasl(&mut self, id: u64, xid: i32, token: Option<&Bytes>) -> ErrorCode {
        if token.is_none() {
            self.close(id);
            return ErrorCode::AUTH_FAILED;
        }
        let header = ReplyHeader { xid, zxid: 0, err: ErrorCode::OK };
        let bytes = frame(|out| {
            header.encode(out);
            Response::Sasl(SaslToken(None)).encode(out);
        });
        self.send_reply(id, bytes);
        ErrorCode::OK
    }

    /// Answers with the last zxid.
    pub(super) fn reply(&mut self, id: u64, xid: i32, result: Result<Response, ErrorCode>) {
        let err = result.as_ref().err().copied().unwrap_or(ErrorCode::OK);
        let header = ReplyHeader { xid, zxid: self.zxid, err };
        let bytes = frame(|out| {
            header.encode(out);
            if let Ok(response) = result {
                response.encode(out);
            }
        });
        self.send_reply(id, bytes);
    }

    /// Answers without a body.
    pub(super) fn reply_error(&mut self, id: u64, xid: i32, zxid: i64, err: ErrorCode) {
        let bytes = frame(|out| ReplyHeader { xid, zxid, err }.encode(out));
        self.send_reply(id, bytes);
    }

    fn send_reply(&mut self, id: u64, bytes: Option<Bytes>) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        // Longer than a frame can be.
        let Some(bytes) = bytes else { return self.close(id) };
        match connection.fate {
            Fate::Deliver => connection.send(&bytes),
            Fate::CutAt(length) => {
                connection.send(&head(bytes, length));
                self.close(id);
            }
        }
    }
}

impl Body {
    /// True if it gets a place in the log, be it as a failure.
    pub(super) fn is_write(&self, version: Version) -> bool {
        match self {
            Self::BareCheck(_) => version == Version::V3_8,
            Self::DeleteContainer(_) | Self::Multi(_) | Self::Refused(_) => true,
            Self::Known(request) => matches!(
                request,
                Request::CloseSession
                    | Request::Create(_)
                    | Request::Delete(_)
                    | Request::Reconfig(_)
                    | Request::SetAcl(_)
                    | Request::SetData(_)
            ),
            Self::Failed(_) | Self::Garbled | Self::Unanswerable | Self::UnknownOp => false,
        }
    }

    pub(super) fn paths(&self) -> Vec<&str> {
        match self {
            Self::BareCheck(check) => vec![&check.path],
            Self::Known(request) => paths(request),
            Self::DeleteContainer(path) => vec![path],
            Self::Multi(steps) => steps.iter().map(Step::path).collect(),
            Self::Failed(_)
            | Self::Garbled
            | Self::Refused(_)
            | Self::Unanswerable
            | Self::UnknownOp => Vec::new(),
        }
    }
}

pub(super) fn decode(op: OpCode, reader: &mut Reader, config: &ServerConfig) -> Body {
    let is_write = match op {
        OpCode::CHECK if config.version == Version::V3_8 => {
            return match CheckRequest::decode(reader) {
                Ok(check) => Body::BareCheck(check),
                Err(_) => Body::Refused(ErrorCode::MARSHALLING_ERROR),
            };
        }
        // Between servers only. From a client the first one fails inside the server. Of the other
        // one 3.8.0 takes the whole packet, header and all, for the path, and 3.9.3 the body.
        OpCode::CREATE_SESSION if config.version == Version::V3_8 => {
            return Body::Refused(ErrorCode::MARSHALLING_ERROR);
        }
        OpCode::CREATE_SESSION => return Body::Garbled,
        OpCode::DELETE_CONTAINER if config.version == Version::V3_8 => {
            return Body::Refused(ErrorCode::BAD_ARGUMENTS);
        }
        // Without a length in front of it.
        OpCode::DELETE_CONTAINER => {
            let path = reader.clone().into_rest();
            return Body::DeleteContainer(String::from_utf8_lossy(&path).into_owned());
        }
        OpCode::MULTI => {
            return match multi::decode(reader, config) {
                Some(steps) => Body::Multi(steps),
                None => Body::Refused(ErrorCode::MARSHALLING_ERROR),
            };
        }
        OpCode::CREATE
        | OpCode::CREATE2
        | OpCode::CREATE_CONTAINER
        | OpCode::CREATE_TTL
        | OpCode::DELETE
        | OpCode::SET_ACL
        | OpCode::SET_DATA => config.version == Version::V3_8,
        _ => false,
    };
    let error = match Request::decode(op, reader) {
        Ok(request) => return Body::Known(request),
        Err(error) => error,
    };
    // Read where the connection is served, and not behind it.
    if matches!(op, OpCode::AUTH | OpCode::SASL) {
        return Body::Unanswerable;
    }
    if error.kind == DecodeErrorKind::Null
        && error.field == "path"
        && let Some(body) = without_path(op, reader, config)
    {
        return body;
    }
    match error.kind {
        DecodeErrorKind::UnexpectedOp(_) if op != OpCode::MULTI_READ => Body::UnknownOp,
        DecodeErrorKind::IllegalFlags { flags: 5 | 6, .. } | DecodeErrorKind::IllegalTtl(_)
            if !config.extended_types =>
        {
            Body::Refused(ErrorCode::UNIMPLEMENTED)
        }
        DecodeErrorKind::IllegalFlags { .. } | DecodeErrorKind::IllegalTtl(_) => {
            Body::Refused(ErrorCode::BAD_ARGUMENTS)
        }
        _ if is_write => Body::Refused(ErrorCode::MARSHALLING_ERROR),
        DecodeErrorKind::NegativeLength(_)
        | DecodeErrorKind::NotText
        | DecodeErrorKind::Null
        | DecodeErrorKind::UnexpectedEnd { .. }
        | DecodeErrorKind::UnexpectedOp(_)
        | _ => Body::Garbled,
    }
}

/// What becomes of a request with null as its path, if it is more than garbled. The reader stands
/// behind the path.
fn without_path(op: OpCode, reader: &mut Reader, config: &ServerConfig) -> Option<Body> {
    Some(match op {
        // The path is looked at before anything else.
        OpCode::SET_ACL | OpCode::SET_DATA => Body::Refused(ErrorCode::BAD_ARGUMENTS),
        OpCode::CHECK_WATCHES if config.version == Version::V3_8 => return None,
        OpCode::CHECK_WATCHES | OpCode::REMOVE_WATCHES => {
            let kind = WatcherType::decode(reader).ok()?;
            is_watcher_type(kind, config.version).then_some(Body::Failed(ErrorCode::NO_WATCHER))?
        }
        _ => return None,
    })
}

fn paths(request: &Request) -> Vec<&str> {
    match request {
        Request::AddWatch(request) => vec![&request.path],
        Request::CheckWatches(request) | Request::RemoveWatches(request) => vec![&request.path],
        Request::Create(request) => vec![&request.path],
        Request::Delete(request) => vec![&request.path],
        Request::Exists(request)
        | Request::GetChildren(request)
        | Request::GetChildren2(request)
        | Request::GetData(request) => vec![&request.path],
        Request::GetAcl(path) | Request::GetAllChildrenNumber(path) | Request::Sync(path) => {
            vec![path]
        }
        Request::GetEphemerals(prefix) => prefix.iter().map(|prefix| &**prefix).collect(),
        Request::MultiRead(ops) => ops
            .iter()
            .map(|op| match op {
                ReadOp::GetChildren(path) | ReadOp::GetData(path) => &**path,
            })
            .collect(),
        Request::SetAcl(request) => vec![&request.path],
        Request::SetData(request) => vec![&request.path],
        Request::Auth(_)
        | Request::CloseSession
        | Request::Multi(_)
        | Request::Ping
        | Request::Reconfig(_)
        | Request::Sasl(_)
        | Request::SetWatches(_)
        | Request::SetWatches2(_)
        | Request::WhoAmI
        | _ => Vec::new(),
    }
}
