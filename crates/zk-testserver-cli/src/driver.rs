//! Runs the program: files, sockets, signals, and the tasks for HTTP and for the script.
#![expect(clippy::disallowed_methods, reason = "this module is the driver: it owns tasks and time")]

use std::convert::Infallible;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use zk_testserver::{ServerConfig, TestServer};

use crate::caller::Caller;
use crate::command::Command;
use crate::control::Control;
use crate::data::Data;
use crate::options::Options;
use crate::pages::{self, answer};
use crate::script::{self, Line};

/// The pause after an accept that failed, for example for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How many connections for HTTP are served at a time, and for how long. Others wait, so a program
/// that forgets its connections, or sends nothing on them, delays commands but uses no memory.
const HTTP_CONNECTIONS_MAX: usize = 64;
const HTTP_TIME_MAX: Duration = Duration::from_secs(30);

/// The longest file that is read, in bytes.
const FILE_MAX: u64 = 64 << 20;

/// Runs the server until the program shall end.
///
/// # Errors
///
/// Returns what prevented the start, in words for the user.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let config = options.config()?;
    let data = match &options.data {
        Some(file) => {
            let max = options.jute_maxbuffer.try_into().unwrap_or(usize::MAX);
            Data::parse(&file.display().to_string(), &read(file)?, max)?
        }
        None => Data::default(),
    };
    let script = match &options.script {
        Some(file) => script::parse(&file.display().to_string(), &read(file)?)?,
        None => Vec::new(),
    };
    if !options.host.is_loopback() {
        complain(format_args!(
            "warning: who can reach {} can read and change all data, and stop this server",
            options.host
        ));
    }
    raise_file_limit();
    // One thread suffices for tests, and starts faster than several.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|problem| format!("cannot start: {problem}"))?;
    let result = runtime.block_on(serve(options, config, &data, script));
    // Dropping the runtime would wait for the pending read from the standard input.
    runtime.shutdown_background();
    result
}

/// Prints a line to standard error. Nothing can be done if that fails: it may be a pipe that nobody
/// reads.
pub(crate) fn complain(problem: impl Display) {
    let _ = writeln!(io::stderr(), "zk-testserver: {problem}");
}

fn read(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = File::open(file).and_then(|file| file.take(FILE_MAX + 1).read_to_string(&mut text));
    let length = read.map_err(|problem| format!("cannot read {}: {problem}", file.display()))?;
    if u64::try_from(length).is_ok_and(|length| length > FILE_MAX) {
        let mib = FILE_MAX >> 20;
        return Err(format!("cannot read {}: it is longer than {mib} MiB", file.display()));
    }
    Ok(text)
}

/// Allows this process as many files as the machine does. Each client needs one, and many systems
/// allow 1024 unless a program asks for more.
#[cfg(unix)]
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};

    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this is forbidden, the server serves as many clients as it may.
    let _ = setrlimit(Resource::Nofile, limit);
}

#[cfg(not(unix))]
fn raise_file_limit() {}

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
    tokio::spawn(accept(listener, Arc::clone(&control), options.host.is_loopback()));
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
            complain(problem);
        }
    }
}

async fn accept(listener: TcpListener, control: Arc<Control>, is_local: bool) {
    let places = Arc::new(Semaphore::new(HTTP_CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let control = Arc::clone(&control);
                tokio::spawn(async move {
                    converse(stream, &control, is_local).await;
                    drop(place);
                });
            }
            Err(problem) => {
                complain(format_args!("cannot accept a connection for HTTP: {problem}"));
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Answers one request, and closes the connection.
async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, control: &Control, is_local: bool) {
    let is_last = &AtomicBool::new(false);
    let service = service_fn(move |request: Request<Incoming>| async move {
        let uri = request.uri();
        let answer = match caller(request.headers()).check(is_local) {
            Ok(()) => answer(control, request.method().as_str(), uri.path(), uri.query()).await,
            Err(problem) => pages::refuse(problem),
        };
        is_last.fetch_or(answer.is_last, Ordering::Relaxed);
        let response = Response::builder()
            .status(answer.status)
            .header(CONTENT_TYPE, answer.kind)
            .body(Full::new(Bytes::from(answer.body)))
            .expect("the status and the header are valid");
        Ok::<_, Infallible>(response)
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false);
    // An error concerns only this client, which sees it too, and so does the end of its time.
    let _ = timeout(HTTP_TIME_MAX, http.serve_connection(TokioIo::new(stream), service)).await;
    if is_last.load(Ordering::Relaxed) {
        control.stop.notify_one();
    }
}

/// Returns who has sent a request. A field that is not text is a name that nobody has.
fn caller(headers: &HeaderMap) -> Caller<'_> {
    let text = |name: HeaderName| headers.get(name).map(|field| field.to_str().unwrap_or("?"));
    Caller {
        host: text(HOST),
        origin: text(ORIGIN),
        site: text(HeaderName::from_static("sec-fetch-site")),
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    fn control() -> Control {
        let server = TestServer::start(ServerConfig::default());
        Control { server, members: 1, stop: Notify::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_never_complete_ends_with_its_time() {
        let control = control();
        for start in [&b""[..], b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "] {
            let begun = Instant::now();
            let (mut client, server) = tokio::io::duplex(1024);
            let write = async {
                client.write_all(start).await.unwrap();
                // One byte in a second keeps no connection alive.
                while client.write_all(b"a").await.is_ok() {
                    sleep(Duration::from_secs(1)).await;
                }
            };
            tokio::join!(converse(server, &control, true), write);
            let took = begun.elapsed();
            assert!(took <= HTTP_TIME_MAX + Duration::from_secs(2), "{took:?}");
            assert!(start.is_empty() || took >= HTTP_TIME_MAX, "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_reads_ends_with_its_time() {
        let control = control();
        let begun = Instant::now();
        let (mut client, server) = tokio::io::duplex(64);
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
        converse(server, &control, true).await;
        assert_eq!(begun.elapsed(), HTTP_TIME_MAX);
    }
}
