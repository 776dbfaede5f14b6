//! What the handles of a client share with its task.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, oneshot, watch};

use super::clock::Clock;
use super::inbox::Teller;
use super::janitor::Janitor;
use super::trouble::Seen;
use crate::error::OpError;
use crate::machine::{
    Change, EndCause, Flight, Operation, Reply, SplitMix, Status, Token, WatchId,
    refusal_when_stopped,
};
use crate::path::Chroot;
use crate::time::Time;
use crate::types::WatchedEvent;
use crate::watcher::WatchEnded;

/// What a lane is told, in the order of the server.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum LaneEvent {
    /// The time of [`Lane::wake_at`](crate::Lane::wake_at) has come.
    Alarm,
    /// The state of the session changed.
    Change(Change),
    /// A flight was answered.
    Reply {
        /// Its name.
        token: Token,
        /// The answer.
        reply: Reply,
    },
    /// The client has stopped; nothing comes after this.
    Stopped,
    /// A watch of the lane fired.
    Watch {
        /// Its name within the lane.
        local: u64,
        /// What happened.
        event: WatchedEvent,
    },
}

/// Where the answer to a flight goes.
#[derive(Debug)]
pub(crate) enum Sink {
    Lane(u64),
    Once(oneshot::Sender<Reply>),
}

impl Sink {
    /// Whether its flights take places of `outstanding_limit`. Those of a lane have a limit of
    /// their own ([`Lane`](crate::Lane)), and there are as many lanes as somebody holds.
    pub(crate) fn is_counted(&self) -> bool {
        matches!(self, Self::Once(_))
    }
}

/// Where the event of a watch goes.
pub(crate) type WatchSender = oneshot::Sender<Result<WatchedEvent, WatchEnded>>;

/// What handles ask of the task.
#[derive(Debug)]
pub(crate) enum Command {
    Cancel(Token),
    Close(oneshot::Sender<EndCause>),
    ForgetOwner(u64),
    /// Whether a lane needs the lease.
    NeedLease(u64, bool),
    Recall(Token),
    OpenLane(u64, Teller),
    /// Wake a lane at this time, instead of the time it asked for before.
    WakeLane(u64, Time),
    Submit {
        token: Token,
        flight: Flight,
        sink: Sink,
        watcher: Option<(u64, WatchSender)>,
    },
}

/// Shared by all handles of a client. When the last one is gone, the task closes the session.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) chroot: Chroot,
    /// How the last session ended.
    pub(crate) end: Arc<Mutex<EndCause>>,
    pub(crate) clock: Clock,
    pub(crate) hosts: String,
    pub(crate) janitor: Janitor,
    pub(crate) seen: watch::Receiver<Seen>,
    pub(crate) status: watch::Receiver<Status>,
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    /// Flights on the way to the task that take places of `outstanding_limit`.
    pub(crate) queued: Arc<AtomicUsize>,
    pub(crate) queued_max: usize,
    pub(crate) next_id: AtomicU64,
    pub(crate) id_seed: [u64; 2],
}

impl Shared {
    pub(crate) fn status(&self) -> Status {
        *self.status.borrow()
    }

    /// A number that no other flight, watch or lane of this client has.
    pub(crate) fn fresh_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// A random 128-bit number: the seed is random, and the counter makes every draw another.
    pub(crate) fn unique_id(&self) -> u128 {
        let [high, low] =
            self.id_seed.map(|seed| SplitMix(seed.wrapping_add(self.fresh_id())).next());
        u128::from(high) << 64 | u128::from(low)
    }

    /// Why a request cannot be taken any more.
    pub(crate) fn stopped(&self) -> OpError {
        refusal_when_stopped(self.status().state)
    }

    /// Gives the paths of a flight as the server knows them.
    pub(crate) fn to_server(&self, flight: &mut Flight) {
        for Operation { request, .. } in &mut flight.operations {
            crate::chroot::request_to_server(&self.chroot, request);
        }
    }

    /// Queues a flight with the server's paths, in the order of calls.
    pub(crate) fn submit(
        &self,
        mut flight: Flight,
        owner: u64,
        sink: Sink,
        watcher: Option<(u64, WatchSender)>,
    ) -> Result<Token, OpError> {
        let is_counted = sink.is_counted();
        if is_counted {
            let queued = self.queued.fetch_add(1, Ordering::Relaxed);
            if queued >= self.queued_max {
                self.queued.fetch_sub(1, Ordering::Relaxed);
                // A task that has stopped takes nothing out any more, so waiting is in vain.
                let is_stopped = self.commands.is_closed();
                return Err(if is_stopped { self.stopped() } else { OpError::QueueFull(queued) });
            }
        }
        for watch in flight.operations.iter_mut().filter_map(|op| op.watch.as_mut()) {
            *watch = WatchId { owner, local: watch.local };
        }
        let token = Token(self.fresh_id());
        let command = Command::Submit { token, flight, sink, watcher };
        self.commands.send(command).map_err(|_| {
            if is_counted {
                self.queued.fetch_sub(1, Ordering::Relaxed);
            }
            self.stopped()
        })?;
        Ok(token)
    }
}
