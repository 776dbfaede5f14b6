//! Quiet.
