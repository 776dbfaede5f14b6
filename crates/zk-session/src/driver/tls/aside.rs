//! Handshakes with a configuration of the program, on a thread of their own.
//!
//! Its verifier may ask a server whether a certificate was revoked, and its key may be in hardware that
//! waits for a finger. In the session's task, they would delay the timers that report a lock as lost.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::driver::blocking::Threads;

/// Runs a future on a thread, until it is ready or the caller stops to wait.
pub(super) async fn run<F>(threads: &Threads, work: F) -> io::Result<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let runtime = Handle::current();
    let (caller, mut gone) = oneshot::channel::<()>();
    let work = move || {
        // For a transport that creates timers or sockets. A verifier can still run a runtime of its
        // own, as blocking HTTP clients do, because this thread is not one of tokio's.
        let _entered = runtime.enter();
        let mut work = pin!(work);
        block_on(poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Pin::new(&mut gone).poll(cx).map(|_| None),
        }))
    };
    let output = threads.detached(work).await;
    drop(caller);
    match output {
        Ok(Some(output)) => Ok(output),
        Ok(None) => Err(io::ErrorKind::Interrupted.into()),
        Err(_) => Err(io::Error::other("the handshake panicked, perhaps in a verifier or a key")),
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
