//! The inputs of a machine, and the steps that it requests.

use jute_codec::EventType;
use zk_session::recipe::{Flight, Reply};
use zk_session::{SessionId, Time};

use super::answer::{Answers, Needs};
use super::watch::WatchNumber;

/// A decision procedure that talks to ZooKeeper through steps and inputs.
pub trait Machine {
    /// What the machine finds out or achieves.
    type Output;

    /// Whether the machine receives a failure of a server as a refusal after it has occurred too
    /// often. Otherwise its flights are repeated for as long as it lives.
    const GIVES_UP: bool = true;

    /// Returns the first step, before any input.
    fn start(&mut self, view: SessionView) -> Step<Self::Output>;

    /// Advances by one input.
    fn handle(&mut self, view: SessionView, input: Input) -> Step<Self::Output>;
}

impl<M: Machine> Machine for &mut M {
    type Output = M::Output;

    const GIVES_UP: bool = M::GIVES_UP;

    fn start(&mut self, view: SessionView) -> Step<Self::Output> {
        (**self).start(view)
    }

    fn handle(&mut self, view: SessionView, input: Input) -> Step<Self::Output> {
        (**self).handle(view, input)
    }
}

/// What a machine requests.
#[derive(Clone, Debug)]
#[must_use]
pub enum Step<T> {
    /// The machine has finished. A machine whose output is provisional, such as a grant, accepts
    /// more input, and repeats or revises its output.
    Done(T),
    /// Submit this flight until it has the results that the machine needs, and hand them in.
    Submit(Flight, Needs),
    /// The same after a pause, which is longer than the last one.
    SubmitLater(Flight, Needs),
    /// Wait for the next input, at most until this time.
    Wait(Option<Time>),
}

/// What happened to a machine.
#[derive(Clone, Debug)]
pub enum Input {
    /// The reply to a flight. A machine receives what it needs of it, as `Answered`.
    Reply(Reply),
    /// The results of a flight.
    Answered(Answers),
    /// The connection ended.
    Suspended,
    /// This session ended.
    Ended(SessionId),
    /// The time for which the machine waits has come.
    Timer,
    /// One of the machine's watches fired.
    Watch {
        /// The watch.
        watch: WatchNumber,
        /// What happened to the znode.
        kind: EventType,
    },
}

/// What a machine knows about the session. It receives a new view with every input.
#[derive(Clone, Copy, Debug)]
pub struct SessionView {
    /// The current time.
    pub now: Time,
    /// Number of the connection, if the session is connected.
    pub connection: Option<u64>,
    /// The number of the connection, if the session is connected and the guard deadline is in the
    /// future. After an outage longer than the lease, a session may be connected but not alive:
    /// only a committed write creates a new lease at once.
    pub alive: Option<u64>,
    /// The guard deadline is so near that a lock which is granted now may be lost at once; see
    /// [`Status::is_running_out`](zk_session::Status::is_running_out).
    pub is_running_out: bool,
    /// Number of guard deadlines of the client that have passed.
    pub lapses: u64,
    /// The session has expired, and the client does not replace it. This is not so for a client that
    /// is closed: its machines are stopped, and the caller learns that it is closed.
    pub has_expired: bool,
    /// Requests of an earlier session may still be applied; see
    /// [`Status::has_left_session`](zk_session::Status::has_left_session).
    pub has_left_session: bool,
    /// A random number that belongs to the lane. It spreads the pauses of machines that a server has
    /// refused at the same time.
    pub seed: u64,
}

impl SessionView {
    /// Returns whether the session is connected, but a write must be committed before a lock can be
    /// granted: the guard deadline has passed, or is too near.
    pub(crate) fn needs_write(&self) -> bool {
        self.connection.is_some() && (self.alive.is_none() || self.is_running_out)
    }

    /// Returns whether a lock may be granted on this connection without another write.
    pub(crate) fn may_grant(&self, connection: u64) -> bool {
        self.alive == Some(connection) && !self.is_running_out
    }
}
