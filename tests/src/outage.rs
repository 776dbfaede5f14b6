//! Outages of all servers of a world, of every kind and length.

use std::time::Duration;

use crate::world::World;

/// Lengths of outages. With every option at its default, they cover these ranges: below the interval
/// of the renewing writes (1.5 s); below the time after which a client leaves a silent server (9.5
/// s); below the lease (19 to 21 s remain at any time), and as long as an election may take; between
/// the lease and the session timeout (30 s); above the session timeout; above the time after which a
/// client gives up its session (60 s).
pub const SECONDS: [u64; 7] = [1, 5, 12, 16, 23, 45, 90];
/// The longest of these outages that a guard with a lease certainly survives.
pub const LEASE_SECONDS: u64 = 16;
/// After an outage of this length or more, every session has expired.
pub const EXPIRED_SECONDS: u64 = 45;

/// Kind of an outage.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "suites match on all of them")]
pub enum Way {
    /// Connections end, and new ones are refused.
    Refused,
    /// The server is paused: it accepts connections, and sends nothing.
    Silent,
    /// The network drops all packets, and attempts to connect are pending.
    BlackHole,
}

impl Way {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Refused, Self::Silent, Self::BlackHole];

    /// Begins an outage of this length.
    pub fn begin(self, world: &World, length: Duration) {
        match self {
            Self::Refused => {
                world.server.refuse_for(length);
                world.server.disconnect_all();
            }
            Self::Silent => world.server.pause(length),
            Self::BlackHole => world.black_hole(length),
        }
    }
}
