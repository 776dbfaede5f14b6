//! Exit statuses. Those of `timeout` and `flock` mean the same here.

/// The lock was lost, and the command was ended.
pub(crate) const LOST: u8 = 123;
/// The lock was not obtained in time.
pub(crate) const NOT_OBTAINED: u8 = 124;
/// The program itself has failed.
pub(crate) const FAILED: u8 = 125;
/// The command was found, but could not be run.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// Somebody said no, or an entry does not exist.
pub(crate) const NOT_DONE: u8 = 1;

/// `zklock doctor` has found a problem.
pub(crate) const PROBLEMS: u8 = 1;

/// The table of `--help`.
pub(crate) const TABLE: &str = "\
Exit status of `run`:
  N      that of the command
  123    the lock was lost, and the command was ended (--lost-exit-code)
  124    the lock was not obtained in time, or --try found it taken
         (--conflict-exit-code)
  125    zklock failed: no server, no permission, an invalid option
  126    the command was found, but could not be run
  127    the command was not found
  128+N  signal N ended the command, or zklock while it waited for the lock

`hold` has 0 for a lock that was released, and 123, 124, 125 and 128+N as `run`
has them. The others have 0 and 125; `evict` has 1 if it deleted nothing, and
`doctor` if it found a problem.";

/// Returns the status for the end by a signal, as shells do.
pub(crate) fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Why the program ends early: its exit status, and a sentence for people.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn own(message: impl Into<String>) -> Self {
        Self { status: FAILED, message: message.into() }
    }
}
