//! Scenarios of the session machine against a scripted server, in virtual time.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test names the events it expects")]

mod peer;

mod busy;
mod credentials;
mod deadlines;
mod exactly_once;
mod keeper;
mod kept_lease;
mod lease;
mod persistent;
mod quota;
mod renewal;
mod reply_size;
mod requests;
mod resume;
mod sasl;
mod shared_list;
mod support;
