//! Leader election.

mod naming;
mod observe;
mod term;

use std::convert::Infallible;
use std::fmt::DebugStruct;

use zk_session::{Client, ConfigError};

pub use self::naming::ElectionNaming;
pub use self::observe::{Leader, Leaders};
use crate::acquire::lock::Lock;
use crate::acquire::{Acquire, TryAcquire};
use crate::engine::call::Call;
use crate::guard::Guard;
use crate::lock::contender::Contender;
use crate::lock::error::LockError;
use crate::lock::kind::{Fenced, Kind, Queued};
use crate::lock::options::{LockBuilder, LockOptions};
use crate::lock::outcome::Released;
use crate::queue::contenders::first;
use crate::queue::naming::QueueNames;
use crate::queue::profile::QueueProfile;
use crate::queue::recipe::QueueKind;

/// An election: of all candidates in a directory, the one whose znode was created first leads.
///
/// A leadership is a [`Guard`], with everything that a guard promises: it reports whether it is
/// held, at risk or lost, for how long no other candidate can lead
/// ([`remaining`](Guard::remaining)), and a [fencing token](Guard::fencing_token) that is greater
/// for each later leader. There are no callbacks and no threads: a candidate awaits
/// [`campaign`](Election::campaign), or passes its work to
/// [`run_while_leader`](Election::run_while_leader).
///
/// Building an election does no I/O, and clones are cheap. An election is identified by its
/// directory: candidates in any process that use the same directory, and the same
/// [`ElectionNaming`], compete with each other.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use std::time::Duration;
/// use zk_recipes::{Client, Election};
///
/// let client = Client::connect(address.to_string()).await?;
/// let election = Election::new(&client, "/services/billing/leader")?;
///
/// let leadership = election.campaign().timeout(Duration::from_secs(30)).await?;
/// println!("leader, with fencing token {}", leadership.fencing_token());
/// leadership.resign().await?;
/// # Ok(()) }
/// ```
///
/// **Costs.** They are those of a [`FairLock`](crate::FairLock): an uncontended campaign costs one
/// round trip, and when a leader resigns, the next candidate leads without another request.
///
/// **Permissions.** The client needs READ, CREATE and DELETE on the directory, and READ on the
/// candidate znodes. The election creates a missing directory and its ancestors as containers, with
/// the list of the candidates.
pub type Election = Lock<Lead>;

/// The leadership of an [`Election`]. A leadership that is dropped is resigned in the background.
pub type Leadership = Guard<Lead>;

/// The kind of a [`Leadership`].
#[derive(Clone, Copy, Debug)]
pub enum Lead {}

impl Election {
    /// Builds an election at a directory, with default options.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn new(client: &Client, directory: &str) -> Result<Self, ConfigError> {
        Self::builder(client, directory)?.build()
    }

    /// Becomes a candidate, and waits for the leadership. If the session **expires** while the
    /// future waits, the candidate starts again in the next session, behind all others. **Cancel
    /// safe**: dropping the future withdraws the candidate, and leaves no znode. In all other
    /// respects it is like [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// See [`LockError`]. After any error, the caller does not lead.
    pub fn campaign(&self) -> Acquire<Lead> {
        self.acquire()
    }

    /// Takes the leadership if there is no other candidate, and returns `None` otherwise. In all
    /// other respects it is like [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    ///
    /// The errors are those of [`campaign`](Self::campaign).
    pub fn try_campaign(&self) -> TryAcquire<Lead> {
        self.try_acquire()
    }

    /// Campaigns, and runs a body of work while this candidate leads. If the leadership is lost,
    /// the body is dropped, and the candidate campaigns again; when it leads again, it calls `body`
    /// again. When the body completes, the candidate resigns, and its output is returned.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
    /// # let address = server.listen("127.0.0.1:0").await?;
    /// # let client = zk_recipes::Client::connect(address.to_string()).await?;
    /// # let election = zk_recipes::Election::new(&client, "/services/billing/leader")?;
    /// # async fn send_invoices(token: zk_recipes::FencingToken) -> usize { 17 }
    /// let sent = election
    ///     .run_while_leader(async |leadership| send_invoices(leadership.fencing_token()).await)
    ///     .await?;
    /// # assert_eq!(sent, 17);
    /// # Ok(()) }
    /// ```
    ///
    /// **A body is stopped only where it waits**; see [`Guard::run`]. Its writes need the fencing
    /// token or a [`transaction`](Guard::transaction) of the leadership that it is given. A body
    /// that must stop while the leadership is **at risk** needs an election that is built with
    /// [`AtRiskPolicy::TreatAsLost`](crate::AtRiskPolicy::TreatAsLost); by default it continues
    /// until the leadership is lost.
    ///
    /// **Pauses.** After a loss, the next campaign begins after a pause of 200 to 250 ms. The pause
    /// doubles with each loss, up to 6.25 s, and is the shortest again after a leadership that
    /// lasted for at least 10 s.
    ///
    /// After a **connection loss**, requests are replayed. **Cancel safe** if the body is: dropping
    /// the future drops the body, and resigns or withdraws in the background. No task is spawned.
    /// The future has no deadline of its own. It is `Send` if the futures of the body are, but
    /// compilers see that only if the body owns what it captures: in a task, write
    /// `async move |leadership: &Leadership|`.
    ///
    /// # Errors
    ///
    /// The errors of [`campaign`](Self::campaign), except [`LockError::TimedOut`]. It fails with
    /// [`LockError::Lost`] only if the session has expired and the client opens no other
    /// ([`renew_after_expiry`](zk_session::ClientBuilder::renew_after_expiry)). An error means that the body is not running and this candidate does
    /// not lead. If a server refuses to delete the znode after the body has completed, the output
    /// is returned, and the client retries as after [`resign`](Leadership::resign).
    ///
    /// # Panics
    ///
    /// The future panics if the body panics. The candidate then resigns in the background.
    pub async fn run_while_leader<T>(
        &self,
        body: impl AsyncFnMut(&Leadership) -> T,
    ) -> Result<T, LockError> {
        term::run_while_leader(self, body).await
    }

    /// Reads the candidates: the leader first, then the others in the order in which they will
    /// lead. It costs one list, and one read for each candidate. In all other respects it is like
    /// [`contenders`](Self::contenders).
    ///
    /// # Errors
    ///
    /// The errors are those of [`contenders`](Self::contenders).
    pub fn candidates(&self) -> Call<Vec<Contender>, LockError> {
        self.contenders()
    }

    /// Returns the leader, or `None` if there is no candidate. The call costs one list and one read.
    /// If the leader leaves between the two, it starts again.
    ///
    /// The answer is that of one server, which may be a moment behind the leader of the ensemble,
    /// and the leader may leave at any time: use it to find the leader, never to exclude others.
    ///
    /// After a lost connection, the reads are repeated. Cancel safe.
    ///
    /// # Errors
    ///
    /// The errors are those of [`candidates`](Self::candidates).
    pub fn leader(&self) -> Call<Option<Contender>, LockError> {
        self.call(async |lock, deadline| first(lock.client(), &lock.profile, deadline).await)
    }

    /// Follows who leads: the stream reports the current leader first, and then each change,
    /// without a gap across reconnects and sessions. See [`Leaders`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
    /// # let address = server.listen("127.0.0.1:0").await?;
    /// # let client = zk_recipes::Client::connect(address.to_string()).await?;
    /// # let election = zk_recipes::Election::new(&client, "/services/billing/leader")?;
    /// let mut leaders = election.observe();
    /// assert_eq!(leaders.next().await?, None);
    /// let leadership = election.campaign().await?;
    /// let leader = leaders.next().await?.expect("this client leads");
    /// assert_eq!(leader.fencing_token, leadership.fencing_token());
    /// # Ok(()) }
    /// ```
    pub fn observe(&self) -> Leaders {
        Leaders::new(self.client(), &self.profile)
    }
}

impl Leadership {
    /// Gives the leadership up, so that the next candidate leads, and reports how that ended. This
    /// is [`release`](Guard::release) in the words of an election.
    ///
    /// **Cancel safe**: this method sends the command itself, so dropping what it returns changes
    /// nothing. After a **connection loss**, requests are replayed.
    ///
    /// # Errors
    ///
    /// The errors are those of [`release`](Guard::release).
    pub fn resign(self) -> Call<Released, LockError> {
        self.release()
    }
}

impl<L> LockBuilder<L, ElectionNaming> {
    /// Sets the form of the candidates' names. Default: [`ElectionNaming::leader_latch`].
    pub fn naming(mut self, naming: ElectionNaming) -> Self {
        self.naming = naming;
        self
    }
}

impl QueueKind for Lead {
    type Change = Infallible;
}

impl Kind for Lead {
    type Naming = ElectionNaming;

    const LOCK: &'static str = "Election";
    const METRIC: &'static str = "election";

    fn profile(
        options: LockOptions,
        ElectionNaming(form): ElectionNaming,
    ) -> Result<QueueProfile, ConfigError> {
        Ok(QueueProfile::new(options, QueueNames::exclusive(form)))
    }

    fn describe(profile: &QueueProfile, output: &mut DebugStruct<'_, '_>) {
        output.field("path", profile.directory());
    }
}

impl Fenced for Lead {}
impl Queued for Lead {}
