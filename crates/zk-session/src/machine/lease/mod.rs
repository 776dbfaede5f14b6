//! The lease: the time, by our own clock, until which no other session can own this session's
//! ephemeral znodes.
//!
//! The leader ends a session when it has not learned of any activity for the session timeout. It
//! learns of activity from the server that we are connected to, and that server may still reply to
//! us although it is cut off from the leader. So the newest acknowledgement proves little. The
//! lease is based on a request that the leader has certainly learned of. It ends 0.95 times the
//! session timeout after that request was sent, because our clock may be 5 % slow. Its end never
//! moves back, unless a server grants a shorter timeout.
//!
//! The machine finds that request with the help of pings ([`window`]) or of committed writes
//! ([`bridge`]). Two events renew either kind of lease:
//!
//! - The session is created. The leader processed the ConnectRequest as a transaction.
//! - The session is resumed, and then a write on that connection is committed. The leader itself
//!   replies to a resume and restarts the session's timeout. But the leader may have been deposed
//!   without knowing it, in which case it commits nothing.

mod bridge;
mod clock;
mod commits;
mod config;
mod drift;
mod gaps;
mod proof;
mod window;

pub use self::clock::LeaseClock;
pub use self::commits::SlowCommits;
pub use self::config::{Lease, LeaseDefect};
pub(super) use self::drift::slow;
