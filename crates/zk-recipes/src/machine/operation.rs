//! Operations, flights and paths.

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{
    Acl, CheckRequest, CreateMode, CreateRequest, DeleteRequest, ErrorCode, MultiOp, MultiResult,
    ReadRequest, Request, Response, SetDataRequest,
};
use zk_session::recipe::{Flight, Operation};
use zk_session::{SessionId, Version};

use super::watch::WatchNumber;

/// Copies a name that is kept for a long time. A slice of a reply would keep the whole reply in
/// memory, and a reply that lists a thousand contenders is large.
pub(crate) fn owned_copy(name: &str) -> ByteString {
    name.into()
}

/// Returns the path of a child.
pub(crate) fn child(directory: &str, name: &str) -> ByteString {
    // Allocate exactly the right size, because some paths are kept for a long time.
    if directory == "/" {
        ["/", name].concat().into()
    } else {
        [directory, "/", name].concat().into()
    }
}

/// Returns the path of the parent.
pub(crate) fn parent(path: &ByteString) -> ByteString {
    match path.rsplit_once('/') {
        None | Some(("", _)) => "/".into(),
        Some((parent, _)) => path.slice_ref(parent),
    }
}

/// Returns the name of the znode at a path.
pub(crate) fn name_of(path: &ByteString) -> Option<ByteString> {
    path.rsplit_once('/').map(|(_, name)| path.slice_ref(name))
}

/// Creates a flight for one session, or for the next session that connects.
pub(crate) fn flight(session: Option<SessionId>, operations: Vec<Operation>) -> Flight {
    Flight { operations, session, deadline: None }
}

/// Creates a znode, and returns its stat.
pub(crate) fn create(path: ByteString, data: Bytes, acl: Vec<Acl>, mode: CreateMode) -> Operation {
    let request = CreateRequest { path, data: Some(data), acl, mode, with_stat: true };
    Operation::new(Request::Create(request))
}

/// Deletes a znode, whatever its version.
pub(crate) fn delete(path: ByteString) -> Operation {
    Operation::new(Request::Delete(DeleteRequest { path, version: Version::ANY }))
}

/// Lists a directory. A list without a watch is shared with other attempts of the client.
pub(crate) fn list(directory: &ByteString, watch: Option<WatchNumber>) -> Operation {
    match watch {
        None => Operation::shared_list(directory.clone()),
        Some(watch) => {
            let request = ReadRequest { path: directory.clone(), watch: true };
            Operation::watched(Request::GetChildren(request), watch)
        }
    }
}

/// Reads a znode, and watches it.
pub(crate) fn read(path: ByteString, watch: Option<WatchNumber>) -> Operation {
    let request = Request::GetData(ReadRequest { path, watch: watch.is_some() });
    match watch {
        None => Operation::new(request),
        Some(watch) => Operation::watched(request, watch),
    }
}

/// Replaces the data of a znode, if it has this version.
pub(crate) fn write(path: ByteString, data: Bytes, version: Version) -> Operation {
    Operation::new(Request::SetData(SetDataRequest { path, data: Some(data), version }))
}

/// Tests whether a znode exists, without a watch. Servers before 3.8.4 and 3.9.2 need no permission
/// to do so; later ones refuse it without READ if the znode exists.
pub(crate) fn exists(path: ByteString) -> Operation {
    let request = ReadRequest { path, watch: false };
    Operation::new(Request::Exists(request))
}

/// Tests whether a znode exists, and watches it, whether it exists or not. Do not use this to wait
/// without READ: no version reports an event of a znode to those who may not read it.
#[cfg(feature = "tokio")]
pub(crate) fn watch_existence(path: ByteString, watch: WatchNumber) -> Operation {
    Operation::watched(Request::Exists(ReadRequest { path, watch: true }), watch)
}

/// Creates a write barrier: a multi of one check. The barrier changes nothing, but it is a write:
/// when its reply arrives, every earlier request of this session has been applied or never will be,
/// and this server shows the result.
///
/// A `sync` does not replace it: a leader may answer a sync before earlier writes of other servers'
/// sessions are committed, and a deposed leader answers it too.
pub(crate) fn barrier(path: ByteString) -> Operation {
    let check = MultiOp::Check(CheckRequest { path, version: Version::ANY });
    Operation::new(Request::Multi(vec![check]))
}

/// Returns the error code of a multi's failed operation, which the header of the reply does not
/// contain.
#[cfg(feature = "tokio")]
pub(crate) fn multi_refusal(response: &Response) -> Option<ErrorCode> {
    refused_operation(response).map(|(_, code)| code)
}

/// Returns the index of a multi's failed operation too.
pub(crate) fn refused_operation(response: &Response) -> Option<(usize, ErrorCode)> {
    let Response::Multi(results) = response else { return None };
    results.iter().enumerate().find_map(|(index, result)| {
        if let MultiResult::Error(code) = result
            && !code.is_ok()
        {
            Some((index, *code))
        } else {
            None
        }
    })
}
