//! The program as a process.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A running program, which ends with this value.
pub(crate) struct Program {
    child: Child,
    pub(crate) connect_string: String,
}

/// A program that has ended by itself.
pub(crate) struct Failed {
    pub(crate) exit_code: Option<i32>,
    pub(crate) errors: String,
}

impl Program {
    /// Starts it, and reads its address.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program was built");
        let mut line = String::new();
        let output = child.stdout.take().expect("it is a pipe");
        BufReader::new(output).read_line(&mut line).expect("it prints a line");
        Self { child, connect_string: line.trim().to_owned() }
    }

    /// Starts it, and waits for its end.
    pub(crate) fn fail(arguments: &[&str]) -> Failed {
        let output = command(arguments).stdin(Stdio::null()).output().expect("it was built");
        assert!(output.stdout.is_empty(), "it has started: {output:?}");
        let errors = String::from_utf8(output.stderr).expect("messages are UTF-8");
        Failed { exit_code: output.status.code(), errors }
    }

    /// Sends a four-letter word. Returns the reply.
    pub(crate) fn word(&self, word: &str) -> String {
        let mut stream = TcpStream::connect(&self.connect_string).expect("it listens");
        stream.write_all(word.as_bytes()).expect("it reads");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("it replies with text");
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
