//! The work queue in virtual time: order, leases, batches, the limit, drops at every poll, expiry,
//! administrators, and costs. Each fault is injected exactly where it is meant to happen, and the
//! safety timer is off unless a test is about it. `tests/exhaustive/tests/enumeration` cuts the
//! connections of producers and takers at every request and event.

mod axes;
mod batches;
mod blocked;
mod cancelling;
mod costs;
mod faults;
mod items;
mod limits;
mod long;
mod names;
mod redelivery;
mod stalls;
mod sweeps;
