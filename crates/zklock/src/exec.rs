//! The process that becomes the command.
//!
//! Between `fork` and `exec`, safe code cannot run, so the supervisor starts the program once more.
//! This process asks the kernel to kill it when the supervisor ends, which the command inherits, and
//! then replaces itself.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::exit::{FAILED, NOT_EXECUTABLE, NOT_FOUND};
use crate::text::printable_lines;

/// The first argument that starts the program as this process.
pub(crate) const ARGUMENT: &str = "internal-exec";

/// The file of the running program, which may have been replaced since it was started.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

/// Becomes the command. The arguments are the id of the supervisor, and the command.
pub(crate) fn main(arguments: &[OsString]) -> ExitCode {
    let [supervisor, name, rest @ ..] = arguments else {
        complain("only zklock itself starts a command");
        return ExitCode::from(FAILED);
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        complain(&format!("the command cannot be tied to zklock: {error}"));
        return ExitCode::from(FAILED);
    }
    // The supervisor may have ended before the kernel was asked.
    let parent = getppid().map(|parent| Pid::as_raw_pid(parent).to_string());
    if parent.as_deref() != supervisor.to_str() {
        return ExitCode::from(FAILED);
    }
    let error = Command::new(name).args(rest).exec();
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    complain(&format!("cannot run {}: {}", name.display(), reason(&error)));
    ExitCode::from(if is_missing { NOT_FOUND } else { NOT_EXECUTABLE })
}

fn reason(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::NotFound {
        "there is no such command".to_owned()
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        "it is not an executable file".to_owned()
    } else {
        error.to_string()
    }
}

/// Prints a sentence to standard error.
pub(crate) fn complain(sentence: &str) {
    // There is nobody else to tell.
    let _ = writeln!(io::stderr(), "zklock: {}", printable_lines(sentence));
}
