//! Worlds drawn at random: real clients, in-process servers and faults in virtual time, and judges
//! that know what was promised.
//!
//! A seed determines everything: the servers, the links, the program of the callers, the faults. The
//! same seed gives the same run on every machine. `docs/simulation.md` says how to use it, what is
//! drawn, and what is judged.

pub mod draw;
pub mod history;
pub mod judges;
pub mod program;
pub mod world;
