//! Runs the test server on a TCP address, for clients in any language.
//!
//! ```text
//! cargo run -p zk-testserver --example serve -- 127.0.0.1:2181
//! cargo run -p zk-testserver --example serve -- 127.0.0.1:0 60
//! ```
//!
//! The server prints its address and runs until its standard input ends, or until the given number
//! of seconds has passed. Lines on standard input cause faults: `cut` closes all connections, and
//! `expire` expires all sessions.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncBufReadExt as _, BufReader};
use zk_testserver::{ServerConfig, TestServer};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (address, seconds) = match &arguments[..] {
        [] => ("127.0.0.1:2181", Ok(u64::MAX)),
        [address] => (address.as_str(), Ok(u64::MAX)),
        [address, seconds] => (address.as_str(), seconds.parse()),
        _ => return usage(),
    };
    let Ok(seconds) = seconds else { return usage() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be built");
    let result = runtime.block_on(serve(address, Duration::from_secs(seconds)));
    // Dropping the runtime would wait for the pending read from standard input.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("serve: {address}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: serve [ADDRESS:PORT [SECONDS]]");
    ExitCode::from(2)
}

async fn serve(address: &str, limit: Duration) -> Result<(), Box<dyn Error>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let config = ServerConfig::default()
        .start_time_ms(i64::try_from(now.as_millis())?)
        .extended_types(true)
        // The process may run for days, and nothing reads the records.
        .log_capacity(0);
    let server = TestServer::start(config);
    println!("{}", server.listen(address).await?);
    // If the limit is too large for the clock, only the end of the input stops the server.
    let _ = tokio::time::timeout(limit, execute_commands(&server)).await;
    Ok(())
}

/// Executes the commands from standard input until the input ends.
async fn execute_commands(server: &TestServer) {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match line.trim() {
            "cut" => server.disconnect_all(),
            "expire" => server.sessions().into_iter().for_each(|session| server.expire(session)),
            "" => {}
            other => eprintln!("serve: expected cut or expire, got: {other}"),
        }
    }
}
