//! Groups: which processes take part in something, and what each of them says about itself.

mod change;
mod error;
mod machine;
mod member;
mod membership;
mod service;
mod state;
mod watch;

pub use self::change::GroupChange;
pub use self::error::GroupError;
pub use self::member::Member;
pub use self::membership::Membership;
pub use self::service::{Group, GroupBuilder};
pub use self::state::{Ending, MembershipState};
pub use self::watch::GroupWatch;
