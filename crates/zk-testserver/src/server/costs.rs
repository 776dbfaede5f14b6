//! What a request costs does not depend on who else is connected.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jute_codec::{
    Acl, ConnectRequest, CreateMode, CreateRequest, ReadRequest, Record as _, Request,
    RequestHeader, encode_frame,
};

use super::Server;
use crate::config::ServerConfig;

const NOW: Duration = Duration::from_millis(1);

#[test]
fn a_request_looks_at_as_many_connections_among_two_thousand_as_among_two() {
    let visits = |others: usize| {
        let (mut server, id) = crowd(others);
        let mut visits = Vec::new();
        for request in [
            exists("/", false),
            exists("/own", true),
            Request::Ping,
            create("/mine"),
            Request::GetChildren(ReadRequest { path: "/".into(), watch: true }),
        ] {
            let before = server.connections.visits.get();
            ask(&mut server, id, &request);
            assert!(server.poll_timeout().is_some());
            visits.push(server.connections.visits.get() - before);
        }
        visits
    };
    let few = visits(1);
    assert!(few.iter().all(|visits| *visits > 0), "they are counted: {few:?}");
    assert_eq!(visits(2_000), few);
}

#[test]
fn coming_and_going_looks_at_as_many_connections_and_watches_in_any_crowd() {
    let visits = |others: usize| {
        let (mut server, id) = crowd(others);
        ask(&mut server, id, &exists("/own", true));
        let before = (server.connections.visits.get(), server.watches.visits);
        server.handle_disconnect(id, NOW);
        drain(&mut server);
        let gone = (server.connections.visits.get(), server.watches.visits);
        join(&mut server);
        let back = server.connections.visits.get();
        (gone.0 - before.0, gone.1 - before.1, back - gone.0)
    };
    let few = visits(1);
    assert_eq!(few.1, 1, "its own watch");
    assert_eq!(visits(2_000), few);
}

#[test]
fn time_that_passes_looks_only_at_those_that_are_due() {
    let visits = |others: usize| {
        let (mut server, _) = crowd(others);
        let _ = server.handle_connect(IpAddr::V4(Ipv4Addr::LOCALHOST), NOW);
        let before = server.connections.visits.get();
        // Later than all handshakes may be, earlier than any session expires.
        for seconds in 1..25 {
            server.handle_timeout(Duration::from_secs(seconds));
            drain(&mut server);
        }
        server.connections.visits.get() - before
    };
    assert_eq!(visits(2_000), visits(1));
}

/// So many sessions that watch something and are silent, and the connection of one more.
fn crowd(others: usize) -> (Server, u64) {
    let mut server = Server::new(ServerConfig::default());
    for number in 0..others {
        let id = join(&mut server);
        ask(&mut server, id, &exists(&format!("/missing-{number}"), true));
    }
    let id = join(&mut server);
    (server, id)
}

fn join(server: &mut Server) -> u64 {
    let id = server.handle_connect(IpAddr::V4(Ipv4Addr::LOCALHOST), NOW).expect("it is open");
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: 40_000,
        session_id: 0,
        password: Bytes::new(),
        read_only: Some(false),
    };
    let mut out = BytesMut::new();
    encode_frame(&mut out, usize::MAX, |out| request.encode(out)).expect("it is short");
    server.handle_bytes(id, &out, NOW);
    drain(server);
    id
}

fn ask(server: &mut Server, id: u64, request: &Request) {
    let mut out = BytesMut::new();
    encode_frame(&mut out, usize::MAX, |out| {
        RequestHeader { xid: 1, op: request.op() }.encode(out);
        request.encode(out);
    })
    .expect("it is short");
    server.handle_bytes(id, &out, NOW);
    assert!(drain(server) > 0, "it is answered");
}

fn drain(server: &mut Server) -> usize {
    std::iter::from_fn(|| server.poll_transmit(NOW)).count()
}

fn exists(path: &str, watch: bool) -> Request {
    Request::Exists(ReadRequest { path: path.into(), watch })
}

fn create(path: &str) -> Request {
    let (mode, with_stat) = (CreateMode::Persistent, false);
    Request::Create(CreateRequest {
        path: path.into(),
        data: None,
        acl: Acl::open(),
        mode,
        with_stat,
    })
}
