//! The cost of a request does not depend on the number of connections.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jute_codec::{
    Acl, ConnectRequest, CreateMode, CreateRequest, ReadRequest, Record as _, Request,
    RequestHeader, SessionId, Zxid, encode_frame,
};

use super::Server;
use crate::config::ServerConfig;

const NOW: Duration = Duration::from_millis(1);

#[test]
fn a_request_visits_as_many_connections_among_two_thousand_as_among_two() {
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
    assert!(few.iter().all(|visits| *visits > 0), "visits are counted: {few:?}");
    assert_eq!(visits(2_000), few);
}

#[test]
fn connecting_and_disconnecting_visits_as_many_connections_and_watches_in_any_crowd() {
    let visits = |others: usize| {
        let (mut server, id) = crowd(others);
        ask(&mut server, id, &exists("/own", true));
        let before = (server.connections.visits.get(), server.leader.watches.visits);
        server.handle_disconnect(id, NOW);
        drain(&mut server);
        let after = (server.connections.visits.get(), server.leader.watches.visits);
        join(&mut server);
        let back = server.connections.visits.get();
        (after.0 - before.0, after.1 - before.1, back - after.0)
    };
    let few = visits(1);
    assert_eq!(few.1, 1, "only its own watch");
    assert_eq!(visits(2_000), few);
}

#[test]
fn timeouts_visit_only_connections_that_are_due() {
    let visits = |others: usize| {
        let (mut server, _) = crowd(others);
        let _ = server.handle_connect(IpAddr::V4(Ipv4Addr::LOCALHOST), NOW);
        let before = server.connections.visits.get();
        // These times include the deadline of every handshake, but no session expires.
        for seconds in 1..25 {
            server.handle_timeout(Duration::from_secs(seconds));
            drain(&mut server);
        }
        server.connections.visits.get() - before
    };
    assert_eq!(visits(2_000), visits(1));
}

/// Creates idle sessions with one watch each, and one more session. Returns the connection of the
/// last session.
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
    let id = server
        .handle_connect(IpAddr::V4(Ipv4Addr::LOCALHOST), NOW)
        .expect("the server accepts connections");
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: Zxid(0),
        timeout_ms: 40_000,
        session_id: SessionId::NONE,
        password: Bytes::new(),
        read_only: Some(false),
    };
    let mut out = BytesMut::new();
    encode_frame(&mut out, usize::MAX, |out| request.encode(out)).expect("the frame is short");
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
    .expect("the frame is short");
    server.handle_bytes(id, &out, NOW);
    assert!(drain(server) > 0, "the server replies");
}

fn drain(server: &mut Server) -> usize {
    std::iter::from_fn(|| server.poll_transmit(NOW)).count()
}

fn exists(path: &str, watch: bool) -> Request {
    Request::Exists(ReadRequest { path: path.into(), watch })
}

fn create(path: &str) -> Request {
    Request::Create(CreateRequest {
        path: path.into(),
        data: None,
        acl: Acl::open(),
        mode: CreateMode::Persistent,
        with_stat: false,
    })
}
