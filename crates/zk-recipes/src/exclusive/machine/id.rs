//! The id of an attempt, which is stored in the data of its znode.

use bytes::Bytes;
use jute_codec::DataReply;
use zk_session::SessionId;

/// Number of hexadecimal digits of an id.
const ID_LENGTH: usize = 32;

/// The id of an attempt: the first bytes of the data of its znode.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AttemptId(Bytes);

impl AttemptId {
    pub(crate) fn new(id: u128) -> Self {
        Self(format!("{id:032x}").into())
    }

    /// Returns the id of an attempt that stores none: every znode of its session has this id.
    #[cfg(feature = "tokio")]
    pub(crate) fn not_stored() -> Self {
        Self(Bytes::new())
    }

    /// Returns the data of the attempt's znode: the id, and the identity for people who read the
    /// data.
    pub(crate) fn data(&self, identity: &Bytes) -> Bytes {
        let mut data = self.0.to_vec();
        if !identity.is_empty() {
            data.push(b' ');
            data.extend_from_slice(identity);
        }
        data.into()
    }

    /// Returns whether a znode that was read is one that the attempt created in this session.
    pub(crate) fn is_in(&self, session: SessionId, found: &DataReply) -> bool {
        let data = found.data.as_deref().unwrap_or_default();
        found.stat.ephemeral_owner == session && data.starts_with(&self.0)
    }
}

/// Returns the identity in the data of a znode: everything after the id, or all of the data if it
/// has no id.
pub(crate) fn identity_in(data: &Bytes) -> Bytes {
    match data.split_at_checked(ID_LENGTH) {
        Some((id, [])) if id.iter().all(u8::is_ascii_hexdigit) => Bytes::new(),
        Some((id, [b' ', rest @ ..])) if id.iter().all(u8::is_ascii_hexdigit) => {
            data.slice_ref(rest)
        }
        Some(_) | None => data.clone(),
    }
}
