//! Harness shared by the suites of this package.

pub mod capture;
pub mod ensemble;
pub mod fight;
pub mod grants;
pub mod lock;
pub mod proxy;
pub mod random;
pub mod referee;
pub mod target;
pub mod wait;
pub mod world;
