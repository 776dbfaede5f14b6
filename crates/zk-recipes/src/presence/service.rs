//! A presence, and its options.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::Acl;
use zk_session::recipe::Session;
use zk_session::{Client, ConfigError, SessionId};

use super::error::PresenceError;
use super::machine::profile::{Patience, Profile};
use super::state::{End, PresenceState, Standing, Status, created_at};
use super::stay::{Stay, View};
use crate::engine::call::{Call, ScopedCall};
use crate::error::{check_acl, check_path};
use crate::lock::outcome::Released;

/// An ephemeral znode that exists for as long as its owner wants: in this session and in later ones,
/// and again after others have deleted it.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use zk_recipes::{Client, Presence, PresenceState};
///
/// let client = Client::connect(address.to_string()).await?;
/// let presence = Presence::builder(&client, "/services/search/host-7")?.begin("starting").await?;
/// presence.set_data("10.0.0.7:8080").await?;
/// if let PresenceState::Present { session, czxid, since } = presence.state() {
///     println!("present since {since:?}, by transaction {czxid} of session {session}");
/// }
/// presence.close().await?;
/// # Ok(()) }
/// ```
///
/// The presence also keeps the client's session open. Dropping it removes the znode in the
/// background, as soon as a server is reachable and no later than the end of the session.
///
/// **When it is absent.** A presence that has begun ends only with its client; until then, it is
/// [`Absent`](PresenceState::Absent) while something is in the way, and present again within a round
/// trip of the event that clears the way: a new session, the deletion of its znode (if it has not
/// been deleted in the last minute; otherwise after a pause of at most 6.25 s), or the end of a znode
/// that is not its own. No server reports that permissions, quotas or missing parents were corrected,
/// so a create that was refused is tried again after pauses of at most 6.25 s.
///
/// **What it never does.** It neither adopts nor overwrites nor deletes the znode of another session,
/// also not the one that an earlier run of the process has left, which it cannot tell from that of
/// another process: it waits for the end of that session.
///
/// **A presence is not a lock.** A process that was paused, or is cut off from the servers, may
/// believe that it is present after its session has expired, and others may see its znode for up to a
/// session timeout after it has died.
///
/// **Permissions.** CREATE and DELETE on the parent; on the znode, WRITE to change the data, and READ:
/// servers report the deletion of a znode only to clients that may read it, so without READ, a
/// deletion is noticed late or, on servers before 3.8.4, not at all. Missing parents are created as
/// containers, with the list of the znode.
#[must_use = "a presence that is dropped removes its znode"]
pub struct Presence {
    stay: Stay<PresenceState>,
}

/// Options of a [`Presence`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `begin`"]
pub struct PresenceBuilder {
    client: Client,
    path: ByteString,
    acl: Vec<Acl>,
    keeps_trying: bool,
    timeout: Option<Duration>,
}

impl Presence {
    /// Returns a builder for a presence at a path.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn builder(client: &Client, path: &str) -> Result<PresenceBuilder, ConfigError> {
        check_path("path of the presence", path)?;
        let path = path.into();
        let acl = Session::of(client).default_acl();
        Ok(PresenceBuilder {
            client: client.clone(),
            path,
            acl,
            keeps_trying: false,
            timeout: None,
        })
    }

    /// Returns whether the znode exists, as far as the client knows, and since when and in which
    /// session, or why it does not.
    pub fn state(&self) -> PresenceState {
        self.stay.state()
    }

    /// Waits until the state differs from that of the last call, or of the beginning, and returns it.
    /// States that follow each other fast may be skipped. After the end of the client, every call
    /// returns at once.
    ///
    /// A lost **connection** is no change: whether the session has survived it is only known after
    /// the next reconnect. **Cancel safe**: no change is lost.
    ///
    /// # Errors
    ///
    /// It never fails, because the end is a state.
    pub async fn changed(&mut self) -> PresenceState {
        self.stay.changed().await
    }

    /// Replaces the data of the znode, in this session and in later ones. Completes when a server has
    /// stored them or, if the znode is absent at present, when it was created again with them. If
    /// there is nothing to wait for, the cost is one round trip.
    ///
    /// After a **connection loss**, the write is replayed behind a write barrier, and no error is
    /// returned. **Not cancel safe**: a dropped future, and one that has timed out, do not withdraw
    /// the data. A later call replaces them.
    ///
    /// # Errors
    ///
    /// [`PresenceError::Ended`] if the client has stopped. [`RecipeError::Refused`] or
    /// [`RecipeError::TooLarge`] if the data were not accepted: then the znode keeps its earlier
    /// data. [`RecipeError::TimedOut`] after the timeout of the presence, or that of the call.
    ///
    /// [`RecipeError::Refused`]: crate::RecipeError::Refused
    /// [`RecipeError::TimedOut`]: crate::RecipeError::TimedOut
    /// [`RecipeError::TooLarge`]: crate::RecipeError::TooLarge
    pub fn set_data(&self, data: impl Into<Bytes>) -> ScopedCall<'_, (), PresenceError> {
        self.stay.set_data(data.into())
    }

    /// Removes the znode, and waits until a server has confirmed it.
    ///
    /// After a **connection loss**, the removal is replayed, and never deletes the znode of another
    /// session. **Cancel safe** in that the znode is removed in any case; a dropped future does not
    /// wait for it.
    ///
    /// # Errors
    ///
    /// [`PresenceError::Ended`] if the client had stopped before; the znode ends with its session.
    /// [`RecipeError::Refused`](crate::RecipeError::Refused) if the server refuses to delete the
    /// znode, which the client then tries again in the background for as long as the session lives.
    /// [`RecipeError::TimedOut`](crate::RecipeError::TimedOut) after the timeout.
    pub fn close(self) -> Call<Released, PresenceError> {
        self.stay.leave()
    }

    /// Returns the path of the znode.
    pub fn path(&self) -> &str {
        self.stay.path()
    }
}

impl PresenceBuilder {
    /// Sets the access control list of the znode and of missing parents: the owner needs READ, WRITE,
    /// CREATE and DELETE. If it lets nobody create and delete, missing parents get that of the
    /// client. Default: that of the client
    /// ([`ClientBuilder::default_acl`](zk_session::ClientBuilder::default_acl)).
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.acl = acl;
        self
    }

    /// Makes [`begin`](Self::begin) wait, at most for its timeout, while something is in the way: a
    /// znode of another session, such as an earlier run of the process, a znode that is not
    /// ephemeral, or a refusal. Default: `begin` fails with the reason. A presence that has begun
    /// waits in either case.
    pub fn keep_trying(mut self) -> Self {
        self.keeps_trying = true;
        self
    }

    /// Limits [`begin`](Self::begin), [`set_data`](Presence::set_data) and
    /// [`close`](Presence::close) to this time, except for calls with a
    /// [timeout of their own](Call::timeout). Default: no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Creates the znode with these data, and its missing parents, and waits until it exists. Costs
    /// one round trip.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned. If the session
    /// **expires**, the call continues in the next session. **Cancel safe**: if the future is
    /// dropped, the znode is removed in the background.
    ///
    /// # Errors
    ///
    /// [`PresenceError::Taken`] or [`PresenceError::NotEphemeral`] if there is another znode at the
    /// path, and [`RecipeError::Refused`](crate::RecipeError::Refused) if a server refuses the
    /// create, unless the presence [keeps trying](Self::keep_trying).
    /// [`RecipeError::Config`](crate::RecipeError::Config) if the access control list is empty.
    /// [`RecipeError::TooLarge`](crate::RecipeError::TooLarge), and
    /// [`RecipeError::TimedOut`](crate::RecipeError::TimedOut) after the timeout. After any error,
    /// there is no presence.
    pub fn begin(&self, data: impl Into<Bytes>) -> Call<Presence, PresenceError> {
        let Self { client, path, acl, keeps_trying, timeout } = self.clone();
        let deadline = timeout.map(|timeout| client.now() + timeout);
        let data = data.into();
        Call::new(&self.client, &self.path, async move |deadline| {
            check_acl("acl of the presence", &client, &acl)?;
            let at_first = if keeps_trying { Patience::Everything } else { Patience::Nothing };
            let later = Patience::Everything;
            let profile = Profile { path, acl, at_first, later, is_prompt: true };
            let stay = Stay::begin(&client, profile, timeout, deadline, data).await?;
            Ok(Presence { stay })
        })
        .until(deadline)
    }
}

impl View for PresenceState {
    type Error = PresenceError;

    fn of(status: Status) -> Self {
        match status {
            Status::Present(Standing { session, czxid, ctime }) => {
                Self::Present { session, czxid, since: created_at(ctime) }
            }
            Status::Absent(absence) => Self::Absent(absence),
            // A presence that has begun waits out every znode that is in its way, and its owner has
            // given it up before it ends it.
            Status::Over(End::ClientStopped | End::Left | End::NotEphemeral | End::Taken(_)) => {
                Self::Ended
            }
        }
    }

    fn is_over(&self) -> bool {
        matches!(self, Self::Ended)
    }

    fn in_the_way(path: &str, owner: Option<SessionId>) -> PresenceError {
        let path = path.to_owned();
        match owner {
            Some(session) => PresenceError::Taken { path, session },
            None => PresenceError::NotEphemeral { path },
        }
    }

    fn ended(_: End) -> PresenceError {
        PresenceError::Ended
    }
}

impl fmt::Debug for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presence")
            .field("path", &self.path())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PresenceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PresenceBuilder").field("path", &self.path).finish_non_exhaustive()
    }
}
