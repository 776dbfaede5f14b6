//! The versions to imitate, and what they do differently.

use jute_codec::OpCode;

/// The server version to imitate where versions differ on the wire.
///
/// The versions of ZooKeeper are ordered by age, and Keeper comes last. Those before 3.8 were not available for comparison: they lack
/// the opcodes that their successors introduced, and differ in a few replies.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum ServerVersion {
    /// 3.4.14. There are no containers, no times to live, no `create2`, no requests to check and
    /// remove watches, and no znode `/zookeeper/config`.
    V3_4,
    /// 3.5.10. There are no persistent watches, and none of the requests that 3.6.0 introduced.
    V3_5,
    /// 3.6.4. There is no `whoAmI`.
    V3_6,
    /// 3.7.2. Connections receive watch events of znodes that they may not read.
    V3_7,
    /// 3.8.0 as shipped by Debian. Watch events have zxid -1, and connections that may not read the
    /// znode do not receive them. A successful check outside of a multi gets no reply.
    #[default]
    V3_8,
    /// 3.9.3. Watch events have the zxid of their transaction. A connection can have persistent and
    /// one-shot watches on the same path.
    V3_9,
    /// A ClickHouse Keeper, as its source of 2026 describes it; no test has compared the two.
    ///
    /// - It resumes no session. A client that reconnects gets a new one without a password, and the
    ///   old one lives until it expires, with its ephemeral znodes.
    /// - It grants session timeouts from 10 s to 100 s, unless the configuration says otherwise.
    /// - Without a leader, it answers a handshake with the protocol version 42 and the session -1.
    /// - It closes the connection without a reply if it does not know a request. It has no
    ///   containers, times to live, persistent watches, `setWatches`, SASL, or read-only mode; newer
    ///   ones can be configured for some of these. It has `create2`, which needs the feature flag
    ///   `create_with_stats`, and `multiRead`.
    /// - `exists` needs no permission.
    Keeper,
}

impl ServerVersion {
    /// Returns the number of the release that this version imitates.
    pub(crate) fn number(self) -> &'static str {
        match self {
            Self::V3_4 => "3.4.14",
            Self::V3_5 => "3.5.10",
            Self::V3_6 => "3.6.4",
            Self::V3_7 => "3.7.2",
            Self::V3_8 => "3.8.0",
            Self::V3_9 => "3.9.3",
            Self::Keeper => "v26.9.1",
        }
    }

    /// Returns whether the server is a ClickHouse Keeper.
    pub(crate) fn is_keeper(self) -> bool {
        self == Self::Keeper
    }

    /// Returns whether the server knows the opcode of a request. To all others, it replies
    /// *unimplemented*, and closes the connection. A Keeper only closes it.
    pub(crate) fn knows(self, op: OpCode) -> bool {
        if self.is_keeper() {
            return KNOWN_TO_KEEPER.contains(&op);
        }
        let since = match op {
            OpCode::CREATE2
            | OpCode::RECONFIG
            | OpCode::CHECK_WATCHES
            | OpCode::REMOVE_WATCHES
            | OpCode::CREATE_CONTAINER
            | OpCode::DELETE_CONTAINER
            | OpCode::CREATE_TTL => Self::V3_5,
            OpCode::MULTI_READ
            | OpCode::GET_EPHEMERALS
            | OpCode::GET_ALL_CHILDREN_NUMBER
            | OpCode::SET_WATCHES2
            | OpCode::ADD_WATCH => Self::V3_6,
            OpCode::WHO_AM_I => Self::V3_7,
            _ => Self::V3_4,
        };
        self >= since
    }

    /// Returns whether there is a znode `/zookeeper/config`.
    pub(crate) fn has_config_znode(self) -> bool {
        self >= Self::V3_5 && !self.is_keeper()
    }

    /// Returns whether watch events have the zxid of their transaction, instead of -1.
    pub(crate) fn events_have_zxids(self) -> bool {
        self == Self::V3_9
    }

    /// Returns whether the metadata of a znode needs the permission to read it.
    pub(crate) fn exists_needs_read(self) -> bool {
        self == Self::V3_9
    }

    /// Returns whether events are withheld from connections that may not read the znode.
    pub(crate) fn withholds_events(self) -> bool {
        self >= Self::V3_8 && !self.is_keeper()
    }

    /// Returns whether a multi has the later codec: `create2` returns a stat, and an illegal flag
    /// makes the whole request malformed. Versions 3.7.2, 3.8.2 and 3.9.0 introduced it; 3.8.0 is
    /// older.
    pub(crate) fn has_late_multi(self) -> bool {
        matches!(self, Self::V3_7 | Self::V3_9)
    }

    /// Returns whether a partitioned server refuses to resume sessions of the ensemble.
    pub(crate) fn keeps_global_sessions_off_islands(self) -> bool {
        self >= Self::V3_7
    }
}

/// The opcodes of ZooKeeper that a Keeper knows (`ZooKeeperConstants.h`), without those that wait for
/// a feature flag or came in 2026.
const KNOWN_TO_KEEPER: [OpCode; 18] = [
    OpCode::AUTH,
    OpCode::CHECK,
    OpCode::CLOSE_SESSION,
    OpCode::CREATE,
    OpCode::CREATE2,
    OpCode::DELETE,
    OpCode::EXISTS,
    OpCode::GET_ACL,
    OpCode::GET_CHILDREN,
    OpCode::GET_CHILDREN2,
    OpCode::GET_DATA,
    OpCode::MULTI,
    OpCode::MULTI_READ,
    OpCode::PING,
    OpCode::RECONFIG,
    OpCode::SET_ACL,
    OpCode::SET_DATA,
    OpCode::SYNC,
];
