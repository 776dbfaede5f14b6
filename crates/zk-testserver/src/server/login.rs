//! Authentication: auth packets and SASL.

use bytes::Bytes;
use jute_codec::{AuthPacket, ErrorCode, Record as _, ReplyHeader, Response, SaslToken, Zxid};

use super::Server;
use crate::connection::frame;
use crate::digest_md5::Round;
use crate::version::ServerVersion;

impl Server {
    pub(super) fn authenticate(&mut self, id: u64, xid: i32, auth: &AuthPacket) -> ErrorCode {
        let super_digest = self.config.super_digest.as_ref().map(|digest| digest.0.as_str());
        let is_accepted = self.connections.get_mut(id).is_some_and(|connection| {
            connection.identities.authenticate(&auth.scheme, auth.auth.as_deref(), super_digest)
        });
        let error = if is_accepted { ErrorCode::OK } else { ErrorCode::AUTH_FAILED };
        self.reply_error(id, xid, Zxid(0), error);
        if !is_accepted {
            self.close(id);
        }
        error
    }

    /// Handles a round of SASL. A server without SASL configuration replies with a null token.
    pub(super) fn sasl(&mut self, id: u64, xid: i32, token: Option<&Bytes>) -> ErrorCode {
        let Some(token) = token else {
            self.close(id);
            return ErrorCode::AUTH_FAILED;
        };
        let (users, super_user) = (&self.config.sasl_users, self.config.sasl_super_user.as_deref());
        let Some(connection) = self.connections.get_mut(id) else { return ErrorCode::AUTH_FAILED };
        let reply = if users.is_empty() {
            Ok(None)
        } else {
            match connection.sasl.round(token, users, id) {
                Round::Continue(token) => Ok(Some(token)),
                Round::Complete(user, token) => {
                    connection.identities.add_sasl(&user, super_user);
                    Ok(Some(token))
                }
                Round::Refused if self.config.is_sasl_required => {
                    Err(ErrorCode::SESSION_CLOSED_REQUIRE_SASL_AUTH)
                }
                Round::Refused => Err(ErrorCode::AUTH_FAILED),
            }
        };
        let err = reply.as_ref().err().copied().unwrap_or(ErrorCode::OK);
        // 3.4 closes the connection without a reply.
        if err.is_ok() || self.config.version > ServerVersion::V3_4 {
            // Unlike other errors, this one has a record.
            let token = reply.ok().flatten().map(Bytes::from);
            let bytes = frame(|out| {
                ReplyHeader { xid, zxid: Zxid(0), err }.encode(out);
                Response::Sasl(SaslToken(token)).encode(out);
            });
            self.send_reply(id, bytes);
        }
        if !err.is_ok() {
            self.close(id);
        }
        err
    }

    /// Returns whether the client must authenticate with SASL before this server processes its
    /// requests.
    pub(super) fn lacks_authentication(&self, id: u64) -> bool {
        self.config.is_sasl_required
            && self.connections.get(id).is_some_and(|connection| !connection.identities.has_sasl())
    }
}
