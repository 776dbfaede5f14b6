//! Creates a missing chroot.

use std::sync::Arc;

use bytes::Bytes;
use jute_codec::{CreateMode, CreateRequest, ErrorCode, ReadRequest, Request};

use crate::chroot::translate::Root;
use crate::driver::access::Access;
use crate::driver::shared::Shared;
use crate::error::{ConnectError, OpError};
use crate::machine::Operation;
use crate::operation::create::CreateOptions;
use crate::operation::op::Op;
use crate::path::Chroot;

/// Creates the chroot and its ancestors if the chroot is missing. A create can be repeated after a
/// lost connection, because a second create just fails with `NODE_EXISTS`. What it creates has the
/// client's default access control list.
pub(crate) async fn ensure_chroot(shared: &Arc<Shared>) -> Result<(), ConnectError> {
    let chroot = shared.chroot.as_str();
    if chroot.is_empty() || exists(shared, chroot).await {
        return Ok(());
    }
    let (mut last, mut refused) = (Ok(()), None);
    for request in creates(&shared.chroot, &shared.access) {
        let path = request.path.clone();
        let request = Request::Create(request);
        last = replay(|| at_server(shared, request.clone())).await.map_err(|mut error| {
            // The message has to name the path on the server.
            if let Some(target) = error.target_mut() {
                target.path = path;
            }
            error
        });
        // An ancestor may exist although the client has no permission to create it, and servers check
        // that permission first. So its error matters only if the next one misses it.
        if let Err(error) = &last
            && !error.is_no_node()
        {
            refused = Some(error.clone());
        }
    }
    match last {
        Ok(()) | Err(OpError::Server { code: ErrorCode::NODE_EXISTS, .. }) => Ok(()),
        Err(error) => {
            let is_cause = |refused: &OpError| {
                error.is_no_node() && refused.server_code() != Some(ErrorCode::NODE_EXISTS)
            };
            let error = refused.filter(is_cause).unwrap_or(error);
            Err(ConnectError::Chroot { path: chroot.to_owned(), error })
        }
    }
}

/// Returns whether a znode is known to exist, given its path on the server. Servers from 3.8.4 and
/// 3.9.2 refuse the question to a client that may not read the znode, but only if it exists.
async fn exists(shared: &Arc<Shared>, path: &str) -> bool {
    let found = replay(|| probe(shared, path)).await;
    matches!(found, Ok(()) | Err(OpError::Server { code: ErrorCode::NO_AUTH, .. }))
}

/// Checks whether a znode exists, given its path on the server. Fails with `NO_NODE` if it does
/// not.
fn probe(shared: &Arc<Shared>, path: &str) -> Op<()> {
    let read = ReadRequest { path: path.into(), watch: false };
    at_server(shared, Request::Exists(read))
}

/// Submits a request with the server's path.
fn at_server(shared: &Arc<Shared>, request: Request) -> Op<()> {
    let operation = Operation::new(request);
    Op::submit(shared, None, Root::Server, operation, None, |answer| answer.result.map(drop))
}

/// Returns the requests that create a chroot and its ancestors, from the root down.
pub(crate) fn creates(chroot: &Chroot, access: &Access) -> Vec<CreateRequest> {
    let chroot = chroot.as_str();
    let ends = chroot.match_indices('/').map(|(at, _)| at).skip(1);
    let ends = ends.chain((!chroot.is_empty()).then_some(chroot.len()));
    let create = |end| {
        let path = chroot.get(..end).unwrap_or(chroot);
        let options = CreateOptions::from(CreateMode::Persistent);
        // These are paths on the server, without a chroot in front of them.
        let acl = || access.default_acl(&Chroot::default(), path);
        options.request(path, Bytes::new(), acl)
    };
    ends.map(create).collect()
}

/// Repeats an operation until it gets a reply.
async fn replay(operation: impl Fn() -> Op<()>) -> Result<(), OpError> {
    loop {
        match operation().await {
            Err(error) if error.is_connection_loss() => {}
            result => return result,
        }
    }
}
