//! The test harness that the suites share.

pub mod bare;
pub mod cancel;
pub mod capture;
pub mod case;
pub mod delayed;
pub mod diagram;
pub mod ensemble;
pub mod fight;
pub mod grants;
pub mod lock;
pub mod lockstep;
pub mod meter;
pub mod outage;
pub mod page;
pub mod proxy;
pub mod random;
pub mod referee;
pub mod scene;
pub mod standing;
pub mod tap;
pub mod target;
pub mod through;
pub mod wait;
pub mod wire;
pub mod work_queue;
pub mod world;
