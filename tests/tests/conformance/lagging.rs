//! The whole suite, in-process, with followers that lag.
//!
//! On one server, a client sees at once what another one has written. On an ensemble, its server may
//! not have applied it yet. A test that forgets this fails on real servers once in a while; here it
//! fails in most runs.

use std::env;
use std::process::Command;

use zk_tests::target::LAG;

/// Longer than the steps of a test take, and short enough that tests can wait for it. The suite
/// mostly waits, so many tests run at the same time.
const LAG_MS: &str = "300";
const THREADS: &str = "48";

#[test]
fn the_suite_passes_while_followers_lag() {
    let thread = std::thread::current();
    let this = thread.name().expect("tests run on named threads");
    let program = env::current_exe().expect("a program knows its path");
    let output = Command::new(program)
        .args(["--exact", "--skip", this, "--test-threads", THREADS])
        .env(LAG, LAG_MS)
        .env_remove("ZK_CONNECT")
        .output()
        .expect("the program that is running can be started");
    let (printed, failed) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "with a lag of {LAG_MS} ms:\n{printed}\n{failed}");
    let ran = printed.lines().filter(|line| line.ends_with(" ... ok")).count();
    assert!(ran > 300, "only {ran} tests ran:\n{printed}");
}
