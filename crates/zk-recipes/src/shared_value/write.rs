//! Writing a shared value at most once.
//!
//! The write is a transaction with a marker, see [`Once`]: it is replayed in its session until the
//! outcome is known. If the session ends first, the marker is gone. Then a barrier and a read in
//! the next session tell what is left to tell:
//!
//! - The znode is still the one that was read, and so is its version: the write was not applied.
//!   Write again.
//! - The version of that znode is the next one, and the data is not ours: another client's write was
//!   applied, and so ours was not.
//! - Otherwise ours may have been applied, and overwritten since, or another client has written the
//!   same bytes. The caller learns that, and the value that was found.
//!
//! The first conclusion holds for a session that has ended on the servers. One that the client has only
//! left, because a server has swapped it or is a ClickHouse Keeper, may live on, and its write is *loose*:
//! it may arrive later than the read. It still needs the version that was read, and so does the one that
//! is written again, so at most one of them is applied. But if the latter is refused, the loose one may
//! be the reason, and the rules above decide again.

use bytes::Bytes;
use jute_codec::{ErrorCode, MultiOp, MultiResult, Response, SetDataRequest};
use zk_session::recipe::Session;
use zk_session::{Client, OpError, Time, Version};

use super::builder::ValueProfile;
use super::error::ValueError;
use super::versioned::{Revision, Versioned};
use crate::action::FailedAction;
use crate::engine::attended::Attended;
use crate::engine::drive::run;
use crate::error::RecipeError;
use crate::machine::{Failure, Once, ReadAll, Settled, barrier, child, read};

/// The outcome of a write that did not fail.
#[derive(Debug)]
pub(crate) enum Written {
    /// The write was applied, and the value has this revision. `None` if the write had to fit no
    /// version, and its reply was lost.
    Applied(Option<Revision>),
    /// The znode does not exist. Nothing was written.
    Missing,
}

/// Writes the data, if the value has this revision.
pub(crate) async fn write(
    client: &Client,
    profile: &ValueProfile,
    bytes: &Bytes,
    expected: Option<Revision>,
    deadline: Option<Time>,
) -> Result<Written, ValueError> {
    // Why the outcome of a loose write is not known.
    let mut loose: Option<RecipeError> = None;
    loop {
        let attempted = attempt(client, profile, bytes, expected, deadline).await;
        let is_refused = match &attempted {
            Ok(Attempt::Written(written)) => matches!(written, Written::Missing),
            Ok(Attempt::InDoubt(_)) => false,
            Err(error) => matches!(error, ValueError::Conflict),
        };
        let cause = match (attempted, &loose) {
            (Ok(Attempt::InDoubt(cause)), _) => cause,
            (_, Some(cause)) if is_refused => cause.clone(),
            (Err(ValueError::Recipe(cause)), Some(_)) => {
                return Err(ValueError::Undecided { cause, found: None });
            }
            (Ok(Attempt::Written(written)), _) => return Ok(written),
            (Err(error), _) => return Err(error),
        };
        if matches!(cause, RecipeError::AuthFailed | RecipeError::Closed | RecipeError::TimedOut(_))
        {
            return Err(ValueError::Undecided { cause, found: None });
        }
        let Ok(found) = look(client, profile, deadline).await else {
            return Err(ValueError::Undecided { cause, found: None });
        };
        match (&found, expected) {
            (Some(found), Some(expected)) if found.revision() == expected && !is_refused => {
                if cause != RecipeError::SessionExpired {
                    return Err(match loose {
                        Some(_) => ValueError::Undecided { cause, found: None },
                        None => cause.into(),
                    });
                }
                loose = client.status().has_left_session().then_some(cause);
            }
            (Some(found), Some(expected))
                if found.revision() == expected.next() && found.bytes() != bytes =>
            {
                return Err(ValueError::Conflict);
            }
            _ => return Err(ValueError::Undecided { cause, found: found.map(Box::new) }),
        }
    }
}

enum Attempt {
    Written(Written),
    InDoubt(RecipeError),
}

async fn attempt(
    client: &Client,
    profile: &ValueProfile,
    bytes: &Bytes,
    expected: Option<Revision>,
    deadline: Option<Time>,
) -> Result<Attempt, ValueError> {
    let name = format!("write-{:032x}", Session::of(client).unique_id());
    let request = SetDataRequest {
        path: profile.path.clone(),
        data: Some(bytes.clone()),
        version: expected.map_or(Version::ANY, |expected| expected.version),
    };
    let marker = child(&profile.path, &name);
    let once = Once::new(marker.clone(), profile.acl.clone(), vec![MultiOp::SetData(request)]);
    let running = Attended::new(client, once, &profile.path, deadline).await;
    let mut running = running?;
    let refused = |action, path, code| {
        ValueError::from(RecipeError::of(Failure::new(action, path, OpError::server(code))))
    };
    let settled = match running.run_write(deadline).await {
        Ok(settled) => settled.map_err(RecipeError::of)?,
        Err(cause) => {
            let (once, is_pending) = running.state();
            let in_doubt = once.is_in_doubt() || is_pending;
            return if in_doubt { Ok(Attempt::InDoubt(cause)) } else { Err(cause.into()) };
        }
    };
    match settled {
        Settled::Applied(results) => {
            let revision = match results.as_deref() {
                Some([MultiResult::SetData(stat)]) => Some(Revision::of(stat)),
                _ => expected.map(Revision::next),
            };
            match (revision, expected) {
                // Servers compare only versions, and the new znode happened to have this one.
                (Some(revision), Some(expected)) if revision.czxid != expected.czxid => {
                    let written = Versioned::new(bytes.clone(), revision);
                    Err(ValueError::Recreated { written })
                }
                _ => Ok(Attempt::Written(Written::Applied(revision))),
            }
        }
        Settled::Refused(_, ErrorCode::NO_NODE) => Ok(Attempt::Written(Written::Missing)),
        Settled::Refused(_, ErrorCode::BAD_VERSION) => Err(ValueError::Conflict),
        Settled::Refused(0, code) => Err(refused(FailedAction::Create, marker, code)),
        Settled::Refused(_, code) => Err(refused(FailedAction::Write, profile.path.clone(), code)),
        Settled::Undecided(error) => {
            let failure = Failure::new(FailedAction::Write, profile.path.clone(), error);
            Ok(Attempt::InDoubt(RecipeError::of(failure)))
        }
    }
}

/// Reads the value behind a write barrier.
async fn look(
    client: &Client,
    profile: &ValueProfile,
    deadline: Option<Time>,
) -> Result<Option<Versioned>, RecipeError> {
    let operations = vec![barrier(profile.path.clone()), read(profile.path.clone(), None)];
    let mut reading = ReadAll::new(operations, FailedAction::Read, &profile.path);
    Ok(match run(client, &mut reading, deadline).await?.pop().flatten() {
        Some(Response::GetData(found)) => Some(Versioned::of(&found)),
        _ => None,
    })
}
