//! Translates paths between the client's view and the server's.
//!
//! Handles and lanes know the paths of their own root only, and the session's task knows the
//! server's paths only. Each flight passes
//! [`Shared::submit`](crate::driver::shared::Shared::submit) on its way to the task, and each reply
//! passes [`Shared::receive`](crate::driver::shared::Shared::receive) in the future or the lane that
//! receives it; watch streams translate their events. They are the only callers of this module. The
//! task does not know which roots its handles have.

use jute_codec::{ErrorCode, Request, Response};

use crate::error::{OpError, Target};
use crate::machine::subject::refusal;
use crate::machine::{Flight, Reply};
use crate::path::Chroot;
use crate::types::WatchedEvent;

/// The root of the paths of a flight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Root {
    /// The chroot.
    Client,
    /// The root of the server. The paths of the reply are translated nevertheless.
    Server,
}

/// Prepends the chroot to the paths of a flight.
pub(crate) fn flight_to_server(chroot: &Chroot, flight: &mut Flight) {
    for operation in &mut flight.operations {
        request_to_server(chroot, &mut operation.request);
    }
}

/// Strips the chroot from the paths of the reply to a flight. If a multi was refused because the
/// chroot is missing, its result becomes that error.
pub(crate) fn reply_to_client(chroot: &Chroot, reply: &mut Reply) {
    if chroot.as_str().is_empty() {
        return;
    }
    for result in &mut reply.results {
        match result {
            Ok(response) => response_to_client(chroot, response),
            Err(error) => error_to_client(chroot, error),
        }
    }
    let Some(target) = &mut reply.refused else { return };
    let seen = chroot.to_client(&target.path);
    if !is_create_below_chroot(target, &seen) {
        target.path = seen;
        return;
    }
    // It is the operation of the first multi that was refused.
    let refused = reply.results.iter_mut().find_map(|result| {
        let code = refusal_of(result)?;
        Some((result, code))
    });
    if let Some((result, ErrorCode::NO_NODE)) = refused {
        *result = Err(missing(chroot, &seen));
        reply.refused = None;
    } else {
        target.path = seen;
    }
}

/// Strips the chroot from the path of an event.
pub(crate) fn event_to_client(chroot: &Chroot, event: &mut WatchedEvent) {
    event.path = chroot.to_client(&event.path);
}

/// Prepends the chroot to the paths of a request.
fn request_to_server(chroot: &Chroot, request: &mut Request) {
    if chroot.as_str().is_empty() {
        return;
    }
    // The server compares text, so the prefix needs the slash: without it, the ephemerals of
    // `/application` would be listed for the chroot `/app`.
    if let Request::GetEphemerals(prefix) = request {
        let inside = prefix.as_deref().unwrap_or("/");
        *prefix = Some(format!("{}{inside}", chroot.as_str()).into());
        return;
    }
    for path in request.paths_mut() {
        *path = chroot.to_server(path);
    }
}

/// Strips the chroot from the paths of a reply.
fn response_to_client(chroot: &Chroot, response: &mut Response) {
    if chroot.as_str().is_empty() {
        return;
    }
    for path in response.paths_mut() {
        *path = chroot.to_client(path);
    }
}

/// Strips the chroot from the path of an error. If a znode directly below the chroot could not be
/// created because its parent is missing, the chroot is missing.
pub(crate) fn error_to_client(chroot: &Chroot, error: &mut OpError) {
    if chroot.as_str().is_empty() {
        return;
    }
    let is_missing = error.is_no_node();
    let Some(target) = error.target_mut() else { return };
    let seen = chroot.to_client(&target.path);
    if is_missing && is_create_below_chroot(target, &seen) {
        *error = missing(chroot, &seen);
    } else {
        target.path = seen;
    }
}

/// Returns the error code of a multi that was refused.
fn refusal_of(result: &Result<Response, OpError>) -> Option<ErrorCode> {
    let Ok(Response::Multi(results)) = result else { return None };
    refusal(results).map(|(_, code)| code)
}

/// Returns true if the operation creates a znode directly below the chroot. `seen` is the path that
/// the client sees.
fn is_create_below_chroot(target: &Target, seen: &str) -> bool {
    let is_inside = seen.len() < target.path.len() && seen != "/";
    target.is_create() && is_inside && seen.rfind('/') == Some(0)
}

fn missing(chroot: &Chroot, seen: &str) -> OpError {
    OpError::ChrootMissing { chroot: chroot.as_str().to_owned(), path: seen.to_owned() }
}
