//! One lock of a multi-lock, without its kind.

use std::future::{Future, IntoFuture as _, pending};
use std::pin::Pin;
use std::time::Duration;

use zk_session::{Client, Time};

use crate::acquire::lock::Lock;
use crate::engine::call::Call;
use crate::guard::Guard;
use crate::lock::error::{LockError, LostReason};
use crate::lock::kind::Kind;
use crate::lock::outcome::Released;
use crate::lock::state::LockState;

pub(super) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A lock of any kind.
pub(super) trait Part: Send + Sync {
    fn path(&self) -> &str;

    fn client(&self) -> &Client;

    fn acquire(
        &self,
        deadline: Option<Time>,
    ) -> Boxed<'static, Result<Box<dyn HeldPart>, LockError>>;

    fn try_acquire(
        &self,
        deadline: Option<Time>,
    ) -> Boxed<'static, Result<Option<Box<dyn HeldPart>>, LockError>>;
}

/// A guard of any kind.
pub(super) trait HeldPart: Send + Sync {
    fn state(&self) -> LockState;

    fn remaining(&self) -> Option<Duration>;

    fn lost(&self) -> Boxed<'static, LostReason>;

    /// Waits until somebody asks for the lock, for ever if it has no queue.
    fn revocation_requested(&self) -> Boxed<'static, ()>;

    fn validate(&self) -> Call<(), LockError>;

    fn release(self: Box<Self>) -> Call<Released, LockError>;
}

impl<K: Kind> Part for Lock<K> {
    fn path(&self) -> &str {
        self.path()
    }

    fn client(&self) -> &Client {
        self.client()
    }

    fn acquire(
        &self,
        deadline: Option<Time>,
    ) -> Boxed<'static, Result<Box<dyn HeldPart>, LockError>> {
        let acquiring = self.acquire().until(deadline).into_future();
        Box::pin(async move { Ok(Box::new(acquiring.await?) as Box<dyn HeldPart>) })
    }

    fn try_acquire(
        &self,
        deadline: Option<Time>,
    ) -> Boxed<'static, Result<Option<Box<dyn HeldPart>>, LockError>> {
        let trying = self.try_acquire().until(deadline).into_future();
        Box::pin(async move { Ok(trying.await?.map(|guard| Box::new(guard) as Box<dyn HeldPart>)) })
    }
}

impl<K: Kind> HeldPart for Guard<K> {
    fn state(&self) -> LockState {
        self.state()
    }

    fn remaining(&self) -> Option<Duration> {
        self.remaining()
    }

    fn lost(&self) -> Boxed<'static, LostReason> {
        Box::pin(self.lost())
    }

    fn revocation_requested(&self) -> Boxed<'static, ()> {
        if K::HAS_UNIQUE_NAMES { Box::pin(self.asked()) } else { Box::pin(pending()) }
    }

    fn validate(&self) -> Call<(), LockError> {
        self.validate()
    }

    fn release(self: Box<Self>) -> Call<Released, LockError> {
        Self::release(*self)
    }
}
