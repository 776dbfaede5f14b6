//! Faults as data: what goes wrong, and when.
//!
//! A fault fires once. It can be cloned, compared and printed, so that a harness can enumerate
//! faults and report the one that broke the code under test.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode, SessionId};

/// A fault that will fire once.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Fault {
    /// When the fault fires.
    pub at: At,
    /// What goes wrong.
    pub action: Action,
    /// How long the server refuses new connections after the fault.
    pub refuse_for: Option<Duration>,
}

/// When a fault fires. `nth` is the number of requests, events or handshakes that pass after the
/// injection of the fault and before it fires.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum At {
    /// When a request is processed.
    Request {
        /// How many matching requests pass before the fault fires.
        nth: usize,
        /// Which requests count.
        filter: Filter,
    },
    /// When a watch event is sent. Events withheld because of an access control list do not count.
    Event {
        /// How many matching events pass before the fault fires.
        nth: usize,
        /// Which events count; a filter with an opcode matches no event.
        filter: Filter,
    },
    /// When a handshake is processed.
    Connect {
        /// How many handshakes pass before the fault fires.
        nth: usize,
    },
}

/// Which requests or events count. By default, all of them count, except pings.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Filter {
    /// Counts only requests and events of this session.
    pub session: Option<SessionId>,
    /// Counts only requests with this opcode. Pings count only if this is `PING`.
    pub op: Option<OpCode>,
    /// Counts only requests and events with a path that starts with this prefix. In a multi, one
    /// such path suffices.
    pub path_prefix: Option<String>,
}

/// What goes wrong.
///
/// Replies to earlier requests still arrive.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// The server closes the connection without processing the request, or without delivering the
    /// event.
    CutBefore,
    /// The server processes the request and closes the connection without replying. An event is
    /// delivered before the connection is closed.
    CutAfter,
    /// The server logs the write, closes the connection, and commits the write later. For anything
    /// but a write, this is the same as [`CutAfter`](Self::CutAfter). This action applies only to
    /// requests.
    LateCommit(Until),
    /// The server closes the connection after this many bytes of the reply or event, including its
    /// length prefix.
    CutAtReplyByte(usize),
    /// The session expires, and the request is not processed, or the event not delivered. At a
    /// handshake, the session that it asks for expires.
    Expire,
    /// The server sends nothing on this connection for this long, starting with this reply or
    /// event, or with the reply to the handshake. It still processes requests until 4 MiB of output
    /// are queued.
    Delay(Duration),
    /// The connection stays open, but the server neither reads nor writes on it any longer,
    /// starting with this request, event or handshake. Not even the end of the session closes the connection.
    Freeze,
    /// The server replies with this error without processing the request. If it refuses a write with
    /// an error that depends on the znodes, such as `NO_AUTH`, it first commits a write that was to
    /// be committed [late](Self::LateCommit), and applies all earlier writes, as real servers do.
    /// This action applies only to requests.
    Error(ErrorCode),
    /// The server processes the request, and replies with this error instead of the result, like a
    /// server that fails after the commit, or no longer waits for it. Such errors are
    /// `SYSTEM_ERROR`, `OPERATION_TIMEOUT` and `MARSHALLING_ERROR`. This action applies only to
    /// requests.
    ErrorAfter(ErrorCode),
    /// The server replies to a resumed session with a new session. This action applies only to
    /// handshakes.
    SwapSession,
    /// The server of this connection loses its leader just before this request. This action applies
    /// only to requests.
    CutOff(CutOff),
    /// The server of this connection pauses for this long, starting with this request. It neither
    /// reads nor writes during the pause. Afterwards, it processes the input that has arrived. The
    /// leader keeps running. This action applies only to requests.
    Pause(Duration),
}

/// How a follower that has lost its leader behaves.
///
/// The connection looks healthy for a while. The follower acknowledges pings and serves reads from
/// its state at the time of the loss. It never replies to writes, syncs, or requests to close the
/// session, and sends no events for later changes. Requests do not renew the session: the leader
/// expires it when its timeout has passed, and this connection is not notified.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct CutOff {
    /// After this time, the follower notices the loss and closes the connection. Real followers
    /// take up to `syncLimit` ticks.
    pub notices_after: Duration,
    /// The leader did not learn of the session's activity during this time before the loss. Real
    /// followers report activity every half tick. The value must be at most one tick.
    pub unreported: Duration,
}

/// When a late commit becomes visible.
///
/// It always becomes visible before the server processes the next write or sync of any session,
/// because commits happen in log order.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Until {
    /// At the next write or sync.
    NextWrite,
    /// Once this many reads of the same session, on later connections, have not seen the write.
    Reads(usize),
    /// After this time.
    After(Duration),
}

/// How a server treats new connections.
///
/// Existing connections are not affected.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Reception {
    /// Sessions can start and resume.
    #[default]
    Open,
    /// The server replies to every handshake, even for a new session, with *expired* (a timeout of
    /// 0) and closes the connection. Existing sessions continue until their timeout passes.
    Expired,
    /// The server replies to handshakes normally and then closes the connection. It ignores
    /// requests after the handshake.
    HangUp,
    /// The server accepts connections but never reads or writes on them, even if the reception
    /// changes. [`disconnect_all`](crate::Server::disconnect_all) closes them.
    Silent,
    /// The server neither accepts nor refuses connections, like a network that drops every packet.
    /// It accepts pending connects when the reception changes.
    BlackHole,
    /// The server refuses connections.
    Refused,
}

impl Fault {
    /// Creates a fault after which the server accepts new connections at once.
    pub fn new(at: At, action: Action) -> Self {
        Self { at, action, refuse_for: None }
    }

    /// Makes the server refuse new connections for this long after the fault.
    #[must_use]
    pub fn refuse_for(mut self, duration: Duration) -> Self {
        self.refuse_for = Some(duration);
        self
    }

    /// Panics if the action is not possible at the moment that the fault specifies, which is a
    /// mistake in the test.
    fn assert_meaningful(&self) {
        let is_request = matches!(self.at, At::Request { .. });
        let is_connect = matches!(self.at, At::Connect { .. });
        match self.action {
            Action::SwapSession => assert!(is_connect, "SwapSession needs At::Connect: {self:?}"),
            Action::LateCommit(_)
            | Action::Error(_)
            | Action::ErrorAfter(_)
            | Action::CutOff(_)
            | Action::Pause(_) => {
                assert!(is_request, "this action needs At::Request: {self:?}");
            }
            Action::CutBefore
            | Action::CutAfter
            | Action::CutAtReplyByte(_)
            | Action::Expire
            | Action::Delay(_)
            | Action::Freeze => {}
        }
    }
}

impl At {
    /// Returns the moment of the request after `nth` others. All requests count, except pings.
    pub fn request(nth: usize) -> Self {
        Self::Request { nth, filter: Filter::default() }
    }

    /// Returns the moment of the first request with this opcode.
    ///
    /// Several opcodes create znodes. `zk-session` sends `CREATE_CONTAINER` for containers,
    /// `CREATE_TTL` for znodes with a time to live, and `CREATE2` for all others. Other clients
    /// also send `CREATE`.
    pub fn op(op: OpCode) -> Self {
        Self::Request { nth: 0, filter: Filter { op: Some(op), ..Filter::default() } }
    }

    /// Returns the moment of the watch event after `nth` others.
    pub fn event(nth: usize) -> Self {
        Self::Event { nth, filter: Filter::default() }
    }

    /// Lets this many matching requests, events or handshakes pass first.
    #[must_use]
    pub fn after(mut self, matches: usize) -> Self {
        match &mut self {
            Self::Request { nth, .. } | Self::Event { nth, .. } | Self::Connect { nth } => {
                *nth = matches;
            }
        }
        self
    }

    /// Counts only the requests or events of this session.
    ///
    /// # Panics
    ///
    /// If this is a handshake, which has no filter.
    #[must_use]
    pub fn of_session(mut self, session: SessionId) -> Self {
        self.filter_mut().session = Some(session);
        self
    }

    /// Counts only the requests or events whose path begins with this prefix.
    ///
    /// # Panics
    ///
    /// If this is a handshake, which has no filter.
    #[must_use]
    pub fn below(mut self, path_prefix: impl Into<String>) -> Self {
        self.filter_mut().path_prefix = Some(path_prefix.into());
        self
    }

    fn filter_mut(&mut self) -> &mut Filter {
        match self {
            Self::Request { filter, .. } | Self::Event { filter, .. } => filter,
            Self::Connect { .. } => panic!("a handshake has no filter: {self:?}"),
        }
    }

    /// Returns the moment of the handshake after `nth` others.
    pub fn connect(nth: usize) -> Self {
        Self::Connect { nth }
    }

    fn nth(&self) -> usize {
        match self {
            Self::Request { nth, .. } | Self::Event { nth, .. } | Self::Connect { nth } => *nth,
        }
    }
}

impl Filter {
    fn matches(&self, session: SessionId, op: Option<OpCode>, paths: &[&str]) -> bool {
        let is_op = match self.op {
            Some(wanted) => op == Some(wanted),
            None => op != Some(OpCode::PING),
        };
        let is_path = |prefix: &String| paths.iter().any(|path| path.starts_with(prefix.as_str()));
        is_op
            && self.session.is_none_or(|wanted| wanted == session)
            && self.path_prefix.as_ref().is_none_or(is_path)
    }
}

/// Decides from the session, the opcode and the paths of a request what goes wrong there.
pub(crate) type Decide = dyn FnMut(SessionId, OpCode, &[&str]) -> Option<Action> + Send;

/// Faults that have not fired yet.
#[derive(Default)]
pub(crate) struct Faults {
    rows: Vec<Row>,
    /// Only the mutex makes it [`Sync`]. Nobody locks it.
    decide: Option<Mutex<Box<Decide>>>,
}

/// Faults that fire one after the other. Only the first one counts matches.
#[derive(Debug)]
struct Row {
    first: Fault,
    /// The number of matches that the first one has let pass.
    passed: usize,
    others: VecDeque<Fault>,
}

impl Faults {
    pub(crate) fn inject(&mut self, faults: impl IntoIterator<Item = Fault>) {
        let mut others: VecDeque<Fault> = faults.into_iter().collect();
        others.iter().for_each(Fault::assert_meaningful);
        if let Some(first) = others.pop_front() {
            self.rows.push(Row { first, passed: 0, others });
        }
    }

    pub(crate) fn inject_by(&mut self, decide: Box<Decide>) {
        self.decide = Some(Mutex::new(decide));
    }

    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.decide = None;
    }

    pub(crate) fn pending(&self) -> Vec<Fault> {
        let faults = |row: &Row| [row.first.clone()].into_iter().chain(row.others.clone());
        self.rows.iter().flat_map(faults).collect()
    }

    pub(crate) fn at_request(
        &mut self,
        session: SessionId,
        op: OpCode,
        paths: &[&str],
    ) -> Option<Fault> {
        let fired = self.fire(
            |at| matches!(at, At::Request { filter, .. } if filter.matches(session, Some(op), paths)),
        );
        let decide = self.decide.as_mut().filter(|_| op != OpCode::PING);
        let decided = decide.and_then(|decide| {
            let decide = decide.get_mut().unwrap_or_else(PoisonError::into_inner);
            decide(session, op, paths)
        });
        fired.or_else(|| {
            let fault = Fault::new(At::request(0), decided?);
            fault.assert_meaningful();
            Some(fault)
        })
    }

    pub(crate) fn at_event(&mut self, session: SessionId, path: &str) -> Option<Fault> {
        self.fire(
            |at| matches!(at, At::Event { filter, .. } if filter.matches(session, None, &[path])),
        )
    }

    pub(crate) fn at_connect(&mut self) -> Option<Fault> {
        self.fire(|at| matches!(at, At::Connect { .. }))
    }

    /// Counts a match for all matching faults. The first fault that is due fires; others that are
    /// due wait for their next match.
    fn fire(&mut self, is_match: impl Fn(&At) -> bool) -> Option<Fault> {
        let mut fired = None;
        self.rows.retain_mut(|row| {
            if !is_match(&row.first.at) {
                return true;
            }
            if row.passed < row.first.at.nth() {
                row.passed += 1;
                return true;
            }
            if fired.is_some() {
                return true;
            }
            fired = Some(row.first.clone());
            let Some(next) = row.others.pop_front() else { return false };
            (row.first, row.passed) = (next, 0);
            true
        });
        fired
    }
}
