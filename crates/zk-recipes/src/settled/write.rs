//! Writes that are applied at most once, and whose outcome is found out.
//!
//! Each write is a transaction with a marker, see [`Once`]. The marker is kept for the next
//! transaction, so a write without a fault is one request.
//!
//! If the reply was lost, the transaction that has last written the marker is the one that has
//! applied the operation. A znode that it has created or written has the same zxid in its stat; any
//! other znode of the same name is another one.

use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::{
    Acl, CreateMode, ErrorCode, MultiOp, MultiResult, OpCode, ReadRequest, Request, Response,
};
use zk_session::recipe::{Operation, Session};
use zk_session::{Client, OpError, Outcome, SessionId, Stat, Target, Time, Version, Zxid};

use super::again::until;
use super::error::SettledError;
use super::markers::Markers;
use crate::action::FailedAction;
use crate::engine::attended::Laneless;
use crate::engine::drive::{reserve, run};
use crate::error::RecipeError;
use crate::machine::{Ensure, Failure, Once, ReadAll, Settled, child, exists, name_of, parent};

/// How often missing directories are created. This number is reached only if somebody deletes them
/// each time.
const ROUNDS_MAX: u32 = 5;
/// Number of znodes that are looked at in one flight, to find the one that was created.
const BATCH: usize = 100;
/// Number of digits that a server appends to the name of a sequential znode.
const DIGITS: usize = 10;

/// What all operations of a handle need.
#[derive(Clone)]
pub(super) struct Profile {
    pub(super) client: Client,
    /// The directory of the markers.
    pub(super) directory: ByteString,
    /// The access control list of the markers and their directory.
    pub(super) acl: Vec<Acl>,
    pub(super) markers: Arc<Markers>,
}

/// What the markers show about a write that was applied.
pub(super) enum Applied {
    /// Its reply has arrived.
    Replied(Vec<MultiResult>),
    /// Its reply was lost. This is its zxid, if it could be read.
    Lost(Option<Zxid>),
}

/// The ancestors to create if the parent of the first operation's znode is missing.
pub(super) struct Ancestors {
    pub(super) mode: CreateMode,
    pub(super) acl: Vec<Acl>,
}

/// The operations to apply once.
pub(super) struct Write<'a> {
    pub(super) operations: &'a [MultiOp],
    pub(super) ancestors: Option<&'a Ancestors>,
    /// The session to which the operations belong, if the caller knows it.
    pub(super) session: Option<SessionId>,
}

/// Applies the operations once, or finds out why they were not applied.
pub(super) async fn write(
    profile: &Profile,
    &Write { operations, ancestors, session }: &Write<'_>,
    deadline: Option<Time>,
) -> Result<Applied, SettledError> {
    let Profile { client, directory, acl, markers, .. } = profile;
    let path = operations.first().map_or(directory, path_of);
    // An ephemeral znode is of no use to the caller in another session than the current one.
    let is_bound = session.is_some() || operations.iter().any(creates_ephemeral);
    let bound = session.or_else(|| if is_bound { client.session_id() } else { None });
    let (mut rounds, mut needs_new_marker) = (0, false);
    loop {
        let slot = reserve(client, path, deadline).await?;
        let current = bound.or_else(|| client.session_id());
        let kept = if needs_new_marker { None } else { markers.take(current) };
        let is_new = kept.is_none();
        let mut once = match kept {
            Some(marker) => Once::again(marker, operations.to_vec()),
            None => Once::new(new_marker(client, directory), acl.clone(), operations.to_vec()),
        };
        if is_bound {
            once = once.bound_to(bound);
        }
        let writing = Laneless::new(client, once, slot);
        let (settled, lost, marker) = settle(profile, writing, deadline).await?;
        let missing = match settled {
            Settled::Applied(Some(results)) => return Ok(Applied::Replied(results)),
            Settled::Applied(None) => return Ok(Applied::Lost(lost)),
            Settled::Undecided(error) => {
                let failure = Failure::new(FailedAction::Write, path.clone(), error);
                return Err(unknown(RecipeError::of(failure)));
            }
            // Somebody has deleted the marker, or it does not permit what it did when it was
            // created.
            Settled::Refused(0, _) if !is_new => {
                needs_new_marker = true;
                continue;
            }
            Settled::Refused(0, ErrorCode::NO_NODE) if rounds < ROUNDS_MAX => {
                Ensure::parent_of(child(directory, "marker"), acl.clone())
            }
            Settled::Refused(0, code) => {
                let failure = Failure::new(FailedAction::Create, marker, OpError::server(code));
                return Err(RecipeError::of(failure).into());
            }
            Settled::Refused(at, code) => match ancestors {
                Some(ancestors) if code == ErrorCode::NO_NODE && rounds < ROUNDS_MAX => {
                    ensure_parent(path, ancestors)
                }
                _ => return Err(refused(operations, at - 1, code)),
            },
        };
        rounds += 1;
        Box::pin(run(client, &mut { missing }, deadline)).await?;
    }
}

/// The outcome of a transaction. If its reply was lost, also its zxid. And the path of its marker, which
/// is not kept while the transaction waits.
type Outcomes = (Settled, Option<Zxid>, ByteString);

/// Sends a transaction until its outcome is known.
async fn settle(
    profile: &Profile,
    mut writing: Laneless<'_, Once>,
    deadline: Option<Time>,
) -> Result<Outcomes, SettledError> {
    let Profile { client, markers, .. } = profile;
    // Without a fault, a write with a marker that exists is one request like any other.
    if let Some((session, multi)) = writing.machine().first() {
        let request = Session::of(client).submit(session, multi);
        let result = until(client, request, deadline).await;
        if let Err(OpError::TimedOut { outcome, .. }) = result {
            let cause = RecipeError::timed_out();
            let is_unknown = outcome == Outcome::Unknown;
            return Err(if is_unknown { unknown(cause) } else { not_applied(cause) });
        }
        if let Some(settled) = writing.machine().sent(result) {
            markers.keep(writing.machine(), &settled);
            let (marker, _) = writing.machine().marker();
            return Ok((settled, None, marker.clone()));
        }
    }
    // Boxed, because each write would have room for it, and nearly none needs it.
    Box::pin(settle_on_lane(profile, writing, deadline)).await
}

async fn settle_on_lane(
    Profile { client, markers, .. }: &Profile,
    writing: Laneless<'_, Once>,
    deadline: Option<Time>,
) -> Result<Outcomes, SettledError> {
    let mut running = writing.with_lane();
    let settled = match running.run_write(deadline).await {
        Ok(Ok(settled)) => settled,
        Ok(Err(failure)) => return Err(not_applied(RecipeError::of(failure))),
        Err(cause) => {
            let (once, is_pending) = running.state();
            let in_doubt = once.is_in_doubt() || is_pending;
            return Err(if in_doubt { unknown(cause) } else { not_applied(cause) });
        }
    };
    let lost = if settled == Settled::Applied(None) {
        let (marker, version) = running.state().0.marker();
        zxid_of(client, marker, version, deadline).await
    } else {
        None
    };
    let (repeating, ..) = running.parts();
    markers.keep(&mut repeating.machine, &settled);
    let (marker, _) = repeating.machine.marker();
    Ok((settled, lost, marker.clone()))
}

fn ensure_parent(path: &ByteString, Ancestors { mode, acl }: &Ancestors) -> Ensure {
    let ensure = Ensure::parent_of(path.clone(), acl.clone());
    if *mode == CreateMode::Container { ensure } else { ensure.with_persistent_ancestors() }
}

fn new_marker(client: &Client, directory: &ByteString) -> ByteString {
    child(directory, &format!("marker-{:032x}", Session::of(client).unique_id()))
}

fn creates_ephemeral(operation: &MultiOp) -> bool {
    let MultiOp::Create(create) = operation else { return false };
    matches!(create.mode, CreateMode::Ephemeral | CreateMode::EphemeralSequential)
}

fn path_of(operation: &MultiOp) -> &ByteString {
    match operation {
        MultiOp::Check(check) => &check.path,
        MultiOp::Create(create) => &create.path,
        MultiOp::Delete(delete) => &delete.path,
        MultiOp::SetData(write) => &write.path,
    }
}

fn refused(operations: &[MultiOp], index: usize, code: ErrorCode) -> SettledError {
    let target = operations.get(index).map(|operation| {
        let op = match operation {
            MultiOp::Check(_) => OpCode::CHECK,
            MultiOp::Create(create) => create.op(),
            MultiOp::Delete(_) => OpCode::DELETE,
            MultiOp::SetData(_) => OpCode::SET_DATA,
        };
        Target::new(op, path_of(operation).clone())
    });
    SettledError::Refused { index, code, target: target.unwrap_or_default() }
}

pub(super) fn not_applied(error: RecipeError) -> SettledError {
    if error == RecipeError::SessionExpired {
        return SettledError::SessionEnded { outcome: Outcome::NotApplied };
    }
    SettledError::Recipe(error)
}

pub(super) fn unknown(cause: RecipeError) -> SettledError {
    if cause == RecipeError::SessionExpired {
        return SettledError::SessionEnded { outcome: Outcome::Unknown };
    }
    SettledError::Unknown { cause }
}

/// Returns the zxid of the transaction that has given the marker this version. `None` if that cannot
/// be read any more.
async fn zxid_of(
    client: &Client,
    marker: &ByteString,
    version: Version,
    deadline: Option<Time>,
) -> Option<Zxid> {
    let [stat] = stats(client, [marker.clone()].into(), deadline).await?.try_into().ok()?;
    stat.filter(|stat| stat.version == version).map(|stat| stat.mzxid)
}

/// Returns the stat of the znode, if the field of it that this function returns is the zxid of the
/// transaction: the transaction has created the znode, or was the last one to write its data.
pub(super) async fn found(
    client: &Client,
    path: &ByteString,
    zxid: Option<Zxid>,
    field: fn(&Stat) -> Zxid,
    deadline: Option<Time>,
) -> Option<Stat> {
    let [stat] = stats(client, [path.clone()].into(), deadline).await?.try_into().ok()?;
    stat.filter(|stat| Some(field(stat)) == zxid)
}

/// Finds the sequential znode that this transaction has created from this path.
pub(super) async fn sequential(
    client: &Client,
    path: &ByteString,
    zxid: Option<Zxid>,
    deadline: Option<Time>,
) -> Option<(ByteString, Stat)> {
    zxid?;
    let (directory, prefix) = (parent(path), name_of(path)?);
    // Another machine's list may have been sent before.
    let list = ReadRequest { path: directory.clone(), watch: false };
    let list = vec![Operation::new(Request::GetChildren(list))];
    let mut listing = ReadAll::new(list, FailedAction::List, &directory);
    let listed = run(client, &mut listing, deadline).await.ok()?.pop()?;
    let Some(Response::GetChildren(names)) = listed else { return None };
    let number = |name: &str| -> Option<i32> {
        let digits = name.strip_prefix(&*prefix)?;
        if digits.len() < DIGITS { None } else { digits.parse().ok() }
    };
    let numbered = names.iter().filter_map(|name| Some((number(name)?, name)));
    let mut numbered: Vec<_> = numbered.collect();
    // It is probably among the newest.
    numbered.sort_unstable_by(|one, other| other.cmp(one));
    for batch in numbered.chunks(BATCH) {
        let paths: Vec<_> = batch.iter().map(|(_, name)| child(&directory, name)).collect();
        let stats = stats(client, paths.clone(), deadline).await?;
        let mut found = paths.into_iter().zip(stats);
        if let Some((path, Some(stat))) =
            found.find(|(_, stat)| stat.is_some_and(|stat| Some(stat.czxid) == zxid))
        {
            return Some((path, stat));
        }
    }
    None
}

/// Reads the stats of znodes. `None` if a server refuses it, or the time is up: the write was
/// applied, and only what it has created is not known.
async fn stats(
    client: &Client,
    paths: Vec<ByteString>,
    deadline: Option<Time>,
) -> Option<Vec<Option<Stat>>> {
    let path = paths.first()?.clone();
    let operations = paths.into_iter().map(exists).collect();
    let mut reading = ReadAll::new(operations, FailedAction::Check, &path);
    let found = run(client, &mut reading, deadline).await.ok()?;
    let stat = |response| match response {
        Some(Response::Exists(stat)) => Some(Stat::from(stat)),
        _ => None,
    };
    Some(found.into_iter().map(stat).collect())
}
