//! What all messages of the codec have in common.

use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use jute_codec::{
    ChildrenReply, ConnectRequest, ConnectResponse, DecodeError, NameList, ReadResult, Reader,
    Record, ReplyHeader, Request, RequestHeader, Response, WatcherEvent,
};

use crate::reference::{Layout, ToValue};

/// A message of the codec.
pub trait Message: Clone + Debug + PartialEq + ToValue {
    /// Decodes it.
    fn read(layout: Layout, input: &mut Reader) -> Result<Self, DecodeError>;

    /// Encodes it.
    fn write(&self, out: &mut BytesMut);

    /// Replaces the secret, such as a password. Returns `None` if the message has none.
    fn with_secret(&self, _: &Bytes) -> Option<Self> {
        None
    }

    /// Returns the lists of children.
    fn names(&self) -> Vec<&NameList> {
        Vec::new()
    }

    /// Returns whether bytes after the message may belong to it.
    fn is_open(&self) -> bool {
        false
    }
}

macro_rules! record_messages {
    ($( $ty:ident { $( $other:item )* } )*) => {
        $( impl Message for $ty {
            fn read(_: Layout, input: &mut Reader) -> Result<Self, DecodeError> {
                Self::decode(input)
            }

            fn write(&self, out: &mut BytesMut) {
                self.encode(out);
            }

            $( $other )*
        } )*
    };
}

record_messages! {
    ReplyHeader {}
    RequestHeader {}
    WatcherEvent {}
    ConnectRequest {
        fn with_secret(&self, secret: &Bytes) -> Option<Self> {
            Some(Self { password: secret.clone(), ..self.clone() })
        }

        fn is_open(&self) -> bool {
            self.read_only.is_none()
        }
    }
    ConnectResponse {
        fn with_secret(&self, secret: &Bytes) -> Option<Self> {
            Some(Self { password: secret.clone(), ..self.clone() })
        }

        fn is_open(&self) -> bool {
            self.read_only.is_none()
        }
    }
}

impl Message for Request {
    fn read(layout: Layout, input: &mut Reader) -> Result<Self, DecodeError> {
        match layout {
            Layout::Request(op) => Self::decode(op, input),
            other => unreachable!("{other:?} is not a request"),
        }
    }

    fn write(&self, out: &mut BytesMut) {
        self.encode(out);
    }

    fn with_secret(&self, secret: &Bytes) -> Option<Self> {
        let mut other = self.clone();
        match &mut other {
            Self::Auth(packet) => packet.auth = Some(secret.clone()),
            Self::Sasl(token) => token.0 = Some(secret.clone()),
            _ => return None,
        }
        Some(other)
    }
}

impl Message for Response {
    fn read(layout: Layout, input: &mut Reader) -> Result<Self, DecodeError> {
        match layout {
            Layout::Response(op) => Self::decode(op, input),
            other => unreachable!("{other:?} is not a reply"),
        }
    }

    fn write(&self, out: &mut BytesMut) {
        self.encode(out);
    }

    fn with_secret(&self, secret: &Bytes) -> Option<Self> {
        let mut other = self.clone();
        let Self::Sasl(token) = &mut other else { return None };
        token.0 = Some(secret.clone());
        Some(other)
    }

    fn names(&self) -> Vec<&NameList> {
        match self {
            Self::GetChildren(names)
            | Self::GetChildren2(ChildrenReply { children: names, .. }) => {
                vec![names]
            }
            Self::MultiRead(results) => results
                .iter()
                .filter_map(|result| match result {
                    ReadResult::Children(names) => Some(names),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        }
    }
}
