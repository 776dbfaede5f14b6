//! Harness shared by the suites of this package.

pub mod capture;
pub mod grants;
pub mod proxy;
pub mod random;
pub mod target;
pub mod wait;
pub mod world;
