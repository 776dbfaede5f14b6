//! What arrives: the handshake's answer, replies, events.

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use jute_codec::{
    ConnectResponse, ErrorCode, Frame, MultiResult, OpCode, Reader, Record, ReplyHeader, Response,
    WatcherEvent, xid,
};
use tracing::{debug, warn};

use super::inflight::{Pending, Purpose};
use super::shared_list::Subscriber;
use super::watch::WatchKind;
use super::{Change, DisconnectCause, EndCause, Event, Phase, Session, SessionState};
use crate::error::{OpError, Outcome};
use crate::time::Time;
use crate::types::WatchedEvent;

/// The answer to a handshake is shorter than this. What seems to be longer comes from a server of
/// another kind, and need not be waited for.
const CONNECT_RESPONSE_MAX: u32 = 1024;

impl Session {
    /// Bytes have arrived; takes whole frames from the front of `bytes`.
    pub fn handle_bytes(&mut self, now: Time, bytes: &mut BytesMut) {
        self.advance(now);
        self.hear(bytes);
        if let Phase::Handshaking(_) = self.phase
            && let Some(first) = bytes.first_chunk()
            && u32::from_be_bytes(*first) > CONNECT_RESPONSE_MAX
        {
            self.drop_connection(DisconnectCause::NotZooKeeper(*first));
        }
        while !matches!(self.phase, Phase::Idle | Phase::Connecting | Phase::Stopped(_)) {
            match self.frames.next(bytes) {
                Ok(None) => {
                    self.hear_part(bytes);
                    // A long list comes in many pieces, and would be moved with each.
                    bytes.reserve(self.frames.missing(bytes));
                    break;
                }
                Ok(Some(frame)) => {
                    self.hear_frame();
                    if let Err(violation) = self.handle_frame(frame) {
                        self.drop_connection(violation);
                    }
                }
                Err(error) => self.drop_connection(error.into()),
            }
        }
        if matches!(self.phase, Phase::Idle | Phase::Stopped(_)) {
            bytes.clear();
        } else if matches!(self.phase, Phase::Established | Phase::Authenticating(_)) {
            self.rearm_read();
        }
        // The bytes have moved the deadlines as far as they could.
        self.handle_timeout(now);
    }

    fn handle_frame(&mut self, frame: Frame) -> Result<(), DisconnectCause> {
        match (self.phase, frame) {
            (Phase::Handshaking(sent), Frame::Complete(payload)) => {
                let response = ConnectResponse::decode(&mut Reader::new(payload))
                    .map_err(|error| DisconnectCause::Record { what: "ConnectResponse", error })?;
                debug!(?response, "handshake");
                self.handle_connect_response(response, sent);
                Ok(())
            }
            (Phase::Handshaking(_), Frame::Oversized { length, .. }) => {
                Err(DisconnectCause::TooLong(length))
            }
            (_, Frame::Complete(payload)) => self.handle_reply(payload, None),
            (_, Frame::Oversized { head, length }) => self.handle_reply(head, Some(length)),
        }
    }

    /// `oversized` is the length of a reply whose body was skipped.
    fn handle_reply(
        &mut self,
        payload: Bytes,
        oversized: Option<usize>,
    ) -> Result<(), DisconnectCause> {
        let length = oversized.unwrap_or(payload.len());
        let mut body = Reader::new(payload);
        let header = ReplyHeader::decode(&mut body)
            .map_err(|error| DisconnectCause::Record { what: "ReplyHeader", error })?;
        match header.xid {
            xid::NOTIFICATION => match oversized {
                None => self.handle_event(&mut body),
                Some(length) => Err(DisconnectCause::TooLong(length)),
            },
            xid::PING => {
                if let Some(sent) = self.heartbeat.pong() {
                    self.acknowledge(sent);
                }
                Ok(())
            }
            xid::AUTH => {
                self.handle_auth(header.err);
                Ok(())
            }
            xid => {
                let pending =
                    self.inflight.complete(xid, length).ok_or(DisconnectCause::Xid(xid))?;
                self.heartbeat.answered(self.now);
                self.acknowledge(pending.sent);
                // Events carry -1 or the zxid of a change we may not have seen the effects of;
                // pings and auth carry others. Only ordinary replies count.
                if xid > 0 {
                    self.last_zxid = self.last_zxid.max(header.zxid);
                }
                self.handle_answer(pending, header.err, body, oversized)
            }
        }
    }

    fn handle_answer(
        &mut self,
        pending: Pending,
        code: ErrorCode,
        body: Reader,
        oversized: Option<usize>,
    ) -> Result<(), DisconnectCause> {
        match pending.purpose {
            Purpose::Close => {
                if self.phase == Phase::Burying {
                    self.stale_is_gone();
                } else {
                    self.end_session(EndCause::Closed);
                }
                Ok(())
            }
            Purpose::Renewal => {
                let result = result(pending.op, code, body, oversized);
                self.renewed(result.is_ok(), pending.sent);
                if is_over(code, &result) {
                    self.drop_connection(DisconnectCause::SessionMoved);
                }
                self.pump();
                Ok(())
            }
            Purpose::SetWatches if code.is_ok() => {
                self.batches_missing -= 1;
                if self.batches_missing == 0 {
                    self.frozen_zxid = None;
                    self.ready_at = Some(self.now);
                }
                Ok(())
            }
            Purpose::SetWatches => Err(DisconnectCause::SetWatches(code)),
            Purpose::SharedList(path) => {
                let result = result(pending.op, code, body, oversized);
                let is_over = is_over(code, &result);
                self.settle_list(&path, &result);
                if is_over {
                    self.drop_connection(DisconnectCause::SessionMoved);
                }
                self.pump();
                Ok(())
            }
            Purpose::Operation { token, index, watch } => {
                if let Some(kind) = watch_left(pending.op, code)
                    && let Some((id, path)) = watch
                    && self.open.contains_key(&token)
                {
                    self.watches.insert(id, &path, kind);
                }
                let result = result(pending.op, code, body, oversized);
                if result.is_ok() && is_write(pending.op) {
                    self.committed(pending.sent);
                } else if result.is_ok() && pending.op == OpCode::SYNC {
                    self.lease.synced(pending.sent, self.now);
                }
                let is_over = is_over(code, &result);
                self.settle(token, index, result);
                if is_over {
                    self.drop_connection(DisconnectCause::SessionMoved);
                }
                self.pump();
                Ok(())
            }
        }
    }

    /// Answers the operations that share the list in flight. The names are counted references.
    pub(super) fn settle_list(&mut self, path: &ByteString, result: &Result<Response, OpError>) {
        for Subscriber { token, index } in self.lists.answered(path) {
            self.settle(token, index, result.clone());
        }
    }

    fn handle_event(&mut self, body: &mut Reader) -> Result<(), DisconnectCause> {
        let event = WatcherEvent::decode(body)
            .map_err(|error| DisconnectCause::Record { what: "WatcherEvent", error })?;
        for id in self.watches.fire(event.kind, &event.path) {
            let event = WatchedEvent { kind: event.kind, path: event.path.clone() };
            self.events.push_back(Event::Watch { id, event });
        }
        Ok(())
    }

    fn handle_auth(&mut self, code: ErrorCode) {
        if !code.is_ok() {
            warn!(%code, "authentication failed");
            self.emit(Change::AuthFailed);
            self.stop(SessionState::AuthFailed);
        } else if let Phase::Authenticating(missing) = self.phase {
            self.phase = Phase::Authenticating(missing - 1);
            if missing == 1 {
                self.establish();
            }
        }
    }
}

/// True if this server does not serve the session any more; the next handshake tells whether any
/// does.
fn is_over(code: ErrorCode, result: &Result<Response, OpError>) -> bool {
    code == ErrorCode::SESSION_MOVED
        || matches!(result, Err(OpError::SessionExpired(_) | OpError::ConnectionLoss(_)))
}

/// True for what is answered only when a quorum has committed it.
fn is_write(op: OpCode) -> bool {
    matches!(
        op,
        OpCode::CREATE
            | OpCode::CREATE2
            | OpCode::CREATE_CONTAINER
            | OpCode::CREATE_TTL
            | OpCode::DELETE
            | OpCode::MULTI
            | OpCode::SET_ACL
            | OpCode::SET_DATA
    )
}

/// Which watch a reply leaves at the server, if the request asked for one.
fn watch_left(op: OpCode, code: ErrorCode) -> Option<WatchKind> {
    match (op, code) {
        (OpCode::EXISTS | OpCode::GET_DATA, ErrorCode::OK) => Some(WatchKind::Data),
        (OpCode::EXISTS, ErrorCode::NO_NODE) => Some(WatchKind::Exist),
        (OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2, ErrorCode::OK) => Some(WatchKind::Child),
        _ => None,
    }
}

/// How a multi says that the session is over, or is another server's: its header says OK.
const EXPIRED: MultiResult = MultiResult::Error(ErrorCode::SESSION_EXPIRED);
const MOVED: MultiResult = MultiResult::Error(ErrorCode::SESSION_MOVED);

fn result(
    op: OpCode,
    code: ErrorCode,
    mut body: Reader,
    oversized: Option<usize>,
) -> Result<Response, OpError> {
    match code {
        ErrorCode::OK => match oversized {
            None => match Response::decode(op, &mut body) {
                Ok(Response::Multi(results)) if results.contains(&EXPIRED) => {
                    Err(OpError::SessionExpired(Outcome::NotApplied))
                }
                // The leader has made an error transaction of the whole multi, or else there would
                // be no such results: nothing of it was applied. A header with this code says less.
                Ok(Response::Multi(results)) if results.contains(&MOVED) => {
                    Err(OpError::ConnectionLoss(Outcome::NotApplied))
                }
                decoded => decoded.map_err(OpError::Undecodable),
            },
            Some(length) => Err(OpError::ResponseTooLarge(length)),
        },
        ErrorCode::SESSION_EXPIRED => Err(OpError::SessionExpired(Outcome::NotApplied)),
        // The request came through a server that is not the session's any more.
        ErrorCode::SESSION_MOVED => Err(OpError::ConnectionLoss(Outcome::Unknown)),
        ErrorCode::AUTH_FAILED | ErrorCode::SESSION_CLOSED_REQUIRE_SASL_AUTH => {
            Err(OpError::AuthFailed)
        }
        ErrorCode::UNIMPLEMENTED => Err(OpError::Unsupported),
        code => Err(OpError::Server(code)),
    }
}
