//! What the callers were told, and when: the only thing besides the server's journal that judges
//! know.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jute_codec::{OpCode, SessionId};
use tokio::time::Instant;
use zk_recipes::{LostReason, SlowCommits};

use crate::judges::checks::Watcher;
use crate::program::ends::EndKind;

/// The number of a call, of a guard or of a leased item.
pub type Id = u64;

/// Who does something: a client and one of its tasks.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[allow(clippy::exhaustive_structs, reason = "tests write it as a literal")]
pub struct Who {
    /// The index of the client.
    pub client: usize,
    /// The index of the task.
    pub task: usize,
}

/// How a guard shares its lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "judges match it")]
pub enum Share {
    /// With no other guard.
    Alone,
    /// With other readers.
    Reader,
    /// With as many others as there are permits.
    Permit(usize),
}

/// What a caller knows about the effect of its call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "judges match it")]
pub enum Told {
    /// It was applied.
    Applied,
    /// It was not applied, and never will be.
    NotApplied,
    /// It may have been applied. A dropped call counts as this one.
    Unknown,
}

/// Why a call has failed.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "judges match it")]
pub enum Failure {
    /// Its time was over.
    TimedOut,
    /// The client was closed.
    Closed,
    /// A server refused a request with this code.
    Refused(i32),
    /// The lock or the lease is lost.
    Lost(LostReason),
    /// Somebody else has what the caller had.
    Taken,
    /// The session has expired.
    SessionExpired,
    /// The connection was lost.
    ConnectionLoss,
    /// Commits are too slow for a lease.
    NoLease(SlowCommits),
    /// The outcome is not known.
    Undecided,
    /// Somebody else has deleted or changed the znode.
    Changed,
    /// The root of a handle does not exist.
    NoRoot,
    /// Recipes still use the session.
    Unfinished,
    /// The directory has no sequence numbers any more.
    Exhausted,
    /// As many requests are waiting as the client permits.
    Full,
    /// The server does not know the operation.
    Unsupported,
    /// Anything else, as its message.
    Other(String),
}

/// What a caller wants of a tree.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "judges match it")]
pub enum TreeCall {
    /// A path, with its ancestors.
    Ensure,
    /// No znode at a path or below it.
    Delete,
}

/// How a call of a tree has ended, after which its client sends nothing for it any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "judges match it")]
pub enum TreeEnd {
    /// It has reached what its caller wants, and has deleted this many znodes.
    Done(u64),
    /// A server has refused a request with this code.
    Refused(i32),
}

/// What a client has had from the begin of a call to its end.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "tests write it as a literal")]
pub struct Had {
    /// One connection, which it still has.
    pub connection: Option<u64>,
    /// One session, which the servers still have.
    pub session: Option<SessionId>,
    /// It has been connected since then, and nothing has gone wrong that it could notice.
    pub calm_since: Option<Duration>,
}

/// How a call has ended.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "judges match it")]
pub enum End {
    /// It has returned a value.
    Done,
    /// It has returned an error.
    Failed(Failure),
    /// Its caller has dropped it.
    Dropped,
}

/// Something that has happened.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "judges match it")]
#[expect(missing_docs, reason = "the names of the fields say what they are")]
pub enum What {
    /// A caller has begun a call.
    Begun { call: Id, name: &'static str, on: String, timeout: Option<Duration> },
    /// A call has ended.
    Ended { call: Id, end: End },
    /// A call is about to fail.
    Failing { call: Id, had: Had },
    /// A call is about to end whose client had no connection from its begin to its end.
    Unsent { call: Id, told: Told },
    /// A caller has a lock. `is_held` says whether the guard promised that at that moment.
    Granted {
        lock: String,
        guard: Id,
        share: Share,
        /// The path of its znode, if the caller can know it.
        path: Option<String>,
        token: Option<i64>,
        is_held: bool,
        /// What the servers have committed last.
        zxid: i64,
    },
    /// A guard says *held* although its session has ended, and its client keeps a lease.
    Outlived { lock: String, guard: Id, session: Option<SessionId> },
    /// A guard says *held* although its client, which keeps a lease, has none.
    Unleased { lock: String, guard: Id },
    /// A guard says *held* although somebody was told that its client is closed.
    HeldByClosed { lock: String, guard: Id },
    /// The caller of a guard relies on it, its session lives, and its znode is not there.
    Vanished { lock: String, guard: Id, path: String },
    /// A guard is relied on, and its znode belongs to another session.
    Foreign { lock: String, guard: Id, path: String, owner: SessionId },
    /// The caller of a guard relies on it although its znode was deleted long before.
    Unaware { lock: String, guard: Id, path: String },
    /// A guard is at risk for long, although its client is connected and no server refuses anything.
    StaysAtRisk { lock: String, guard: Id },
    /// A guard says that its znode was deleted, and it is there.
    Mislaid { lock: String, guard: Id, path: String },
    /// A guard said that its lock is lost, and does not say it any more.
    Revoked { lock: String, guard: Id },
    /// A guard says that its lock is at risk, which was to count as a loss.
    Dared { lock: String, guard: Id },
    /// A holder was told that it has the lock. The servers had committed these zxids when its call
    /// began and when it ended.
    Validated { lock: String, path: String, token: Option<i64>, from: i64, to: i64 },
    /// A guard was held, and is not any more, in a world where nothing goes wrong.
    Wavered { lock: String, guard: Id },
    /// An acquire has failed because the lock was lost, in a world where nothing goes wrong.
    LostForNothing { lock: String },
    /// From then to then, a client had nothing but places far behind in queues.
    WasFar { session: SessionId, from: Duration, to: Duration },
    /// From then to then, nothing went wrong, and somebody has waited for a watch.
    WasWaiting { watcher: Watcher, from: Duration, to: Duration },
    /// A multi-lock was granted although one of its locks was lost by then.
    GrantedLost { locks: [&'static str; 2] },
    /// The body that ran under a guard counts as completed, although the lock is lost by now.
    Late { lock: String },
    /// A body that stops at risk has run although its guard was not held at that moment.
    RanAtRisk { lock: String },
    /// A caller that has asked for the leader of the election was told this znode.
    Named { path: String },
    /// A call has found nothing in the queue. The servers had committed these zxids when it began and
    /// when it ended. `session` is that of its client then.
    SaidEmpty { from: i64, to: i64, session: Option<SessionId> },
    /// A lock was released long ago, and a task that waits for its loss was not told.
    Unheard { lock: String },
    /// A candidate leads again right after it has lost its leadership on the same connection.
    Hurried { lock: String },
    /// A body has run although its lock was lost at that moment.
    RanLost { lock: String },
    /// A put into a queue that may have this many items has failed because it is full. The servers had
    /// committed these zxids when it began and when it ended, and the queue had this many items when it
    /// began.
    SaidFull { limit: usize, items: usize, from: i64, to: i64 },
    /// Creates that were handed over together, one after the other: their paths, and how they have
    /// ended. `is_single`: one of them may be with the servers at a time.
    Piped { creates: Vec<(String, Piped)>, is_single: bool },
    /// A taker has kept an item for longer than a lease may take, and the lease was not lost.
    Hung { item: String },
    /// A put into a queue that may have this many items has succeeded. The servers had committed these
    /// zxids when it began and when it ended, and the queue had this many items when it began.
    PutWithin { limit: usize, items: usize, from: i64, to: i64 },
    /// The guards of this lock that say *held* at this moment, if they are not those of the last
    /// moment.
    Held { lock: String, guards: Vec<(Id, Share)> },
    /// A caller knows how its put has ended.
    Put { queue: String, item: String, told: Told },
    /// A taker has an item. If its lease is not held, it was lost, or is at risk, while the taker was
    /// cut off.
    Taken { queue: String, item: String, path: String, lease: Id, token: i64, is_held: bool },
    /// A taker knows how its acknowledgement has ended.
    Acked { queue: String, item: String, lease: Id, told: Told },
    /// A taker of the queue with this number has an item. The queue is one value and its clones.
    Delivered { by: Id, item: String },
    /// A taker of the queue with this number is about to give an item back. All takers of that queue
    /// pass over the item until then.
    Returned { by: Id, item: String, until: Duration },
    /// The item is in the queue at the end.
    Remaining { queue: String, item: String },
    /// All items that remain were taken.
    Drained { queue: String },
    /// A caller knows how its addition has ended.
    Added { counter: String, delta: i64, told: Told },
    /// The counter at the end.
    Total { counter: String, sum: i64 },
    /// A cache shows a znode in this state: its czxid and its mzxid. `None`: it shows none.
    Shown { cache: Id, path: String, state: Option<(i64, i64)> },
    /// A cache has told this about itself, while its client had the connection of this number, or had
    /// none and waited for it.
    CacheNews { cache: Id, news: News, connection: u64 },
    /// A caller has read a znode again after its watch had fired: its states before and after.
    ReadAgain { path: String, before: Option<(i64, i64)>, after: Option<(i64, i64)> },
    /// All that a complete cache shows at the end, and what the servers have.
    Copied { cache: Id, root: String, shown: Vec<Copied>, real: Vec<Copied> },
    /// A caller knows how its write of a path that no other call writes has ended.
    Wrote { path: String, told: Told },
    /// A caller knows how a settled operation has ended, and which transaction was its own, if it knows
    /// that too.
    Settled { op: OpCode, path: String, told: Told, zxid: Option<i64> },
    /// A caller knows that a znode has the list that it was to set, but not who has set it.
    InForce { path: String },
    /// A caller was told that its list is in force, but for another znode than the one that it meant.
    OtherList { path: String, expected: i64, found: i64 },
    /// A caller has read a znode behind a barrier: its czxid and its mzxid, if it exists. The servers
    /// had committed these zxids when the call began and when it ended.
    Looked { path: String, from: i64, to: i64, state: Option<(i64, i64)> },
    /// A call of a barrier has succeeded. The servers had committed these zxids when it began and when
    /// it ended, and meanwhile the barrier was open, or closed.
    Passed { name: &'static str, barrier: String, is_open: bool, from: i64, to: i64 },
    /// A participant is inside a double barrier. `round` is what the servers know about the round.
    /// They had committed these zxids when its call began and when it ended.
    /// `sessions` are those of its client at these moments.
    Entered {
        number: i32,
        participants: usize,
        round: Option<Round>,
        from: i64,
        to: i64,
        sessions: Vec<SessionId>,
    },
    /// A round of the double barrier with this number was formed.
    Formed { number: i32, round: Round },
    /// A participant that has entered a double barrier says whether it has left already. `is_alive`
    /// says whether the session lives that its client has now, `is_same` whether the client had it
    /// already before it entered, and `has_znode` whether a participant of this session is present.
    Present { has_left: bool, is_alive: bool, is_same: bool, has_znode: bool },
    /// A participant has left together with the others, and these are still present.
    Departed { round: Round, present: Vec<String> },
    /// A member of a group is about to say this about itself. Nobody else says the same.
    Said { id: String, data: String },
    /// The presence of this number says that this znode is its own, in this session.
    Stands { presence: Id, path: String, session: SessionId, czxid: i64 },
    /// A presence was closed, and its last znode, which this transaction has created, is gone. `at`:
    /// the servers have committed this before.
    Gone { path: String, czxid: i64, at: i64 },
    /// A watch of a group reports a member.
    Reported { watch: Id, id: String, czxid: i64, data: String, is_joined: bool, is_left: bool },
    /// All that a watch of a group has reported at the end, and what the servers have. The data of
    /// members are left out if the watch does not follow them.
    Gathered { watch: Id, shown: Vec<Gathered>, real: Vec<Gathered> },
    /// A holder has a second level of a lock, or only one again. `is_same`: it is the same hold.
    /// `was_lost`: the holder knew that the lock was lost before it asked for this level.
    Nested { lock: String, is_same: bool, was_lost: bool },
    /// The holder with this contender and this token creates this path in a transaction of its guard.
    Fenced { path: String, contender: String, token: i64 },
    /// A caller begins to create a path or to delete a subtree. `from` is what the servers have
    /// committed last.
    TreeBegun { tree: Id, call: TreeCall, path: String, from: i64 },
    /// The same call has ended, and the servers have committed this last. Calls that were dropped, or
    /// have failed otherwise, have no such end, because requests may still arrive.
    TreeEnded { tree: Id, end: TreeEnd, to: i64 },
    /// A caller begins to change the number of permits. `from` is what the servers have committed last.
    Resizing { change: Id, permits: u32, from: i64 },
    /// The same call has succeeded, and the servers have committed this last.
    Resized { change: Id, to: i64 },
    /// The number of permits that is stored at the end.
    Permits { stored: u32 },
    /// An observer of an election reports a leader, by its znode and its token, or that there is none.
    Leads { view: Id, leader: Option<(String, i64)> },
    /// A caller that follows a value is told that the znode has this czxid and this version, or that
    /// there is none.
    Valued { view: Id, state: Option<(i64, i32)> },
    /// Somebody should have done this for a long time, and could.
    Overdue { what: String, since: Duration },
    /// Whoever uses the world does something to it.
    Fault {
        /// Counted from 1, in the run of the whole seed.
        number: u64,
        text: String,
    },
    /// All clients stop for this long, from now on.
    Suspended { duration: Duration },
    /// An administrator has deleted this znode, which this transaction has created.
    Deleted { path: String, czxid: i64 },
    /// Somebody without credentials has deleted or changed this znode.
    Intruded { path: String },
    /// From now on there are no faults.
    Calm,
    /// A client of this number begins to end, and others go on. Before it there were `life` others of
    /// the number.
    Ending { kind: EndKind, life: u64 },
    /// The client that begins to end is not connected.
    EndsEarly,
    /// It has not ended, and goes on.
    GoesOn { life: u64 },
    /// A close has returned. `is_confirmed`: it said that a server has confirmed the end of the
    /// session. `is_alive`: the session that the client had before lives.
    HasClosed { session: Option<SessionId>, is_confirmed: bool, is_alive: bool },
    /// A client has handed its session over. These znodes of recipes are left.
    HandedOver { session: SessionId, left: Vec<String> },
    /// A client has not handed its session over, because of recipes that use these paths.
    Unfinished { paths: Vec<String> },
    /// The client that should continue a session has another one. Nothing went wrong in this world.
    NotContinued { session: SessionId },
    /// A client has ended, because its session has expired and it opens no other.
    Stopped { life: u64 },
    /// A stream does not end after the error that says that its client has stopped.
    Endless { stream: &'static str },
    /// A client begins to connect although it has ended with its session.
    Revived { client: usize },
    /// Another client has taken the place of the one that ends.
    Followed,
    /// A task uses this client of its number from now on.
    Renewed { life: u64 },
    /// A client was given another list of servers.
    Hosts { client: usize, members: Vec<usize> },
    /// A client begins to connect to a member that has left its list.
    Strayed { client: usize, member: usize },
    /// A client does not use the newest list that the ensemble has published, long after.
    Outdated { client: usize, found: Option<i64>, expected: i64 },
    /// A client has a lease although its servers are Keepers, which keep none.
    TrustedKeeper { client: usize, life: u64 },
    /// A client begins to close.
    Closing,
    /// All clients are closed, and this is left on the servers.
    Left { path: String },
    /// The library has logged this line.
    Logged { level: &'static str, message: String, path: Option<String> },
    /// A client has lost its session. `is_told`: a server has said so. `alive`: the session, if it
    /// lives at that moment.
    LostSession { is_told: bool, alive: Option<SessionId> },
    /// A caller has asked for the creation of this path in this session, and in no other.
    Bound { path: String, session: SessionId },
    /// A task has panicked.
    Panicked(String),
    /// A client sends, or a caller runs, without end while no time passes.
    Spinning,
}

/// How a create has ended that was handed over together with others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "judges match it")]
pub enum Piped {
    /// Its connection was lost, and it may have been applied.
    Lost,
    /// In any other way.
    Other,
}

/// What a cache tells about itself, or what its caller does with it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "judges match it")]
pub enum News {
    /// It has missed something, and reads everything again.
    Gap,
    /// It shows everything.
    Complete,
    /// It may not read something.
    Unreadable,
    /// Its caller has not asked for a while, so what it tells next may be old.
    Left,
}

/// A round of a double barrier.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "tests write it as a literal")]
pub struct Round {
    /// The transaction that formed it.
    pub zxid: i64,
    /// The names of its participants.
    pub names: Vec<String>,
}

/// A member of a group, its czxid, and its data.
pub type Gathered = (String, i64, Option<String>);

/// A znode, its czxid and its mzxid.
pub type Copied = (String, i64, i64);

/// Something that has happened, with its place and time.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "tests write it as a literal")]
pub struct Event {
    /// The virtual time since the beginning.
    pub at: Duration,
    /// Who has done it, or to whom it has happened.
    pub who: Option<Who>,
    /// What has happened.
    pub what: What,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.3} s  ", self.at.as_secs_f64())?;
        match self.who {
            Some(who) => write!(f, "{who}  ")?,
            None => write!(f, "-      ")?,
        }
        match &self.what {
            What::Begun { call, name, on, timeout } => {
                write!(f, "#{call} {name} {on}")?;
                timeout.map_or(Ok(()), |timeout| write!(f, " within {timeout:?}"))
            }
            What::Ended { call, end } => write!(f, "#{call} {end:?}"),
            What::Fault { number, text } => write!(f, "~ {number}. {text}"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// The events of a run, in the order in which they happened.
#[derive(Clone, Debug)]
pub struct History {
    start: Instant,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    events: Vec<Event>,
    last_id: Id,
}

impl History {
    /// Starts an empty history now.
    #[expect(clippy::new_without_default, reason = "the time of the creation matters")]
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    pub fn new() -> Self {
        Self { start: Instant::now(), inner: Arc::default() }
    }

    /// Returns the virtual time since the beginning.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns a number that was not used yet.
    pub fn id(&self) -> Id {
        let mut inner = self.lock();
        inner.last_id += 1;
        inner.last_id
    }

    /// Records something that somebody has done.
    pub fn push(&self, who: Who, what: What) {
        self.record(Some(who), what);
    }

    /// Records something that has happened to the world.
    pub fn note(&self, what: What) {
        self.record(None, what);
    }

    fn record(&self, who: Option<Who>, what: What) {
        let at = self.now();
        self.lock().events.push(Event { at, who, what });
    }

    /// Returns all events.
    pub fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A hash of everything that is written to it, the same on all machines (FNV-1a).
#[derive(Clone, Copy, Debug)]
pub struct TraceHash(u64);

impl TraceHash {
    /// Starts with nothing.
    #[expect(clippy::new_without_default, reason = "there is nothing usual about it")]
    pub fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a line.
    pub fn add(&mut self, line: &impl fmt::Debug) {
        // Writing to this type never fails.
        let _ = writeln!(self, "{line:?}");
    }

    /// Returns the hash of everything so far.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Write for TraceHash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}
