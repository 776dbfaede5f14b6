//! Runs the program: files, sockets, signals.

use std::fs;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;

use tokio::io::AsyncReadExt as _;
use zk_testserver::{ServerConfig, TestServer};

use crate::data::Data;
use crate::options::Options;

/// Runs the server until the program shall end.
///
/// # Errors
///
/// Returns what prevented the start, in words for the user.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let config = options.config()?;
    let data = match &options.data {
        Some(file) => Data::parse(&file.display().to_string(), &read(file)?)?,
        None => Data::default(),
    };
    if !options.host.is_loopback() {
        eprintln!(
            "zk-testserver: warning: who can reach {} can read and change all data",
            options.host
        );
    }
    // One thread suffices for tests, and starts faster than several.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|problem| format!("cannot start: {problem}"))?;
    let result = runtime.block_on(serve(options, config, &data));
    // Dropping the runtime would wait for the pending read from the standard input.
    runtime.shutdown_background();
    result
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|problem| format!("cannot read {}: {problem}", file.display()))
}

async fn serve(options: &Options, config: ServerConfig, data: &Data) -> Result<(), String> {
    // Before the address is printed, so that a parent can end the program as soon as it has read it.
    let mut signals =
        Signals::new().map_err(|problem| format!("cannot await signals: {problem}"))?;
    let server = TestServer::start(config);
    data.load(&server);
    let connect_string = listen(options, &server).await?;
    writeln!(io::stdout(), "{connect_string}")
        .map_err(|problem| format!("cannot print the addresses: {problem}"))?;
    tokio::select! {
        () = signals.next() => {}
        () = input_ends(), if options.exit_with_parent => {}
    }
    Ok(())
}

/// Listens for clients, and returns the connect string.
async fn listen(options: &Options, server: &TestServer) -> Result<String, String> {
    let mut addresses = Vec::new();
    for member in 0..options.members {
        // `Options::config` has checked that there are enough ports.
        let port = if options.port == 0 { 0 } else { options.port.saturating_add(member) };
        let address = SocketAddr::new(options.host, port).to_string();
        let bound = server.member(usize::from(member)).listen(&address).await;
        let bound = bound.map_err(|problem| format!("cannot listen on {address}: {problem}"))?;
        addresses.push(bound.to_string());
    }
    Ok(addresses.join(","))
}

/// Returns when the standard input ends or breaks.
async fn input_ends() {
    let mut buffer = [0; 1024];
    while let Ok(1..) = tokio::io::stdin().read(&mut buffer).await {}
}

/// The signals that end the program.
#[cfg(unix)]
struct Signals(tokio::signal::unix::Signal, tokio::signal::unix::Signal);

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        Ok(Self(signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}
