//! Features that all locks share, in virtual time: the policy for a lock at risk, phases, views,
//! statistics, inspection, and the end of a client.

mod at_risk;
mod contenders;
mod kinds;
mod phases;
mod proofs;
mod revocation;
mod stats;
mod status;
mod waiters;
