//! Decodes requests as the imitated server does.

use jute_codec::{
    CheckRequest, DecodeErrorKind, ErrorCode, OpCode, Reader, Record as _, Request, WatcherType,
};

use crate::config::ServerConfig;
use crate::multi::{self, Step};
use crate::version::ServerVersion;
use crate::watch::is_watcher_type;

/// A decoded request, or the server's reaction to a malformed one.
pub(super) enum Body {
    /// A check outside of a multi.
    BareCheck(CheckRequest),
    /// A deletion that only servers should request.
    DeleteContainer(String),
    /// A read that fails with this error.
    Failed(ErrorCode),
    /// The bytes are not the record of the opcode.
    Malformed,
    Known(Request),
    Multi(Vec<Step>),
    /// A write that is logged and fails with this error.
    Refused(ErrorCode),
    /// The server closes the connection without a reply.
    Fatal,
    UnknownOp,
}

impl Body {
    /// Returns whether the request is logged, even if only as a failure.
    pub(super) fn is_write(&self, version: ServerVersion) -> bool {
        match self {
            Self::BareCheck(_) => version < ServerVersion::V3_9,
            Self::DeleteContainer(_) | Self::Multi(_) | Self::Refused(_) => true,
            Self::Known(request) => matches!(
                request,
                Request::CloseSession
                    | Request::Create(_)
                    | Request::Delete(_)
                    | Request::Reconfig(_)
                    | Request::SetAcl(_)
                    | Request::SetData(_)
            ),
            Self::Failed(_) | Self::Malformed | Self::Fatal | Self::UnknownOp => false,
        }
    }

    pub(super) fn paths(&self) -> Vec<&str> {
        match self {
            Self::BareCheck(check) => vec![&check.path],
            Self::Known(request) => request.paths().into_iter().map(|path| &**path).collect(),
            Self::DeleteContainer(path) => vec![path],
            Self::Multi(steps) => steps.iter().map(Step::path).collect(),
            Self::Failed(_)
            | Self::Malformed
            | Self::Refused(_)
            | Self::Fatal
            | Self::UnknownOp => Vec::new(),
        }
    }
}

/// Decodes the body of a request. Where ZooKeeper replies with an error, a Keeper closes the
/// connection (`KeeperTCPHandler::receiveRequest` throws).
pub(super) fn decode(op: OpCode, reader: &mut Reader, config: &ServerConfig) -> Body {
    let body = decode_as_zookeeper(op, reader, config);
    let is_error = matches!(body, Body::Malformed | Body::Refused(_) | Body::UnknownOp);
    if is_error && config.version.is_keeper() { Body::Fatal } else { body }
}

fn decode_as_zookeeper(op: OpCode, reader: &mut Reader, config: &ServerConfig) -> Body {
    if !config.version.knows(op) {
        return Body::UnknownOp;
    }
    let is_write = match op {
        OpCode::CHECK if config.version < ServerVersion::V3_9 => {
            return match CheckRequest::decode(reader) {
                Ok(check) => Body::BareCheck(check),
                Err(_) => Body::Refused(ErrorCode::MARSHALLING_ERROR),
            };
        }
        // These opcodes are for use between servers. createSession from a client fails inside the
        // server. For deleteContainer, 3.8.0 uses the whole packet including the header as the
        // path, and 3.9.3 uses the body.
        OpCode::CREATE_SESSION if config.version < ServerVersion::V3_9 => {
            return Body::Refused(ErrorCode::MARSHALLING_ERROR);
        }
        OpCode::CREATE_SESSION => return Body::Malformed,
        OpCode::DELETE_CONTAINER if config.version < ServerVersion::V3_9 => {
            return Body::Refused(ErrorCode::BAD_ARGUMENTS);
        }
        // The path has no length prefix.
        OpCode::DELETE_CONTAINER => {
            let path = reader.clone().into_rest();
            return Body::DeleteContainer(String::from_utf8_lossy(&path).into_owned());
        }
        OpCode::MULTI => {
            return match multi::decode(reader, config) {
                Some(steps) => Body::Multi(steps),
                None => Body::Refused(ErrorCode::MARSHALLING_ERROR),
            };
        }
        OpCode::CREATE
        | OpCode::CREATE2
        | OpCode::CREATE_CONTAINER
        | OpCode::CREATE_TTL
        | OpCode::DELETE
        | OpCode::SET_ACL
        | OpCode::SET_DATA => config.version < ServerVersion::V3_9,
        _ => false,
    };
    let error = match Request::decode(op, reader) {
        Ok(request) => return Body::Known(request),
        Err(error) => error,
    };
    // Real servers decode these while reading from the connection, before the request pipeline.
    if matches!(op, OpCode::AUTH | OpCode::SASL) {
        return Body::Fatal;
    }
    if error.kind == DecodeErrorKind::Null
        && error.field == "path"
        && let Some(body) = without_path(op, reader, config)
    {
        return body;
    }
    match error.kind {
        DecodeErrorKind::UnexpectedOp(_) if op != OpCode::MULTI_READ => Body::UnknownOp,
        DecodeErrorKind::IllegalFlags { flags: 5 | 6, .. } | DecodeErrorKind::IllegalTtl(_)
            if !config.extended_types =>
        {
            Body::Refused(ErrorCode::UNIMPLEMENTED)
        }
        DecodeErrorKind::IllegalFlags { .. } | DecodeErrorKind::IllegalTtl(_) => {
            Body::Refused(ErrorCode::BAD_ARGUMENTS)
        }
        _ if is_write => Body::Refused(ErrorCode::MARSHALLING_ERROR),
        DecodeErrorKind::NegativeLength(_)
        | DecodeErrorKind::NotText
        | DecodeErrorKind::Null
        | DecodeErrorKind::UnexpectedEnd { .. }
        | DecodeErrorKind::UnexpectedOp(_)
        | _ => Body::Malformed,
    }
}

/// Decodes the rest of a request whose path is null. Returns `None` if the server treats the
/// request as malformed. The reader is positioned after the path.
fn without_path(op: OpCode, reader: &mut Reader, config: &ServerConfig) -> Option<Body> {
    Some(match op {
        // The server validates the path before anything else.
        OpCode::SET_ACL | OpCode::SET_DATA => Body::Refused(ErrorCode::BAD_ARGUMENTS),
        OpCode::CHECK_WATCHES if config.version < ServerVersion::V3_9 => return None,
        OpCode::CHECK_WATCHES | OpCode::REMOVE_WATCHES => {
            let kind = WatcherType::decode(reader).ok()?;
            is_watcher_type(kind, config.version).then_some(Body::Failed(ErrorCode::NO_WATCHER))?
        }
        _ => return None,
    })
}
