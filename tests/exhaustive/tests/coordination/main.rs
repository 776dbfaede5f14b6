//! Recipes without a lock, locks that are made of other locks, and the work queue, in the two worlds in
//! which `outages` and `crowd` test the other locks: outages of every length, and crowds on one
//! connection. Every option has its default.
//!
//! After each outage, the following must be true: nothing was lost and nothing was applied twice;
//! streams have delivered the current state; the calls that waited have completed within a second
//! after their clients had reconnected; the clients have sent few requests; nothing is left behind.

#![expect(clippy::indexing_slicing, reason = "clients are known by their numbers")]

mod barriers;
mod crowds;
mod double_barriers;
mod groups;
mod lock_crowds;
mod locks;
mod outage;
mod presences;
mod values;
mod work_queues;
