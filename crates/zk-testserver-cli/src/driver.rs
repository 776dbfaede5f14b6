//! Runs the program: files, sockets, signals, and the tasks for HTTP and for the script.
#![expect(clippy::disallowed_methods, reason = "this module is the driver: it owns tasks and time")]

use std::convert::Infallible;
use std::fs;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use zk_testserver::{ServerConfig, TestServer};

use crate::command::Command;
use crate::control::Control;
use crate::data::Data;
use crate::options::Options;
use crate::pages::answer;
use crate::script::{self, Line};

/// The pause after an accept that failed, for example for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
    let script = match &options.script {
        Some(file) => script::parse(&file.display().to_string(), &read(file)?)?,
        None => Vec::new(),
    };
    if !options.host.is_loopback() {
        eprintln!(
            "zk-testserver: warning: who can reach {} can read and change all data, and stop this \
             server",
            options.host
        );
    }
    // One thread suffices for tests, and starts faster than several.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|problem| format!("cannot start: {problem}"))?;
    let result = runtime.block_on(serve(options, config, &data, script));
    // Dropping the runtime would wait for the pending read from the standard input.
    runtime.shutdown_background();
    result
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|problem| format!("cannot read {}: {problem}", file.display()))
}

async fn serve(
    options: &Options,
    config: ServerConfig,
    data: &Data,
    script: Vec<Line>,
) -> Result<(), String> {
    // Before the address is printed, so that a parent can end the program as soon as it has read it.
    let mut signals =
        Signals::new().map_err(|problem| format!("cannot await signals: {problem}"))?;
    let start = Instant::now();
    let server = TestServer::start(config);
    data.load(&server);
    let members = options.members;
    let control = Arc::new(Control { server, members, stop: Notify::new() });
    let mut later = Vec::new();
    for line in script {
        if line.at.is_zero() {
            execute(&control, &line)?;
        } else {
            later.push(line);
        }
    }
    let connect_string = listen(options, &control).await?;
    let http = SocketAddr::new(options.host, options.http_port);
    let cannot = |problem| format!("cannot listen on {http} for HTTP: {problem}");
    let listener = TcpListener::bind(http).await.map_err(cannot)?;
    let http = listener.local_addr().map_err(cannot)?;
    writeln!(io::stdout(), "{connect_string}\nhttp {http}")
        .map_err(|problem| format!("cannot print the addresses: {problem}"))?;
    tokio::spawn(accept(listener, Arc::clone(&control)));
    tokio::spawn(execute_later(Arc::clone(&control), later, start));
    tokio::select! {
        () = control.stop.notified() => {}
        () = signals.next() => {}
        () = input_ends(), if options.exit_with_parent => {}
    }
    Ok(())
}

/// Listens for clients, and returns the connect string.
async fn listen(options: &Options, control: &Control) -> Result<String, String> {
    let mut addresses = Vec::new();
    for member in 0..options.members {
        // `Options::config` has checked that there are enough ports.
        let port = if options.port == 0 { 0 } else { options.port.saturating_add(member) };
        let address = SocketAddr::new(options.host, port).to_string();
        let server = control.server.member(usize::from(member));
        let bound = server.listen(&address).await;
        let bound = bound.map_err(|problem| format!("cannot listen on {address}: {problem}"))?;
        addresses.push(bound.to_string());
    }
    Ok(addresses.join(","))
}

/// Executes a line of the script.
fn execute(control: &Control, line: &Line) -> Result<(), String> {
    control.execute(&line.command).map_err(|problem| format!("{}: {problem}", line.place))?;
    if line.command == Command::Shutdown {
        control.stop.notify_one();
    }
    Ok(())
}

/// Executes lines at their times. A line that fails does not end the program, since a test may have
/// ended a session before the script does.
async fn execute_later(control: Arc<Control>, script: Vec<Line>, start: Instant) {
    for line in script {
        sleep_until(start + line.at).await;
        if let Err(problem) = execute(&control, &line) {
            eprintln!("zk-testserver: {problem}");
        }
    }
}

async fn accept(listener: TcpListener, control: Arc<Control>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(converse(stream, Arc::clone(&control)))),
            Err(problem) => {
                eprintln!("zk-testserver: cannot accept a connection for HTTP: {problem}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Answers one request, and closes the connection.
async fn converse(stream: TcpStream, control: Arc<Control>) {
    let is_last = AtomicBool::new(false);
    let service = service_fn(|request: Request<Incoming>| {
        let uri = request.uri();
        let answer = answer(&control, request.method().as_str(), uri.path(), uri.query());
        is_last.fetch_or(answer.is_last, Ordering::Relaxed);
        let response = Response::builder()
            .status(answer.status)
            .header(CONTENT_TYPE, answer.kind)
            .body(Full::new(Bytes::from(answer.body)))
            .expect("the status and the header are valid");
        async { Ok::<_, Infallible>(response) }
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false);
    // An error concerns only this client, which sees it too.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
    if is_last.load(Ordering::Relaxed) {
        control.stop.notify_one();
    }
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
