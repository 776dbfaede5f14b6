//! Changing the credentials of a client.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use jute_codec::AuthPacket;
use tokio::sync::oneshot;

use super::Client;
use crate::driver::command::Command;
use crate::error::{AuthError, ConfigError, OptionDefect};
use crate::machine::AuthChange;

impl Client {
    /// Adds credentials to those of [`ClientBuilder::auth`](crate::ClientBuilder::auth). They are
    /// sent at once, and on every later connection as soon as a server has accepted them.
    ///
    /// Operations that are called after this one have the new identity too, whether the future is
    /// polled or not. Without a connection, the credentials are sent first on the next one.
    ///
    /// ```
    /// # async fn add(client: &zk_session::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// client.add_auth("digest", "auditor:secret").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// After a **connection loss**, they are sent again, on up to five connections. **Cancel safe**:
    /// if the future is dropped, the credentials are added nevertheless. It waits for as long as the
    /// client has no connection. It needs no permission.
    ///
    /// # Errors
    ///
    /// See [`AuthError`]. [`AuthError::Refused`] costs a connection, because servers close it, but
    /// neither the session nor the client: requests in flight fail with
    /// [`ConnectionLoss`](crate::OpError::ConnectionLoss), and the client goes on with the
    /// credentials that it had.
    pub fn add_auth(
        &self,
        scheme: &str,
        credentials: impl Into<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<(), AuthError>> + Send>> {
        self.change_auth(vec![packet(scheme, credentials)], false)
    }

    /// Replaces all credentials of [`ClientBuilder::auth`](crate::ClientBuilder::auth) and
    /// [`add_auth`](Self::add_auth) by these, which may be none. SASL credentials stay.
    ///
    /// The new ones are sent at once, like those of `add_auth`, with the same guarantees and errors.
    /// Servers cannot take an identity from a connection, so the present one has the old identities
    /// too until it ends. Later connections have the new ones only. Without a connection, the old
    /// ones are not sent any more unless the new ones are refused.
    ///
    /// ```
    /// # async fn rotate(client: &zk_session::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// client.replace_auth([("digest", "worker:new-secret")]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn replace_auth<'a, C: Into<Bytes>>(
        &self,
        credentials: impl IntoIterator<Item = (&'a str, C)>,
    ) -> Pin<Box<dyn Future<Output = Result<(), AuthError>> + Send>> {
        let packets = credentials.into_iter().map(|(scheme, it)| packet(scheme, it)).collect();
        self.change_auth(packets, true)
    }

    fn change_auth(
        &self,
        packets: Vec<AuthPacket>,
        replaces: bool,
    ) -> Pin<Box<dyn Future<Output = Result<(), AuthError>> + Send>> {
        let sent = packets.iter().try_for_each(check_auth).map(|()| {
            let (sender, result) = oneshot::channel();
            let shared = self.shared();
            if !packets.is_empty() {
                shared.access.has_credentials();
            }
            let (token, change) = (shared.fresh_token(), AuthChange { packets, replaces });
            shared.send(Command::ChangeAuth(token, change, sender));
            result
        });
        Box::pin(async move { sent?.await.unwrap_or(Err(AuthError::Closed)) })
    }
}

fn packet(scheme: &str, credentials: impl Into<Bytes>) -> AuthPacket {
    AuthPacket { scheme: scheme.into(), auth: Some(credentials.into()) }
}

/// Checks credentials, without a look at what is secret in them.
pub(super) fn check_auth(AuthPacket { scheme, auth }: &AuthPacket) -> Result<(), ConfigError> {
    let defect = if scheme.is_empty() {
        OptionDefect::EmptyScheme
    } else if *scheme == *"digest" && !auth.iter().flatten().any(|byte| *byte == b':') {
        OptionDefect::DigestWithoutColon
    } else {
        return Ok(());
    };
    Err(ConfigError::Option { option: "auth", value: String::new(), defect })
}
