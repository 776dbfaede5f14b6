//! The floor: a blocking socket, frames that were built before, replies that are not decoded.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jute_codec::{
    Acl, ConnectRequest, CreateMode, CreateRequest, DeleteRequest, ReadRequest, Record as _,
    Request, RequestHeader, encode_frame,
};

use crate::Outcome;

/// Longest silence of the server before a measurement fails.
const PATIENCE: Duration = Duration::from_secs(30);
const READ_CHUNK: usize = 64 * 1024;
/// Bytes of a reply before its body: xid, zxid, error code.
const HEADER: usize = 16;
/// Bytes of the length before a frame, and before a string.
const LENGTH: usize = 4;

/// A session over a blocking socket.
pub(crate) struct Wire {
    stream: TcpStream,
    input: Box<[u8]>,
    /// Of `input`, what has been read and not been taken yet.
    from: usize,
    until: usize,
    /// A reply that has not fitted.
    reply: Vec<u8>,
}

impl Wire {
    /// Opens a session.
    pub(crate) fn open(hosts: &str) -> Outcome<Self> {
        Self::with_room(hosts, READ_CHUNK)
    }

    /// Opens a session that reads so many bytes at a time.
    pub(crate) fn with_room(hosts: &str, room: usize) -> Outcome<Self> {
        let host = hosts.split(',').next().unwrap_or(hosts);
        let stream = TcpStream::connect(host).map_err(|error| format!("{host}: {error}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let input = vec![0; room].into_boxed_slice();
        let mut wire = Self { stream, input, from: 0, until: 0, reply: Vec::new() };
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 30_000,
            session_id: 0,
            password: vec![0; 16].into(),
            read_only: Some(false),
        };
        wire.send(&framed(|out| request.encode(out)))?;
        wire.take()?;
        Ok(wire)
    }

    /// Closes the session, and with it its ephemerals.
    pub(crate) fn close(mut self) -> Outcome<()> {
        self.ask(&frame(&Request::CloseSession))?;
        Ok(())
    }

    pub(crate) fn send(&mut self, frames: &[u8]) -> Outcome<()> {
        Ok(self.stream.write_all(frames)?)
    }

    /// Sends one request and takes its reply.
    pub(crate) fn ask(&mut self, frame: &[u8]) -> Outcome<&[u8]> {
        self.send(frame)?;
        self.answer()
    }

    /// Takes the reply to a request, which has to be a success.
    pub(crate) fn answer(&mut self) -> Outcome<&[u8]> {
        let reply = self.take()?;
        match reply.get(HEADER - 4..HEADER) {
            Some([0, 0, 0, 0]) => Ok(reply),
            code => Err(format!("the server refused, with the code {code:?}").into()),
        }
    }

    /// Takes a frame, without its length.
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

    /// True if the length of a reply is there, so that taking it will not wait for long.
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

/// The path that a server has made of a sequential one, in the reply to create2.
pub(crate) fn created_path(reply: &[u8]) -> Outcome<&[u8]> {
    let body = reply.get(HEADER..).ok_or("the create was refused")?;
    let (length, rest) = body.split_at_checked(LENGTH).ok_or("the create was refused")?;
    let length = usize::try_from(i32::from_be_bytes(length.try_into()?))?;
    rest.get(..length).ok_or_else(|| "a create's reply is too short".into())
}

/// The frame of a request.
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
    let (data, acl, with_stat) = (Some(data.into()), Acl::open(), true);
    Request::Create(CreateRequest { path: path.into(), data, acl, mode, with_stat })
}

pub(crate) fn delete(path: &str) -> Request {
    Request::Delete(DeleteRequest { path: path.into(), version: -1 })
}

pub(crate) fn read(path: &str) -> ReadRequest {
    ReadRequest { path: path.into(), watch: false }
}
