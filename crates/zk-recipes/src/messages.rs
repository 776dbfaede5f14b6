//! The messages of all errors, as reviewed in `messages.txt`.

use std::fmt::Write as _;
use std::time::Duration;

use zk_session::{
    ConfigError, ConnectionFailure, ErrorCode, OpCode, OpError, Outcome, PathDefect, SessionId,
    SlowCommits, Target, Version, Zxid,
};

use crate::action::FailedAction;
use crate::cache::CacheError;
use crate::error::RecipeError;
use crate::group::{Ending, GroupError};
use crate::guard::TransactionError;
use crate::lock::error::{LockError, LostReason, Stopped};
use crate::lock::outcome::Released;
use crate::multi_lock::{MultiLockError, MultiReleaseError};
use crate::presence::PresenceError;
use crate::rw::DowngradeError;
use crate::settled::SettledError;
use crate::shared_value::{Revision, ValueError, Versioned};
use crate::timed_out::{LastSeen, Predecessor, TimedOut};
use crate::work_queue::{BlockReason, WorkQueueError};

/// Appends the messages of examples of an enum. A variant that is missing here does not compile, and
/// a variant without an example fails.
macro_rules! messages {
    ($out:ident, $type:ident { $($variant:ident),+ $(,)? }, [$($example:expr),+ $(,)?]) => {{
        let name = |value: &$type| match value {
            $($type::$variant { .. } => stringify!($variant),)+
        };
        let mut missing = vec![$(stringify!($variant)),+];
        for example in [$($example),+] {
            let variant = name(&example);
            missing.retain(|other| *other != variant);
            writeln!($out, "{}::{variant}: {example}", stringify!($type)).expect("it is a string");
        }
        assert!(missing.is_empty(), "{} without an example: {missing:?}", stringify!($type));
    }};
}

/// Compares the messages with the reviewed ones. Prints all of them if one differs.
fn check(found: &str, reviewed: &str) {
    let differs = found.lines().zip(reviewed.lines()).find(|(found, reviewed)| found != reviewed);
    assert!(
        found == reviewed,
        "{differs:?} differ; review messages.txt, which should be:\n{found}"
    );
}

#[test]
fn every_message_is_the_reviewed_one() {
    let mut out = String::new();
    timeouts(&mut out);
    locks(&mut out);
    others(&mut out);
    check(&out, include_str!("messages.txt"));
}

fn predecessor(ahead: usize, identity: &str) -> Predecessor {
    Predecessor::new(ahead, "_c_1-lock-0000000007", identity, Some(SessionId(0x1f)))
}

#[test]
fn no_error_shows_a_long_path_in_full() {
    let path = || format!("/{}", "x".repeat(1_000_000));
    let (code, action) = (ErrorCode::NO_AUTH, FailedAction::Create);
    let target = || Target::new(OpCode::SET_DATA, path());
    let predecessor = Predecessor::new(1, &path(), "", None);
    let waited = Duration::ZERO;
    let nothing = TimedOut { path: path(), waited, seen: LastSeen::Nothing };
    let queued = TimedOut { path: path(), waited, seen: LastSeen::Queued(predecessor) };
    let session = SessionId(1);
    let errors = [
        nothing.to_string(),
        queued.to_string(),
        LockError::ChrootMissing { chroot: path(), path: path() }.to_string(),
        LockError::MixedKinds { path: path() }.to_string(),
        LockError::PermitsDiffer { directory: path(), stored: "1".into(), expected: 2 }.to_string(),
        LockError::QueueExhausted { directory: path() }.to_string(),
        LockError::Refused { code, action, path: path() }.to_string(),
        RecipeError::Refused { code, action, path: path() }.to_string(),
        MultiLockError { path: path(), error: LockError::Closed }.to_string(),
        TransactionError::CheckRefused { code, path: path() }.to_string(),
        TransactionError::Refused { index: 0, code, target: target() }.to_string(),
        CacheError::TooLarge { path: path(), nodes: 1, bytes: 1, nodes_max: 1, bytes_max: 1 }
            .to_string(),
        CacheError::Unreadable { root: path(), path: path(), error: OpError::AuthFailed }
            .to_string(),
        GroupError::IdTaken { path: path(), session }.to_string(),
        GroupError::NotEphemeral { path: path() }.to_string(),
        PresenceError::NotEphemeral { path: path() }.to_string(),
        PresenceError::Taken { path: path(), session }.to_string(),
        ValueError::Malformed { path: path(), data: "x".into(), expected: "a number" }.to_string(),
        SettledError::Refused { index: 0, code, target: target() }.to_string(),
        SettledError::Overtaken { target: target() }.to_string(),
        WorkQueueError::Blocked { item: path(), reason: BlockReason::TooLarge }.to_string(),
        WorkQueueError::Full { directory: path(), length: 1, limit: 1 }.to_string(),
        WorkQueueError::HasChildren { item: path() }.to_string(),
        WorkQueueError::ItemGone { item: path() }.to_string(),
        WorkQueueError::QueueExhausted { directory: path() }.to_string(),
        WorkQueueError::TooLong { directory: path(), items: 1, bytes: 1 }.to_string(),
        WorkQueueError::Unknown { item: path() }.to_string(),
    ];
    for error in errors {
        assert!(error.len() < 1_500 && error.contains("00001 bytes)"), "{error:.300}");
    }
}

fn timed_out() -> Box<TimedOut> {
    let seen = LastSeen::Queued(predecessor(2, "web-7"));
    Box::new(TimedOut { path: "/locks/a".into(), waited: Duration::from_millis(5_000), seen })
}

fn config() -> ConfigError {
    let (option, path) = ("path of the lock", "/locks/".to_owned());
    ConfigError::Path { option, path, defect: PathDefect::EmptyComponent }
}

fn too_large() -> OpError {
    let target = Target::new(OpCode::CREATE2, "/locks/a/_c_1-lock-");
    OpError::RequestTooLarge { length: 2_000_000, limit: 1_048_575, target }
}

fn queue_full() -> OpError {
    let target = Target::new(OpCode::GET_CHILDREN, "/locks/a");
    OpError::QueueFull { waiting: 256, target }
}

fn timeouts(out: &mut String) {
    let failure = || None::<ConnectionFailure>;
    writeln!(out, "TimedOut: {}", timed_out()).expect("it is a string");
    messages!(
        out,
        LastSeen {
            ConnectionLost,
            NeverConnected,
            Nothing,
            OwnSession,
            Queued,
            Refused,
            RuntimeStopped,
            Unleased,
            Unproven,
        },
        [
            LastSeen::ConnectionLost(failure()),
            LastSeen::NeverConnected(failure()),
            LastSeen::Nothing,
            LastSeen::OwnSession(predecessor(1, "web-7")),
            LastSeen::Queued(predecessor(1, "web-7")),
            LastSeen::Queued(predecessor(3, "")),
            LastSeen::Queued(Predecessor::new(1, "lock", "", None)),
            LastSeen::Refused(ErrorCode::THROTTLED_OP),
            LastSeen::Refused(ErrorCode::NOT_READ_ONLY),
            LastSeen::Refused(ErrorCode::SYSTEM_ERROR),
            LastSeen::RuntimeStopped,
            LastSeen::Unleased,
            LastSeen::Unproven,
        ]
    );
}

fn locks(out: &mut String) {
    let (code, action, path) = (ErrorCode::NO_AUTH, FailedAction::Create, "/locks".to_owned());
    let (chroot, missing) = ("/app".to_owned(), "/l".to_owned());
    messages!(
        out,
        FailedAction { Check, Create, Delete, DeleteChild, List, Read, ReadAcl, ReadChild, Write },
        [
            FailedAction::Check,
            FailedAction::Create,
            FailedAction::Delete,
            FailedAction::DeleteChild,
            FailedAction::List,
            FailedAction::Read,
            FailedAction::ReadAcl,
            FailedAction::ReadChild,
            FailedAction::Write,
        ]
    );
    messages!(
        out,
        LostReason {
            AtRisk,
            Closed,
            DeadlinePassed,
            HeldTooLong,
            Released,
            SessionExpired,
            ZnodeDeleted
        },
        [
            LostReason::AtRisk,
            LostReason::Closed,
            LostReason::DeadlinePassed,
            LostReason::HeldTooLong,
            LostReason::Released,
            LostReason::SessionExpired,
            LostReason::ZnodeDeleted,
        ]
    );
    messages!(
        out,
        Stopped { AtRisk, Lost, NoLease },
        [
            Stopped::AtRisk,
            Stopped::Lost(LostReason::ZnodeDeleted),
            Stopped::NoLease(slow_commits()),
        ]
    );
    messages!(
        out,
        LockError {
            AuthFailed,
            ChrootMissing,
            Client,
            Closed,
            Config,
            Lost,
            MixedKinds,
            NoLease,
            PermitsDiffer,
            QueueExhausted,
            Refused,
            TimedOut,
            TooLarge,
        },
        [
            LockError::AuthFailed,
            LockError::ChrootMissing { chroot: chroot.clone(), path: missing.clone() },
            LockError::Client(queue_full()),
            LockError::Closed,
            LockError::Config(config()),
            LockError::Lost(LostReason::ZnodeDeleted),
            LockError::MixedKinds { path: "/locks/a/x-lease-0000000001".into() },
            LockError::NoLease(slow_commits()),
            LockError::PermitsDiffer { directory: "/s".into(), stored: "3".into(), expected: 2 },
            LockError::QueueExhausted { directory: "/locks/a".into() },
            LockError::Refused { code, action, path: path.clone() },
            LockError::TimedOut(timed_out()),
            LockError::TooLarge(too_large()),
        ]
    );
    let error = DowngradeError { error: LockError::Closed, guard: None };
    writeln!(out, "DowngradeError: {error}").expect("it is a string");
    let one = || MultiLockError { path: "/locks/a".into(), error: LockError::Closed };
    writeln!(out, "MultiLockError: {}", one()).expect("it is a string");
    let released = vec![("/locks/b".to_owned(), Released::Released)];
    let error = MultiReleaseError { failed: vec![one()], released };
    writeln!(out, "MultiReleaseError: {error}").expect("it is a string");
    messages!(
        out,
        TransactionError { CheckRefused, Lock, Lost, Op, Refused },
        [
            TransactionError::CheckRefused { code, path: "/locks/a/_c_1-lock-0000000001".into() },
            TransactionError::Lock(LockError::Closed),
            TransactionError::Lost(LostReason::AtRisk),
            TransactionError::Op(
                OpError::connection_loss(Outcome::Unknown)
                    .about(Target::new(OpCode::MULTI, "/locks/a/_c_1-lock-0000000001")),
            ),
            TransactionError::Refused {
                index: 1,
                code: ErrorCode::BAD_VERSION,
                target: Target::new(OpCode::SET_DATA, "/accounts/7"),
            },
        ]
    );
    messages!(
        out,
        RecipeError {
            AuthFailed,
            ChrootMissing,
            Client,
            Closed,
            Config,
            Refused,
            SessionExpired,
            TimedOut,
            TooLarge,
        },
        [
            RecipeError::AuthFailed,
            RecipeError::ChrootMissing { chroot, path: missing },
            RecipeError::Client(queue_full()),
            RecipeError::Closed,
            RecipeError::Config(config()),
            RecipeError::Refused { code, action, path: path.clone() },
            RecipeError::Refused { code: ErrorCode::INVALID_ACL, action, path },
            RecipeError::SessionExpired,
            RecipeError::TimedOut(timed_out()),
            RecipeError::TooLarge(too_large()),
        ]
    );
}

fn slow_commits() -> SlowCommits {
    let ms = Duration::from_millis;
    SlowCommits::new(ms(200), ms(4_000), ms(4_500))
}

fn others(out: &mut String) {
    let (session, path) = (SessionId(0x1f), || "/members/a".to_owned());
    messages!(
        out,
        CacheError { Client, Closed, Config, TooLarge, Unreadable, WatchRemoved },
        [
            CacheError::Client(queue_full()),
            CacheError::Closed,
            CacheError::Config(config()),
            CacheError::TooLarge {
                path: "/config".to_owned(),
                nodes: 101,
                bytes: 90_000,
                nodes_max: 100,
                bytes_max: 100_000,
            },
            CacheError::Unreadable {
                root: "/config".to_owned(),
                path: "/config/secret".to_owned(),
                error: OpError::server(ErrorCode::NO_AUTH),
            },
            CacheError::WatchRemoved,
        ]
    );
    messages!(
        out,
        Ending { ClientStopped, IdTaken, Left, NotEphemeral },
        [Ending::ClientStopped, Ending::IdTaken(session), Ending::Left, Ending::NotEphemeral,]
    );
    messages!(
        out,
        GroupError { Ended, IdTaken, NotEphemeral, Recipe },
        [
            GroupError::Ended(Ending::Left),
            GroupError::IdTaken { path: path(), session },
            GroupError::NotEphemeral { path: path() },
            GroupError::Recipe(RecipeError::Closed),
        ]
    );
    messages!(
        out,
        PresenceError { Ended, NotEphemeral, Recipe, Taken },
        [
            PresenceError::Ended,
            PresenceError::NotEphemeral { path: path() },
            PresenceError::Recipe(RecipeError::Closed),
            PresenceError::Taken { path: path(), session },
        ]
    );
    let revision = Revision { version: Version(3), czxid: Zxid(7) };
    let found = Versioned::new("9".into(), revision);
    messages!(
        out,
        ValueError { Conflict, Malformed, Overflow, Recipe, Recreated, Undecided },
        [
            ValueError::Conflict,
            ValueError::Malformed { path: "/c".into(), data: "x".into(), expected: "a number" },
            ValueError::Overflow { value: i64::MAX, delta: 1 },
            ValueError::Recipe(RecipeError::Closed),
            ValueError::Recreated { written: found.clone() },
            ValueError::Undecided { cause: RecipeError::Closed, found: Some(Box::new(found)) },
            ValueError::Undecided { cause: RecipeError::Closed, found: None },
        ]
    );
    let outcome = Outcome::Unknown;
    messages!(
        out,
        SettledError { LockLost, Overtaken, Recipe, Refused, Replaced, SessionEnded, Unknown },
        [
            SettledError::LockLost(LostReason::ZnodeDeleted),
            SettledError::Overtaken { target: Target::new(OpCode::RECONFIG, "/zookeeper/config") },
            SettledError::Recipe(RecipeError::Closed),
            SettledError::Refused {
                index: 0,
                code: ErrorCode::NO_NODE,
                target: Target::new(OpCode::SET_DATA, "/accounts/7"),
            },
            SettledError::Replaced {
                target: Target::new(OpCode::SET_ACL, "/accounts/7"),
                is_applied: true,
            },
            SettledError::Replaced {
                target: Target::new(OpCode::SET_ACL, "/accounts/7"),
                is_applied: false,
            },
            SettledError::SessionEnded { outcome },
            SettledError::SessionEnded { outcome: Outcome::NotApplied },
            SettledError::Unknown { cause: RecipeError::Closed },
        ]
    );
    messages!(
        out,
        BlockReason { HasChildren, NotPermitted, TooLarge },
        [BlockReason::HasChildren, BlockReason::NotPermitted, BlockReason::TooLarge]
    );
    messages!(
        out,
        WorkQueueError {
            Blocked,
            Full,
            HasChildren,
            ItemGone,
            LeaseLost,
            NoLease,
            QueueExhausted,
            Recipe,
            Takers,
            TooLong,
            Unknown
        },
        [
            WorkQueueError::Blocked {
                item: "/queue/entries/a".into(),
                reason: BlockReason::NotPermitted,
            },
            WorkQueueError::Full { directory: "/queue".into(), length: 10, limit: 10 },
            WorkQueueError::HasChildren { item: "/queue/entries/a".into() },
            WorkQueueError::ItemGone { item: "/queue/entries/a".into() },
            WorkQueueError::LeaseLost(LostReason::SessionExpired),
            WorkQueueError::NoLease(slow_commits()),
            WorkQueueError::QueueExhausted { directory: "/queue/entries".into() },
            WorkQueueError::Recipe(RecipeError::Closed),
            WorkQueueError::Takers(LockError::QueueExhausted { directory: "/queue/takers".into() }),
            WorkQueueError::TooLong {
                directory: "/queue".into(),
                items: 180_000,
                bytes: 4_320_020,
            },
            WorkQueueError::Unknown { item: "/queue/entries/a".into() },
        ]
    );
}
