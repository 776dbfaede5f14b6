//! The numbers of the protocol, from `ZooDefs`, `KeeperException.Code` and `Watcher.Event`.
//!
//! Round trips cannot find a wrong number, because both directions share it.

#[path = "reference/schema.rs"]
#[allow(dead_code, reason = "only the names of operations are needed here")]
mod schema;

use std::collections::{BTreeMap, BTreeSet};

use jute_codec::{
    AddWatchMode, ErrorCode, EventType, KeeperState, OpCode, Permissions, WatcherType, xid,
};

use crate::schema::operations;

#[test]
fn opcodes_match_the_protocol() {
    let ops = operations().iter().map(|it| (it.op, it.name.to_lowercase()));
    let between_servers = [(-10, "createsession"), (20, "deletecontainer"), (-1, "error")];
    let between_servers = between_servers.map(|(op, name)| (op, name.to_owned()));
    let expected: BTreeMap<i32, String> = ops.chain(between_servers).collect();
    let name = |op: i32| Some((op, OpCode(op).name()?.replace('_', "").to_lowercase()));
    assert_eq!((-1000..1000).filter_map(name).collect::<BTreeMap<_, _>>(), expected);
    let known = OpCode::KNOWN.iter().map(|op| op.0).collect::<BTreeSet<_>>();
    assert_eq!(known, expected.into_keys().collect());
}

#[test]
fn error_codes_match_the_protocol() {
    check(
        |number| ErrorCode(number).name(),
        &[
            (-127, "THROTTLED_OP"),
            (-125, "QUOTA_EXCEEDED"),
            (-124, "SESSION_CLOSED_REQUIRE_SASL_AUTH"),
            (-123, "RECONFIG_DISABLED"),
            (-122, "REQUEST_TIMEOUT"),
            (-121, "NO_WATCHER"),
            (-120, "EPHEMERAL_ON_LOCAL_SESSION"),
            (-119, "NOT_READ_ONLY"),
            (-118, "SESSION_MOVED"),
            (-117, "NOTHING"),
            (-116, "CLOSING"),
            (-115, "AUTH_FAILED"),
            (-114, "INVALID_ACL"),
            (-113, "INVALID_CALLBACK"),
            (-112, "SESSION_EXPIRED"),
            (-111, "NOT_EMPTY"),
            (-110, "NODE_EXISTS"),
            (-108, "NO_CHILDREN_FOR_EPHEMERALS"),
            (-103, "BAD_VERSION"),
            (-102, "NO_AUTH"),
            (-101, "NO_NODE"),
            (-100, "API_ERROR"),
            (-15, "SSL_CONNECTION_ERROR"),
            (-14, "RECONFIG_IN_PROGRESS"),
            (-13, "NEW_CONFIG_NO_QUORUM"),
            (-12, "UNKNOWN_SESSION"),
            (-9, "INVALID_STATE"),
            (-8, "BAD_ARGUMENTS"),
            (-7, "OPERATION_TIMEOUT"),
            (-6, "UNIMPLEMENTED"),
            (-5, "MARSHALLING_ERROR"),
            (-4, "CONNECTION_LOSS"),
            (-3, "DATA_INCONSISTENCY"),
            (-2, "RUNTIME_INCONSISTENCY"),
            (-1, "SYSTEM_ERROR"),
            (0, "OK"),
        ],
    );
}

#[test]
fn events_and_states_match_the_protocol() {
    check(
        |number| EventType(number).name(),
        &[
            (-1, "NONE"),
            (1, "NODE_CREATED"),
            (2, "NODE_DELETED"),
            (3, "NODE_DATA_CHANGED"),
            (4, "NODE_CHILDREN_CHANGED"),
            (5, "DATA_WATCH_REMOVED"),
            (6, "CHILD_WATCH_REMOVED"),
            (7, "PERSISTENT_WATCH_REMOVED"),
        ],
    );
    check(
        |number| KeeperState(number).name(),
        &[
            (-112, "EXPIRED"),
            (0, "DISCONNECTED"),
            (3, "SYNC_CONNECTED"),
            (4, "AUTH_FAILED"),
            (5, "CONNECTED_READ_ONLY"),
            (6, "SASL_AUTHENTICATED"),
            (7, "CLOSED"),
        ],
    );
}

#[test]
fn kinds_of_watches_match_the_protocol() {
    check(|number| AddWatchMode(number).name(), &[(0, "PERSISTENT"), (1, "PERSISTENT_RECURSIVE")]);
    check(
        |number| WatcherType(number).name(),
        &[(1, "CHILDREN"), (2, "DATA"), (3, "ANY"), (4, "PERSISTENT"), (5, "PERSISTENT_RECURSIVE")],
    );
}

#[test]
fn any_common_permission_bit_grants_access() {
    check(
        |number| Permissions(number).name(),
        &[
            (0, "NONE"),
            (1, "READ"),
            (2, "WRITE"),
            (4, "CREATE"),
            (8, "DELETE"),
            (16, "ADMIN"),
            (31, "ALL"),
        ],
    );
    assert_eq!(Permissions::READ | Permissions::ADMIN, Permissions(17));
    assert!(Permissions::READ.intersects(Permissions::READ | Permissions::ADMIN));
    assert!(!Permissions::WRITE.intersects(Permissions::READ | Permissions::ADMIN));
    assert!(!Permissions::ALL.intersects(Permissions::NONE));
}

#[test]
fn reserved_xids_match_the_protocol() {
    assert_eq!([xid::NOTIFICATION, xid::PING, xid::AUTH, xid::SET_WATCHES], [-1, -2, -4, -8]);
}

#[test]
fn system_errors_are_between_success_and_api_errors() {
    for number in [-1, -2, -5, -99] {
        assert!(ErrorCode(number).is_system_error(), "{number}");
    }
    for number in [i32::MIN, -127, -101, -100, 0, 1, i32::MAX] {
        assert!(!ErrorCode(number).is_system_error(), "{number}");
    }
    assert!(ErrorCode::OK.is_ok() && !ErrorCode(1).is_ok() && !ErrorCode::NO_NODE.is_ok());
}

#[test]
fn unknown_numbers_are_printed_as_numbers() {
    assert_eq!(format!("{0} {0:?}", ErrorCode(-999)), "-999 ErrorCode(-999)");
    assert_eq!(format!("{0} {0:?}", ErrorCode::NO_NODE), "NO_NODE (-101) NO_NODE");
}

/// Checks that exactly these numbers have a name.
#[track_caller]
fn check(name: impl Fn(i32) -> Option<&'static str>, expected: &[(i32, &str)]) {
    let named: Vec<_> = (-1000..1000).filter_map(|n| Some((n, name(n)?))).collect();
    assert_eq!(named, expected);
}
