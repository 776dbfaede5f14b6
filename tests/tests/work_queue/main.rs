//! The work queue in virtual time: order, leases, batches, the limit, cuts of the connection at every request
//! and event, drops at every poll, expiry, administrators, and costs. Each fault is injected exactly
//! where it is meant to happen, and the safety timer is off unless a test is about it.

mod axes;
mod batches;
mod blocked;
mod cancelling;
mod costs;
mod cuts;
mod faults;
mod items;
mod limits;
mod long;
mod names;
mod redelivery;
mod stalls;
mod sweeps;
