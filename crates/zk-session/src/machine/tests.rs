//! Scenarios of the session machine against a scripted server, in virtual time.

mod peer;

mod deadlines;
mod requests;
mod resume;
