//! The program as a process, and requests to it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A running program, which ends with this value.
pub(crate) struct Program {
    child: Child,
    errors: BufReader<ChildStderr>,
    pub(crate) connect_string: String,
    pub(crate) http: String,
}

/// A program that has ended by itself.
pub(crate) struct Failed {
    pub(crate) exit_code: Option<i32>,
    pub(crate) errors: String,
}

impl Program {
    /// Starts it, and reads its addresses.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::spawn(&mut command(arguments))
    }

    /// Starts it in a shell that has executed this line.
    pub(crate) fn start_after(line: &str, arguments: &[&str]) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{line}; exec \"$0\" \"$@\"")]);
        Self::spawn(shell.arg(env!("CARGO_BIN_EXE_zk-testserver")).args(arguments))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built");
        let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        let mut line = || lines.next().expect("it prints two lines").expect("they are UTF-8");
        let connect_string = line();
        let http = line();
        let http = http.strip_prefix("http ").expect("this is the second line").to_owned();
        let errors = BufReader::new(child.stderr.take().expect("it is a pipe"));
        Self { child, errors, connect_string, http }
    }

    /// Starts it, and waits for its end.
    pub(crate) fn fail(arguments: &[&str]) -> Failed {
        Self::fail_in(Path::new("."), arguments)
    }

    /// Starts it in a folder, and waits for its end.
    pub(crate) fn fail_in(folder: &Path, arguments: &[&str]) -> Failed {
        let mut command = command(arguments);
        let output = command.current_dir(folder).stdin(Stdio::null()).output();
        let output = output.expect("it was built");
        assert!(output.stdout.is_empty(), "it has started: {output:?}");
        let errors = String::from_utf8(output.stderr).expect("messages are UTF-8");
        Failed { exit_code: output.status.code(), errors }
    }

    /// Returns what it prints instead of starting.
    pub(crate) fn output(arguments: &[&str]) -> String {
        let output = command(arguments).stdin(Stdio::null()).output().expect("it was built");
        String::from_utf8(output.stdout).expect("it is UTF-8")
    }

    /// Executes a command that must succeed.
    pub(crate) fn ok(&self, command: &str) {
        let (code, body) = self.get(&format!("/command/{command}"));
        assert_eq!(code, 200, "{body}");
    }

    pub(crate) fn json(&self, page: &str) -> Value {
        let (code, body) = self.get(page);
        assert_eq!(code, 200, "{body}");
        serde_json::from_str(&body).expect("it is JSON")
    }

    pub(crate) fn get(&self, url: &str) -> (u16, String) {
        self.request("GET", url)
    }

    pub(crate) fn request(&self, method: &str, url: &str) -> (u16, String) {
        self.raw(format!("{method} {url} HTTP/1.1\r\nHost: {}\r\n\r\n", self.http).as_bytes())
    }

    /// Sends bytes to the port for HTTP. Returns the status and the body of the answer.
    pub(crate) fn raw(&self, bytes: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.http).expect("it listens");
        stream.write_all(bytes).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers with text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("there is an empty line");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("the head has a status"), body.to_owned())
    }

    /// Sends a four-letter word. Returns the reply, which is empty if the server ends the connection.
    pub(crate) fn word(&self, word: &str) -> String {
        let mut stream = TcpStream::connect(&self.connect_string).expect("it listens");
        let mut reply = String::new();
        // An error says that the server has ended the connection.
        let _ = stream.write_all(word.as_bytes()).and_then(|()| stream.read_to_string(&mut reply));
        reply
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(id.expect("it is a process"), signal).expect("it is ours");
    }

    pub(crate) fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits for the end.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().expect("it is a child").code()
    }

    /// Waits for a line on standard error.
    pub(crate) fn complaint(&mut self) -> String {
        let mut line = String::new();
        self.errors.read_line(&mut line).expect("it is UTF-8");
        line
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zk-testserver"));
    command.args(arguments);
    command
}
