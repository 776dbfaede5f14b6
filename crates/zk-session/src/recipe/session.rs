//! The handle that gives recipes access to a client's session.

use std::fmt;
use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::{Acl, CreateMode, ErrorCode, MultiOp, MultiResult, Response};

use super::lane::Lane;
use crate::chroot::translate::Root;
use crate::client::Client;
use crate::driver::janitor::Slot;
use crate::driver::notices::Notice;
use crate::driver::shared::Shared;
use crate::error::{OpError, Target};
use crate::machine::{Operation, Status};
use crate::operation::terms::Terms;
use crate::operation::{create::CreateOptions, multi, multi::Multi, multi::MultiOutcome, op::Op};
use crate::time::Time;
use crate::types::SessionId;
use crate::watchdog::Watchdog;

/// A handle to a client's session, for recipes. It keeps the session open, as the client does.
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
}

impl Session {
    /// Creates a handle to the client's session.
    pub fn of(client: &Client) -> Self {
        Self { shared: Arc::clone(client.shared()) }
    }

    /// Returns a handle to the client whose operations have no [terms](Client::with_timeout): neither
    /// a time limit, nor a session, nor limits on requests.
    pub fn client(&self) -> Client {
        Client::from_shared(Arc::clone(&self.shared))
    }

    /// Returns the path in this handle of a znode that another handle names so, for example with another
    /// [root](Client::rooted_at). `None` if the other handle is of another client, or the znode is not
    /// below the root of this one.
    pub fn path_of(&self, other: &Client, path: &ByteString) -> Option<ByteString> {
        let other = other.shared();
        let on_server = other.chroot.to_server(path);
        self.shared.chroot.inside(&on_server).filter(|_| self.shared.is_of_same_client(other))
    }

    /// Opens a lane.
    pub fn lane(&self) -> Lane {
        Lane::open(Arc::clone(&self.shared))
    }

    /// Submits one operation in the given session, without a lane. It counts against
    /// [`outstanding_limit`](crate::ClientBuilder::outstanding_limit), but has no
    /// [terms](Client::with_timeout). A create without an access control list, even in a multi, gets
    /// the default list of the client.
    pub fn submit(&self, session: SessionId, mut operation: Operation) -> Op<Response> {
        let shared = &self.shared;
        shared.access.complete(&shared.chroot, &mut operation.request);
        let terms = Terms { session: Some(session), ..Terms::default() };
        Op::submit(shared, Some(&terms), Root::Client, operation, None, |answer| answer.result)
    }

    /// Reserves a slot of the janitor, which runs cleanup that must outlive its caller. The path is
    /// that of the cleanup: [`Client::hand_over`] waits for the slot, and names the path if the slot
    /// is still in use after its timeout. Waits while all
    /// [`JANITOR_SLOTS_MAX`](super::JANITOR_SLOTS_MAX) slots of the client are taken.
    ///
    /// Cancel safe: a dropped future reserves nothing.
    pub async fn reserve_slot(&self, path: &ByteString) -> Slot {
        self.shared.janitor.reserve(self.place(path)).await
    }

    /// Reserves a slot like [`reserve_slot`](Self::reserve_slot), but returns `None` instead of
    /// waiting.
    pub fn try_reserve_slot(&self, path: &ByteString) -> Option<Slot> {
        self.shared.janitor.try_reserve(self.place(path))
    }

    /// Returns the path by which the janitor knows a cleanup, which is the same for all roots.
    fn place(&self, path: &ByteString) -> ByteString {
        self.shared.chroot.to_server(path)
    }

    /// Returns the number of slots in use: held locks, attempts and cleanups of this client.
    pub fn janitor_slots_busy(&self) -> usize {
        self.shared.janitor.busy()
    }

    /// Returns how many cleanups are due and not complete: removals of locks that were released or
    /// lost, of acquires that were cancelled, of memberships that have ended. Unlike the slots in
    /// use, this is zero most of the time.
    pub fn janitor_backlog(&self) -> usize {
        self.shared.janitor.backlog()
    }

    /// Returns a random 128-bit number, a different one for each call.
    pub fn unique_id(&self) -> u128 {
        self.shared.unique_id()
    }

    /// Counts a message about a single lock, and returns its number among the messages of its kind
    /// in this minute, from 1. Code that logs such messages omits those with large numbers, since a
    /// client may have thousands of locks.
    pub fn count_notice(&self, notice: Notice) -> u32 {
        self.shared.notices.count(notice, self.now())
    }

    /// Like [`count_notice`](Self::count_notice), but counts the messages about a path as one.
    /// Returns `None` if this path was counted in this minute.
    pub fn count_notice_about(&self, notice: Notice, path: &str) -> Option<u32> {
        let path = self.shared.chroot.to_server(&path.into());
        self.shared.notices.count_path(notice, &path, self.now())
    }

    /// Returns the operations of a multi, for a flight of a lane. Creates without an access control
    /// list of their own have the default list of the client.
    ///
    /// # Errors
    ///
    /// [`OpError::InvalidPath`] if a path of the multi is invalid. [`OpError::Server`] with
    /// `INVALID_ACL`, as from a server, if a create has an empty list of its own: in a flight, that
    /// would mean the default list.
    pub fn operations(&self, mut multi: Multi) -> Result<Vec<MultiOp>, OpError> {
        if let Some(error) = multi.invalid.take() {
            return Err(error);
        }
        let (access, chroot) = (&self.shared.access, &self.shared.chroot);
        let ops = multi.into_ops(|path| access.default_acl(chroot, path));
        let is_empty = |op: &&MultiOp| matches!(op, MultiOp::Create(it) if it.acl.is_empty());
        match ops.iter().find(is_empty) {
            Some(create) => {
                Err(OpError::server(ErrorCode::INVALID_ACL).about(Target::part(create)))
            }
            None => Ok(ops),
        }
    }

    /// Converts the results of a multi that was applied, of which a lane has received the reply.
    pub fn outcomes(results: Vec<MultiResult>) -> Vec<MultiOutcome> {
        multi::executed(results)
    }

    /// Returns the default access control list of the client for the creates of flights. It is empty
    /// if it depends on the path: [`Lane::submit`] then adds the list of each znode.
    pub fn default_acl(&self) -> Vec<Acl> {
        self.shared.access.constant().to_vec()
    }

    /// Returns the mode and the access control list of the ancestors that
    /// [`Client::create_with_parents`] creates with these options. An empty list means the default of
    /// the client, which [`Lane::submit`] adds.
    pub fn ancestors(&self, options: &CreateOptions) -> (CreateMode, Vec<Acl>) {
        let has_containers = options.container_parents;
        let mode = if has_containers { CreateMode::Container } else { CreateMode::Persistent };
        (mode, options.parent_acl.clone().unwrap_or_else(|| self.default_acl()))
    }

    /// Returns a snapshot of the session.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Returns the current time of the client's clock.
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// Creates a timer for deadlines on the client's clock that must be kept even if the client's
    /// runtime is blocked or not driven.
    pub fn watchdog(&self) -> Watchdog {
        Watchdog::of(&self.shared.clock)
    }

    /// Withdraws the request of a pending operation. If the request was not sent, the operation
    /// fails with [`OpError::Recalled`], and the request will never be
    /// sent. Otherwise the operation completes as usual.
    pub fn recall<T, E>(op: &Op<T, E>) {
        op.recall();
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("status", &self.status()).finish_non_exhaustive()
    }
}
