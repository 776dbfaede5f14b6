//! Acquires that are dropped after every poll, or aborted after every turn of the scheduler, with
//! every fault of the connection around that moment.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use zk_recipes::{Client, Guard, LockError, SessionId};
use zk_session::recipe::Session;

use crate::case::{Case, is_same};
use crate::scene::{FIRST, SECOND, TURNS, Trouble, hold, poll_times, release, session, spawn};
use crate::world::{World, run, sleep_ms};

/// How long an acquire may take before it counts as a wait that nothing will end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the lock is held when a contender `W` begins, and how.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Start {
    /// The lock is free.
    Free,
    /// `H` holds it, so `W` waits.
    Held,
    /// Another `W` holds it, and the two share it.
    Shared,
}

impl Start {
    /// Returns every start of a pair. Starts without an `H` are included only if `H` is the rival
    /// of `W`.
    pub fn all<H: Case, W: Case>() -> Vec<Self> {
        let is_first = is_same::<H, W::Rival>();
        let is_free = is_first.then_some(Self::Free);
        let is_shared = (is_first && W::IS_SHARED).then_some(Self::Shared);
        is_free.into_iter().chain([Self::Held]).chain(is_shared).collect()
    }
}

/// A world with a client whose acquire is cancelled, and another client, which may hold the lock.
pub struct Bench<H: Case, W: Case> {
    /// The world.
    pub world: World,
    /// The client under test.
    pub client: Client,
    /// The other client.
    pub other: Client,
    /// The guard of the other client, if it holds the lock.
    pub held: Option<Held<H, W>>,
}

/// Guard of the client that holds the lock already.
pub enum Held<H: Case, W: Case> {
    /// The guard keeps the contender out.
    Excluding(Guard<H::Kind>),
    /// The guard shares the lock with the contender.
    Sharing(Guard<W::Kind>),
}

impl<H: Case, W: Case> Held<H, W> {
    async fn validate(&self) -> Result<(), LockError> {
        match self {
            Self::Excluding(guard) => guard.validate().await,
            Self::Sharing(guard) => guard.validate().await,
        }
    }

    /// Releases the lock.
    ///
    /// # Panics
    ///
    /// If it is lost.
    pub async fn release(self) {
        match self {
            Self::Excluding(guard) => release(guard).await,
            Self::Sharing(guard) => release(guard).await,
        }
    }
}

impl<H: Case, W: Case> Bench<H, W> {
    /// Creates a world in which the lock is held as `start` says.
    pub async fn new(start: Start) -> Self {
        let world = World::new();
        let other = world.client(FIRST).await;
        let client = world.client(SECOND).await;
        let held = match start {
            Start::Free => None,
            Start::Held => Some(Held::Excluding(hold(&H::of(&other)).await)),
            Start::Shared => Some(Held::Sharing(hold(&W::of(&other)).await)),
        };
        Self { world, client, other, held }
    }

    /// Returns the lock of the client under test.
    pub fn lock(&self) -> W {
        W::of(&self.client)
    }

    /// Starts an acquire, or a try, of the client under test.
    pub fn acquire(
        &self,
        is_try: bool,
    ) -> impl Future<Output = Result<Option<Guard<W::Kind>>, LockError>> + Send + 'static + use<H, W>
    {
        let lock = self.lock();
        async move { if is_try { lock.try_acquire().await } else { lock.acquire().await.map(Some) } }
    }

    /// Checks that after the cleanup only the holder's znode is left, and that nothing is left
    /// once the holder has released.
    ///
    /// # Panics
    ///
    /// If it is not so.
    pub async fn check(self, label: &str) {
        let Self { world, client, other, held } = self;
        let owners = || world.znodes().into_iter().map(|(_, owner)| owner).collect::<Vec<_>>();
        let expected: Vec<_> = held.iter().map(|_| session(&other)).collect();
        for _ in 0..20_000 {
            if Session::of(&client).janitor_slots_busy() == 0 && owners() == expected {
                break;
            }
            sleep_ms(1).await;
        }
        world.server.clear_faults();
        assert_eq!(owners(), expected, "{label}\n{}", world.trace());
        assert_eq!(Session::of(&client).janitor_slots_busy(), 0, "{label}\n{}", world.trace());
        if let Some(held) = held {
            held.validate().await.expect("the holder is undisturbed");
            held.release().await;
        }
        world.check_clean(&[&client, &other]).await;
        assert!(world.server.sessions().contains(&session(&client)), "it was no expiry: {label}");
    }

    /// Drops an acquire after `polls` polls. Returns true if the acquire ended earlier, or only
    /// waited.
    ///
    /// # Panics
    ///
    /// If the acquire failed, or something is left.
    pub async fn drop_after_polls(
        self,
        is_try: bool,
        polls: usize,
        trouble: &Trouble,
        case: impl Debug,
    ) -> bool {
        trouble.begin(&self.world);
        let before = || trouble.cancelling(&self.world);
        let acquiring = poll_times(self.acquire(is_try), polls, before);
        let ended = tokio::time::timeout(PATIENCE, acquiring).await;
        trouble.cancelled(&self.world);
        let is_over = match ended {
            Ok(Some(acquired)) => {
                drop(acquired.expect("only the cancellation ends it"));
                true
            }
            Ok(None) => false,
            Err(_) => true,
        };
        self.check(&format!("dropped after {polls} polls, {case:?}, {trouble:?}")).await;
        is_over
    }

    /// Aborts an acquire after `turns` turns. Returns true if the acquire ended earlier.
    ///
    /// # Panics
    ///
    /// If something is left.
    pub async fn abort_after_turns(
        self,
        is_try: bool,
        turns: usize,
        trouble: &Trouble,
        case: impl Debug,
    ) -> bool {
        trouble.begin(&self.world);
        let task = spawn(self.acquire(is_try));
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        let is_over = task.is_finished();
        trouble.cancelling(&self.world);
        task.abort();
        trouble.cancelled(&self.world);
        drop(task);
        self.check(&format!("aborted after {turns} turns, {case:?}, {trouble:?}")).await;
        is_over
    }
}

/// Returns the session of the client under test in the world of a [`Bench`].
pub fn second_session() -> SessionId {
    run(async {
        let world = World::new();
        let (_first, second) = (world.client(FIRST).await, world.client(SECOND).await);
        session(&second)
    })
}

/// Calls `drop_after` with 0, 1, 2, … polls until it returns true because there was nothing left to
/// drop, with every fault in the first requests. Returns the number of calls.
///
/// # Panics
///
/// If `drop_after` never returns true: every acquire ends, or waits without being woken.
pub fn at_every_poll(requests: usize, drop_after: impl Fn(usize, &Trouble) -> bool) -> usize {
    at_every_point(requests, drop_after, |trouble| panic!("it never ends: {trouble:?}"))
}

/// Calls `abort_after` with 0, 1, 2, … turns until it returns true because there was nothing left
/// to abort, which never happens to an acquire that waits. Returns the number of calls.
pub fn at_every_turn(requests: usize, abort_after: impl Fn(usize, &Trouble) -> bool) -> usize {
    at_every_point(requests, abort_after, |_| TURNS)
}

fn at_every_point(
    requests: usize,
    cancel: impl Fn(usize, &Trouble) -> bool,
    without_end: impl Fn(&Trouble) -> usize,
) -> usize {
    let count = |trouble: Trouble| {
        let last = (0..=TURNS).find(|point| cancel(*point, &trouble));
        1 + last.unwrap_or_else(|| without_end(&trouble))
    };
    Trouble::all(second_session(), requests).into_iter().map(count).sum()
}
