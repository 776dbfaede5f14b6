//! Operations that a server may not know.
//!
//! A server replies to an unknown operation out of turn, and then closes the connection, so all
//! requests in flight beside it are lost. Servers do not say which operations they know. So the
//! first request of a newer operation on each connection is sent alone: no other request is in
//! flight at that time, and none is lost if the server does not know the operation. Source:
//! `UnimplementedRequestProcessor`.
//!
//! If the server does not know the operation, further requests of it fail without being sent for a
//! while, because each of them would cost another connection.

use std::time::Duration;

use jute_codec::{OpCode, Request};

use crate::host::Host;
use crate::operation::table::Facts;
use crate::time::Time;

/// How long an operation counts as unknown to a server. The server may be upgraded, and a name may
/// stand for several servers.
const REFUSED_KEPT: Duration = Duration::from_secs(60);
/// Maximum number of refusals that are remembered; a new one replaces the oldest.
const REFUSED_MAX: usize = 64;

/// The operations that servers do not know.
#[derive(Clone, Debug, Default)]
pub(super) struct Support {
    /// The server of the current connection.
    host: Option<Host>,
    refused: Vec<Refused>,
}

#[derive(Clone, Debug)]
struct Refused {
    host: Option<Host>,
    op: OpCode,
    at: Time,
}

impl Support {
    /// Records that the next connection is one to this server.
    pub(super) fn connecting(&mut self, host: Host) {
        self.host = Some(host);
    }

    /// Returns the server of the connection, or of the last one.
    pub(super) fn host(&self) -> Option<Host> {
        self.host.clone()
    }

    /// Returns true if the server has refused the operation as unknown a short time ago.
    pub(super) fn is_unknown(&self, op: OpCode, now: Time) -> bool {
        self.refused.iter().any(|refused| {
            refused.op == op && refused.host == self.host && now < refused.at + REFUSED_KEPT
        })
    }

    /// Records that the server does not know an operation. Returns whether this is news.
    pub(super) fn refused(&mut self, op: OpCode, now: Time) -> bool {
        let is_news = !self.is_unknown(op, now);
        let host = self.host.clone();
        self.refused.retain(|old| (&old.host, old.op) != (&host, op));
        if self.refused.len() == REFUSED_MAX {
            self.refused.remove(0);
        }
        self.refused.push(Refused { host, op, at: now });
        is_news
    }
}

/// The newer operations of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Probes {
    /// Newer operations to which the server has replied on this connection.
    proven: Vec<OpCode>,
    /// The xid and the operation of the request that is in flight alone.
    probe: Option<(i32, OpCode)>,
    /// What waits for the reply to that one.
    postponed: Postponed,
}

/// What a session sends by itself, and has not sent beside a request that is in flight alone. If the
/// server does not know that one, it closes the connection, and what arrives afterwards makes its host
/// reset it, which can discard the reply. The client would ask each new connection the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Postponed {
    /// The requests that set watches again.
    pub(super) requests: Vec<Request>,
    /// A ping is due.
    pub(super) has_ping: bool,
}

impl Probes {
    /// Returns true if the server may not know the operation, so that it must be sent alone.
    pub(super) fn must_be_alone(&self, op: OpCode) -> bool {
        Facts::of(op).is_newer && !self.proven.contains(&op)
    }

    /// Returns true while a request is in flight alone.
    pub(super) fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    /// Records that a request was sent.
    pub(super) fn sent(&mut self, xid: i32, op: OpCode) {
        if self.must_be_alone(op) {
            self.probe = Some((xid, op));
        }
    }

    /// Forgets the request that was to be in flight alone, because it was not sent after all.
    pub(super) fn revert(&mut self) {
        debug_assert!(
            self.postponed.requests.is_empty(),
            "nothing waits for a request that was not sent"
        );
        self.probe = None;
    }

    /// Keeps a request until the one that is in flight alone has its reply. If the server does not
    /// know that one, the request is discarded with the connection.
    pub(super) fn defer(&mut self, request: Request) {
        debug_assert!(self.is_probing());
        self.postponed.requests.push(request);
    }

    /// Returns whether a ping that is due waits for the reply to the request that is in flight alone.
    /// The next one does not, because a server that knows the operation may take its time.
    pub(super) fn postpone_ping(&mut self) -> bool {
        self.is_probing() && !std::mem::replace(&mut self.postponed.has_ping, true)
    }

    /// Records the reply to a request. If it was in flight alone, the reply shows that the server knows
    /// its operation; returns what has waited for it.
    pub(super) fn replied(&mut self, xid: i32) -> Option<Postponed> {
        let (_, op) = self.probe.take_if(|(probe, _)| *probe == xid)?;
        self.proven.push(op);
        Some(std::mem::take(&mut self.postponed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(port: u16) -> Host {
        Host { name: "zk".into(), port }
    }

    #[test]
    fn a_refusal_is_remembered_for_a_minute_and_for_its_server_only() {
        let mut support = Support::default();
        let begin = Time::default() + Duration::from_secs(1);
        support.connecting(host(1));
        assert!(support.refused(OpCode::WHO_AM_I, begin));
        assert!(!support.refused(OpCode::WHO_AM_I, begin), "it was known");
        support.connecting(host(1));
        let almost = begin + (REFUSED_KEPT - Duration::from_nanos(1));
        assert!(support.is_unknown(OpCode::WHO_AM_I, almost));
        assert!(!support.is_unknown(OpCode::MULTI_READ, almost));
        assert!(!support.is_unknown(OpCode::WHO_AM_I, begin + REFUSED_KEPT));
        support.connecting(host(2));
        assert!(!support.is_unknown(OpCode::WHO_AM_I, almost));
    }

    #[test]
    fn the_number_of_refusals_is_bounded() {
        let mut support = Support::default();
        for port in 0..200 {
            support.connecting(host(port));
            support.refused(OpCode::WHO_AM_I, Time::default());
            support.refused(OpCode::WHO_AM_I, Time::default());
        }
        assert_eq!(support.refused.len(), REFUSED_MAX);
        assert!(support.is_unknown(OpCode::WHO_AM_I, Time::default()), "the newest is kept");
    }
}
