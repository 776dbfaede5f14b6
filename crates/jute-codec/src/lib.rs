//! The ZooKeeper client protocol as bytes: frames, records, requests, replies.
//!
//! This crate knows no session, no socket and no time. A client and a server use the same
//! types, in opposite directions:
//!
//! | | client | server |
//! |---|---|---|
//! | handshake | encodes [`ConnectRequest`], decodes [`ConnectResponse`] | the reverse |
//! | requests | encodes [`RequestHeader`] and [`Request`] | decodes them |
//! | replies | decodes [`ReplyHeader`] and [`Response`] | encodes them |
//! | events | decodes [`WatcherEvent`] | encodes it |
//!
//! What the types promise:
//!
//! - Bytes from a peer give a value or a [`DecodeError`] that says what was wrong and where,
//!   never a panic. Memory follows the bytes that are there, not the lengths and counts they
//!   claim: at most 40 bytes are reserved for a byte of input, and a kilobyte for any input.
//! - Numbers of the protocol are open ([`ErrorCode`], [`OpCode`], ...): a newer peer's unknown
//!   number is data, not an error.
//! - Bytes after a record are ignored, because newer peers append fields.
//! - Buffers are slices of the input ([`bytes::Bytes`]), and so is text
//!   ([`bytestring::ByteString`]). Names of children are one slice ([`NameList`]).
//! - Requests that are known to harm a server cannot be expressed: a `check` exists inside a
//!   [`Multi`](Request::Multi) only, and a TTL belongs to the modes that have one
//!   ([`CreateMode`]). Arguments such as paths are not checked here.
//!
//! Protocol facts come from `zookeeper.jute`, from the server's sources (3.4.14 to 3.9.5) and
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

mod code;
mod connect;
mod create;
mod data;
mod error;
mod frame;
mod multi;
mod names;
mod reply;
mod request;
mod watch;
mod wire;

pub use crate::code::{
    AddWatchMode, ErrorCode, EventType, KeeperState, OpCode, Permissions, WatcherType, xid,
};
pub use crate::connect::{ConnectRequest, ConnectResponse};
pub use crate::create::{CreateMode, CreateRequest, Ttl};
pub use crate::data::{Acl, ClientInfo, Id, Stat};
pub use crate::error::{DecodeError, DecodeErrorKind, EncodeError, FrameError};
pub use crate::frame::{Frame, FrameDecoder, encode_frame};
pub use crate::multi::{MultiOp, MultiResult, ReadOp, ReadResult};
pub use crate::names::{IntoNames, NameList, Names};
pub use crate::reply::{AclReply, ChildrenReply, Create2Reply, DataReply, ReplyHeader, Response};
pub use crate::request::{
    AddWatchRequest, AuthPacket, CheckRequest, DeleteRequest, ReadRequest, ReconfigRequest,
    Request, RequestHeader, SaslToken, SetAclRequest, SetDataRequest, SetWatches, SetWatches2,
    WatchesRequest,
};
pub use crate::watch::WatcherEvent;
pub use crate::wire::{Reader, Record};
