//! What a SASL mechanism is.

use std::fmt;

use bytes::Bytes;

use crate::error::{OptionDefect, SaslFailure};
use crate::host::Host;
use crate::machine::SaslStep;

/// A SASL mechanism with its credentials. Its `Debug` output contains no secret.
pub(super) trait Mechanism: fmt::Debug + Send + Sync {
    /// Returns why the options are invalid, or `None`.
    fn defect(&self) -> Option<OptionDefect>;

    /// Returns true if the mechanism reads files or waits for a network.
    fn blocks(&self) -> bool;

    /// Starts an exchange with a server. Returns it with its first message.
    fn begin(
        &self,
        host: &Host,
        random: [u8; 16],
    ) -> Result<(Box<dyn Exchange>, Bytes), SaslFailure>;
}

/// The client's side of one exchange.
pub(super) trait Exchange: Send {
    /// Handles a reply of the server, which may be null, and returns what to do next.
    fn step(&mut self, reply: Option<Bytes>) -> Result<SaslStep, SaslFailure>;
}
