//! Translates paths of requests and replies between the client's view and the server's.

#![expect(clippy::wildcard_enum_match_arm, reason = "most replies have no path")]

use bytestring::ByteString;
use jute_codec::{MultiResult, Request, Response};

use crate::path::Chroot;

/// Prepends the chroot to the paths of a request.
pub(crate) fn request_to_server(chroot: &Chroot, request: &mut Request) {
    if chroot.as_str().is_empty() {
        return;
    }
    // Without a prefix, the server would also list the ephemerals outside of the chroot.
    if let Request::GetEphemerals(prefix @ None) = request {
        *prefix = Some(ByteString::from_static("/"));
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
