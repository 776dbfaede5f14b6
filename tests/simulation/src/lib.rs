//! Worlds drawn at random: real clients, in-process servers and faults in virtual time, and judges
//! that know what was promised.
//!
//! A seed determines everything: the servers, the links, the program of the callers, the faults. The
//! same seed gives the same run on every machine. `docs/internals/simulation.md` says how to use it,
//! what is drawn, and what is judged.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a judge looks at a few kinds of events, and an error that is not named is another one"
)]

pub mod cuts;
pub mod fleet;
pub mod history;
pub mod judges;
pub mod logs;
pub mod program;
pub mod run;
#[cfg(test)]
mod sample;
pub mod shrink;
pub mod timeline;
pub mod world;

pub use zk_tests::draw;
