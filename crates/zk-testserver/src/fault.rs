//! Faults as data: when something goes wrong, and what.
//!
//! A fault fires once and is gone. It can be cloned, compared and printed, so that a harness can
//! enumerate faults and show the one that broke its subject.

use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};

/// Something that will go wrong once.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "tests write it as a literal")]
pub struct Fault {
    /// When.
    pub at: At,
    /// What.
    pub action: Action,
    /// For how long new connections are refused after it.
    pub refuse_for: Option<Duration>,
}

/// When a fault fires: at the thing that follows `nth` others of its kind, counted from the
/// moment the fault was injected.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "complete: all a server takes in or gives out")]
pub enum At {
    /// A request.
    Request {
        /// How many requests pass before.
        nth: usize,
        /// Which requests count.
        filter: Filter,
    },
    /// A watch event about to be sent. One withheld by an access control list does not count.
    Event {
        /// How many events pass before.
        nth: usize,
        /// Which events count; none if it asks for an opcode.
        filter: Filter,
    },
    /// A handshake.
    Connect {
        /// How many handshakes pass before.
        nth: usize,
    },
}

/// Which requests or events count. The default is all of them, pings excepted.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "tests write it as a literal")]
pub struct Filter {
    /// Only those of this session.
    pub session: Option<i64>,
    /// Only those with this opcode; `PING` is the one way to count pings.
    pub op: Option<OpCode>,
    /// Only those with a path that begins so. In a multi, one such path suffices.
    pub path_prefix: Option<String>,
}

/// What goes wrong.
///
/// Replies to earlier requests still arrive, whatever happens.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// The connection ends, and the request was never processed. The event is not delivered.
    CutBefore,
    /// The request is processed, and the connection ends before the reply leaves. The event is
    /// delivered, then the connection ends.
    CutAfter,
    /// The write is in the log, the connection ends, and the commit comes later. For anything
    /// but a write the same as [`CutAfter`](Self::CutAfter). Requests only.
    LateCommit(Until),
    /// The connection ends after this many bytes of the reply or event, counted with the length
    /// in front of it.
    CutAtReplyByte(usize),
    /// The session expires instead of the request being processed or the event delivered.
    Expire,
    /// Nothing leaves the server on this connection for that long, beginning with this reply or
    /// event. Requests are processed, until 4 MiB wait to leave.
    Delay(Duration),
    /// The connection stays open, but nothing is read or written any more, beginning with this
    /// request or event: a black hole. Not even the end of the session closes it.
    Freeze,
    /// The request is answered with this error and not processed. Requests only.
    Error(ErrorCode),
    /// A resumed session is answered with a new session under another id. Handshakes only.
    SwapSession,
    /// The server of this connection loses its leader, just before this request. Requests only.
    CutOff(CutOff),
    /// The server of this connection stands still for that long, beginning with this request: it
    /// reads and writes nothing, and does what has arrived afterwards. The leader goes on.
    /// Requests only.
    Pause(Duration),
}

/// How a follower goes on that has lost its leader.
///
/// Its connection looks healthy for a while. Pings are acknowledged, and reads are answered from
/// the state at the cut. Writes, syncs and the end of the session are never answered. No later
/// change is told to anybody. The session is not touched: the leader ends it when its time has
/// come, and this connection learns nothing of it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "tests write it as a literal")]
pub struct CutOff {
    /// After that long the follower notices, and closes the connection. Real ones take up to
    /// `syncLimit` ticks.
    pub notices_after: Duration,
    /// What was heard from the session in this time before the cut has not reached the leader.
    /// Real followers pass it on every half a tick. Not more than a tick.
    pub unlearned: Duration,
}

/// When a late commit becomes visible.
///
/// Whatever it says: never later than the next write of anybody is processed, or the next sync,
/// because the log is in order.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Until {
    /// With the next write or sync.
    NextWrite,
    /// After that many reads of the same session, on its later connections, have missed it.
    Reads(usize),
    /// After that long.
    After(Duration),
}

/// How a server treats new connections, until told otherwise.
///
/// Existing connections are unaffected.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Reception {
    /// Sessions begin and continue.
    #[default]
    Open,
    /// Every handshake, of a new session too, is answered with *expired* (a timeout of 0), and the
    /// connection ends. Sessions that live go on living, until their time has come.
    Expired,
    /// Handshakes are answered as they should be, then the connection ends. Nothing that comes
    /// behind a handshake is looked at.
    HangUp,
    /// Connections are accepted, and nothing is read or written on them, ever: later receptions
    /// do not wake them. [`disconnect_all`](crate::Server::disconnect_all) ends them.
    Silent,
    /// Nothing is accepted and nothing refused, as behind a network that loses every packet. A
    /// connect that waits is accepted when the reception changes.
    BlackHole,
    /// Connections are refused.
    Refused,
}

impl Fault {
    /// A fault after which connections are accepted at once.
    pub fn new(at: At, action: Action) -> Self {
        Self { at, action, refuse_for: None }
    }

    /// Refuses new connections for that long after the fault.
    #[must_use]
    pub fn refuse_for(mut self, duration: Duration) -> Self {
        self.refuse_for = Some(duration);
        self
    }

    /// Catches mistakes of tests early.
    fn assert_meaningful(&self) {
        let is_request = matches!(self.at, At::Request { .. });
        let is_connect = matches!(self.at, At::Connect { .. });
        match self.action {
            Action::SwapSession => assert!(is_connect, "SwapSession needs At::Connect: {self:?}"),
            Action::LateCommit(_) | Action::Error(_) | Action::CutOff(_) | Action::Pause(_) => {
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
    /// At the request after `nth` others; all count, pings excepted.
    pub fn request(nth: usize) -> Self {
        Self::Request { nth, filter: Filter::default() }
    }

    /// At the first request with this opcode.
    ///
    /// Clients have several for one thing. `zk-session` creates with `CREATE2`, containers with
    /// `CREATE_CONTAINER`, and znodes that have a time to live with `CREATE_TTL`; others send
    /// `CREATE` as well.
    pub fn op(op: OpCode) -> Self {
        Self::Request { nth: 0, filter: Filter { op: Some(op), ..Filter::default() } }
    }

    /// At the watch event after `nth` others.
    pub fn event(nth: usize) -> Self {
        Self::Event { nth, filter: Filter::default() }
    }

    /// At the handshake after `nth` others.
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
    fn matches(&self, session: i64, op: Option<OpCode>, paths: &[&str]) -> bool {
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

/// Faults that have not fired yet.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// With the number of things that each has let pass.
    armed: Vec<(Fault, usize)>,
}

impl Faults {
    pub(crate) fn inject(&mut self, fault: Fault) {
        fault.assert_meaningful();
        self.armed.push((fault, 0));
    }

    pub(crate) fn clear(&mut self) {
        self.armed.clear();
    }

    pub(crate) fn pending(&self) -> Vec<Fault> {
        self.armed.iter().map(|(fault, _)| fault.clone()).collect()
    }

    pub(crate) fn at_request(&mut self, session: i64, op: OpCode, paths: &[&str]) -> Option<Fault> {
        self.fire(
            |at| matches!(at, At::Request { filter, .. } if filter.matches(session, Some(op), paths)),
        )
    }

    pub(crate) fn at_event(&mut self, session: i64, path: &str) -> Option<Fault> {
        self.fire(
            |at| matches!(at, At::Event { filter, .. } if filter.matches(session, None, &[path])),
        )
    }

    pub(crate) fn at_connect(&mut self) -> Option<Fault> {
        self.fire(|at| matches!(at, At::Connect { .. }))
    }

    /// All matching faults count; the first that is due fires, others wait for the next match.
    fn fire(&mut self, is_match: impl Fn(&At) -> bool) -> Option<Fault> {
        let mut fired = None;
        self.armed.retain_mut(|(fault, passed)| {
            if !is_match(&fault.at) {
                return true;
            }
            if *passed < fault.at.nth() {
                *passed += 1;
                return true;
            }
            if fired.is_some() {
                return true;
            }
            fired = Some(fault.clone());
            false
        });
        fired
    }
}
