//! Creating a missing chroot.
//!
//! The client looks for the chroot on its first connection, before it sends any flight, and creates
//! it if it is missing. Flights follow the creates on the same connection, and servers execute the
//! requests of a connection in order, so no flight meets a chroot that is about to be created. If
//! the connection is lost before the last create has its reply, the next one begins again; a create
//! may be repeated, because the second one only fails with `NODE_EXISTS`.

use jute_codec::{ErrorCode, ReadRequest, Request};
use tracing::warn;

use super::SessionMachine;
use crate::abridged::Abridged;
use crate::machine::event::Event;
use crate::machine::inflight::Purpose;

impl SessionMachine {
    /// Looks for the chroot, unless it is known to exist.
    pub(super) fn find_chroot(&mut self) {
        if self.has_chroot || self.is_closing {
            return;
        }
        let Some(chroot) = self.config.chroot.last() else {
            self.has_chroot = true;
            return;
        };
        self.link.is_seeking_chroot = true;
        let read = ReadRequest { path: chroot.path.clone(), watch: false };
        self.send_internal(&Request::Exists(read), Purpose::FindChroot);
    }

    /// Handles the reply to the test: creates what may be missing, and then sends what has waited.
    pub(super) fn chroot_found(&mut self, code: ErrorCode) {
        self.link.is_seeking_chroot = false;
        // Servers from 3.8.4 and 3.9.2 refuse the look to a client that may not read the chroot, but
        // only if it exists.
        if code.is_ok() || code == ErrorCode::NO_AUTH {
            self.has_chroot = true;
        } else {
            let creates = self.config.chroot.clone();
            let count = creates.len();
            for (index, create) in creates.into_iter().enumerate() {
                let path = create.path.clone();
                let request = Request::Create(create);
                let purpose = Purpose::CreateChroot { path, following: count - index - 1 };
                self.send_internal(&request, purpose);
                self.events.push_back(Event::CreateChroot(request));
            }
        }
        self.send_waiting();
    }

    /// Handles the reply to a create. Errors of ancestors are ignored: an ancestor may exist
    /// although the client has no permission to create it, and servers check that permission first.
    pub(super) fn chroot_created(&mut self, path: &str, following: usize, code: ErrorCode) {
        if following == 0 {
            if code.is_ok() || code == ErrorCode::NODE_EXISTS {
                self.has_chroot = true;
            } else {
                // Requests below the chroot fail until somebody creates it.
                warn!(path = ?Abridged(path), %code, "the server refused to create the chroot");
            }
        }
        self.send_waiting();
    }
}
