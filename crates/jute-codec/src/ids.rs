//! Types for session ids, transaction ids and versions, so that one is never passed as another.

use std::fmt;

/// Identifies a session. A session id is printed in hexadecimal, as in the logs of servers.
#[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SessionId(pub i64);

impl SessionId {
    /// The protocol's 0. In a handshake request, 0 asks for a new session. In the response, it
    /// means that the session has expired. In a stat, it means that the znode is not ephemeral.
    pub const NONE: Self = Self(0);
}

/// Identifies a transaction. Zxids are ordered across the whole ensemble. They are printed in
/// hexadecimal, as in the logs of servers.
#[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Zxid(pub i64);

impl Zxid {
    /// The protocol's -1, in headers that carry no zxid: the headers of watch events, and of
    /// replies to unknown opcodes.
    pub const NONE: Self = Self(-1);
}

/// Counts the changes to a znode's data, its access control list, or its set of children.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Version(pub i32);

impl Version {
    /// The protocol's -1. As an expected version, it matches every version.
    pub const ANY: Self = Self(-1);
}

number_record!(SessionId(i64));
number_record!(Zxid(i64));
number_record!(Version(i32));

/// Prints a number in hexadecimal, in both `Display` and `Debug`.
macro_rules! print_as_hex {
    ($name:ident) => {
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    };
}

print_as_hex!(SessionId);
print_as_hex!(Zxid);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
