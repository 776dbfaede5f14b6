//! Handles whose operations have terms: a time limit, a session, limits on requests.

use std::sync::Arc;
use std::time::Duration;

use super::Client;
use crate::machine::Limits;
use crate::operation::terms::Terms;
use crate::types::SessionId;

impl Client {
    /// Returns a handle to the same client, whose operations have this time limit: each fails with
    /// [`OpError::TimedOut`](crate::OpError::TimedOut) unless its reply arrives in time.
    /// [`Op::timeout`](crate::Op::timeout) says what that means. Other handles, and the recipes that
    /// are built from this one, are not affected.
    #[must_use = "the limit applies to the operations of the returned handle"]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        self.with_terms(|terms| terms.timeout = Some(timeout))
    }

    /// Returns a handle to the same client, whose operations belong to this session, reads and
    /// watches included. When the session has ended, or if it is not the current one, nothing is
    /// sent, and they fail with [`OpError::SessionExpired`](crate::OpError::SessionExpired) and
    /// [`NotApplied`](crate::Outcome::NotApplied). So an ephemeral znode that is created with it
    /// belongs to this session or does not exist.
    ///
    /// Without it, an operation that is called after a session has ended is executed in the next
    /// one, and the caller may not have noticed. Recipes that are built from the handle are not
    /// affected: they know their sessions.
    ///
    /// ```
    /// # async fn announce(client: &zk_session::Client) -> Result<(), zk_session::OpError> {
    /// use zk_session::CreateMode;
    ///
    /// let Some(session) = client.session_id() else { return Ok(()) };
    /// let bound = client.in_session(session);
    /// bound.create("/workers/7", "", CreateMode::Ephemeral).await?;
    /// // If the session has ended in between, so has the znode, and this fails.
    /// bound.set_data("/state", "worker 7 is here", None).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "the operations of the returned handle belong to the session"]
    pub fn in_session(&self, session: SessionId) -> Self {
        self.with_terms(|terms| terms.session = Some(session))
    }

    /// Returns a handle to the same client, whose requests are limited together with those of its
    /// clones, so that one part of a program cannot starve the others. Limits of this handle are
    /// replaced.
    ///
    /// An operation above the limits waits, behind the earlier ones of the handle; those of other
    /// handles go past it. It can be dropped or [time out](crate::Op::timeout) as if it waited for a
    /// connection, and its time limit includes the wait. A request counts until its reply arrives or
    /// its connection ends, even if its future is dropped, because its server may still work on it.
    /// If as many operations wait as half of
    /// [`outstanding_limit`](crate::ClientBuilder::outstanding_limit), further ones fail with
    /// [`OpError::QueueFull`](crate::OpError::QueueFull).
    ///
    /// Recipes that are built from the handle are not limited: a lock that could not be released
    /// would delay all others, and each recipe has bounds of its own.
    ///
    /// ```
    /// # async fn copy(client: &zk_session::Client) -> Result<(), zk_session::OpError> {
    /// let background = client.with_limits(zk_session::Limits::new().in_flight(16));
    /// let names = background.get_children("/archive").await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "the limits apply to the operations of the returned handle"]
    pub fn with_limits(&self, limits: Limits) -> Self {
        let id = self.shared.fresh_owner();
        self.with_terms(|terms| terms.quota = Some((id, limits)))
    }

    fn with_terms(&self, change: impl FnOnce(&mut Terms)) -> Self {
        let mut terms = self.terms.as_deref().copied().unwrap_or_default();
        change(&mut terms);
        Self { shared: Arc::clone(&self.shared), terms: Some(Arc::new(terms)) }
    }
}
