//! Fencing tokens.

use std::fmt;

use zk_session::Zxid;

/// A number that grows with every holder of a lock: the zxid of the transaction that created its
/// znode.
///
/// The zxid increases across the whole ensemble. It continues to increase after the directory of
/// the lock has been deleted and created again, and after a change of the leader. It decreases if
/// the ensemble is restored from a backup.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FencingToken(Zxid);

impl FencingToken {
    pub(crate) fn new(czxid: Zxid) -> Self {
        Self(czxid)
    }

    /// Returns the token as the number that the protected resource stores.
    pub fn get(self) -> i64 {
        self.0.0
    }
}

/// For numbers that a resource has stored, and for unit tests of code that takes a token. Only the
/// token of a guard says who holds a lock.
///
/// ```
/// use zk_recipes::FencingToken;
///
/// let stored = FencingToken::from(7);
/// assert!(stored < FencingToken::from(9));
/// ```
impl From<i64> for FencingToken {
    fn from(token: i64) -> Self {
        Self(Zxid(token))
    }
}

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        token.0.0
    }
}

/// Formats the token in decimal, as protected resources print it.
impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FencingToken({})", self.get())
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.get())
    }
}
