//! A value of which each reader sees the newest state.
//!
//! It is used as a watch channel of tokio is, which wakes its readers in a random order. This one
//! wakes them in the order in which they began to wait, so that a run in virtual time can be
//! repeated.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::Notify;

/// Creates a value and its first reader.
pub(crate) fn latest<T>(value: T) -> (Writer<T>, Reader<T>) {
    let inner = Inner {
        value: RwLock::new(value),
        version: AtomicU64::new(0),
        is_closed: AtomicBool::new(false),
        changes: Notify::new(),
    };
    let inner = Arc::new(inner);
    (Writer(Arc::clone(&inner)), Reader { inner, seen: 0 })
}

/// The only one who changes the value.
pub(crate) struct Writer<T>(Arc<Inner<T>>);

/// A reader, which knows what it has seen.
pub(crate) struct Reader<T> {
    inner: Arc<Inner<T>>,
    seen: u64,
}

/// The writer is gone, so the value does not change any more.
#[derive(Debug)]
pub(crate) struct Gone;

struct Inner<T> {
    value: RwLock<T>,
    /// The number of changes that readers were woken for.
    version: AtomicU64,
    is_closed: AtomicBool,
    changes: Notify,
}

impl<T> Writer<T> {
    /// Returns the value.
    pub(crate) fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.0.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the value, and wakes the readers if the function returns true.
    pub(crate) fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) {
        let mut value = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        let is_news = change(&mut value);
        if is_news {
            self.0.version.fetch_add(1, Ordering::Release);
        }
        drop(value);
        if is_news {
            self.0.changes.notify_waiters();
        }
    }
}

impl<T> Drop for Writer<T> {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::Release);
        self.0.changes.notify_waiters();
    }
}

impl<T> Reader<T> {
    /// Returns the newest value, which may have been seen.
    pub(crate) fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.inner.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the newest value. From now on it counts as seen.
    pub(crate) fn borrow_and_update(&mut self) -> RwLockReadGuard<'_, T> {
        let value = self.inner.value.read().unwrap_or_else(PoisonError::into_inner);
        self.seen = self.inner.version.load(Ordering::Acquire);
        value
    }

    /// Waits until the value has changed since it was seen last, and counts it as seen. Cancel safe.
    pub(crate) async fn changed(&mut self) -> Result<(), Gone> {
        loop {
            let mut notified = pin!(self.inner.changes.notified());
            // A change after this line ends the wait.
            notified.as_mut().enable();
            let version = self.inner.version.load(Ordering::Acquire);
            if version != self.seen {
                self.seen = version;
                return Ok(());
            }
            if self.inner.is_closed.load(Ordering::Acquire) {
                return Err(Gone);
            }
            notified.await;
        }
    }

    /// Waits until the value meets a condition, and counts it as seen. Cancel safe.
    pub(crate) async fn wait_for(&mut self, condition: impl Fn(&T) -> bool) -> Result<T, Gone>
    where
        T: Copy,
    {
        loop {
            let value = *self.borrow_and_update();
            if condition(&value) {
                return Ok(value);
            }
            self.changed().await?;
        }
    }
}

impl<T> Clone for Reader<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), seen: self.seen }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A change that wakes everyone.
    fn set<T>(writer: &Writer<T>, new: T) {
        writer.send_if_modified(|value| {
            *value = new;
            true
        });
    }

    #[tokio::test]
    async fn readers_are_woken_in_the_order_in_which_they_began_to_wait() {
        // The runtime begins with all of them before it polls the test again.
        const READERS: usize = 30;
        let (writer, reader) = latest(0);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut readers = tokio::task::JoinSet::new();
        for index in 0..READERS {
            let (mut reader, woken) = (reader.clone(), Arc::clone(&woken));
            readers.spawn(async move {
                reader.changed().await.expect("the writer is there");
                woken.lock().unwrap().push(index);
            });
        }
        tokio::task::yield_now().await;
        set(&writer, 1);
        readers.join_all().await;
        assert_eq!(*woken.lock().unwrap(), (0..READERS).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_reader_waits_only_for_what_it_has_not_seen() {
        let (writer, mut reader) = latest(0);
        set(&writer, 1);
        reader.changed().await.expect("the writer is there");
        assert_eq!(*reader.borrow(), 1);
        // A change without news wakes nobody, but is seen.
        writer.send_if_modified(|value| {
            *value = 2;
            false
        });
        assert_eq!(*reader.borrow_and_update(), 2);
        set(&writer, 3);
        reader.wait_for(|value| *value == 3).await.expect("the writer is there");
        drop(writer);
        reader.changed().await.expect_err("the writer is gone");
        reader.wait_for(|value| *value == 3).await.expect("the last value stays");
        reader.wait_for(|value| *value == 4).await.expect_err("the writer is gone");
    }
}
