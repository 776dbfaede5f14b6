//! A server, and programs that use it.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;
use zk_recipes::SessionId;
use zk_testserver::{ServerConfig, TestServer};

/// A test fails if it has to wait for longer than this. No result depends on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A server that listens.
pub(crate) struct World {
    pub(crate) server: TestServer,
    pub(crate) address: String,
}

/// What a program has printed, and how it has ended.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A program that runs.
pub(crate) struct Started {
    pub(crate) child: Child,
    stdout: BufReader<ChildStdout>,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::with(ServerConfig::default()).await
    }

    pub(crate) async fn with(config: ServerConfig) -> Self {
        let server = TestServer::start(config);
        let address = server.listen("127.0.0.1:0").await.unwrap().to_string();
        Self { server, address }
    }

    /// Returns a command line that begins with `zklock VERB`. A test that fails ends the program.
    pub(crate) fn zklock(&self, verb: &str) -> Command {
        zklock_at(&self.address, verb)
    }

    /// Returns `zklock run /lock sh -c SCRIPT`.
    pub(crate) fn script(&self, script: &str) -> Command {
        let mut command = self.zklock("run");
        command.args(["/lock", "sh", "-c", script]);
        command
    }

    /// Returns the names of the entries of a lock, in their order.
    pub(crate) fn entries(&self, path: &str) -> Vec<String> {
        let mut names = self.server.children(path).unwrap_or_default();
        names.retain(|name| name.ends_with(|last: char| last.is_ascii_digit()));
        names.sort_by_key(|name| name.split_at(name.len().saturating_sub(10)).1.to_owned());
        names
    }

    /// Waits until a lock has this many entries.
    pub(crate) async fn until_entries(&self, path: &str, count: usize) {
        until(|| self.entries(path).len() == count).await;
    }
}

pub(crate) fn zklock_at(address: &str, verb: &str) -> Command {
    // A shell starts commands in the background with SIGINT ignored, so tests may be too.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_zklock")]);
    command.arg(verb).env("ZK_CONNECT", address).env("ZKLOCK_SESSION_TIMEOUT", "10s");
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs a program to its end.
pub(crate) async fn see(command: &mut Command) -> Seen {
    let output = patient(command.output()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Seen { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs a program to its end, and returns its exit status.
pub(crate) async fn code(command: &mut Command) -> i32 {
    see(command).await.status.code().expect("it was not ended by a signal")
}

/// Starts a program, of which only the standard output is of interest.
pub(crate) fn start(command: &mut Command) -> Started {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    Started { child, stdout }
}

impl Started {
    /// Returns the next line that the program or its command prints.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = String::new();
        patient(self.stdout.read_line(&mut line)).await.unwrap();
        assert!(!line.is_empty(), "the program has ended without another line");
        line.trim_end().to_owned()
    }

    /// Returns the next line, or `None` if it is empty, as at the end of a frame.
    pub(crate) async fn line_or_empty(&mut self) -> Option<String> {
        let mut line = String::new();
        patient(self.stdout.read_line(&mut line)).await.unwrap();
        assert!(!line.is_empty(), "the program has ended without another line");
        Some(line.trim_end().to_owned()).filter(|line| !line.is_empty())
    }

    /// Returns the rest of the output. All processes that were started have ended then: each of them
    /// has the other end of the pipe.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = String::new();
        patient(self.stdout.read_to_string(&mut rest)).await.unwrap();
        rest
    }

    /// Returns what the program has printed to standard error, which must be a pipe.
    pub(crate) async fn errors(&mut self) -> String {
        let mut text = String::new();
        let mut stderr = self.child.stderr.take().expect("it is a pipe");
        patient(stderr.read_to_string(&mut text)).await.unwrap();
        text
    }

    pub(crate) async fn code(&mut self) -> i32 {
        self.status().await.code().expect("it was not ended by a signal")
    }

    pub(crate) async fn status(&mut self) -> ExitStatus {
        patient(self.child.wait()).await.unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id().expect("it has not ended")).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// Returns the process of the supervisor.
    pub(crate) fn supervisor(&self) -> Pid {
        let id = self.child.id().unwrap();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        Pid::from_raw(children.trim().parse().unwrap()).unwrap()
    }
}

/// Returns the session that a command has printed.
pub(crate) fn session(text: &str) -> SessionId {
    let digits = text.strip_prefix("0x").expect("a session begins with 0x");
    SessionId(i64::from_str_radix(digits, 16).unwrap())
}

/// Returns the path of a file that does not exist yet.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// Writes a file that only its owner can read.
pub(crate) fn write_secret(file: &Path, text: &str) {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(file);
    file.unwrap().write_all(text.as_bytes()).unwrap();
}

/// Waits until a condition holds. There is no event for what another process does.
pub(crate) async fn until(mut condition: impl FnMut() -> bool) {
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    patient(async {
        while !condition() {
            looks.tick().await;
        }
    })
    .await;
}

async fn patient<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("what the test waits for happens")
}
