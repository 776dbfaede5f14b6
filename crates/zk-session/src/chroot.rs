//! Paths of requests and answers, between the client's view and the server's.

#![expect(clippy::wildcard_enum_match_arm, reason = "most requests and replies have no path")]

use bytestring::ByteString;
use jute_codec::{MultiOp, MultiResult, ReadOp, Request, Response};

use crate::path::Chroot;

/// Puts the chroot in front of the paths of a request.
pub(crate) fn request_to_server(chroot: &Chroot, request: &mut Request) {
    if chroot.as_str().is_empty() {
        return;
    }
    let map = |path: &mut ByteString| *path = chroot.to_server(path);
    match request {
        Request::AddWatch(request) => map(&mut request.path),
        Request::CheckWatches(request) | Request::RemoveWatches(request) => map(&mut request.path),
        Request::Create(request) => map(&mut request.path),
        Request::Delete(request) => map(&mut request.path),
        Request::Exists(request)
        | Request::GetChildren(request)
        | Request::GetChildren2(request)
        | Request::GetData(request) => map(&mut request.path),
        Request::GetAcl(path) | Request::GetAllChildrenNumber(path) | Request::Sync(path) => {
            map(path);
        }
        Request::GetEphemerals(prefix) => match prefix {
            Some(prefix) => map(prefix),
            None => *prefix = Some(chroot.as_str().into()),
        },
        Request::Multi(ops) => {
            for op in ops {
                match op {
                    MultiOp::Check(op) => map(&mut op.path),
                    MultiOp::Create(op) => map(&mut op.path),
                    MultiOp::Delete(op) => map(&mut op.path),
                    MultiOp::SetData(op) => map(&mut op.path),
                }
            }
        }
        Request::MultiRead(ops) => {
            for op in ops {
                match op {
                    ReadOp::GetChildren(path) | ReadOp::GetData(path) => map(path),
                }
            }
        }
        Request::SetAcl(request) => map(&mut request.path),
        Request::SetData(request) => map(&mut request.path),
        // No paths, or none that a user gives.
        _ => {}
    }
}

/// Takes the chroot off the paths of an answer.
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
        // No paths; children are names.
        _ => {}
    }
}
