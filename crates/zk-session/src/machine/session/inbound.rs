//! Decoding: the reply to the handshake, replies to requests, and events.

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use jute_codec::{
    ConnectResponse, ErrorCode, Frame, MultiResult, OpCode, Reader, Record, ReplyHeader, Response,
    xid,
};
use tracing::{debug, warn};

use super::sasl::MESSAGE_MAX;
use super::{Phase, SessionMachine};
use crate::error::{OpError, Outcome, Target};
use crate::machine::cause::DisconnectCause;
use crate::machine::inflight::{Pending, Purpose, RequestedWatch};
use crate::machine::sample::{Fate, Sample};
use crate::machine::shared_list::Subscriber;
use crate::machine::status::{Change, EndCause, SessionState};
use crate::operation::table::Facts;
use crate::time::Time;
use crate::types::Zxid;

/// Maximum length of the reply to a handshake. A longer reply comes from another kind of server, so
/// there is no point in waiting for the rest of it.
const CONNECT_RESPONSE_MAX: u32 = 1024;

/// With this result, a multi reports that the session has ended. The header of its reply says OK.
const EXPIRED: MultiResult = MultiResult::Error(ErrorCode::SESSION_EXPIRED);
/// With this result, a multi reports that the session has moved to another server.
const MOVED: MultiResult = MultiResult::Error(ErrorCode::SESSION_MOVED);

impl SessionMachine {
    /// Processes received bytes. Takes whole frames from the front of `bytes`.
    pub(crate) fn handle_bytes(&mut self, now: Time, bytes: &mut BytesMut) {
        self.advance(now);
        self.note_bytes(bytes);
        if let Phase::Handshaking(_) = self.link.phase
            && let Some(first) = bytes.first_chunk()
            && u32::from_be_bytes(*first) > CONNECT_RESPONSE_MAX
        {
            self.drop_connection(DisconnectCause::NotZooKeeper(*first));
        }
        if let Phase::Sasl(_) = self.link.phase
            && self.link.skipping() == 0
            && let Some(first) = bytes.first_chunk()
            && let Ok(length) = usize::try_from(u32::from_be_bytes(*first))
            && length > MESSAGE_MAX
        {
            self.drop_connection(DisconnectCause::TooLong(length));
        }
        while !matches!(self.link.phase, Phase::Idle | Phase::Connecting | Phase::Stopped(_)) {
            match self.link.next_frame(bytes) {
                Ok(None) => {
                    self.note_partial_frame(bytes);
                    // A long reply arrives in many pieces, and growing the buffer for each of them
                    // would copy it again and again.
                    bytes.reserve(self.link.missing(bytes));
                    break;
                }
                Ok(Some(frame)) => {
                    self.link.frame_finished(now);
                    if let Err(violation) = self.handle_frame(frame) {
                        self.drop_connection(violation);
                    }
                }
                Err(error) => self.drop_connection(error.into()),
            }
        }
        if matches!(self.link.phase, Phase::Idle | Phase::Stopped(_)) {
            bytes.clear();
        } else {
            self.rearm_read();
        }
        // Deadlines are checked last, because the bytes may have moved some of them.
        self.handle_timeout(now);
    }

    fn handle_frame(&mut self, frame: Frame) -> Result<(), DisconnectCause> {
        match (self.link.phase, frame) {
            (Phase::Handshaking(sent), Frame::Complete(payload)) => {
                let response =
                    ConnectResponse::decode(&mut Reader::new(payload)).map_err(|error| {
                        DisconnectCause::Record { record: "ConnectResponse", error }
                    })?;
                debug!(?response, "handshake");
                self.receive_connect_response(response, sent);
                Ok(())
            }
            (Phase::Handshaking(_), Frame::Oversized { length, .. }) => {
                Err(DisconnectCause::TooLong(length))
            }
            (_, Frame::Complete(payload)) => self.handle_reply(payload, None),
            (_, Frame::Oversized { head, length }) => self.handle_reply(head, Some(length)),
        }
    }

    /// Handles a reply or an event. `oversized` is the length of a reply whose body was skipped.
    fn handle_reply(
        &mut self,
        payload: Bytes,
        oversized: Option<usize>,
    ) -> Result<(), DisconnectCause> {
        let length = oversized.unwrap_or(payload.len());
        let mut body = Reader::new(payload);
        let header = ReplyHeader::decode(&mut body)
            .map_err(|error| DisconnectCause::Record { record: "ReplyHeader", error })?;
        let is_sasl_required = header.err == ErrorCode::SESSION_CLOSED_REQUIRE_SASL_AUTH;
        let handled = self.handle_reply_body(header, body, length, oversized);
        if is_sasl_required && handled.is_ok() {
            self.handle_sasl_required();
        }
        handled
    }

    fn handle_reply_body(
        &mut self,
        header: ReplyHeader,
        mut body: Reader,
        length: usize,
        oversized: Option<usize>,
    ) -> Result<(), DisconnectCause> {
        match header.xid {
            // Servers keep watches per connection, and the client sets none before it has
            // authenticated. So this event comes from a peer that has proven nothing.
            xid::NOTIFICATION if self.link.phase != Phase::Established => {
                Err(DisconnectCause::EarlyEvent)
            }
            xid::NOTIFICATION => match oversized {
                None => self.handle_event(header.zxid, &mut body),
                // Skipping an event would lose it unnoticed.
                Some(length) => Err(DisconnectCause::TooLong(length)),
            },
            xid::PING => {
                if let Some(sent) = self.link.ping_completed() {
                    self.note_served(header.err);
                    self.acknowledge(sent);
                }
                Ok(())
            }
            xid::AUTH => self.handle_auth(header.err),
            // A server without SASL is not the one that this client was told to expect.
            _ if header.err == ErrorCode::UNIMPLEMENTED
                && matches!(self.link.phase, Phase::Sasl(_)) =>
            {
                Err(DisconnectCause::SaslRefused(header.err))
            }
            // This reply may overtake those to earlier requests.
            xid if header.err == ErrorCode::UNIMPLEMENTED && header.zxid == Zxid::NONE => {
                Err(self.handle_unknown_operation(xid))
            }
            xid => {
                let completed = self.link.complete(self.now, xid, length);
                let pending = completed.ok_or(DisconnectCause::Xid(xid))?;
                if let Some(postponed) = self.link.probes.replied(xid) {
                    self.send_postponed(postponed);
                }
                // SASL messages do not renew the session at the server.
                if !matches!(pending.purpose, Purpose::Sasl) {
                    self.acknowledge(pending.sent);
                }
                // Events carry -1, or the zxid of a change whose effects we may not have seen.
                // Pings and auth replies carry other values. Only replies to requests count, and
                // none of a server that has not authenticated: a single zxid that is too large
                // would make every real server refuse this session.
                if xid > 0 && self.link.phase == Phase::Established {
                    self.note_served(header.err);
                    self.seen.reply(header.zxid);
                    if self.covers_session(&pending, header.err) {
                        self.seen.session_covered();
                    }
                }
                // The server has applied everything that it has told this client of, and a server
                // that resumed the session first replies to the write that makes it catch up.
                let is_proof = xid > 0
                    && !matches!(pending.purpose, Purpose::Sasl)
                    && (header.err.is_ok() || !matches!(pending.purpose, Purpose::CatchUp));
                if is_proof {
                    self.seen.caught_up();
                }
                let handled = self.handle_completed(pending, header.err, body, oversized);
                self.finish_leaving();
                self.finish_hand_over();
                handled
            }
        }
    }

    /// Returns whether the zxid of a reply is that of the transaction that has opened the session, or
    /// a later one. The server that has opened the session has applied that transaction. Another
    /// server that lags resumes the session, because it asks the leader, and shows an earlier state.
    fn covers_session(&self, pending: &Pending, code: ErrorCode) -> bool {
        let is_committed = code.is_ok() && Facts::of(pending.op).is_write;
        !self.link.is_read_only() && (self.link.is_new_session || is_committed)
    }

    /// Handles the reply to a request in the queue.
    fn handle_completed(
        &mut self,
        pending: Pending,
        code: ErrorCode,
        body: Reader,
        oversized: Option<usize>,
    ) -> Result<(), DisconnectCause> {
        if let Purpose::Operation { token, .. } = &pending.purpose {
            self.flights.release(*token);
        }
        if let Purpose::CatchUp
        | Purpose::Close
        | Purpose::CreateChroot { .. }
        | Purpose::FindChroot
        | Purpose::RemoveWatches
        | Purpose::RenewWatches
        | Purpose::Sasl
        | Purpose::SetWatches = pending.purpose
        {
            let fate = if code.is_ok() { Fate::Completed } else { Fate::Refused };
            self.measure(&pending, fate);
        }
        match pending.purpose {
            Purpose::CatchUp if code.is_ok() => return Ok(()),
            // What this server shows may be older than what the client knows.
            Purpose::CatchUp => return Err(DisconnectCause::CatchUp(code)),
            // If the close of the current session is refused, the next server may accept it. A session
            // that was given up must not keep the client from opening another one.
            Purpose::Close if self.link.phase == Phase::ClosingStale => {
                self.stale_is_gone();
                return Ok(());
            }
            // A server also calls a session expired whose close it has only begun to commit.
            Purpose::Close if code.is_ok() || code == ErrorCode::SESSION_EXPIRED => {
                self.end_session(EndCause::Closed);
                return Ok(());
            }
            Purpose::Close => return Err(DisconnectCause::CloseRefused(code)),
            Purpose::FindChroot => {
                self.chroot_found(code);
                return Ok(());
            }
            Purpose::CreateChroot { path, following } => {
                self.chroot_created(&path, following, code);
                return Ok(());
            }
            Purpose::SetWatches if code.is_ok() => {
                if self.link.batch_restored(self.now) {
                    self.watches.restored();
                }
                return Ok(());
            }
            Purpose::SetWatches => {
                self.handle_refused_watches(pending.op, code);
                // Without its watches the connection is useless: a waiter would never be woken.
                return Err(DisconnectCause::SetWatches(code));
            }
            Purpose::RenewWatches if code.is_ok() => return Ok(()),
            Purpose::RenewWatches => return Err(DisconnectCause::SetWatches(code)),
            // The server may have removed the watch for another reason, so a refusal is harmless.
            Purpose::RemoveWatches => return Ok(()),
            Purpose::Sasl => return self.handle_sasl_reply(code, body, oversized),
            Purpose::Operation { .. } | Purpose::Renewal | Purpose::SharedList(_) => {}
        }
        let mut result = result(pending.op, code, body, oversized);
        result = result.map_err(|error| error.about(pending.target()));
        if self.link.is_read_only() && matches!(result, Err(OpError::SessionExpired { .. })) {
            // It is the session of the read-only server that has ended, not that of the client.
            result = Err(OpError::connection_loss(Outcome::NotApplied).about(pending.target()));
        }
        let is_refused_here =
            code == ErrorCode::SESSION_CLOSED_REQUIRE_SASL_AUTH && self.survives_required_sasl();
        if is_refused_here {
            // The client goes on to the next server, and so may its caller.
            result = Err(OpError::connection_loss(Outcome::NotApplied).about(pending.target()));
        }
        self.measure(&pending, Fate::of(&result));
        let is_over = is_session_over(code, &result);
        let mut refused_watch = Ok(());
        match pending.purpose {
            Purpose::Renewal => self.handle_renewal_reply(result.is_ok(), pending.sent),
            Purpose::SharedList(path) => self.settle_list(&path, &result),
            Purpose::Operation { token, index, subject, watch } => {
                // Register the watch before the reply is reported, because the next frame may be
                // its event.
                let path = subject.path();
                if let Some(RequestedWatch::Check(kind) | RequestedWatch::Removal(kind)) = watch {
                    result = self.watches_found(pending.op, kind, path, result);
                }
                if let Some(watch) = watch {
                    let is_wanted = self.flights.contains(token);
                    refused_watch = self.set_watch(watch, pending.op, code, path, is_wanted);
                }
                if result.is_ok() && Facts::of(pending.op).is_write {
                    self.handle_committed_write(pending.sent);
                } else if result.is_ok() && pending.op == OpCode::SYNC {
                    self.validity.synced(pending.sent, self.now);
                }
                if let Some(refused) = result.as_ref().ok().and_then(|done| subject.refused(done)) {
                    self.flights.note_refused(token, refused);
                }
                self.settle(token, index, result);
            }
            Purpose::CatchUp
            | Purpose::Close
            | Purpose::CreateChroot { .. }
            | Purpose::FindChroot
            | Purpose::RemoveWatches
            | Purpose::RenewWatches
            | Purpose::Sasl
            | Purpose::SetWatches => unreachable!("handled above"),
        }
        refused_watch?;
        if is_refused_here {
            return Err(DisconnectCause::SaslRefused(code));
        }
        if is_over {
            self.drop_connection(DisconnectCause::SessionMoved);
        }
        self.send_waiting();
        Ok(())
    }

    /// Handles the reply to an operation that the server does not know. The server closes the
    /// connection after it. Returns why the connection ends.
    fn handle_unknown_operation(&mut self, xid: i32) -> DisconnectCause {
        let Some(pending) = self.link.take(xid) else { return DisconnectCause::Xid(xid) };
        self.link.has_taught |= self.support.refused(pending.op, self.now);
        self.measure(&pending, Fate::Refused);
        let unsupported = OpError::Unsupported { target: pending.target() };
        let code = ErrorCode::UNIMPLEMENTED;
        match pending.purpose {
            Purpose::Operation { token, index, subject, watch } => {
                if let Some(watch) = watch {
                    // The connection ends in any case.
                    let _ = self.set_watch(watch, pending.op, code, subject.path(), false);
                }
                self.flights.release(token);
                self.settle(token, index, Err(unsupported));
            }
            Purpose::SetWatches => {
                self.handle_refused_watches(pending.op, code);
                return DisconnectCause::SetWatches(code);
            }
            Purpose::RenewWatches => return DisconnectCause::SetWatches(code),
            Purpose::SharedList(path) => self.settle_list(&path, &Err(unsupported)),
            // There is no other way to catch up with such a server.
            Purpose::CatchUp => self.seen.caught_up(),
            // The machine repeats these on the next connection if they are still needed.
            Purpose::Close
            | Purpose::CreateChroot { .. }
            | Purpose::FindChroot
            | Purpose::RemoveWatches
            | Purpose::Renewal
            | Purpose::Sasl => {}
        }
        DisconnectCause::UnknownOperation(pending.op)
    }

    /// Settles all operations that share the list in flight. Cloning the result is cheap, because
    /// the names are reference-counted.
    pub(super) fn settle_list(&mut self, path: &ByteString, result: &Result<Response, OpError>) {
        for Subscriber { token, index } in self.flights.complete_list(path) {
            self.settle(token, index, result.clone());
        }
    }

    /// Records how a request of the queue ended.
    pub(super) fn measure(&mut self, pending: &Pending, fate: Fate) {
        let latency = self.now.saturating_since(pending.sent);
        self.samples.add(Sample { op: pending.op, fate, latency });
    }

    /// Records that the server has served a request, or refuses to serve any.
    fn note_served(&mut self, code: ErrorCode) {
        if code != ErrorCode::SESSION_CLOSED_REQUIRE_SASL_AUTH {
            self.accepted.note_request();
        }
    }

    /// Stops the machine, because no server has accepted its credentials before.
    pub(super) fn stop_for_refused_credentials(&mut self, code: ErrorCode) {
        warn!(%code, "a server refused the credentials of an auth packet");
        self.emit(Change::AuthFailed);
        self.stop(SessionState::AuthFailed);
    }
}

/// Returns true if this server no longer serves the session. The next handshake shows whether
/// another one does.
fn is_session_over(code: ErrorCode, result: &Result<Response, OpError>) -> bool {
    code == ErrorCode::SESSION_MOVED
        || matches!(result, Err(OpError::SessionExpired { .. } | OpError::ConnectionLoss { .. }))
}

/// Translates a reply into the result of an operation. The caller names the operation in errors.
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
                    Err(OpError::session_expired(Outcome::NotApplied))
                }
                // Such results exist only if the leader turned the whole multi into an error
                // transaction, so no part of it was applied. A header with this code proves less.
                Ok(Response::Multi(results)) if results.contains(&MOVED) => {
                    Err(OpError::connection_loss(Outcome::NotApplied))
                }
                decoded => decoded.map_err(|error| OpError::Undecodable {
                    error: Box::new(error),
                    target: Target::UNKNOWN,
                }),
            },
            Some(length) => Err(OpError::ResponseTooLarge { length, target: Target::UNKNOWN }),
        },
        ErrorCode::SESSION_EXPIRED => Err(OpError::session_expired(Outcome::NotApplied)),
        // The request went through a server that the session has left, but may have been applied.
        ErrorCode::SESSION_MOVED => Err(OpError::connection_loss(Outcome::Unknown)),
        ErrorCode::AUTH_FAILED | ErrorCode::SESSION_CLOSED_REQUIRE_SASL_AUTH => {
            Err(OpError::AuthFailed)
        }
        ErrorCode::UNIMPLEMENTED => Err(OpError::Unsupported { target: Target::UNKNOWN }),
        code => Err(OpError::server(code)),
    }
}
