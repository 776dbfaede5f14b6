//! A session with a thread of its own.

use std::io;

use tokio::runtime;
use tracing::Span;

use super::janitor::Janitor;
use super::task::Driver;

/// Name of the thread.
const NAME: &str = "zk-session";

/// Starts a thread that runs the task of a session and its cleanup, and nothing else. The thread
/// ends with the session. `driver` is called inside of the thread's runtime.
pub(crate) fn start(driver: impl FnOnce() -> Driver, span: Span) -> io::Result<Janitor> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let driver = {
        let _inside = runtime.enter();
        driver()
    };
    let janitor = Janitor::new(span.clone(), runtime.handle().clone());
    std::thread::Builder::new()
        .name(NAME.to_owned())
        .spawn(move || runtime.block_on(driver.run_as(span)))?;
    Ok(janitor)
}
