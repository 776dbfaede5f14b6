//! The ZooKeeper client protocol as bytes: frames, records, requests, replies.
//!
//! This crate contains no session logic, opens no sockets and reads no clock. Clients and servers
//! use the same types, in opposite directions:
//!
//! | | client | server |
//! |---|---|---|
//! | handshake | encodes [`ConnectRequest`], decodes [`ConnectResponse`] | the reverse |
//! | requests | encodes [`RequestHeader`] and [`Request`] | decodes them |
//! | replies | decodes [`ReplyHeader`] and [`Response`] | encodes them |
//! | events | decodes [`WatcherEvent`] | encodes it |
//!
//! The types guarantee the following:
//!
//! - Decoding bytes from a peer returns a value or a [`DecodeError`] that says what is wrong and
//!   where. It never panics. Memory use grows with the bytes received, not with the lengths and
//!   counts that they claim: decoding reserves at most 40 bytes for each byte of input, plus a
//!   kilobyte.
//! - Types for numbers of the protocol ([`ErrorCode`], [`OpCode`], ...) accept any value: an
//!   unknown number from a newer peer is data, not an error.
//! - Bytes after a record are ignored, because newer peers append fields.
//! - Buffers (`bytes::Bytes`) and text (`bytestring::ByteString`) are slices of the input. The
//!   names in a list of children share one slice ([`NameList`]).
//! - Requests that are known to harm a server cannot be expressed: a `check` exists only inside a
//!   [`Multi`](Request::Multi), and only the modes that need a TTL have one ([`CreateMode`]).
//!   Arguments such as paths are not validated here.
//!
//! Protocol facts come from `zookeeper.jute`, from the server's source code (3.4.14 to 3.9.5) and
//! from frames captured on live servers 3.8.0 and 3.9.3, which are this crate's test vectors.
//!
//! ```
//! use bytes::BytesMut;
//! use jute_codec::{FrameDecoder, Frame, Reader, Record, Request, RequestHeader, encode_frame};
//!
//! let request = Request::GetData(jute_codec::ReadRequest { path: "/config".into(), watch: false });
//! let mut wire = BytesMut::new();
//! encode_frame(&mut wire, 1024, |out| {
//!     RequestHeader { xid: 1, op: request.op() }.encode(out);
//!     request.encode(out);
//! })?;
//!
//! let mut frames = FrameDecoder::new(1024);
//! let Some(Frame::Complete(payload)) = frames.next(&mut wire)? else { panic!("a whole frame") };
//! let mut reader = Reader::new(payload);
//! let header = RequestHeader::decode(&mut reader)?;
//! assert_eq!(Request::decode(header.op, &mut reader)?, request);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[macro_use]
mod macros;
#[cfg(test)]
mod messages;

mod auth;
mod connect;
mod create;
mod data;
mod debug;
mod error;
mod frame;
mod ids;
mod multi;
mod names;
mod numbers;
mod operation;
mod reply;
mod request;
mod watch;
mod wire;

pub use crate::auth::{AuthPacket, SaslToken};
pub use crate::connect::{ConnectRequest, ConnectResponse};
pub use crate::create::{CreateMode, CreateRequest, Ttl};
pub use crate::data::{Acl, ClientInfo, Id, Stat};
pub use crate::error::{DecodeError, DecodeErrorKind, EncodeError, FrameError};
pub use crate::frame::{Frame, FrameDecoder, encode_frame};
pub use crate::ids::{SessionId, Version, Zxid};
pub use crate::multi::{MultiOp, MultiResult, ReadOp, ReadResult};
pub use crate::names::{IntoNames, NameList, Names};
pub use crate::numbers::{
    AddWatchMode, ErrorCode, EventType, KeeperState, OpCode, Permissions, WatcherType, xid,
};
pub use crate::operation::{
    CheckRequest, Create2Reply, DataReply, DeleteRequest, ReadRequest, SetDataRequest,
};
pub use crate::reply::{AclReply, ChildrenReply, ReplyHeader, Response};
pub use crate::request::{
    AddWatchRequest, ReconfigRequest, Request, RequestHeader, SetAclRequest, SetWatches,
    SetWatches2, WatchesRequest,
};
pub use crate::watch::WatcherEvent;
pub use crate::wire::{Reader, Record};

/// The page for registries, included so that its code is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
