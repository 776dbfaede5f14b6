//! Work that blocks: reading files, and waiting for a KDC.

use std::io;
use std::sync::Arc;
use std::thread;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Runs blocking work on a limited number of threads at a time.
///
/// A thread that blocks cannot be stopped. A client that connects again and again, while a network
/// file system or a KDC does not reply, would otherwise use up all threads of the runtime.
#[derive(Clone, Debug)]
pub(super) struct Threads(Arc<Semaphore>);

impl Threads {
    pub(super) fn new(max: usize) -> Self {
        Self(Arc::new(Semaphore::new(max)))
    }

    /// Runs work on a thread of the runtime.
    #[cfg(any(test, feature = "tls"))]
    pub(super) async fn pooled<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let permit = self.permit().await?;
        let work = move || {
            let _permit = permit;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
    }

    /// Runs work on a thread for which neither the runtime nor the process waits when it ends. The
    /// Kerberos library waits for a silent KDC for half a minute.
    pub(super) async fn detached<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let permit = self.permit().await?;
        let (sender, result) = oneshot::channel();
        let work = move || {
            let _permit = permit;
            drop(sender.send(work()));
        };
        thread::Builder::new().name("zk-blocking".to_owned()).spawn(work)?;
        result.await.map_err(io::Error::other)
    }

    async fn permit(&self) -> io::Result<OwnedSemaphorePermit> {
        Arc::clone(&self.0).acquire_owned().await.map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    /// Returns how many of five pieces of work have begun while the first one blocks, and after it.
    async fn begun(is_detached: bool) -> (usize, usize) {
        let (threads, count) = (Threads::new(1), Arc::new(AtomicUsize::new(0)));
        let (release, blocked) = channel::<()>();
        let (begin, first_has_begun) = oneshot::channel();
        let mut first = Some((begin, blocked));
        let mut next = || {
            let (count, first) = (Arc::clone(&count), first.take());
            move || {
                count.fetch_add(1, Ordering::Relaxed);
                first.map(|(begin, blocked)| (begin.send(()), blocked.recv()))
            }
        };
        let run = async |work| match is_detached {
            true => threads.detached(work).await.map(drop),
            false => threads.pooled(work).await.map(drop),
        };
        // A busy machine may take any time to start a thread.
        tokio::select! {
            _ = run(next()) => panic!("the first one still blocks"),
            begun = first_has_begun => begun.expect("it says that it has begun"),
        }
        for _ in 0..4 {
            assert!(timeout(SOON, run(next())).await.is_err(), "the first one still blocks");
        }
        let meanwhile = count.load(Ordering::Relaxed);
        drop(release);
        let after = threads.detached(move || count.fetch_add(1, Ordering::Relaxed) + 1).await;
        (meanwhile, after.expect("it returns"))
    }

    #[tokio::test]
    async fn work_that_blocks_holds_up_the_next_and_takes_no_second_thread() {
        assert_eq!(begun(false).await, (1, 2));
        assert_eq!(begun(true).await, (1, 2));
    }

    #[test]
    fn a_runtime_does_not_wait_for_detached_work() {
        let (release, blocked) = channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let threads = Threads::new(1);
            let waiting = threads.detached(move || blocked.recv());
            assert!(timeout(SOON, waiting).await.is_err(), "it blocks");
        });
        // This would never return.
        drop(runtime);
        drop(release);
    }

    #[tokio::test]
    async fn a_panic_of_the_work_is_an_error() {
        let threads = Threads::new(1);
        let panics = || -> () { std::panic::resume_unwind(Box::new("as planned")) };
        threads.detached(panics).await.expect_err("it panicked");
        threads.detached(|| ()).await.expect("the next one runs");
    }
}
