//! What the guards of all locks have in common, in virtual time: the policy for a lock at risk,
//! phases, views, statistics, inspection, and the end of a client.

mod at_risk;
mod contenders;
mod kinds;
mod phases;
mod stats;
mod status;
