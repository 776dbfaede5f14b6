//! Followers: connections whose server has lost its leader, or is paused.
//!
//! There is only one state, the leader's. A follower is a property of a connection: its requests
//! are processed late, or are served from an old state and have no effect.

use std::time::Duration;

use bytes::Bytes;
use jute_codec::{
    ErrorCode, OpCode, Reader, Record as _, Request, RequestHeader, Response, SessionId, Zxid, xid,
};

use super::Server;
use super::body::{Body, decode};
use crate::connection::Connection;
use crate::journal::{Outcome, RequestRecord};

impl Server {
    /// Ends pauses that are over. Closes connections of followers that have noticed the loss of
    /// their leader, and those whose handshake is overdue.
    pub(super) fn run_chores(&mut self, now: Duration) {
        let mut ids = self.connections.due(now);
        let was_paused = !std::mem::take(&mut self.paused_until).is_zero();
        if was_paused {
            ids = self.connections.iter().map(|(id, _)| id).collect();
        }
        for id in ids {
            let Some(connection) = self.connections.get_mut(id) else { continue };
            let has_noticed = connection.notices_at().is_some_and(|at| at <= now);
            if connection.wake(now) || was_paused {
                self.take_frames(id, now);
            }
            let is_late = |c: &Connection| c.awaits_handshake() && c.handshake_deadline <= now;
            if has_noticed || self.connections.get(id).is_some_and(is_late) {
                self.close(id);
            }
            if self.connections.get(id).is_some_and(Connection::is_over) {
                self.forget(id);
            }
        }
    }

    /// Handles a frame of a connection whose server has lost its leader.
    pub(super) fn handle_as_follower(
        &mut self,
        id: u64,
        session: SessionId,
        payload: Bytes,
        now: Duration,
    ) {
        let mut reader = Reader::new(payload);
        let Ok(header) = RequestHeader::decode(&mut reader) else { return self.close(id) };
        if header.op == OpCode::PING {
            let past = self.connections.get(id).and_then(|connection| connection.cut_off.as_ref());
            let zxid = past.map_or(Zxid::NONE, |past| past.zxid);
            return self.reply_error(id, xid::PING, zxid, ErrorCode::OK);
        }
        let body = decode(header.op, &mut reader, &self.config);
        let path = body.paths().first().map(|path| (*path).to_owned());
        let is_write = body.is_write(self.config.version);
        self.propose_alone(id, &body);
        let outcome = match body {
            Body::Known(Request::Sync(path)) if self.syncs_alone(id) => self
                .in_the_past(id, |server| server.reply(id, header.xid, Ok(Response::Sync(path))))
                .map_or(Outcome::Dropped, |()| Outcome::Applied(ErrorCode::OK)),
            // These concern only this connection.
            Body::Known(Request::Auth(auth)) => {
                Outcome::Applied(self.authenticate(id, header.xid, &auth))
            }
            Body::Known(Request::Sasl(token)) => {
                Outcome::Applied(self.sasl(id, header.xid, token.0.as_ref()))
            }
            Body::Known(request) if !is_write && !matches!(request, Request::Sync(_)) => {
                self.read_old_state(id, session, header, &request, now)
            }
            Body::BareCheck(_)
            | Body::DeleteContainer(_)
            | Body::Failed(_)
            | Body::Malformed
            | Body::Known(_)
            | Body::Multi(_)
            | Body::Refused(_)
            | Body::Fatal
            | Body::UnknownOp => Outcome::Dropped,
        };
        let RequestHeader { xid, op } = header;
        let record =
            RequestRecord { session, connection: id, xid, op, path, outcome, zxid: None, at: now };
        self.journal.request(record);
    }

    fn read_old_state(
        &mut self,
        id: u64,
        session: SessionId,
        header: RequestHeader,
        request: &Request,
        now: Duration,
    ) -> Outcome {
        let read = self.in_the_past(id, |server| {
            let result = server.read(id, session, request, now);
            let error = result.as_ref().err().copied().unwrap_or(ErrorCode::OK);
            server.reply(id, header.xid, result);
            error
        });
        read.map_or(Outcome::Dropped, Outcome::Applied)
    }

    /// Does something in the state in which the server of a connection has lost the others.
    fn in_the_past<T>(&mut self, id: u64, act: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let past = self.connections.get(id)?.cut_off.clone()?;
        let replica = self.replica_mut(id);
        let tree = std::mem::replace(&mut replica.tree, (*past.tree).clone());
        let zxid = std::mem::replace(&mut replica.zxid, past.zxid);
        let done = act(self);
        let replica = self.replica_mut(id);
        replica.tree = tree;
        replica.zxid = zxid;
        // The watches of the connection never trigger, because the old state does not change.
        replica.watches.forget(id);
        Some(done)
    }
}
