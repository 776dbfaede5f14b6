//! A task of a client: what all its calls have in common.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use jute_codec::SessionId;
use zk_recipes::kind::Kind;
use zk_recipes::{Client, Guard, LockState, ScopedCall, SessionState};
use zk_session::Status;
use zk_tests::scene::poll_times;

use super::named::Named;
use crate::draw::Draw;
use crate::history::{End, Failure, Had, Id, Told, What, Who};
use crate::world::World;
use crate::world::clients::Life;
use crate::world::kinds::WorldKind;
use crate::world::plan::FaultKind;
use crate::world::registry::{Guarded, Standing};

/// The longest time for which a task keeps something once the faults have stopped.
pub const CALM_HOLD_MAX: Duration = Duration::from_millis(500);
/// How long callers pause at most, and keep something, in a world in which they hurry.
const HASTY_MS: [u64; 4] = [10, 10, 100, 2_000];
/// For how long a patient task keeps something.
const LONG_MS: (u64, u64) = (5_000, 40_000);
/// The longest timeout of callers that give up again and again.
const IMPATIENT_MS_MAX: u64 = 100;
/// The same in a world whose callers are steadfast: longer than two checks of a watch take.
const STEADFAST_MS: (u64, u64) = (45_000, 120_000);
/// The longest timeouts of calls that give something up, or prove something.
const SHORT_MS: [u64; 4] = [1, 50, 1_000, 20_000];
/// The timeouts of calls that wait in worlds in which callers wait: longer than it takes until they
/// look whether they have missed something.
const WAIT_MS: (u64, u64) = (60_000, 150_000);
/// How many pauses end as soon as a call of another client has, in worlds of relays, in percent.
const RELAYED_PERCENT: u64 = 50;
/// The longest timeout of a call that only another call can end.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(20);

/// A task, its client, and what it draws.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "programs use its parts")]
pub struct Task {
    /// The world in which it runs.
    pub world: Arc<World>,
    /// The client that it uses.
    pub client: Client,
    /// The life of that client.
    pub life: Life,
    /// Its name.
    pub who: Who,
    /// What it draws.
    pub draw: Draw,
    /// How often its calls are dropped, in percent.
    pub drops: u64,
    /// The calls that would be dropped are awaited instead.
    pub drops_nothing: bool,
    /// It often keeps what it has for long.
    pub is_patient: bool,
}

/// Waits until a client loses its connection.
async fn disconnected(client: &Client) {
    let mut states = client.states();
    let mut was_connected = false;
    loop {
        let is_connected = states.current().state == SessionState::Connected;
        if was_connected && !is_connected {
            return;
        }
        was_connected |= is_connected;
        if states.next().await.is_none() {
            return std::future::pending().await;
        }
    }
}

/// Returns whether requests reach a server.
fn is_connected(status: Status) -> bool {
    matches!(status.state, SessionState::Connected | SessionState::ConnectedReadOnly)
}

/// How a call has ended.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "programs match it")]
pub enum Called<T> {
    /// With a value.
    Done(T),
    /// With an error, and what the caller knows about the effect.
    Failed(Failure, Told),
    /// By a drop.
    Dropped,
}

/// Awaits all of these, which go on beside each other.
pub async fn together<T>(calls: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut calls: Vec<_> = calls.into_iter().map(Box::pin).collect();
    let mut ends: Vec<Option<T>> = calls.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (call, end) in calls.iter_mut().zip(&mut ends).filter(|(_, end)| end.is_none()) {
            if let Poll::Ready(value) = call.as_mut().poll(cx) {
                *end = Some(value);
            }
        }
        if ends.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    ends.into_iter().flatten().collect()
}

impl<T> Called<T> {
    /// Returns the value, if there is one.
    pub fn done(self) -> Option<T> {
        if let Self::Done(value) = self { Some(value) } else { None }
    }

    /// Returns what the caller knows about the effect of the call.
    pub fn told(&self) -> Told {
        match self {
            Self::Done(_) => Told::Applied,
            Self::Failed(_, told) => *told,
            Self::Dropped => Told::Unknown,
        }
    }
}

impl Task {
    /// Awaits a call of the library, or drops it after a drawn number of polls, and records how it
    /// has ended.
    pub async fn call<T, E: Named>(
        &mut self,
        name: &'static str,
        on: &str,
        timeout: Option<Duration>,
        future: impl Future<Output = Result<T, E>>,
    ) -> Called<T> {
        let is_dropped = self.draw.chance(self.drops) && !self.is_calm();
        let polls = if is_dropped { self.draw.size(0, 12) } else { usize::MAX };
        let polls = if self.drops_nothing { usize::MAX } else { polls };
        if self.world.plan.is_nervous && !self.drops_nothing && self.draw.chance(60) {
            let (after, client) = (self.draw.ms(0, 300), self.client.clone());
            let world = Arc::clone(&self.world);
            let cut_off = async move {
                disconnected(&client).await;
                world.sleep(after).await;
                if world.history.now() >= world.plan.calm_at {
                    std::future::pending::<()>().await;
                }
            };
            return self.call_until(name, on, timeout, polls, future, cut_off).await;
        }
        if self.world.plan.has_rows && !self.drops_nothing && self.draw.chance(60) {
            let (after, client) = (self.draw.ms(0, 300), self.who.client);
            let world = Arc::clone(&self.world);
            let given_up = async move {
                world.trouble.given_up(client).await;
                world.sleep(after).await;
            };
            return self.call_until(name, on, timeout, polls, future, given_up).await;
        }
        self.call_until(name, on, timeout, polls, future, std::future::pending()).await
    }

    /// Makes a call in the same way. In some worlds, such calls have timeouts too.
    pub async fn call_within<T, E: Named, O: Copy + Unpin>(
        &mut self,
        name: &'static str,
        on: &str,
        call: ScopedCall<'_, T, E, O>,
    ) -> Called<T> {
        let mut draw = self.aside();
        if !self.world.plan.has_deadlines || draw.chance(50) {
            return self.call(name, on, None, call).await;
        }
        let longest = draw.pick(&SHORT_MS);
        let timeout = draw.ms(0, longest);
        self.call(name, on, Some(timeout), call.timeout(timeout)).await
    }

    /// Returns draws of their own for what was added last, so that the others stay what they were.
    pub fn aside(&self) -> Draw {
        self.draw.aside()
    }

    /// Awaits a call of the library and records how it has ended.
    pub async fn call_to_end<T, E: Named>(
        &self,
        name: &'static str,
        on: &str,
        future: impl Future<Output = Result<T, E>>,
    ) -> Called<T> {
        self.call_beside(name, on, None, future).await
    }

    /// Awaits a call of the library, perhaps beside others of the same task, and records how it has
    /// ended.
    pub async fn call_beside<T, E: Named>(
        &self,
        name: &'static str,
        on: &str,
        timeout: Option<Duration>,
        future: impl Future<Output = Result<T, E>>,
    ) -> Called<T> {
        self.call_until(name, on, timeout, usize::MAX, future, std::future::pending()).await
    }

    async fn call_until<T, E: Named>(
        &self,
        name: &'static str,
        on: &str,
        timeout: Option<Duration>,
        polls: usize,
        future: impl Future<Output = Result<T, E>>,
        given_up: impl Future<Output = ()>,
    ) -> Called<T> {
        let call = self.world.history.id();
        self.push(What::Begun { call, name, on: on.to_owned(), timeout });
        self.world.trouble.begin(call, name, on, self.who.client, self.life.clone());
        let before = self.client.status();
        let polled = poll_times(future, polls, || ());
        let output = tokio::select! {
            biased;
            output = polled => output,
            () = self.life.abandoned() => None,
            () = given_up => None,
        };
        let called = match output {
            Some(Ok(value)) => Called::Done(value),
            Some(Err(error)) => Called::Failed(error.failure(), error.told()),
            None => Called::Dropped,
        };
        self.world.note_end(self.who, &self.client, &self.life);
        let end = match &called {
            Called::Done(_) => End::Done,
            Called::Failed(failure, _) => End::Failed(failure.clone()),
            Called::Dropped => End::Dropped,
        };
        let after = self.client.status();
        // Each connection has a number, which it gets when the client can use it.
        if !is_connected(before) && !is_connected(after) && before.connection == after.connection {
            self.push(What::Unsent { call, told: called.told() });
        }
        if matches!(end, End::Failed(_)) {
            let had = self.had(before, after);
            self.push(What::Failing { call, had });
        }
        self.push(What::Ended { call, end });
        self.world.trouble.end(call);
        if matches!(called, Called::Done(_)) {
            self.world.trouble.succeed(self.who.client, on);
        }
        called
    }

    /// Returns what the client has had between these two moments, the last of which is now.
    fn had(&self, before: Status, after: Status) -> Had {
        let is_one =
            is_connected(before) && is_connected(after) && before.connection == after.connection;
        let connection = is_one.then_some(after.connection);
        let session = after.session.filter(|session| {
            before.session == Some(*session) && self.world.server.sessions().contains(session)
        });
        let calm_since = self.world.calm_since(self.who.client);
        let since = calm_since.zip(self.life.connected_since());
        let calm_since = since.filter(|_| is_one).map(|(calm, connected)| calm.max(connected));
        Had { connection, session, calm_since }
    }

    /// Draws whether a call has a timeout.
    pub fn timeout(&mut self) -> Option<Duration> {
        if self.world.plan.is_impatient {
            return Some(self.draw.ms(1, IMPATIENT_MS_MAX));
        }
        self.draw.chance(40).then(|| self.draw.ms(1, 20_000))
    }

    /// Keeps something for a drawn time.
    pub async fn hold(&mut self) {
        if let Some(duration) = self.paced_hold() {
            return self.hold_for(duration).await;
        }
        if self.world.plan.aims.is_steadfast && self.draw.chance(50) {
            let duration = self.draw.between(STEADFAST_MS.0, STEADFAST_MS.1);
            return self.hold_for(Duration::from_millis(duration)).await;
        }
        if self.world.plan.is_hasty {
            let longest = self.draw.pick(&HASTY_MS);
            let duration = self.draw.ms(1, longest);
            return self.hold_for(duration).await;
        }
        let longest = if self.draw.chance(10) { 40_000 } else { 3_000 };
        let mut duration = self.draw.ms(1, longest);
        if self.is_patient && self.draw.chance(50) {
            duration = self.draw.ms(LONG_MS.0, LONG_MS.1);
        }
        self.hold_for(duration).await;
    }

    /// Keeps something until a drawn time has passed, even while its client is frozen: it may be
    /// over at the moment at which the client goes on.
    pub async fn hold_by_clock(&mut self) {
        let can_freeze =
            [FaultKind::Suspension, FaultKind::Stop].iter().any(|it| self.expects(*it));
        if !can_freeze {
            return self.hold().await;
        }
        let left = self.world.plan.calm_at.saturating_sub(self.world.history.now());
        let duration = self.draw.ms(1, 20_000);
        self.sleep(duration.min(left + CALM_HOLD_MAX)).await;
        let frozen = self.draw.ms(1, 60_000);
        if self.draw.chance(30) && self.expects(FaultKind::Suspension) {
            // The process stops between two lines of its caller.
            let left = self.world.plan.calm_at.saturating_sub(self.world.history.now());
            self.world.suspend(frozen.min(left));
        }
    }

    /// Keeps something for a drawn time, which is more often long enough for the end of a session.
    pub async fn hold_long(&mut self) {
        let longest = self.draw.pick(&[3_000, 3_000, 40_000]);
        let duration = self.draw.ms(1, longest);
        self.hold_for(duration).await;
    }

    /// Keeps something for this time, or less once the faults have stopped.
    pub async fn hold_for(&self, duration: Duration) {
        let mut left = duration;
        loop {
            left = if self.is_calm() {
                left.min(CALM_HOLD_MAX)
            } else {
                // While a member is cut off, whoever holds something goes on.
                left.max(self.world.trouble.linger(self.world.history.now()))
            };
            if left.is_zero() || self.life.is_abandoned() {
                return;
            }
            let step = left.min(CALM_HOLD_MAX / 2);
            self.sleep(step).await;
            self.world.registry.look();
            left -= step;
        }
    }

    /// Does nothing for a drawn time.
    pub async fn idle(&mut self) {
        if let Some(pause) = self.paced_idle() {
            return self.rest(pause).await;
        }
        let mut longest = self.draw.pick(&[10, 500, 500, 5_000, 60_000]);
        if self.world.plan.is_hasty {
            longest = longest.min(self.draw.pick(&HASTY_MS));
        }
        let pause = self.draw.ms(0, longest);
        let pause = pause.min(self.left());
        if self.world.plan.kinds.is_relay && self.aside().chance(RELAYED_PERCENT) {
            let world = Arc::clone(&self.world);
            tokio::select! {
                biased;
                () = self.sleep(pause) => {}
                () = world.trouble.relayed(self.who.client) => {}
            }
            return;
        }
        self.sleep(pause).await;
    }

    /// Does nothing for this long, or less once the faults have stopped.
    pub async fn rest(&self, duration: Duration) {
        let left = self.world.plan.calm_at.saturating_sub(self.world.history.now());
        self.sleep(duration.min(left)).await;
    }

    /// Sleeps until this time has passed, or all drop their handles of the client.
    async fn sleep(&self, duration: Duration) {
        tokio::select! {
            biased;
            () = self.world.sleep(duration) => {}
            () = self.life.abandoned() => {}
        }
    }

    /// Uses the client that has the number of this task now. Returns whether it is another one.
    pub fn renew(&mut self) -> bool {
        let Some((client, life)) = self.world.clients.get(self.who.client) else { return false };
        let is_new = !life.is_same(&self.life);
        if is_new {
            (self.client, self.life) = (client, life);
            self.push(What::Renewed { life: self.life.place() });
        }
        is_new
    }

    /// Draws the timeout of a call that perhaps nobody ends any more. Some are long enough for all
    /// that may happen before the faults stop.
    pub fn long_timeout(&mut self, least: u64) -> Duration {
        if self.world.plan.is_of(WorldKind::Waiting) {
            let long = Duration::from_millis(self.draw.between(WAIT_MS.0, WAIT_MS.1));
            return long.min(self.left() + TIMEOUT_MAX);
        }
        let short = self.draw.ms(least, 20_000);
        if self.draw.chance(if self.is_patient { 20 } else { 60 }) {
            return short;
        }
        let left = self.world.plan.calm_at.saturating_sub(self.world.history.now());
        self.draw.ms(20_000, 120_000).min(left + TIMEOUT_MAX)
    }

    /// Returns the time until the faults stop.
    pub fn left(&self) -> Duration {
        self.world.plan.calm_at.saturating_sub(self.world.history.now())
    }

    /// Returns whether faults of this kind may happen now.
    pub fn expects(&self, kind: FaultKind) -> bool {
        self.world.plan.faults.contains(&kind) && !self.is_calm()
    }

    /// Returns whether the faults have stopped. Tasks then finish what they have begun.
    pub fn is_calm(&self) -> bool {
        self.world.history.now() >= self.world.plan.calm_at
    }

    /// Returns the number of a new guard, lease or cache.
    pub fn id(&self) -> Id {
        self.world.history.id()
    }

    /// Returns the last transaction that the servers have committed.
    pub fn zxid(&self) -> i64 {
        self.world.server.zxid().0
    }

    /// Returns whether the client of this task keeps a lease: it is to keep one, the servers are no
    /// Keepers, and they have granted a session timeout that is long enough.
    fn has_lease(&self) -> bool {
        let lease = self.world.plan.lease(self.who.client).unwrap_or_default();
        let is_possible = self.world.has_lease(self.who.client) && self.world.plan.resumes();
        is_possible && lease.timeout_min() <= self.client.status().timeout
    }

    /// Returns whether nothing can end the lease of the client of this task while somebody needs it.
    pub fn stays_leased(&self) -> bool {
        let plan = &self.world.plan;
        let is_steady = plan.is_steady && !plan.closes_connections();
        is_steady && self.has_lease() && !self.life.is_ending()
    }

    /// Returns the session that a guard of this task relies on, and its client, if that keeps a
    /// lease.
    pub fn leased(&self, session: SessionId) -> Option<(SessionId, Client)> {
        self.has_lease().then(|| (session, self.client.clone()))
    }

    /// Says whether the caller may rely on this guard: it is held, or it is at risk and its lease has
    /// not ended, as `Guard::remaining` says.
    pub fn reliance<K: Kind>(
        &self,
        guard: &Guard<K>,
    ) -> impl Fn() -> Option<Standing> + Send + use<K> {
        let status = guard.status();
        let client = self.has_lease().then(|| self.client.clone());
        move || {
            let is_leased = client.as_ref().is_some_and(|it| it.status().is_leased(it.now()));
            status.state().map(|state| {
                let is_relied_on = match state {
                    LockState::Held => true,
                    LockState::AtRisk => is_leased,
                    LockState::Lost(_) => false,
                };
                Standing { state, is_relied_on }
            })
        }
    }

    /// Returns how often waiters must check for missed watches in this world, if they must: servers
    /// discard an event about a znode that a client may not read at that moment.
    pub fn check_least(&self) -> Option<Duration> {
        let is_withheld = self.world.plan.faults.contains(&FaultKind::Permission);
        is_withheld.then_some(Duration::from_secs(30))
    }

    /// Returns whether a guard in this state promises that nobody else has the lock.
    pub fn is_promised(&self, state: LockState) -> bool {
        state == LockState::Held && self.promises_about_others()
    }

    /// Without a lease, nothing is promised about others while servers can be cut off from their
    /// leader: they acknowledge what the leader has given to somebody else.
    fn promises_about_others(&self) -> bool {
        self.has_lease() || !self.world.plan.cuts_off()
    }

    /// Lets the registry ask about a guard of this task.
    pub fn register(
        &self,
        guarded: Guarded<'_>,
        asks: impl Fn() -> Option<Standing> + Send + 'static,
    ) {
        if self.promises_about_others() {
            self.world.registry.add(guarded, self.life.clone(), asks);
        }
    }

    /// Records something that this task knows.
    pub fn push(&self, what: What) {
        self.world.history.push(self.who, what);
    }
}
