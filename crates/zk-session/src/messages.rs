//! The messages of all errors, as reviewed in `messages.txt`.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use jute_codec::{DecodeErrorKind, ErrorCode, FrameError, OpCode};

use crate::error::{
    AuthError, ChrootDefect, ConfigError, ConnectError, ConnectionFailure, FailureCause,
    HandOverError, HostDefect, OpError, OptionDefect, Outcome, PathDefect, SaslFailure, Target,
    TlsFailure, TransportError, WatchEnded,
};
use crate::machine::{DisconnectCause, InvalidTicket, LeaseDefect};
use crate::operation::multi::MultiError;

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

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn every_message_is_the_reviewed_one() {
    let mut out = String::new();
    operations(&mut out);
    configuration(&mut out);
    connections(&mut out);
    tls(&mut out);
    sasl(&mut out);
    check(&out, include_str!("messages.txt"));
}

#[test]
fn no_error_shows_a_long_path_in_full() {
    let path = format!("/{}", "x".repeat(1_000_000));
    let target = || Target::new(OpCode::CREATE2, path.as_str());
    let defect = PathDefect::Root;
    let host = || path.clone();
    let before_hosts = ChrootDefect::BeforeHosts { host: host(), suggestion: host() };
    let errors = [
        OpError::ChrootMissing { chroot: path.clone(), path: path.clone() }.to_string(),
        OpError::connection_loss(Outcome::Unknown).about(target()).to_string(),
        OpError::InvalidPath { path: path.clone(), defect }.to_string(),
        refusal(ErrorCode::NO_AUTH, OpCode::CREATE2, &path).to_string(),
        refusal(ErrorCode::NO_AUTH, OpCode::GET_DATA, &path).to_string(),
        OpError::RequestTooLarge { length: 2, limit: 1, target: target() }.to_string(),
        multi(ErrorCode::BAD_VERSION, target()).to_string(),
        ConfigError::Chroot { path: path.clone(), defect: before_hosts }.to_string(),
        ConfigError::Host { host: host(), defect: HostDefect::NoName }.to_string(),
        ConfigError::Option { option: "o", value: host(), defect: OptionDefect::Empty }.to_string(),
        ConfigError::Path { option: "path", path: path.clone(), defect }.to_string(),
        ConnectError::Chroot { path: path.clone(), error: OpError::AuthFailed }.to_string(),
        HandOverError::Unfinished { within: SECOND, paths: vec![path.clone()] }.to_string(),
    ];
    for error in errors {
        assert!(error.len() < 1_500 && error.contains("00001 bytes)"), "{error:.300}");
    }
}

fn refusal(code: ErrorCode, operation: OpCode, path: &str) -> OpError {
    OpError::server(code).about(Target::new(operation, path))
}

fn failure() -> ConnectionFailure {
    ConnectionFailure {
        host: "zk2:2181".parse().expect("it is a host"),
        cause: FailureCause::Closed,
    }
}

fn create() -> Target {
    Target::new(OpCode::CREATE2, "/a")
}

fn multi(code: ErrorCode, target: Target) -> MultiError {
    MultiError::Refused { index: 1, code, target }
}

fn undecodable() -> jute_codec::DecodeError {
    let kind = DecodeErrorKind::UnexpectedEnd { need: 8, have: 3 };
    jute_codec::DecodeError { kind, offset: 4, record: "Stat", field: "czxid" }
}

fn operations(out: &mut String) {
    use Outcome::{NotApplied, Unknown};
    messages!(out, Outcome { NotApplied, Unknown }, [NotApplied, Unknown]);
    messages!(
        out,
        OpError {
            AuthFailed,
            ChrootMissing,
            Closed,
            ConnectionLoss,
            InvalidPath,
            QueueFull,
            Recalled,
            RequestTooLarge,
            ResponseTooLarge,
            RuntimeStopped,
            Server,
            SessionExpired,
            TimedOut,
            Undecodable,
            Unsupported,
        },
        [
            OpError::AuthFailed,
            OpError::ChrootMissing { chroot: "/app".into(), path: "/l".into() },
            OpError::closed(NotApplied).about(create()),
            OpError::closed(Unknown),
            OpError::connection_loss(NotApplied).about(create()),
            OpError::connection_loss(Unknown).about(create()),
            OpError::connection_loss(Unknown).about(Target::new(OpCode::MULTI, "/a")),
            OpError::connection_loss(Unknown),
            OpError::InvalidPath { path: "/locks/".into(), defect: PathDefect::EmptyComponent },
            OpError::QueueFull { waiting: 65_536, target: create() },
            OpError::Recalled { target: create() },
            OpError::RequestTooLarge {
                length: 2_000_000,
                limit: 1_048_575,
                target: Target::new(OpCode::SET_DATA, "/a"),
            },
            OpError::ResponseTooLarge {
                length: 5_000_000,
                target: Target::new(OpCode::GET_CHILDREN2, "/a"),
            },
            OpError::RuntimeStopped { target: create() },
            OpError::server(ErrorCode::NODE_EXISTS),
            refusal(ErrorCode::NODE_EXISTS, OpCode::CREATE2, "/a"),
            refusal(ErrorCode::NO_NODE, OpCode::CREATE_CONTAINER, "/a/b"),
            refusal(ErrorCode::NO_CHILDREN_FOR_EPHEMERALS, OpCode::CREATE_TTL, "/a/b"),
            refusal(ErrorCode::NOT_EMPTY, OpCode::DELETE, "/a"),
            refusal(ErrorCode::NO_AUTH, OpCode::EXISTS, "/a"),
            refusal(ErrorCode::NO_AUTH, OpCode::GET_DATA, "/a"),
            refusal(ErrorCode::BAD_VERSION, OpCode::SET_DATA, "/a"),
            refusal(ErrorCode::NO_AUTH, OpCode::GET_ACL, "/a"),
            refusal(ErrorCode::INVALID_ACL, OpCode::SET_ACL, "/a"),
            refusal(ErrorCode::NO_NODE, OpCode::GET_CHILDREN2, "/a"),
            refusal(ErrorCode::SYSTEM_ERROR, OpCode::SYNC, "/a"),
            refusal(ErrorCode::THROTTLED_OP, OpCode::MULTI, "/a"),
            refusal(ErrorCode::THROTTLED_OP, OpCode::MULTI, ""),
            refusal(ErrorCode(-999), OpCode(99), "/a"),
            refusal(ErrorCode::MARSHALLING_ERROR, OpCode::ADD_WATCH, "/a"),
            refusal(ErrorCode::NO_WATCHER, OpCode::CHECK_WATCHES, "/a"),
            refusal(ErrorCode::NO_WATCHER, OpCode::REMOVE_WATCHES, "/a"),
            OpError::session_expired(Unknown).about(create()),
            OpError::timed_out(Unknown).about(create()),
            OpError::TimedOut {
                outcome: NotApplied,
                failure: Some(Box::new(failure())),
                target: create(),
            },
            OpError::Undecodable {
                error: Box::new(undecodable()),
                target: Target::new(OpCode::GET_DATA, "/a"),
            },
            OpError::Unsupported { target: Target::new(OpCode::CREATE_CONTAINER, "/a") },
            OpError::Unsupported { target: Target::new(OpCode::WHO_AM_I, "") },
            refusal(ErrorCode::NOT_READ_ONLY, OpCode::CREATE2, "/a"),
            refusal(ErrorCode::RECONFIG_DISABLED, OpCode::RECONFIG, ""),
            refusal(ErrorCode::NEW_CONFIG_NO_QUORUM, OpCode::RECONFIG, ""),
            refusal(ErrorCode::NO_AUTH, OpCode::MULTI_READ, ""),
            refusal(ErrorCode::NO_AUTH, OpCode::GET_EPHEMERALS, ""),
            refusal(ErrorCode::NO_NODE, OpCode::GET_ALL_CHILDREN_NUMBER, "/a"),
        ]
    );
    messages!(
        out,
        MultiError { Op, Refused },
        [
            MultiError::Op(OpError::connection_loss(Unknown).about(create())),
            multi(ErrorCode::BAD_VERSION, Target::new(OpCode::CHECK, "/a")),
            multi(ErrorCode::NO_NODE, create()),
            multi(ErrorCode::OK, Target::UNKNOWN),
        ]
    );
    messages!(
        out,
        WatchEnded { Closed, Removed, SessionExpired, Unsupported },
        [
            WatchEnded::Closed,
            WatchEnded::Removed,
            WatchEnded::SessionExpired,
            WatchEnded::Unsupported
        ]
    );
}

fn configuration(out: &mut String) {
    messages!(
        out,
        PathDefect { EmptyComponent, ForbiddenCharacter, NotAbsolute, RelativeComponent, Root },
        [
            PathDefect::EmptyComponent,
            PathDefect::ForbiddenCharacter,
            PathDefect::NotAbsolute,
            PathDefect::RelativeComponent,
            PathDefect::Root,
        ]
    );
    let hosts = || "zk1:2181,zk2:2181".to_owned();
    let before_hosts =
        || ChrootDefect::BeforeHosts { host: "h1/app".into(), suggestion: "h1,h2/app".into() };
    messages!(
        out,
        ChrootDefect { BeforeHosts, Path },
        [before_hosts(), ChrootDefect::Path(PathDefect::RelativeComponent),]
    );
    messages!(
        out,
        HostDefect {
            AfterBracket,
            Empty,
            Ipv6WithoutBrackets,
            MissingBracket,
            NoName,
            Port,
            Scheme,
            Separator,
        },
        [
            HostDefect::AfterBracket,
            HostDefect::Empty { number: 2 },
            HostDefect::Ipv6WithoutBrackets,
            HostDefect::MissingBracket,
            HostDefect::NoName,
            HostDefect::Port,
            HostDefect::Scheme { scheme: "zk://".into(), suggestion: hosts() },
            HostDefect::Separator,
        ]
    );
    messages!(
        out,
        LeaseDefect {
            SyncLimitTooLong,
            SyncLimitZero,
            TickTooLong,
            TickTooShort,
            WriteIntervalTooLong,
            WriteIntervalTooShort,
        },
        [
            LeaseDefect::SyncLimitTooLong,
            LeaseDefect::SyncLimitZero,
            LeaseDefect::TickTooLong,
            LeaseDefect::TickTooShort,
            LeaseDefect::WriteIntervalTooLong,
            LeaseDefect::WriteIntervalTooShort,
        ]
    );
    messages!(
        out,
        OptionDefect {
            BytesBelow,
            DigestWithoutColon,
            Empty,
            EmptyScheme,
            Lease,
            LongerThan,
            Other,
            ShorterThan,
            ShorterThanSessionTimeout,
            Zero,
        },
        [
            OptionDefect::BytesBelow(1024),
            OptionDefect::DigestWithoutColon,
            OptionDefect::Empty,
            OptionDefect::EmptyScheme,
            OptionDefect::Lease(LeaseDefect::TickTooShort),
            OptionDefect::LongerThan(SECOND),
            OptionDefect::Other("the text of a recipe"),
            OptionDefect::ShorterThan(SECOND),
            OptionDefect::ShorterThanSessionTimeout,
            OptionDefect::Zero,
        ]
    );
    let option = |value: &str, defect| ConfigError::Option {
        option: "session_timeout",
        value: value.to_owned(),
        defect,
    };
    messages!(
        out,
        ConfigError { Chroot, Host, NoHosts, NoRuntime, Option, Path, Thread },
        [
            ConfigError::Chroot { path: "/app,h2".into(), defect: before_hosts() },
            ConfigError::Host { host: "h1;h2".into(), defect: HostDefect::Separator },
            ConfigError::NoHosts,
            option("", OptionDefect::Zero),
            option("5ms", OptionDefect::ShorterThan(SECOND)),
            ConfigError::Path {
                option: "path of the lock",
                path: "/a/../b".into(),
                defect: PathDefect::RelativeComponent,
            },
            ConfigError::NoRuntime,
            ConfigError::Thread { message: "out of threads".into() },
        ]
    );
    messages!(
        out,
        ConnectError { AuthFailed, Chroot, Config, NotResumed, Stopped, TimedOut },
        [
            ConnectError::AuthFailed,
            ConnectError::Chroot {
                path: "/app".into(),
                error: refusal(ErrorCode::NO_AUTH, OpCode::CREATE2, "/app"),
            },
            ConnectError::Config(ConfigError::NoHosts),
            ConnectError::NotResumed { session: crate::types::SessionId(0x100) },
            ConnectError::Stopped { hosts: hosts(), last_failure: None },
            ConnectError::Stopped { hosts: hosts(), last_failure: Some(failure()) },
            ConnectError::TimedOut { hosts: hosts(), waited: SECOND, last_failure: None },
            ConnectError::TimedOut {
                hosts: hosts(),
                waited: SECOND,
                last_failure: Some(failure())
            },
        ]
    );
    let paths = vec!["/locks/a".into(), "/locks/b".into()];
    messages!(
        out,
        HandOverError { NoSession, RuntimeStopped, Unfinished },
        [
            HandOverError::NoSession,
            HandOverError::RuntimeStopped,
            HandOverError::Unfinished { within: SECOND, paths }
        ]
    );
    let invalid = ConfigError::Option {
        option: "auth",
        value: String::new(),
        defect: OptionDefect::EmptyScheme,
    };
    messages!(
        out,
        AuthError { Closed, Config, Refused, TimedOut, TooMany, Unanswered },
        [
            AuthError::Closed,
            AuthError::Config(invalid),
            AuthError::Refused,
            AuthError::TimedOut { outcome: Outcome::NotApplied },
            AuthError::TimedOut { outcome: Outcome::Unknown },
            AuthError::TooMany { pending: 16 },
            AuthError::Unanswered { connections: 5 },
        ]
    );
}

fn connections(out: &mut String) {
    let refused = || TransportError {
        kind: io::ErrorKind::ConnectionRefused,
        message: "connection refused".into(),
    };
    writeln!(out, "TransportError: {}", refused()).expect("it is a string");
    messages!(
        out,
        FailureCause {
            Closed,
            Connect,
            Disconnected,
            Handshake,
            HandshakeClosed,
            NoHandshake,
            NoReply,
            NotAccepted,
            NotRun,
            Sasl,
            Tls,
            Transport,
        },
        [
            FailureCause::Closed,
            FailureCause::Connect(refused()),
            FailureCause::Disconnected(DisconnectCause::SessionMoved),
            FailureCause::Handshake(refused()),
            FailureCause::HandshakeClosed,
            FailureCause::NoHandshake,
            FailureCause::NoReply,
            FailureCause::NotAccepted,
            FailureCause::NotRun(Duration::from_secs(25)),
            FailureCause::Sasl(SaslFailure::NotMutual),
            FailureCause::Tls(TlsFailure::Expired),
            FailureCause::Transport(refused()),
        ]
    );
    let failure = ConnectionFailure {
        host: "[::1]:2181".parse().expect("it is a host"),
        cause: FailureCause::Connect(refused()),
    };
    writeln!(out, "ConnectionFailure: {failure}").expect("it is a string");
    writeln!(out, "InvalidTicket: {InvalidTicket}").expect("it is a string");
    messages!(
        out,
        DisconnectCause {
            AuthRefused,
            CatchUp,
            CloseRefused,
            CredentialsRefused,
            EarlyEvent,
            ExpiryUnproven,
            Frame,
            HandOver,
            HostsChanged,
            LeaseEnded,
            NoAuthReply,
            NoClose,
            NoConnection,
            NoHandshake,
            NoReply,
            NoSasl,
            NotZooKeeper,
            PingOverdue,
            ReadWriteServer,
            Record,
            Sasl,
            SaslRefused,
            SessionExpired,
            SessionMoved,
            SessionRefused,
            SessionSwapped,
            SessionTooNew,
            SessionUnknown,
            SetWatches,
            Silence,
            StaleSessionEnded,
            Stopped,
            TooLong,
            UnknownOperation,
            Xid,
        },
        [
            DisconnectCause::AuthRefused(ErrorCode::AUTH_FAILED),
            DisconnectCause::CatchUp(ErrorCode::THROTTLED_OP),
            DisconnectCause::CloseRefused(ErrorCode::THROTTLED_OP),
            DisconnectCause::CredentialsRefused,
            DisconnectCause::EarlyEvent,
            DisconnectCause::ExpiryUnproven,
            DisconnectCause::Frame(FrameError { length: -1 }),
            DisconnectCause::HandOver,
            DisconnectCause::HostsChanged,
            DisconnectCause::LeaseEnded,
            DisconnectCause::NoAuthReply(SECOND),
            DisconnectCause::NoClose(SECOND),
            DisconnectCause::NoConnection(SECOND),
            DisconnectCause::NoHandshake(SECOND),
            DisconnectCause::NoReply(SECOND),
            DisconnectCause::NoSasl(SECOND),
            DisconnectCause::NotZooKeeper(*b"HTTP"),
            DisconnectCause::NotZooKeeper([0x16, 0x03, 0x01, 0x00]),
            DisconnectCause::NotZooKeeper([0; 4]),
            DisconnectCause::PingOverdue(SECOND),
            DisconnectCause::Record { record: "ReplyHeader", error: undecodable() },
            DisconnectCause::ReadWriteServer,
            DisconnectCause::Sasl(SaslFailure::NotOffered),
            DisconnectCause::SaslRefused(ErrorCode::AUTH_FAILED),
            DisconnectCause::SessionExpired,
            DisconnectCause::SessionMoved,
            DisconnectCause::SessionRefused,
            DisconnectCause::SessionSwapped,
            DisconnectCause::SessionTooNew,
            DisconnectCause::SessionUnknown,
            DisconnectCause::SetWatches(ErrorCode::NO_AUTH),
            DisconnectCause::Silence(SECOND),
            DisconnectCause::StaleSessionEnded,
            DisconnectCause::Stopped,
            DisconnectCause::TooLong(1_000_000),
            DisconnectCause::UnknownOperation(OpCode::WHO_AM_I),
            DisconnectCause::Xid(7),
        ]
    );
}

fn tls(out: &mut String) {
    let alert = |name: &str| name.to_owned();
    messages!(
        out,
        TlsFailure {
            Alert,
            Certificate,
            ClientCertificateRefused,
            ClientCertificateRequired,
            Closed,
            Crl,
            Expired,
            File,
            KeyMismatch,
            NoCryptoProvider,
            NoRoots,
            NotTls,
            NotYetValid,
            Options,
            Other,
            Pem,
            RevocationUnknown,
            Revoked,
            ServerName,
            TimedOut,
            UnknownIssuer,
            WrongName,
        },
        [
            TlsFailure::Alert { alert: alert("handshake_failure") },
            TlsFailure::Alert { alert: alert("protocol_version") },
            TlsFailure::Alert { alert: alert("internal_error") },
            TlsFailure::Certificate("it is malformed; create it again".into()),
            TlsFailure::ClientCertificateRefused { alert: alert("certificate_unknown") },
            TlsFailure::ClientCertificateRequired { alert: alert("bad_certificate") },
            TlsFailure::Closed,
            TlsFailure::Crl("a list has expired; fetch the next one".into()),
            TlsFailure::Expired,
            TlsFailure::File {
                what: "CA certificate",
                path: "/etc/zk/ca.pem".into(),
                message: "permission denied".into(),
            },
            TlsFailure::KeyMismatch,
            TlsFailure::NoCryptoProvider,
            TlsFailure::NoRoots("none was found".into()),
            TlsFailure::NotTls,
            TlsFailure::NotYetValid,
            TlsFailure::Options("`client_config` replaces `system_roots`".into()),
            TlsFailure::Other(
                "the server presented no certificate; check its `ssl.keyStore.location`".into()
            ),
            TlsFailure::Pem {
                what: "private key",
                place: "the argument of `client_pem`".into(),
                defect: "it is not PEM; convert it".into(),
            },
            TlsFailure::RevocationUnknown,
            TlsFailure::Revoked,
            TlsFailure::ServerName("zk_1..".into()),
            TlsFailure::TimedOut(SECOND),
            TlsFailure::UnknownIssuer,
            TlsFailure::WrongName { expected: "zk1".into(), presented: vec![] },
            TlsFailure::WrongName {
                expected: "zk1".into(),
                presented: vec!["zk2".into(), "zk3".into()],
            },
        ]
    );
}

fn sasl(out: &mut String) {
    messages!(
        out,
        SaslFailure {
            Challenge,
            Credentials,
            Gssapi,
            NoAcceptableLayer,
            NotMutual,
            NotOffered,
            NotReady,
            OtherMechanism,
            TimedOut,
            TooManyRounds,
        },
        [
            SaslFailure::Challenge("it has no nonce"),
            SaslFailure::Credentials("the credential has expired".into()),
            SaslFailure::Gssapi("the server is not in the database".into()),
            SaslFailure::NoAcceptableLayer,
            SaslFailure::NotMutual,
            SaslFailure::NotOffered,
            SaslFailure::NotReady,
            SaslFailure::OtherMechanism("GSSAPI"),
            SaslFailure::TimedOut(SECOND),
            SaslFailure::TooManyRounds(10),
        ]
    );
}
