//! A group, its options, and a look at its members.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{Acl, Response};
use zk_session::recipe::Session;
use zk_session::{Client, ConfigError, OptionDefect, Time};

use super::error::GroupError;
use super::member::Member;
use super::membership::Membership;
use super::watch::GroupWatch;
use crate::engine::call::Call;
use crate::engine::drive::run;
use crate::error::{RecipeError, check_acl, check_path};
use crate::machine::{FailedAction, ReadAll, child, list, read};
use crate::presence::machine::profile::{Patience, Profile};
use crate::presence::stay::Stay;

/// A group of processes: each member is an ephemeral znode in a directory. Its name is the id of
/// the member, and its data are what the member says about itself, for example its address.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// use zk_recipes::{Client, Group, GroupChange};
///
/// let client = Client::connect(address.to_string()).await?;
/// let group = Group::new(&client, "/services/search/members")?;
/// let membership = group.join("host-7", "10.0.0.7:8080").await?;
///
/// let mut watch = group.watch();
/// let GroupChange::Joined(member) = watch.next().await? else { panic!("it joined first") };
/// assert_eq!((member.id.as_str(), &member.data[..]), ("host-7", &b"10.0.0.7:8080"[..]));
///
/// membership.leave().await?;
/// assert!(matches!(watch.next().await?, GroupChange::Left(member) if member.id == "host-7"));
/// # Ok(()) }
/// ```
///
/// **A membership is not a lock.** A process that was paused, or is cut off from the servers, may
/// believe that it is a member after its session has expired, and others may see it for up to a
/// session timeout after it has died.
///
/// **Permissions.** A member needs CREATE and DELETE on the directory, WRITE on its own znode to
/// change its data, and READ on it: servers report the deletion of a znode only to clients that may
/// read it. An observer needs READ on the directory and on the members. Missing directories are created as containers, with
/// the list of the members.
///
/// Building a group does no I/O, and clones are cheap.
#[derive(Clone)]
pub struct Group {
    client: Client,
    options: Options,
}

/// Options of a [`Group`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct GroupBuilder {
    client: Client,
    options: Options,
}

#[derive(Clone, Debug)]
struct Options {
    directory: ByteString,
    acl: Vec<Acl>,
    waits_if_taken: bool,
    watches_data: bool,
    timeout: Option<Duration>,
}

impl Group {
    /// Builds a group at a directory, with default options.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn new(client: &Client, directory: &str) -> Result<Self, ConfigError> {
        Self::builder(client, directory)?.build()
    }

    /// Returns a builder for a group at a directory.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn builder(client: &Client, directory: &str) -> Result<GroupBuilder, ConfigError> {
        check_path("directory of the group", directory)?;
        let options = Options {
            directory: directory.into(),
            acl: Session::of(client).default_acl(),
            waits_if_taken: false,
            watches_data: true,
            timeout: None,
        };
        Ok(GroupBuilder { client: client.clone(), options })
    }

    /// Joins the group with an id and data. The id is the name of the member's znode, so it must
    /// not contain a slash. The member stays present until the [`Membership`] is dropped.
    ///
    /// If another session is a member with this id, the join fails or, with
    /// [`wait_if_taken`](GroupBuilder::wait_if_taken), waits until that member has left. Each id
    /// may be joined once at a time, also within one client.
    ///
    /// After a **connection loss**, requests are replayed, and no error is returned. If the session
    /// **expires**, the join continues in the next session. **Cancel safe**: if the future is
    /// dropped, the znode is removed in the background.
    ///
    /// # Errors
    ///
    /// See [`GroupError`], in particular [`GroupError::IdTaken`]. [`RecipeError::Config`] if the id
    /// is not a valid name of a znode. After any error, this process is not a member.
    pub fn join(&self, id: &str, data: impl Into<Bytes>) -> Call<Membership, GroupError> {
        let Options { directory, acl, waits_if_taken, timeout, .. } = self.options.clone();
        let (client, id, data) = (self.client.clone(), id.to_owned(), data.into());
        let path = child(&directory, &id);
        let joining = async move |deadline| {
            let path = child(&directory, &id);
            if id.is_empty() || id.contains('/') || zk_session::path::validate(&path).is_err() {
                return Err(GroupError::Recipe(RecipeError::Config(ConfigError::Option {
                    option: "id of the member",
                    value: format!("{id:?}"),
                    defect: OptionDefect::Other(
                        "it must be a name of a znode: not empty, without / and without characters \
                         that servers refuse, and neither . nor ..",
                    ),
                })));
            }
            let patience = if waits_if_taken { Patience::Sessions } else { Patience::Nothing };
            // The members of a group may lose their znodes together, so they pause.
            let profile =
                Profile { path, acl, at_first: patience, later: patience, is_prompt: false };
            let stay = Stay::begin(&client, profile, timeout, deadline, data).await?;
            Ok(Membership { stay })
        };
        Call::new(&self.client, &path, joining).until(self.deadline())
    }

    /// Reads the members, in the order of their ids. Members that arrive or leave meanwhile may be
    /// missing or included. Costs a list, and a read for each member, in two round trips for up to
    /// 100 members and one more for each further 100.
    ///
    /// After a lost connection, requests are replayed. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`RecipeError::Refused`] if the client may not read the directory or a member;
    /// [`RecipeError::TimedOut`] after the group's timeout; [`RecipeError::Closed`] and similar
    /// errors if the client has stopped.
    pub fn members(&self) -> Call<Vec<Member>, RecipeError> {
        let Self { client, options: Options { directory, .. } } = self.clone();
        Call::new(&self.client, &self.options.directory, async move |deadline| {
            read_members(&client, &directory, deadline).await
        })
        .until(self.deadline())
    }

    /// Watches the members. See [`GroupWatch`].
    pub fn watch(&self) -> GroupWatch {
        GroupWatch::new(&self.client, &self.options.directory, self.options.watches_data)
    }

    /// Returns the directory of the group.
    pub fn directory(&self) -> &str {
        &self.options.directory
    }

    fn deadline(&self) -> Option<Time> {
        self.options.timeout.map(|timeout| self.client.now() + timeout)
    }
}

async fn read_members(
    client: &Client,
    directory: &ByteString,
    deadline: Option<Time>,
) -> Result<Vec<Member>, RecipeError> {
    let mut listing = ReadAll::new(vec![list(directory, None)], FailedAction::List, directory);
    let listed = run(client, &mut listing, deadline).await?.pop().flatten();
    let Some(Response::GetChildren(names)) = listed else { return Ok(Vec::new()) };
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort();
    let reads = names.iter().map(|name| read(child(directory, name), None)).collect();
    let mut reading = ReadAll::new(reads, FailedAction::ReadChild, directory);
    let found = run(client, &mut reading, deadline).await?;
    let members = names.iter().zip(found).filter_map(|(name, found)| match found {
        Some(Response::GetData(found)) => Member::new(name, found),
        // If the znode does not exist, the member has left since the list was read.
        Some(_) | None => None,
    });
    Ok(members.collect())
}

impl GroupBuilder {
    /// Sets the access control list of the members' znodes and of missing directories: members need
    /// READ, WRITE, CREATE and DELETE, and observers need READ. If it lets nobody create and delete,
    /// missing directories get that of the client. Default: that of the client
    /// ([`ClientBuilder::default_acl`](zk_session::ClientBuilder::default_acl)).
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.options.acl = acl;
        self
    }

    /// Waits if another session is a member with the id, until that member has left or its session
    /// has expired. Use it, with a [`timeout`](Self::timeout), for ids that survive a restart of
    /// the process. Default: the join fails with [`GroupError::IdTaken`].
    pub fn wait_if_taken(mut self) -> Self {
        self.options.waits_if_taken = true;
        self
    }

    /// Sets whether watches also watch the data of each member. With `false`, a watch needs one
    /// watch on the servers instead of one for each member and one more, but it reports a change of
    /// data only when a member joins or leaves, and reads all members after each lost connection; on
    /// servers before 3.6, whenever one joins or leaves. Default: true.
    pub fn watch_data(mut self, watches_data: bool) -> Self {
        self.options.watches_data = watches_data;
        self
    }

    /// Limits each [`join`](Group::join), [`members`](Group::members),
    /// [`set_data`](Membership::set_data) and [`leave`](Membership::leave) to this time, except
    /// for calls with a [timeout of their own](Call::timeout). Default: no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// Checks the options and builds the group.
    ///
    /// # Errors
    ///
    /// Fails if the access control list is empty.
    pub fn build(self) -> Result<Group, ConfigError> {
        let Self { client, options } = self;
        check_acl("acl of the group", &client, &options.acl)?;
        Ok(Group { client, options })
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("directory", &self.directory()).finish_non_exhaustive()
    }
}

impl fmt::Debug for GroupBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupBuilder").field("options", &self.options).finish_non_exhaustive()
    }
}
