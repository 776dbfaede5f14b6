//! What a server does to all requests until a test changes it, unlike a fault, which fires once.

use std::time::Duration;

/// What a server does to all requests.
#[derive(Debug, Default)]
pub(crate) struct Conduct {
    /// How long each request waits before the server processes it.
    pub(crate) delay: Duration,
    pub(crate) failing: Affected,
    pub(crate) withholding: Affected,
}

/// Which of the next requests are affected.
#[derive(Debug, Default)]
pub(crate) enum Affected {
    #[default]
    None,
    /// This many requests. Pings are neither affected nor counted, because a test cannot know when
    /// a client sends them.
    Next(usize),
    /// All of them, pings included.
    All,
}

impl Affected {
    pub(crate) fn new(number: Option<usize>) -> Self {
        number.map_or(Self::All, Self::Next)
    }

    /// Returns whether a request is affected, and counts it.
    pub(crate) fn take(&mut self, is_ping: bool) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Next(_) if is_ping => false,
            Self::Next(left) => {
                let is_affected = *left > 0;
                *left = left.saturating_sub(1);
                is_affected
            }
        }
    }
}
