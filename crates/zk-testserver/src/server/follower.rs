//! Followers: connections whose server has lost its leader, or is paused.
//!
//! There is only one state, the leader's. A follower is a property of a connection: its requests
//! are processed late, or are served from an old state and have no effect.

use std::time::Duration;

use bytes::Bytes;
use jute_codec::{
    ErrorCode, OpCode, Reader, Record as _, Request, RequestHeader, Response, SessionId, xid,
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
            return self.reply(id, xid::PING, Ok(Response::Empty));
        }
        let body = decode(header.op, &mut reader, &self.config);
        let path = body.paths().first().map(|path| (*path).to_owned());
        let is_write = body.is_write(self.config.version);
        let outcome = match body {
            Body::Known(request) if !is_write && !needs_leader(&request) => {
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
        let Some(past) = self.connections.get(id).and_then(|connection| connection.cut_off.clone())
        else {
            return Outcome::Dropped;
        };
        let replica = self.replica_mut(id);
        let tree = std::mem::replace(&mut replica.tree, (*past.tree).clone());
        let zxid = std::mem::replace(&mut replica.zxid, past.zxid);
        let result = self.read(id, session, request, now);
        let error = result.as_ref().err().copied().unwrap_or(ErrorCode::OK);
        self.reply(id, header.xid, result);
        let replica = self.replica_mut(id);
        replica.tree = tree;
        replica.zxid = zxid;
        // The watches of the connection never trigger, because the old state does not change.
        replica.watches.forget(id);
        Outcome::Applied(error)
    }
}

/// Returns whether a request that writes nothing needs the leader. Auth requests are included for
/// simplicity: clients authenticate right after the handshake, before a follower can lose its leader.
fn needs_leader(request: &Request) -> bool {
    matches!(request, Request::Auth(_) | Request::Sasl(_) | Request::Sync(_))
}
