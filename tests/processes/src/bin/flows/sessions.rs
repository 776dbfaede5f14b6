//! Sessions that begin, are resumed, taken over, refused and closed, and that expire.

use std::thread::sleep;
use std::time::Duration;

use bytes::Bytes;
use jute_codec::{ConnectRequest, CreateMode, Request, SessionId, Zxid};

use crate::peer::*;

pub(crate) fn sessions(stage: &Stage) {
    let mut one = stage.connect();
    one.ask_all([create("/a"), create_mode("/a/e", CreateMode::Ephemeral), Request::Ping]);
    let mut one = stage.reconnect(one);
    one.ask_all([exists("/a/e", false), Request::Ping]);
    // Another connection takes the session over while the first is still open.
    let taken_over = |older: &Peer| {
        let mut newer = stage.open();
        let request = ConnectRequest { last_zxid_seen: older.zxid, ..older.handshake() };
        newer.shake_hands(&request);
        newer
    };
    let mut newer = taken_over(&one);
    newer.ask_all([create_mode("/a/f", CreateMode::Ephemeral), Request::Ping]);
    one.drop_connection();

    // The server refuses a wrong password, an unknown session, and a client with a zxid from the
    // future.
    let refused = |request: ConnectRequest| {
        let mut peer = stage.open();
        peer.shake_hands(&request);
        peer.drop_connection();
    };
    let right = newer.handshake();
    refused(ConnectRequest { password: Bytes::from_static(&[1; 16]), ..right.clone() });
    let mut newer = taken_over(&newer);
    newer.ask(&Request::Ping);
    refused(ConnectRequest { password: Bytes::new(), ..right.clone() });
    refused(ConnectRequest { session_id: SessionId(0x1234_5678), ..right.clone() });
    refused(ConnectRequest {
        last_zxid_seen: Zxid(1 << 40),
        session_id: SessionId::NONE,
        ..right.clone()
    });
    refused(ConnectRequest { last_zxid_seen: Zxid(1 << 40), ..right.clone() });

    // Timeouts are negotiated, and old clients do not send the read-only flag.
    for timeout_ms in [0, 999, 1000, 1001, 4321, 10_000, 10_001, i32::MAX, -1] {
        let mut peer = stage.open();
        let request = ConnectRequest { timeout_ms, read_only: None, ..peer.handshake() };
        peer.shake_hands(&request);
        peer.ask(&Request::CloseSession);
        peer.drop_connection();
    }
    let mut peer = stage.open();
    let request = ConnectRequest { read_only: Some(true), ..peer.handshake() };
    peer.shake_hands(&request);
    peer.ask(&Request::WhoAmI);

    // The close of a session deletes its ephemerals.
    let mut newer = taken_over(&newer);
    newer.ask_all([get_children2("/a", false), Request::CloseSession]);
    newer.drop_connection();
    refused(right);
    peer.ask_all([get_children2("/a", false), exists("/a/e", false)]);
    peer.close();
}

/// Lets two sessions with a timeout of one second expire, one with a silent connection and one
/// without a connection.
pub(crate) fn expiry(stage: &Stage) {
    let mut watcher = stage.connect();
    watcher.ask(&create("/x"));
    for is_connected in [true, false] {
        let mut short = stage.open();
        let request = ConnectRequest { timeout_ms: 1000, ..short.handshake() };
        short.shake_hands(&request);
        short.ask(&create_mode("/x/e", CreateMode::Ephemeral));
        watcher.ask_all([get_data("/x/e", true), get_children("/x", true)]);
        let resume = short.handshake();
        let mut silent = Some(short);
        if !is_connected {
            silent.take().into_iter().for_each(Peer::drop_connection);
        }
        sleep(Duration::from_secs(3));
        watcher.ask_all([exists("/x/e", false), exists("/x", false)]);
        silent.into_iter().for_each(Peer::drop_connection);
        let mut late = stage.open();
        late.shake_hands(&resume);
        late.drop_connection();
    }
    watcher.close();
}
