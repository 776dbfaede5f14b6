//! How many lines of a kind the log shows.
//!
//! A client may have thousands of locks, and an outage or a permission may concern all of them. So
//! only the first messages of each kind in a minute are visible at the usual levels.

use tracing::info;
use zk_session::recipe::Notice;

/// Number of messages of each kind in a minute that are logged above DEBUG.
const NOTICES_MAX: u32 = 10;

/// Returns whether a message with this number is visible. Announces that others are not.
pub(crate) fn is_among_first(notice: Notice, number: u32) -> bool {
    if number == NOTICES_MAX + 1 {
        let more = match notice {
            Notice::AtRisk => "locks are at risk",
            Notice::HeldAgain => "locks are held again",
            Notice::Lost => "locks are lost",
            Notice::OwnSession => "locks are waited for behind the client's own session",
            Notice::Refused => "removals are refused",
            Notice::Missed => "watches did not report a change",
            Notice::Blocked => "items of work queues are passed over",
        };
        info!("more {more}; they are logged at DEBUG for a minute");
    }
    number <= NOTICES_MAX
}
