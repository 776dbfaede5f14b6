//! Why a client or a recipe cannot be built.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::machine::lease::LeaseDefect;

use crate::abridged::Abridged;

/// Why a path is invalid.
#[derive(Clone, Copy, Eq, Error, Hash, PartialEq)]
#[non_exhaustive]
pub enum PathDefect {
    /// The path has an empty component, or ends with `/`.
    #[error("it must not end with /, and must not have an empty component (//)")]
    EmptyComponent,
    /// The path has a character that servers refuse.
    #[error(
        "it has a character that servers refuse (a control character, a private-use character, or one above U+FFFF)"
    )]
    ForbiddenCharacter,
    /// The path does not start with `/`.
    #[error("it must start with /")]
    NotAbsolute,
    /// The path is the root, where no recipe can be.
    #[error("it is the root, and a recipe needs a znode below the root")]
    Root,
    /// The path has a component `.` or `..`.
    #[error("it has a component `.` or `..`, and paths of znodes are never relative")]
    RelativeComponent,
}

jute_codec::debug_by_message!(PathDefect);

/// Why a client or a recipe cannot be built.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The chroot at the end of the connect string is invalid.
    #[error("invalid chroot {path:?}: {defect}", path = Abridged(.path))]
    Chroot {
        /// The chroot as given.
        path: String,
        /// Why it is invalid.
        defect: ChrootDefect,
    },
    /// An entry of the connect string is invalid.
    #[error("invalid host {host:?} in the connect string: {defect}", host = Abridged(.host))]
    Host {
        /// The entry as given.
        host: String,
        /// Why it is invalid.
        defect: HostDefect,
    },
    /// The system could not start the thread of
    /// [`dedicated_thread`](crate::ClientBuilder::dedicated_thread).
    #[error("cannot start the thread of the session: {message}")]
    Thread {
        /// The system's message.
        message: String,
    },
    /// The connect string names no host.
    #[error("the connect string names no host; an example is \"zk1:2181,zk2:2181/app\"")]
    NoHosts,
    /// No tokio runtime runs where the client was to start.
    #[error(
        "no tokio runtime runs here, and a client needs one; call `connect` or `start` in a runtime, \
         or set `dedicated_thread` and call `start`"
    )]
    NoRuntime,
    /// The value of an option is invalid.
    #[error("invalid {option}{}: {defect}", Shown(.value))]
    Option {
        /// The option, as text for people: mostly the builder's method that sets it, such as
        /// `session_timeout`, or more, such as `acl of the lock`.
        option: &'static str,
        /// The value as given, as text; empty if it has no text, or is a secret.
        value: String,
        /// Why its value is invalid.
        defect: OptionDefect,
    },
    /// The path of a recipe is invalid.
    #[error("invalid {option} {path:?}: {defect}", path = Abridged(.path))]
    Path {
        /// What the path is for.
        option: &'static str,
        /// The path as given.
        path: String,
        /// Why it is invalid.
        defect: PathDefect,
    },
}

jute_codec::debug_by_message!(ConfigError);

/// The value of an option, behind its name.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " {}", Abridged(self.0)) }
    }
}

/// Why a chroot is invalid.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ChrootDefect {
    /// More hosts follow the chroot.
    #[error(
        "a comma follows the chroot of {host:?}; write the chroot once, after the last host, as in \
         {suggestion:?}",
        host = Abridged(.host),
        suggestion = Abridged(.suggestion)
    )]
    BeforeHosts {
        /// The entry that contains the chroot.
        host: String,
        /// A connect string that the caller may have meant.
        suggestion: String,
    },
    /// The chroot is not a valid path.
    #[error(transparent)]
    Path(PathDefect),
}

jute_codec::debug_by_message!(ChrootDefect);

/// Why an entry of a connect string is invalid.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum HostDefect {
    /// Something other than a port follows the closing bracket.
    #[error("only a port may follow the bracket, as in \"[::1]:2181\"")]
    AfterBracket,
    /// The entry is empty.
    #[error("entry {number} is empty: there is a comma too many")]
    Empty {
        /// Its position in the list, counted from 1.
        number: usize,
    },
    /// An IPv6 address has no brackets.
    #[error("an IPv6 address needs brackets, as in \"[::1]:2181\"")]
    Ipv6WithoutBrackets,
    /// An opening bracket is not closed.
    #[error("the bracket of an IPv6 address is not closed; write it as in \"[::1]:2181\"")]
    MissingBracket,
    /// The entry has no name before the port.
    #[error("the name before the port must not be empty")]
    NoName,
    /// Something other than a port follows the colon.
    #[error("a port between 1 and 65535 must follow the colon")]
    Port,
    /// The entry starts with a scheme.
    #[error("hosts have no scheme such as {scheme}; write {suggestion:?}")]
    Scheme {
        /// The scheme, with `://`.
        scheme: String,
        /// A connect string that the caller may have meant.
        suggestion: String,
    },
    /// The entry contains a separator other than a comma.
    #[error("hosts are separated by commas, as in \"zk1:2181,zk2:2181\"")]
    Separator,
}

jute_codec::debug_by_message!(HostDefect);

/// Why the value of an option is invalid.
#[derive(Clone, Copy, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum OptionDefect {
    /// The value is a limit of fewer bytes than this minimum.
    #[error("it must be at least {0} bytes")]
    BytesBelow(usize),
    /// The value is empty.
    #[error("it must not be empty")]
    Empty,
    /// The credentials of the scheme `digest` contain no colon. Servers would accept them, and store
    /// the password where they store the name of the user.
    #[error(
        "the credentials of the scheme \"digest\" must have the form user:password, with a colon (they \
         are not shown here, because they are a secret)"
    )]
    DigestWithoutColon,
    /// The authentication scheme is empty.
    #[error("the scheme must not be empty; an example is \"digest\"")]
    EmptyScheme,
    /// The value is a lease that cannot be kept.
    #[error(transparent)]
    Lease(LeaseDefect),
    /// The value is longer than this maximum.
    #[error("it must be at most {0:?}")]
    LongerThan(Duration),
    /// The value violates a rule of a recipe, which the text describes.
    #[error("{0}")]
    Other(&'static str),
    /// The value is shorter than this minimum.
    #[error("it must be at least {0:?}")]
    ShorterThan(Duration),
    /// The value is shorter than the session timeout.
    #[error("it must not be shorter than the session timeout")]
    ShorterThanSessionTimeout,
    /// The value is zero.
    #[error("it must be at least 1")]
    Zero,
}

jute_codec::debug_by_message!(OptionDefect);
