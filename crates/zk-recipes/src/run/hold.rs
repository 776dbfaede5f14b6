//! Holding a lock: a task that watches over it, and removes it in the end.
//!
//! The state of a guard is computed when it is asked for. The task only wakes those who wait for
//! the loss, renews the proof after a reconnect, and releases.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytestring::ByteString;
use jute_codec::{EventType, Response};
use tokio::sync::{oneshot, watch};
use tracing::debug;
use zk_session::machine::Reply;
use zk_session::{Client, OpError, SessionId, SessionState, Slot, Time};

use super::{Fed, Feed, release};
use crate::error::LostReason;
use crate::guard::{Guard, LockState};
use crate::machine::release::{Release, Released};
use crate::machine::{
    Held, Input, PAUSE, Verdict, Znode, barrier, flight, multi_refusal, read, replayable,
};

/// When the own znode is watched after a grant without waiting: most locks are gone by then, and
/// their acquire stays one round trip.
const WATCH_AFTER: Duration = Duration::from_millis(100);

/// What a guard and its task share.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) client: Client,
    pub(crate) session: SessionId,
    pub(crate) path: ByteString,
    pub(crate) znode: Znode,
    /// Guard deadlines of the client that had passed at the grant.
    pub(crate) lapses: u64,
    /// Connection on which the lock was granted or last proven.
    pub(crate) proven_on: AtomicU64,
    pub(crate) lost: watch::Sender<Option<LostReason>>,
}

/// The wish to release, and where to tell how it ended.
pub(crate) type ReleaseWish = oneshot::Sender<Result<Released, ReleaseFailure>>;

/// Why a release did not remove the znode.
#[derive(Debug)]
pub(crate) enum ReleaseFailure {
    Refused { path: ByteString, error: OpError },
    Stopped,
}

impl Hold {
    /// State of the lock right now.
    pub(crate) fn state(&self) -> LockState {
        if let Some(reason) = *self.lost.borrow() {
            return LockState::Lost(reason);
        }
        let status = self.client.status();
        let now = self.client.now();
        let is_past = status.guard_deadline().is_none_or(|deadline| deadline <= now);
        let loss = if matches!(status.state, SessionState::Closed | SessionState::AuthFailed) {
            Some(LostReason::Closed)
        } else if status.session != Some(self.session) {
            Some(LostReason::SessionExpired)
        } else if status.lapses != self.lapses || is_past {
            Some(LostReason::DeadlinePassed)
        } else {
            None
        };
        if let Some(reason) = loss {
            self.lose(reason);
            return LockState::Lost(self.lost.borrow().unwrap_or(reason));
        }
        let is_proven = self.proven_on.load(Ordering::Acquire) == status.connection;
        let is_prompt = status.risk_deadline().is_some_and(|overdue| now < overdue);
        if status.state == SessionState::Connected && is_proven && is_prompt {
            LockState::Held
        } else {
            LockState::AtRisk
        }
    }

    /// Waits until the lock is lost.
    pub(crate) fn lost(&self) -> impl Future<Output = LostReason> + Send + use<> {
        let mut lost = self.lost.subscribe();
        async move {
            let reason = lost.wait_for(Option::is_some).await.ok().and_then(|reason| *reason);
            match reason {
                Some(reason) => reason,
                // The guard was released; nobody is left to lose the lock.
                None => std::future::pending().await,
            }
        }
    }

    /// The lock is lost, for ever; the first reason stays.
    pub(crate) fn lose(&self, reason: LostReason) {
        self.lost.send_if_modified(|lost| {
            let is_news = lost.is_none();
            lost.get_or_insert(reason);
            is_news
        });
    }
}

/// Starts to hold.
pub(crate) fn start(feed: Feed, slot: Slot, release: Release, held: Held) -> Guard {
    let client = feed.lane.client();
    let hold = Arc::new(Hold {
        path: crate::machine::child(release.directory(), &held.znode.name),
        session: held.session,
        lapses: held.lapses,
        proven_on: AtomicU64::new(held.connection),
        lost: watch::Sender::new(None),
        client,
        znode: held.znode,
    });
    let (wish, wished) = oneshot::channel();
    let keeper = Keeper {
        own_watch: held.own_watch,
        next_watch: held.own_watch.unwrap_or(0),
        watch_at: held.own_watch.is_none().then(|| feed.lane.now() + WATCH_AFTER),
        needs_proof: false,
        hold: Arc::clone(&hold),
        feed,
    };
    slot.run(keep(keeper, release, wished));
    Guard::new(hold, wish)
}

struct Keeper {
    hold: Arc<Hold>,
    feed: Feed,
    /// The watch on the own znode.
    own_watch: Option<u64>,
    next_watch: u64,
    /// When to read and watch the own znode.
    watch_at: Option<Time>,
    /// The connection is a new one, and nothing has proven the lock on it yet.
    needs_proof: bool,
}

async fn keep(
    mut keeper: Keeper,
    mut release: Release,
    mut wished: oneshot::Receiver<ReleaseWish>,
) {
    let end = keeper.until_released(&mut wished).await;
    // From here on it is not held, whatever the release meets.
    let Keeper { mut feed, hold, .. } = keeper;
    drop(hold);
    let ended = release::run(&mut feed, &mut release, false).await;
    // A guard that was lost may still be released by its owner, who wants to know.
    let wish = match end {
        End::Dropped => None,
        End::Lost => wish_of_loser(&mut feed, wished).await,
        End::Released(wish) => Some(wish),
    };
    if let Some(wish) = wish {
        let _ = wish.send(match &ended {
            release::Ended::Released(released) => Ok(*released),
            release::Ended::Refused { path, error } => {
                Err(ReleaseFailure::Refused { path: path.clone(), error: error.clone() })
            }
            release::Ended::Stopped => Err(ReleaseFailure::Stopped),
        });
    }
    release::after(feed, release, &ended).await;
}

/// Why a lock is not held any more.
enum End {
    /// The guard was dropped.
    Dropped,
    Lost,
    Released(ReleaseWish),
}

/// Waits until the owner of a lost guard lets go of it, and takes what the lane brings meanwhile.
async fn wish_of_loser(
    feed: &mut Feed,
    mut wished: oneshot::Receiver<ReleaseWish>,
) -> Option<ReleaseWish> {
    loop {
        let fed = tokio::select! {
            biased;
            wish = &mut wished => return wish.ok(),
            fed = feed.next(None) => fed,
        };
        if matches!(fed, Fed::AuthFailed | Fed::Closed) {
            return wished.await.ok();
        }
    }
}

impl Keeper {
    /// Runs until the lock is to be released, or is lost.
    async fn until_released(&mut self, wished: &mut oneshot::Receiver<ReleaseWish>) -> End {
        let mut lost = self.hold.lost.subscribe();
        loop {
            let fed = tokio::select! {
                biased;
                wish = &mut *wished => return wish.map_or(End::Dropped, End::Released),
                _ = lost.wait_for(Option::is_some) => return End::Lost,
                fed = self.feed.next(self.watch_at) => fed,
            };
            match fed {
                Fed::AuthFailed | Fed::Closed => self.hold.lose(LostReason::Closed),
                Fed::Connected(session) if session == self.hold.session => self.prove(),
                Fed::Connected(_) => {}
                Fed::Lapsed => self.hold.lose(LostReason::DeadlinePassed),
                Fed::Input(Input::Ended(session)) if session == self.hold.session => {
                    self.hold.lose(LostReason::SessionExpired);
                }
                Fed::Input(Input::Ended(_) | Input::Suspended) => {}
                Fed::Input(Input::Timer) => self.prove_if_due(),
                Fed::Input(Input::Watch { local, kind }) => self.event(local, kind),
                Fed::Input(Input::Reply(reply)) => self.answered(reply),
            }
        }
    }

    fn prove_if_due(&mut self) {
        if self.watch_at.is_some_and(|at| at <= self.feed.lane.now()) {
            self.watch_at = None;
            self.submit();
        }
    }

    /// After a resume: a committed check, and a watch that is known to be set.
    fn prove(&mut self) {
        self.watch_at = None;
        self.needs_proof = true;
        self.submit();
    }

    fn submit(&mut self) {
        self.next_watch += 1;
        self.own_watch = Some(self.next_watch);
        let path = self.hold.path.clone();
        let mut operations = vec![read(path.clone(), self.own_watch)];
        if self.needs_proof {
            operations.insert(0, barrier(path));
        }
        if self.feed.submit(flight(Some(self.hold.session), operations)).is_err() {
            self.own_watch = None;
            self.watch_at = Some(self.feed.lane.now() + PAUSE);
        }
    }

    fn event(&mut self, local: u64, kind: EventType) {
        if self.own_watch != Some(local) {
            return;
        }
        self.own_watch = None;
        if kind == EventType::NODE_DELETED {
            debug!(path = %self.hold.path, "the contender znode was deleted");
            self.hold.lose(LostReason::ZnodeDeleted);
        } else {
            // Data that changed is nobody's business, but the watch is used up.
            self.submit();
        }
    }

    fn answered(&mut self, reply: Reply) {
        let connection = reply.connection;
        let count = reply.results.len();
        for (index, result) in reply.results.into_iter().enumerate() {
            let is_check = index + 1 < count;
            match replayable(result) {
                Verdict::Done(response) if is_check => match multi_refusal(&response) {
                    None => {
                        self.needs_proof = false;
                        self.hold.proven_on.store(connection, Ordering::Release);
                    }
                    Some(jute_codec::ErrorCode::NO_NODE) => {
                        self.hold.lose(LostReason::ZnodeDeleted);
                    }
                    // Without the right to read, no check can prove anything: stay at risk.
                    Some(_) => {}
                },
                Verdict::Done(Response::GetData(data)) => {
                    if data.stat.ephemeral_owner != self.hold.session.0 {
                        self.hold.lose(LostReason::ZnodeDeleted);
                    }
                }
                Verdict::Refused(OpError::Server(jute_codec::ErrorCode::NO_NODE)) => {
                    self.hold.lose(LostReason::ZnodeDeleted);
                }
                Verdict::SessionOver => self.hold.lose(LostReason::SessionExpired),
                Verdict::Later => self.watch_at = Some(self.feed.lane.now() + PAUSE),
                // A lost connection is followed by a new one, and a new proof.
                Verdict::Done(_) | Verdict::NotApplied | Verdict::Refused(_) | Verdict::Unknown => {
                }
            }
        }
    }
}
