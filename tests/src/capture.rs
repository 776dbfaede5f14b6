//! Captures: recorded conversations between clients and a server, frame by frame.
//!
//! A capture is a text with one line for each frame or change of a connection, in order:
//!
//! ```text
//! # Title of the capture.
//! open 1
//! 1 > 000000000000000000000000… # connect
//! 1 < 0000000000001f4001000045… # session 0x1000045a1a60000
//! time 3
//! close 1 >
//! ```
//!
//! `>` marks a frame of the client, and `<` a frame of the server. Frames are hexadecimal and
//! without their length, which follows from the line. `close` names the side that ended the
//! connection. `time` contains the seconds since the beginning. Text after `#` is a comment.

mod message;

use std::fmt::{self, Write as _};

use bytes::Bytes;

pub use self::message::{Conversation, Message};

/// One line of a capture.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Entry {
    /// A client connects. Connections are numbered from 1.
    Open {
        /// Number of the connection.
        connection: u64,
    },
    /// A whole frame.
    Frame {
        /// Number of the connection.
        connection: u64,
        /// The side that has sent it.
        from: Side,
        /// The frame with its length.
        bytes: Bytes,
    },
    /// A connection ends.
    Close {
        /// Number of the connection.
        connection: u64,
        /// The side that has ended it.
        by: Side,
    },
    /// Time passes.
    Time {
        /// Seconds since the beginning.
        seconds: u64,
    },
}

/// A side of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// Parses a capture. Returns each line with its number.
///
/// # Errors
///
/// The first line that cannot be parsed, and why.
pub fn read(text: &str) -> Result<Vec<(usize, Entry)>, String> {
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let told = line.split('#').next().unwrap_or_default().trim();
        if !told.is_empty() {
            entries.push((number, entry(told).map_err(|why| format!("line {number}: {why}"))?));
        }
    }
    Ok(entries)
}

fn entry(told: &str) -> Result<Entry, String> {
    let words: Vec<&str> = told.split_whitespace().collect();
    Ok(match words[..] {
        ["open", connection] => Entry::Open { connection: number(connection)? },
        ["close", connection, by] => {
            Entry::Close { connection: number(connection)?, by: side(by)? }
        }
        ["time", seconds] => Entry::Time { seconds: number(seconds)? },
        [connection, from, hex] => {
            Entry::Frame { connection: number(connection)?, from: side(from)?, bytes: bytes(hex)? }
        }
        _ => return Err(format!("what is `{told}`?")),
    })
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|error| format!("`{word}`: {error}"))
}

fn side(word: &str) -> Result<Side, String> {
    match word {
        ">" => Ok(Side::Client),
        "<" => Ok(Side::Server),
        _ => Err(format!("`{word}` is neither > nor <")),
    }
}

fn bytes(hex: &str) -> Result<Bytes, String> {
    let pairs = hex.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return Err("half a byte".to_owned());
    }
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).map_err(|_| "no hexadecimal number")?;
        u8::from_str_radix(text, 16).map_err(|_| "no hexadecimal number")
    };
    let length = u32::try_from(pairs.len()).map_err(|error| error.to_string())?;
    let mut bytes = length.to_be_bytes().to_vec();
    for pair in pairs {
        bytes.push(byte(pair)?);
    }
    Ok(bytes.into())
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { connection } => write!(f, "open {connection}"),
            Self::Close { connection, by } => write!(f, "close {connection} {by}"),
            Self::Time { seconds } => write!(f, "time {seconds}"),
            Self::Frame { connection, from, bytes } => {
                write!(f, "{connection} {from} ")?;
                bytes.iter().skip(4).try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char(match self {
            Self::Client => '>',
            Self::Server => '<',
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let entries = [
            Entry::Open { connection: 1 },
            Entry::Frame {
                connection: 1,
                from: Side::Client,
                bytes: Bytes::from_static(&[0, 0, 0, 2, 0xab, 0]),
            },
            Entry::Time { seconds: 3 },
            Entry::Close { connection: 12, by: Side::Server },
        ];
        let mut text = "# A comment, then an empty line.\n\n".to_owned();
        for entry in &entries {
            text += &format!("{entry}  # why\n");
        }
        let read = read(&text).unwrap();
        assert_eq!(read.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert_eq!(read.into_iter().map(|(_, entry)| entry).collect::<Vec<_>>(), entries);
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for line in ["open", "open x", "close 1 =", "1 >", "1 > 0000000", "1 = 00", "1 < 0000000x"]
        {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
