//! The state of a lock that was obtained.

use super::error::LostReason;

/// State of a lock that was obtained.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LockState {
    /// The client is connected to a read-write server in the session that created the znode, the
    /// znode is not known to be gone, no acknowledgement is overdue, and the guard deadline is in
    /// the future. With a lease, no other contender can have the lock, provided that the clocks and
    /// the configuration of the servers are as assumed. Without a lease, a server that is cut off
    /// from its leader may continue to acknowledge for a while after the leader has expired the
    /// session.
    Held,
    /// There is neither a proof that the lock is lost nor a recent proof that it is held: the
    /// client is disconnected, or has resumed the session and not yet proven the lock, or an
    /// acknowledgement is overdue, or there is no lease yet because the session was idle.
    AtRisk,
    /// Lost for good: another contender may hold the lock.
    Lost(LostReason),
}

/// What a lock that is at risk means to its holder.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum AtRiskPolicy {
    /// A lock that is at risk counts as held until it is lost. A short loss of the connection does
    /// not interrupt the work.
    #[default]
    GoOn,
    /// A lock that is at risk is lost, immediately and for good, with the reason
    /// [`LostReason::AtRisk`], and its znode is removed. Choose this if an unnecessary interruption
    /// of the work is better than work that continues after the lock may have been lost. An acquire
    /// completes when there is a lease, so on a session that has been idle it takes up to one and a
    /// half ticks of the servers longer.
    TreatAsLost,
}
