//! Reads that concern more than one znode, or the session itself.

#![expect(clippy::wildcard_enum_match_arm, reason = "a reply of any other kind is a bug")]

use bytestring::ByteString;
use jute_codec::{ClientInfo, Request, Response};

use super::{Client, unexpected};
use crate::chroot::translate::Root;
use crate::error::{OpError, PathDefect};
use crate::machine::Operation;
use crate::operation::multi_read::{MultiRead, ReadOutcome, outcomes};
use crate::operation::op::Op;
use crate::types::Identity;

impl Client {
    /// Executes several reads in one request. Returns one result per read, in the same order. A
    /// read that fails, for example with `NO_NODE`, does not affect the others. Reads set no
    /// watches, and other clients' writes may be applied between two of them.
    ///
    /// The call fails with [`OpError::Unsupported`] on servers before 3.6. It changes nothing, so it
    /// can be repeated after any `ConnectionLoss`. Cancel safe.
    pub fn multi_read(&self, reads: MultiRead) -> Op<Vec<Result<ReadOutcome, OpError>>> {
        let MultiRead { ops, invalid } = reads;
        if let Some(error) = invalid {
            return Op::failed(error);
        }
        // The client's paths, for the messages of errors.
        let seen = ops.clone();
        let operation = Operation::new(Request::MultiRead(ops));
        self.enqueue(Root::Client, operation, None, move |answer| match answer.result? {
            Response::MultiRead(results) => outcomes(&seen, results),
            other => unexpected(&other),
        })
    }

    /// Counts all descendants of a znode, excluding the znode itself. The permission to read the
    /// znode is enough; none of the descendants is checked.
    ///
    /// Fails with `NO_NODE` or `NO_AUTH`, and with [`OpError::Unsupported`] on servers before 3.6.
    /// It changes nothing, so it can be repeated after any `ConnectionLoss`. Cancel safe.
    #[doc(alias = "getAllChildrenNumber")]
    pub fn count_descendants(&self, path: &str) -> Op<usize> {
        let request = Request::GetAllChildrenNumber(path.into());
        self.checked(path, request, |response| match response {
            // The server counts in 32 bits, and its counter wraps.
            Response::GetAllChildrenNumber(number) => usize::try_from(number).unwrap_or(usize::MAX),
            other => unexpected(&other),
        })
    }

    /// Lists the paths of this session's ephemeral znodes that begin with a prefix, in no particular
    /// order. The prefix is text, not a path: `/a` also matches `/ab`, and `/a/` matches only
    /// znodes below `/a`. The prefix `/` matches all. A client with a chroot sees only the znodes
    /// below its chroot.
    ///
    /// The list shows the state of the server that replies, which may lag behind others; see
    /// [`sync`](Self::sync).
    ///
    /// Fails with [`OpError::InvalidPath`] if the prefix does not start with `/`, and with
    /// [`OpError::Unsupported`] on servers before 3.6. It changes nothing, so it can be repeated
    /// after any `ConnectionLoss`; but the list belongs to the session that sent the request.
    /// Cancel safe.
    pub fn get_ephemerals(&self, prefix: &str) -> Op<Vec<ByteString>> {
        if !prefix.starts_with('/') {
            let (path, defect) = (prefix.to_owned(), PathDefect::NotAbsolute);
            return Op::failed(OpError::InvalidPath { path, defect });
        }
        let request = Request::GetEphemerals(Some(prefix.into()));
        self.submit(request, |response| match response {
            Response::GetEphemerals(paths) => paths,
            other => unexpected(&other),
        })
    }

    /// Lists the identities that the server attributes to the current connection, in no particular
    /// order: one for the address of the client (`ip`), and one for each set of credentials that
    /// was accepted.
    ///
    /// Fails with [`OpError::Unsupported`] on servers before 3.7. It changes nothing, so it can be
    /// repeated after any `ConnectionLoss`. Cancel safe.
    pub fn who_am_i(&self) -> Op<Vec<Identity>> {
        let identity = |ClientInfo { auth_scheme, user }| Identity { scheme: auth_scheme, user };
        self.submit(Request::WhoAmI, move |response| match response {
            Response::WhoAmI(identities) => identities.into_iter().map(identity).collect(),
            other => unexpected(&other),
        })
    }
}
