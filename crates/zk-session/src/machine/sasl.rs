//! What the machine and a SASL mechanism tell each other. The machine sends the messages of the
//! mechanism and waits for their replies; it knows nothing about their contents.

use jute_codec::SaslToken;

/// What the machine needs from the mechanism.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum SaslInput {
    /// The server has accepted the session: send the first message, which was prepared before the
    /// connection was opened.
    Start,
    /// The server has replied with this message.
    Reply(SaslToken),
}

/// What the mechanism returns.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum SaslStep {
    /// Both sides have proven their identities.
    #[cfg_attr(
        not(any(feature = "sasl-digest-md5", feature = "sasl-gssapi")),
        allow(dead_code, reason = "no mechanism ends")
    )]
    Done,
    /// Send this message.
    Send(SaslToken),
}
