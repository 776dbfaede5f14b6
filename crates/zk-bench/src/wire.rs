//! The floor: a blocking socket with prepared frames, which does not decode replies.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jute_codec::{
    Acl, ConnectRequest, CreateMode, CreateRequest, DeleteRequest, ReadRequest, Record as _,
    Request, RequestHeader, SessionId, Version, Zxid, encode_frame,
};

use crate::Outcome;

/// How long the server may be silent before the measurement fails.
const PATIENCE: Duration = Duration::from_secs(30);
const READ_CHUNK: usize = 64 * 1024;
/// Length of the header of a reply: xid, zxid, error code.
const HEADER: usize = 16;
/// Length of the length prefix of frames and strings.
const LENGTH: usize = 4;

/// A session over a blocking socket.
pub(crate) struct Wire {
    stream: TcpStream,
    input: Box<[u8]>,
    /// The range of `input` that has been received but not taken.
    from: usize,
    until: usize,
    /// A reply that did not fit into `input`.
    reply: Vec<u8>,
}

impl Wire {
    /// Opens a session.
    pub(crate) fn open(hosts: &str) -> Outcome<Self> {
        Self::with_capacity(hosts, READ_CHUNK)
    }

    /// Opens a session that reads this many bytes at a time.
    pub(crate) fn with_capacity(hosts: &str, room: usize) -> Outcome<Self> {
        let host = hosts.split(',').next().unwrap_or(hosts);
        let stream = TcpStream::connect(host).map_err(|error| format!("{host}: {error}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let input = vec![0; room].into_boxed_slice();
        let mut wire = Self { stream, input, from: 0, until: 0, reply: Vec::new() };
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: Zxid(0),
            timeout_ms: 30_000,
            session_id: SessionId::NONE,
            password: vec![0; 16].into(),
            read_only: Some(false),
        };
        wire.send(&framed(|out| request.encode(out)))?;
        wire.take()?;
        Ok(wire)
    }

    /// Closes the session, which deletes its ephemerals.
    pub(crate) fn close(mut self) -> Outcome<()> {
        self.call(&frame(&Request::CloseSession))?;
        Ok(())
    }

    pub(crate) fn send(&mut self, frames: &[u8]) -> Outcome<()> {
        Ok(self.stream.write_all(frames)?)
    }

    /// Sends one request and returns its reply.
    pub(crate) fn call(&mut self, frame: &[u8]) -> Outcome<&[u8]> {
        self.send(frame)?;
        self.reply()
    }

    /// Returns the next reply. Fails unless it reports success.
    pub(crate) fn reply(&mut self) -> Outcome<&[u8]> {
        let reply = self.take()?;
        match reply.get(HEADER - 4..HEADER) {
            Some([0, 0, 0, 0]) => Ok(reply),
            code => Err(format!("the server refused the request with code {code:?}").into()),
        }
    }

    /// Takes the next frame and returns it without its length prefix.
    fn take(&mut self) -> Outcome<&[u8]> {
        let mut length = [0; LENGTH];
        self.copy(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length))?;
        if self.until - self.from < length {
            let mut reply = std::mem::take(&mut self.reply);
            reply.resize(length, 0);
            self.copy(&mut reply)?;
            self.reply = reply;
            return Ok(&self.reply);
        }
        let reply = self.input.get(self.from..self.from + length).unwrap_or_default();
        self.from += length;
        Ok(reply)
    }

    /// Returns whether the length of a reply has arrived, so that taking it will not block for
    /// long.
    pub(crate) fn has_more(&self) -> bool {
        self.until - self.from > LENGTH
    }

    fn copy(&mut self, mut to: &mut [u8]) -> Outcome<()> {
        while !to.is_empty() {
            if self.from == self.until {
                (self.from, self.until) = (0, self.stream.read(&mut self.input)?);
                if self.until == 0 {
                    return Err("the server has closed the connection".into());
                }
            }
            let ready = self.input.get(self.from..self.until).unwrap_or_default();
            let count = ready.len().min(to.len());
            let (now, later) = to.split_at_mut(count);
            now.copy_from_slice(ready.get(..count).unwrap_or_default());
            self.from += count;
            to = later;
        }
        Ok(())
    }
}

/// Returns the path in the reply to a create2.
pub(crate) fn created_path(reply: &[u8]) -> Outcome<&[u8]> {
    let body = reply.get(HEADER..).ok_or("the create was refused")?;
    let (length, rest) = body.split_at_checked(LENGTH).ok_or("the create was refused")?;
    let length = usize::try_from(i32::from_be_bytes(length.try_into()?))?;
    rest.get(..length).ok_or_else(|| "a create's reply is too short".into())
}

/// Encodes the frame of a request.
pub(crate) fn frame(request: &Request) -> BytesMut {
    framed(|out| {
        RequestHeader { xid: 1, op: request.op() }.encode(out);
        request.encode(out);
    })
}

fn framed(fill: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut out = BytesMut::new();
    encode_frame(&mut out, usize::MAX, fill).expect("only a limit of i32::MAX applies");
    out
}

pub(crate) fn create(path: &str, data: impl Into<Bytes>, mode: CreateMode) -> Request {
    let data = Some(data.into());
    let acl = Acl::open();
    let with_stat = true;
    Request::Create(CreateRequest { path: path.into(), data, acl, mode, with_stat })
}

pub(crate) fn delete(path: &str) -> Request {
    Request::Delete(DeleteRequest { path: path.into(), version: Version::ANY })
}

pub(crate) fn read(path: &str) -> ReadRequest {
    ReadRequest { path: path.into(), watch: false }
}
