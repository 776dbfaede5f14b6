//! Numbers of the protocol: opcodes, error codes, event types, states, watch modes, permissions.
//!
//! Source: `org.apache.zookeeper.ZooDefs`, `KeeperException.Code`, `Watcher.Event`.

/// Reserved xids. Ordinary requests use positive ones.
pub mod xid {
    /// A watch event; never sent by a client.
    pub const NOTIFICATION: i32 = -1;
    /// A ping and its reply.
    pub const PING: i32 = -2;
    /// An auth packet and its reply, which may overtake replies to earlier requests.
    pub const AUTH: i32 = -4;
    /// A request that restores watches after a reconnect, and its reply.
    pub const SET_WATCHES: i32 = -8;
}

wire_enum! {
    /// The kind of a request.
    pub struct OpCode {
        /// Creates a znode; the reply contains its path.
        CREATE = 1,
        /// Deletes a znode.
        DELETE = 2,
        /// Reads the stat of a znode that may be missing.
        EXISTS = 3,
        /// Reads the data and stat.
        GET_DATA = 4,
        /// Replaces the data.
        SET_DATA = 5,
        /// Reads the access control list.
        GET_ACL = 6,
        /// Replaces the access control list.
        SET_ACL = 7,
        /// Lists the children.
        GET_CHILDREN = 8,
        /// Waits until the server has caught up with its leader.
        SYNC = 9,
        /// Keeps the session alive.
        PING = 11,
        /// Lists the children and reads the stat (3.3).
        GET_CHILDREN2 = 12,
        /// Compares a version; allowed only inside a multi (3.4).
        CHECK = 13,
        /// Writes atomically (3.4).
        MULTI = 14,
        /// Creates a znode; the reply contains its path and stat (3.5.0).
        CREATE2 = 15,
        /// Changes the members of the ensemble (3.5.0).
        RECONFIG = 16,
        /// Checks whether a watch is registered (3.5.0).
        CHECK_WATCHES = 17,
        /// Removes watches (3.5.0).
        REMOVE_WATCHES = 18,
        /// Creates a container (3.5.1).
        CREATE_CONTAINER = 19,
        /// Deletes an empty container; used only between servers.
        DELETE_CONTAINER = 20,
        /// Creates a znode with a time to live (3.5.3).
        CREATE_TTL = 21,
        /// Reads several znodes (3.6.0).
        MULTI_READ = 22,
        /// Adds an identity to the connection.
        AUTH = 100,
        /// Restores one-shot watches.
        SET_WATCHES = 101,
        /// Sends the token of one SASL round (3.4).
        SASL = 102,
        /// Lists the ephemerals of the session (3.6.0).
        GET_EPHEMERALS = 103,
        /// Counts all descendants (3.6.0).
        GET_ALL_CHILDREN_NUMBER = 104,
        /// Restores watches of all kinds (3.6.0).
        SET_WATCHES2 = 105,
        /// Adds a persistent watch (3.6.0).
        ADD_WATCH = 106,
        /// Lists the identities of the connection (3.7.0).
        WHO_AM_I = 107,
        /// Ends the session.
        CLOSE_SESSION = -11,
        /// Starts a session; used only between servers.
        CREATE_SESSION = -10,
        /// Marks a failed result inside a multi.
        ERROR = -1,
    }
}

wire_enum! {
    /// The result of an operation, as reported by a server.
    pub struct ErrorCode {
        /// Success.
        OK = 0,
        /// Starts the range of system errors; never sent.
        SYSTEM_ERROR = -1,
        /// Inside a failed multi, this operation was not reached.
        RUNTIME_INCONSISTENCY = -2,
        /// Never sent in practice.
        DATA_INCONSISTENCY = -3,
        /// Client-side: the connection ended while the request was in flight.
        CONNECTION_LOSS = -4,
        /// The server could not decode or process the request.
        MARSHALLING_ERROR = -5,
        /// The operation is unknown to the server, or disabled.
        UNIMPLEMENTED = -6,
        /// Client-side: the request took too long.
        OPERATION_TIMEOUT = -7,
        /// An argument is illegal.
        BAD_ARGUMENTS = -8,
        /// Used only inside the C client.
        INVALID_STATE = -9,
        /// Used only between servers with local sessions (3.5).
        UNKNOWN_SESSION = -12,
        /// A reconfiguration would leave no quorum (3.5).
        NEW_CONFIG_NO_QUORUM = -13,
        /// Another reconfiguration is in progress (3.5).
        RECONFIG_IN_PROGRESS = -14,
        /// Used only inside the C client.
        SSL_CONNECTION_ERROR = -15,
        /// Starts the range of API errors; never sent.
        API_ERROR = -100,
        /// The znode, or its parent, does not exist.
        NO_NODE = -101,
        /// The access control list forbids the operation.
        NO_AUTH = -102,
        /// The version does not match.
        BAD_VERSION = -103,
        /// An ephemeral znode cannot have children.
        NO_CHILDREN_FOR_EPHEMERALS = -108,
        /// The znode already exists.
        NODE_EXISTS = -110,
        /// The znode has children.
        NOT_EMPTY = -111,
        /// The session is closing or has expired.
        SESSION_EXPIRED = -112,
        /// Used only inside the C client.
        INVALID_CALLBACK = -113,
        /// The access control list is empty or has an illegal entry.
        INVALID_ACL = -114,
        /// The credentials were refused.
        AUTH_FAILED = -115,
        /// Used only inside the C client.
        CLOSING = -116,
        /// Used only inside the C client.
        NOTHING = -117,
        /// The session has moved to another server.
        SESSION_MOVED = -118,
        /// The server is read-only.
        NOT_READ_ONLY = -119,
        /// The session is local and cannot own an ephemeral (3.5).
        EPHEMERAL_ON_LOCAL_SESSION = -120,
        /// The watch does not exist (3.5).
        NO_WATCHER = -121,
        /// Used only inside the Java client (3.5.5).
        REQUEST_TIMEOUT = -122,
        /// Reconfiguration is disabled (3.5.3).
        RECONFIG_DISABLED = -123,
        /// The server requires SASL authentication (3.5.9, 3.6.0).
        SESSION_CLOSED_REQUIRE_SASL_AUTH = -124,
        /// A quota would be exceeded (3.7.0).
        QUOTA_EXCEEDED = -125,
        /// The server is overloaded and did not execute the operation (3.7.0).
        THROTTLED_OP = -127,
    }
}

impl ErrorCode {
    /// Returns whether the code is 0, which means success.
    pub fn is_ok(self) -> bool {
        self == Self::OK
    }

    /// Returns whether this is a code from -1 to -99. Such a code usually means that the
    /// server itself failed, and the request may or may not have been applied. The range also
    /// contains some refusals, such as `UNIMPLEMENTED` and `BAD_ARGUMENTS`.
    pub fn is_system_error(self) -> bool {
        self < Self::OK && self > Self::API_ERROR
    }
}

wire_enum! {
    /// What happened to a watched znode.
    pub struct EventType {
        /// The state of the session changed; never sent.
        NONE = -1,
        /// The znode was created.
        NODE_CREATED = 1,
        /// The znode was deleted.
        NODE_DELETED = 2,
        /// The data changed.
        NODE_DATA_CHANGED = 3,
        /// A child was created or deleted.
        NODE_CHILDREN_CHANGED = 4,
        /// A data watch was removed; never sent.
        DATA_WATCH_REMOVED = 5,
        /// A child watch was removed; never sent.
        CHILD_WATCH_REMOVED = 6,
        /// A persistent watch was removed; never sent.
        PERSISTENT_WATCH_REMOVED = 7,
    }
}

wire_enum! {
    /// The state in a watch event. Servers send only `SYNC_CONNECTED`.
    pub struct KeeperState {
        /// Used only inside clients.
        DISCONNECTED = 0,
        /// The only state that servers send.
        SYNC_CONNECTED = 3,
        /// Used only inside clients.
        AUTH_FAILED = 4,
        /// Used only inside clients.
        CONNECTED_READ_ONLY = 5,
        /// Used only inside clients.
        SASL_AUTHENTICATED = 6,
        /// Used only inside clients.
        CLOSED = 7,
        /// Used only inside clients.
        EXPIRED = -112,
    }
}

wire_enum! {
    /// The kind of a persistent watch.
    pub struct AddWatchMode {
        /// Watches the znode and its direct children.
        PERSISTENT = 0,
        /// Watches the znode and all its descendants.
        PERSISTENT_RECURSIVE = 1,
    }
}

wire_enum! {
    /// The type of watches to check or remove.
    pub struct WatcherType {
        /// Child watches.
        CHILDREN = 1,
        /// Data and exists watches.
        DATA = 2,
        /// All watches.
        ANY = 3,
        /// Persistent watches (3.9.0).
        PERSISTENT = 4,
        /// Persistent recursive watches (3.9.0).
        PERSISTENT_RECURSIVE = 5,
    }
}

wire_enum! {
    /// The permissions in an access control list entry: a set of bits. Servers also store unknown
    /// bits.
    pub struct Permissions {
        /// No permission.
        NONE = 0,
        /// Read data and list children.
        READ = 1,
        /// Change data.
        WRITE = 2,
        /// Create children.
        CREATE = 4,
        /// Delete children.
        DELETE = 8,
        /// Change the access control list.
        ADMIN = 16,
        /// All five permissions.
        ALL = 31,
    }
}

impl Permissions {
    /// Returns whether `self` contains any bit of `other`. Servers grant access on this condition.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl std::ops::BitOr for Permissions {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
