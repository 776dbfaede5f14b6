//! Changing the credentials of a client.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use jute_codec::AuthPacket;
use tokio::sync::oneshot;

use super::Client;
use crate::driver::command::Command;
use crate::driver::shared::Shared;
use crate::error::{AuthError, ConfigError, OptionDefect, Outcome};
use crate::machine::{AuthChange, Token};
use crate::time::NO_LIMIT;
use crate::watchdog::Overdue;

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
    /// client has no connection, unless it has a [timeout](AuthOp::timeout), or the handle has
    /// [one](Self::with_timeout). It needs no permission.
    ///
    /// # Errors
    ///
    /// See [`AuthError`]. [`AuthError::Refused`] costs a connection, because servers close it, but
    /// neither the session nor the client: requests in flight fail with
    /// [`ConnectionLoss`](crate::OpError::ConnectionLoss), and the client goes on with the
    /// credentials that it had.
    pub fn add_auth(&self, scheme: &str, credentials: impl Into<Bytes>) -> AuthOp {
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
    ) -> AuthOp {
        let packets = credentials.into_iter().map(|(scheme, it)| packet(scheme, it)).collect();
        self.change_auth(packets, true)
    }

    fn change_auth(&self, packets: Vec<AuthPacket>, replaces: bool) -> AuthOp {
        if let Err(error) = packets.iter().try_for_each(check_auth) {
            return AuthOp { state: State::Refused(error) };
        }
        let (sender, result) = oneshot::channel();
        let shared = self.shared();
        if !packets.is_empty() {
            shared.access.has_credentials();
        }
        let (token, change) = (shared.fresh_token(), AuthChange { packets, replaces });
        shared.send(Command::ChangeAuth(token, change, sender));
        let op = AuthOp {
            state: State::Waiting { shared: Arc::clone(shared), token, result, overdue: None },
        };
        match self.terms.as_deref().and_then(|terms| terms.timeout) {
            Some(timeout) => op.timeout(timeout),
            None => op,
        }
    }
}

/// A pending change of the credentials.
///
/// It begins when the client's method is called, not when this future is first polled. It goes on if
/// the future is dropped.
#[must_use = "a server may refuse the credentials"]
pub struct AuthOp {
    state: State,
}

enum State {
    Refused(ConfigError),
    Waiting {
        shared: Arc<Shared>,
        token: Token,
        result: oneshot::Receiver<Result<(), AuthError>>,
        /// `None` without a timeout.
        overdue: Option<Overdue>,
    },
}

impl AuthOp {
    /// Makes the change fail with [`AuthError::TimedOut`] unless a server has accepted the
    /// credentials within this time, counted from this call. The session and the connection are not
    /// affected.
    ///
    /// Without a connection, the change is withdrawn: the outcome is
    /// [`NotApplied`](crate::Outcome::NotApplied). If a server has received the credentials and has
    /// not answered, the outcome is [`Unknown`](crate::Outcome::Unknown), and the change goes on
    /// without its caller: credentials cannot be taken from a connection.
    ///
    /// The deadline follows the client's clock and is checked by the session's task. If the client's
    /// runtime does not run, the call ends one second later, with the outcome
    /// [`Unknown`](crate::Outcome::Unknown). An earlier timeout of the same change is replaced.
    ///
    /// ```
    /// # async fn add(client: &zk_session::Client) {
    /// use std::time::Duration;
    ///
    /// use zk_session::{AuthError, Outcome};
    ///
    /// let adding = client.add_auth("digest", "auditor:secret").timeout(Duration::from_secs(5));
    /// if let Err(AuthError::TimedOut { outcome: Outcome::NotApplied }) = adding.await {
    ///     println!("not connected");
    /// }
    /// # }
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        if let State::Waiting { shared, token, overdue, .. } = &mut self.state {
            let at = shared.clock.now() + timeout.min(NO_LIMIT);
            *overdue = Some(Overdue::after(at, &shared.clock));
            shared.send(Command::SetDeadline(*token, at));
        }
        self
    }
}

impl Future for AuthOp {
    type Output = Result<(), AuthError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.state {
            State::Refused(error) => Poll::Ready(Err(error.clone().into())),
            // The channel is closed if the task was dropped with its runtime.
            State::Waiting { shared, result, overdue, .. } => {
                if let Poll::Ready(result) = Pin::new(result).poll(cx) {
                    return Poll::Ready(result.unwrap_or(Err(AuthError::Closed)));
                }
                let Some(overdue) = overdue else { return Poll::Pending };
                ready!(overdue.poll(cx, shared.clock.now()));
                Poll::Ready(Err(AuthError::TimedOut { outcome: Outcome::Unknown }))
            }
        }
    }
}

impl fmt::Debug for AuthOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthOp").finish_non_exhaustive()
    }
}

fn packet(scheme: &str, credentials: impl Into<Bytes>) -> AuthPacket {
    AuthPacket { scheme: scheme.into(), auth: Some(credentials.into()) }
}

/// Checks credentials without reading the secret part.
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
