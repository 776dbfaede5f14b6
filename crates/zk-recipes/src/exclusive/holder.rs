//! Reading the holder of an exclusive lock.

use bytestring::ByteString;
use jute_codec::Response;
use zk_session::{Client, SessionId, Time};

use super::machine::id::identity_in;
use crate::engine::drive::run;
use crate::lock::contender::Contender;
use crate::lock::error::LockError;
use crate::lock::role::Role;
use crate::machine::{FailedAction, ReadAll, read};

/// Returns the holder of an exclusive lock, if there is one.
pub(crate) async fn holder(
    client: &Client,
    path: &ByteString,
    deadline: Option<Time>,
) -> Result<Option<Contender>, LockError> {
    let mut reading = ReadAll::new(vec![read(path.clone(), None)], FailedAction::Read, path);
    let response = run(client, &mut reading, deadline).await?.into_iter().next().flatten();
    let Some(Response::GetData(mut data)) = response else { return Ok(None) };
    if data.stat.ephemeral_owner == SessionId::NONE {
        return Err(LockError::MixedKinds { path: path.to_string() });
    }
    data.data = data.data.map(|bytes| identity_in(&bytes));
    Ok(Some(Contender::new(path, 0, Role::Exclusive, data)))
}
