//! What a persistent watch reports to a machine.

use bytestring::ByteString;
use jute_codec::EventType;

/// What a machine learns from a persistent watch. It arrives without an order relative to the inputs
/// of the machine, except that an event is never later than the replies that follow it on its
/// connection.
#[derive(Clone, Debug)]
pub enum News {
    /// The znode has changed, or one below it.
    Event(EventType, ByteString),
    /// The watch is gone, and will be set again.
    Lost,
    /// Events may have been missed. The watch is in place.
    Missed,
    /// The watch was set.
    Set,
    /// There is no persistent watch in this session.
    Unsupported,
}
