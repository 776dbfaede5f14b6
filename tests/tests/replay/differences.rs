//! Known differences between the test server and the recorded one, and their reasons.
//!
//! Each entry names a capture and a line at which the servers must still differ. If you make the
//! test server behave like real servers, delete the entry. If `own-garbage` is recorded again, its
//! lines change.

/// A line at which the servers differ.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Known {
    pub(crate) capture: &'static str,
    pub(crate) line: usize,
    pub(crate) why: &'static str,
}

pub(crate) const KNOWN: &[Known] = &[
    garbage(7, NOT_AS_ASKED),
    garbage(37, NOT_AS_ASKED),
    garbage(43, NOT_AS_ASKED),
    garbage(50, SEQUENTIAL_CONTAINER),
    garbage(56, SEQUENTIAL_CONTAINER),
    garbage(283, SECOND_SESSION),
    garbage(284, SECOND_SESSION),
];

const fn garbage(line: usize, why: &'static str) -> Known {
    Known { capture: "own-garbage", line, why }
}

const NOT_AS_ASKED: &str = "The codec reads flags that do not go with their opcode as what servers \
    make of them, and writes the flags that do.";

const SEQUENTIAL_CONTAINER: &str = "Real servers create containers with a number for opcode 19 \
    with flag 2 or 3, which no client sends; the codec has no such mode.";

const SECOND_SESSION: &str = "Real servers take a createSession of a client for a handshake: they \
    answer with the session, which then has the timeout that was asked for, here none.";
