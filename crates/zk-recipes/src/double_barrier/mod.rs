//! A double barrier: participants enter together, and leave together.

mod machine;

use std::fmt;

use bytestring::ByteString;
use jute_codec::ErrorCode;
use zk_session::recipe::Session;
use zk_session::{Acl, Client, ConfigError, OpError, OptionDefect, Time, Version};

use self::machine::depart::Depart;
use self::machine::meet::{MEMBER, Meet, Met, round_of};
use self::machine::past::{Fate, Past, Round};
use self::machine::survey::Survey;
use crate::action::FailedAction;
use crate::engine::attended::Attended;
use crate::engine::call::Call;
use crate::engine::drive::{jitter, pause, run};
use crate::error::{RecipeError, check_acl, check_path};
use crate::machine::{Ensure, Failure, Once, PAUSE, Settled, child};

/// How often a participant may lose its znode or its directory before it gives up.
const LOST_MAX: u32 = 5;

/// A barrier at which a number of participants meet: they enter together and leave together.
///
/// Building a barrier does no I/O, and clones are cheap. All participants use the same directory
/// and the same number. A client may have several participants. The barrier can be used again and
/// again: a participant that enters early waits for the end of the round before.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use zk_recipes::{Client, DoubleBarrier};
///
/// let client = Client::connect(address.to_string()).await?;
/// let computation = DoubleBarrier::new(&client, "/barriers/computation", 2)?;
/// let (one, two) = tokio::join!(computation.enter(), computation.enter());
/// // Both have entered. Compute, and then leave together.
/// let (one, two) = tokio::join!(one?.leave(), two?.leave());
/// one?;
/// two?;
/// # Ok(()) }
/// ```
///
/// **Costs.** A round of *n* participants costs about 4 *n* lists to enter, and *n* ln *n* to leave.
///
/// The recipe overwrites the data of the directory, so use a directory of its own.
///
/// **Permissions.** READ, WRITE, CREATE and DELETE on the directory.
#[derive(Clone)]
pub struct DoubleBarrier {
    client: Client,
    directory: ByteString,
    count: u32,
    acl: Vec<Acl>,
}

/// Options of a [`DoubleBarrier`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct DoubleBarrierBuilder {
    barrier: DoubleBarrier,
}

/// A participant inside a [`DoubleBarrier`]. Dropping it leaves without waiting for the others.
#[must_use = "dropping it leaves the barrier"]
pub struct Inside {
    client: Client,
    directory: ByteString,
    /// The round, which includes this participant.
    round: Round,
    /// The znode, unless its session has ended since the round was formed.
    participant: Option<(ByteString, Attended<Once>)>,
}

impl DoubleBarrier {
    /// Builds a double barrier for this number of participants, at a directory, with default
    /// options.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root, or there are no
    /// participants.
    pub fn new(client: &Client, directory: &str, participants: u32) -> Result<Self, ConfigError> {
        Self::builder(client, directory, participants)?.build()
    }

    /// Returns a builder for a double barrier for this number of participants, at a directory.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root, or there are no
    /// participants.
    pub fn builder(
        client: &Client,
        directory: &str,
        participants: u32,
    ) -> Result<DoubleBarrierBuilder, ConfigError> {
        check_path("directory of the double barrier", directory)?;
        if participants == 0 {
            let (option, value) = ("participants of the double barrier", "0".to_owned());
            return Err(ConfigError::Option { option, value, defect: OptionDefect::Zero });
        }
        let acl = Session::of(client).default_acl();
        let (client, directory) = (client.clone(), directory.into());
        Ok(DoubleBarrierBuilder { barrier: Self { client, directory, count: participants, acl } })
    }

    /// Enters, and waits until all participants have. Set a timeout, then `.await` it.
    ///
    /// When it completes, there was a moment at which all participants of the round had entered.
    /// Some may have left or died since. If a participant dies before all have entered, the others
    /// wait for another one, until their timeout.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned. If the session
    /// **expires** meanwhile, the participant looks whether a round has counted it. If so, it has
    /// entered, and its znode has left already; otherwise it enters again in the next session.
    /// **Cancel safe**: if the future is dropped, and after any error, the janitor deletes the
    /// participant's znode.
    /// Until the ensemble has processed the deletion, the participant counts, so others may enter
    /// with it. If it enters again, it waits until they have left.
    ///
    /// # Errors
    ///
    /// [`RecipeError::TimedOut`]; [`RecipeError::SessionExpired`] if the session has expired, and a
    /// round that has ended since may have counted this participant, so that it may be a round
    /// behind the others; [`RecipeError::Refused`] if a server refuses a request, or the
    /// participant's znode is deleted again and again; [`RecipeError::Closed`] and similar errors if
    /// the client has stopped.
    pub fn enter(&self) -> Call<Inside, RecipeError> {
        let barrier = self.clone();
        Call::new(&self.client, &self.directory, |deadline| barrier.try_enter(deadline))
    }

    /// Returns the directory of the barrier.
    pub fn directory(&self) -> &str {
        &self.directory
    }

    async fn try_enter(self, deadline: Option<Time>) -> Result<Inside, RecipeError> {
        let mut lost = 0;
        let mut past = Past::default();
        while lost < LOST_MAX {
            if past.is_open()
                && let Some(round) = self.survey(&mut past, deadline).await?
            {
                return Ok(self.inside(round, None));
            }
            let id = Session::of(&self.client).unique_id();
            let own: ByteString = format!("{MEMBER}{id:032x}").into();
            let path = child(&self.directory, &own);
            let once = Once::new(path.clone(), self.acl.clone(), Vec::new());
            let mut participant = Attended::new(&self.client, once, &path, deadline).await?;
            match participant.run(deadline).await? {
                Settled::Applied(_) => {}
                Settled::Refused(_, ErrorCode::NO_NODE) => {
                    lost += 1;
                    let mut ensure = Ensure::parent_of(path, self.acl.clone());
                    run(&self.client, &mut ensure, deadline).await?;
                    continue;
                }
                Settled::Refused(_, code) => {
                    let error = OpError::server(code);
                    return Err(RecipeError::of(Failure::new(FailedAction::Create, path, error)));
                }
                // The session of the znode is over. If it was created, a round may have counted it.
                Settled::Undecided(OpError::SessionExpired { .. }) => {
                    past.lose(own);
                    continue;
                }
                Settled::Undecided(error) => return Err(self.refused(error)),
            }
            let Some(session) = participant.state().0.session() else { continue };
            let count = usize::try_from(self.count).unwrap_or(usize::MAX);
            let directory = self.directory.clone();
            let mut meet = Meet::new(directory, own.clone(), session, count, past);
            let met = run(&self.client, &mut meet, deadline).await?;
            past = meet.into_past();
            match met {
                Met::Together(round) => return Ok(self.inside(round, Some((own, participant)))),
                // The next survey deletes our znode, so that no other round counts it.
                Met::Before => past.lose(own),
                Met::Unknown => return Err(RecipeError::SessionExpired),
                Met::SessionEnded => past.lose(own),
                Met::Gone => {
                    past.lose(own);
                    lost += 1;
                    pause(&self.client, jitter(&self.client, PAUSE)).await;
                }
            }
        }
        Err(self.refused(OpError::server(ErrorCode::NO_NODE)))
    }

    /// Deletes the znodes that this participant has lost. Returns the round that has counted one of
    /// them, if there is one.
    async fn survey(
        &self,
        past: &mut Past,
        deadline: Option<Time>,
    ) -> Result<Option<Round>, RecipeError> {
        let mut survey = Survey::new(self.directory.clone(), past.names());
        let surveyed = run(&self.client, &mut survey, deadline).await?;
        let before = surveyed.before.as_ref().map(round_of);
        // Servers delete an empty directory, and with it the rounds that it has named.
        let behind = surveyed.behind.as_ref().map(round_of).ok_or(RecipeError::SessionExpired)?;
        match past.survey(before, behind, surveyed.has_deleted) {
            (Fate::NotCounted, _) => Ok(None),
            (Fate::Counted, round) => Ok(Some(round)),
            (Fate::Unknown, _) => Err(RecipeError::SessionExpired),
        }
    }

    fn inside(self, round: Round, participant: Option<(ByteString, Attended<Once>)>) -> Inside {
        let Self { client, directory, .. } = self;
        Inside { client, directory, round, participant }
    }

    fn refused(&self, error: OpError) -> RecipeError {
        RecipeError::of(Failure::new(FailedAction::Create, self.directory.clone(), error))
    }
}

impl DoubleBarrierBuilder {
    /// Sets the access control list of the participants' znodes and of missing directories, so all
    /// participants need READ, WRITE, CREATE and DELETE. Default: that of the client
    /// ([`ClientBuilder::default_acl`](zk_session::ClientBuilder::default_acl)).
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.barrier.acl = acl;
        self
    }

    /// Checks the options and builds the double barrier.
    ///
    /// # Errors
    ///
    /// Fails if the access control list is empty.
    pub fn build(self) -> Result<DoubleBarrier, ConfigError> {
        let DoubleBarrier { client, acl, .. } = &self.barrier;
        check_acl("acl of the double barrier", client, acl)?;
        Ok(self.barrier)
    }
}

impl Inside {
    /// Leaves, and waits until all participants of the round have left. Set a timeout, then
    /// `.await` it.
    ///
    /// A participant that dies, or whose session expires, has left. So has this one after a
    /// timeout, after any other error, and if the future is dropped.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned. The end of the
    /// session is waited out. **Cancel safe**, as above.
    ///
    /// # Errors
    ///
    /// [`RecipeError::TimedOut`] if others are still inside; [`RecipeError::Refused`] if a server
    /// refuses to list the directory; [`RecipeError::Closed`] and similar errors if the client has
    /// stopped.
    pub fn leave(self) -> Call<(), RecipeError> {
        let (client, directory) = (self.client.clone(), self.directory.clone());
        Call::new(&client, &directory, |deadline| self.left(deadline))
    }

    /// Returns the number of participants of the round.
    pub fn participants(&self) -> usize {
        self.round.names.len()
    }

    /// Returns whether this participant has left already, because its session has ended. The others
    /// need not wait for it any more.
    ///
    /// The client learns of the end of a session from a server, so while it has no connection, it
    /// may be late.
    pub fn has_left(&self) -> bool {
        let Some((_, participant)) = &self.participant else { return true };
        let session = Session::of(&self.client).status().session;
        session.is_none() || session != participant.state().0.session()
    }

    /// Returns the number of the round, which all its participants have in common. It is the version
    /// of the directory's data.
    ///
    /// Numbers grow from round to round. They start again if servers have deleted the empty
    /// directory, or somebody else has.
    pub fn round(&self) -> Version {
        self.round.version
    }

    async fn left(self, deadline: Option<Time>) -> Result<(), RecipeError> {
        let Self { client, directory, round, participant } = self;
        // The janitor deletes the znode, even if the caller does not wait for it.
        let own = participant.map(|(own, _)| own);
        let choice = Session::of(&client).unique_id();
        let mut depart = Depart::new(directory, &round.names, own, choice);
        run(&client, &mut depart, deadline).await
    }
}

impl fmt::Debug for DoubleBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DoubleBarrier")
            .field("directory", &self.directory())
            .field("participants", &self.count)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inside")
            .field("directory", &self.directory)
            .field("round", &self.round)
            .finish_non_exhaustive()
    }
}
