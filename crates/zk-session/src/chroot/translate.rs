//! Translates paths of requests and replies between the client's view and the server's.

#![expect(clippy::wildcard_enum_match_arm, reason = "most replies have no path")]

use bytestring::ByteString;
use jute_codec::{ErrorCode, MultiResult, Request, Response};

use crate::error::OpError;
use crate::machine::subject::refusal;
use crate::path::Chroot;
use crate::target::Target;

/// Prepends the chroot to the paths of a request.
pub(crate) fn request_to_server(chroot: &Chroot, request: &mut Request) {
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
pub(crate) fn response_to_client(chroot: &Chroot, response: &mut Response) {
    if chroot.as_str().is_empty() {
        return;
    }
    let map = |path: &mut ByteString| *path = chroot.to_client(path);
    match response {
        Response::Create(path) | Response::Sync(path) => map(path),
        Response::Create2(created) => map(&mut created.path),
        Response::GetEphemerals(paths) => paths.iter_mut().for_each(map),
        Response::Multi(results) => {
            for result in results {
                if let MultiResult::Create { path } | MultiResult::Create2 { path, .. } = result {
                    map(path);
                }
            }
        }
        // Other replies contain no paths; children are names.
        _ => {}
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

/// Strips the chroot from the path of the operation that made a server refuse a multi.
///
/// # Errors
///
/// Returns the error of the multi if the chroot is missing.
pub(crate) fn refused_to_client(
    chroot: &Chroot,
    result: &Result<Response, OpError>,
    target: &mut Target,
) -> Result<(), OpError> {
    if chroot.as_str().is_empty() {
        return Ok(());
    }
    let seen = chroot.to_client(&target.path);
    if let Ok(Response::Multi(results)) = result
        && refusal(results).is_some_and(|(_, code)| code == ErrorCode::NO_NODE)
        && is_create_below_chroot(target, &seen)
    {
        return Err(missing(chroot, &seen));
    }
    target.path = seen;
    Ok(())
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
