//! Closing and opening a barrier at most once.

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{CreateMode, CreateRequest, DeleteRequest, ErrorCode, MultiOp};
use zk_session::recipe::Session;
use zk_session::{OpError, Time, Version};

use super::builder::Profile;
use crate::action::FailedAction;
use crate::engine::attended::Attended;
use crate::engine::drive::run;
use crate::error::RecipeError;
use crate::machine::{
    Ensure, Failure, Once, ReadAll, Settled, barrier, child, exists, name_of, parent,
};

/// How often the directory of the barrier is created. This number is reached only if somebody
/// deletes it each time.
const CREATES_MAX: u32 = 5;

/// What to do with the barrier.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Change {
    Close,
    Open,
}

/// Closes or opens the barrier.
pub(super) async fn change_before(
    profile: Profile,
    change: Change,
    deadline: Option<Time>,
) -> Result<(), RecipeError> {
    let Profile { client, path, acl, .. } = &profile;
    let is_closing = change == Change::Close;
    let action = if is_closing { FailedAction::Create } else { FailedAction::Delete };
    let failed = |code| -> Result<(), RecipeError> {
        Err(RecipeError::of(Failure::new(action, path.clone(), OpError::server(code))))
    };
    for _ in 0..CREATES_MAX {
        let marker = new_marker(&profile);
        match attempt(&profile, change, marker.clone(), deadline).await? {
            Settled::Applied(_) => return Ok(()),
            Settled::Refused(0, ErrorCode::NO_NODE) if is_closing => {
                let mut ensure = Ensure::parent_of(path.clone(), acl.clone());
                run(client, &mut ensure, deadline).await?;
            }
            Settled::Refused(1, ErrorCode::NODE_EXISTS) if is_closing => return Ok(()),
            Settled::Refused(_, ErrorCode::NO_NODE) if !is_closing => return Ok(()),
            Settled::Refused(0, code) => {
                let error = OpError::server(code);
                return Err(RecipeError::of(Failure::new(FailedAction::Create, marker, error)));
            }
            Settled::Refused(_, code) => return failed(code),
            // The marker is gone. If the barrier is as the caller wants it, the change is complete.
            // Otherwise it was changed and changed back, or never changed: a repetition might undo
            // what another client has done since.
            Settled::Undecided(error) => {
                if is_there(&profile, true, deadline).await? == is_closing {
                    return Ok(());
                }
                return Err(RecipeError::of(Failure::new(action, path.clone(), error)));
            }
        }
    }
    failed(ErrorCode::NO_NODE)
}

async fn attempt(
    Profile { client, path, acl, .. }: &Profile,
    change: Change,
    marker: ByteString,
    deadline: Option<Time>,
) -> Result<Settled, RecipeError> {
    let operation = match change {
        Change::Close => MultiOp::Create(CreateRequest {
            path: path.clone(),
            data: Some(Bytes::new()),
            acl: acl.clone(),
            mode: CreateMode::Persistent,
            with_stat: false,
        }),
        Change::Open => {
            MultiOp::Delete(DeleteRequest { path: path.clone(), version: Version::ANY })
        }
    };
    let once = Once::new(marker, acl.clone(), vec![operation]);
    let mut running = Attended::new(client, once, path, deadline).await?;
    running.run(deadline).await
}

/// Returns the path of a marker. It is beside the barrier: a barrier with a child could not be deleted.
fn new_marker(Profile { client, path, .. }: &Profile) -> ByteString {
    let name = name_of(path).unwrap_or_default();
    let name = format!("{name}-change-{:032x}", Session::of(client).unique_id());
    child(&parent(path), &name)
}

/// Reads whether the znode exists, behind a write barrier if writes may be on their way.
pub(super) async fn is_there(
    Profile { client, path, .. }: &Profile,
    with_barrier: bool,
    deadline: Option<Time>,
) -> Result<bool, RecipeError> {
    let mut operations = vec![exists(path.clone())];
    if with_barrier {
        operations.insert(0, barrier(path.clone()));
    }
    let mut reading = ReadAll::new(operations, FailedAction::Check, path);
    let found = run(client, &mut reading, deadline).await?.pop().flatten();
    Ok(found.is_some())
}
