//! No input makes the server panic.

use std::net::IpAddr;
use std::time::Duration;

use bytes::BytesMut;
use jute_codec::{OpCode, Record as _, RequestHeader, SessionId, Zxid, encode_frame};
use proptest::prelude::*;
use zk_testserver::{Server, ServerConfig, ServerVersion};

use crate::client::handshake;

fn drain(server: &mut Server, now: Duration) {
    while server.poll_transmit(now).is_some() {}
    let _ = server.poll_timeout();
}

/// Returns bodies that often resemble a record.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let path =
        prop_oneof![Just("/"), Just("/a"), Just("/a/b"), Just(""), Just("//"), Just("/zookeeper")];
    let string =
        path.prop_map(|path| [&(path.len() as u32).to_be_bytes()[..], path.as_bytes()].concat());
    let number = prop_oneof![-2..8_i32, any::<i32>()].prop_map(|n| n.to_be_bytes().to_vec());
    let acl = Just(
        [&[0, 0, 0, 1, 0, 0, 0, 31, 0, 0, 0, 5][..], b"world", &[0, 0, 0, 6], b"anyone"].concat(),
    );
    let bytes = proptest::collection::vec(any::<u8>(), 0..8);
    let part = prop_oneof![4 => string, 4 => number, 2 => acl, 1 => bytes];
    proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

fn op() -> impl Strategy<Value = i32> {
    prop_oneof![0..23_i32, 100..108_i32, Just(-11), Just(-10), Just(-1), any::<i32>()]
}

proptest! {
    #[test]
    fn the_server_survives_random_bytes(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..8)) {
        let mut server = Server::new(ServerConfig::default());
        let mut now = Duration::ZERO;
        for chunk in chunks {
            let id = server.handle_connect(IpAddr::from([127, 0, 0, 1]), now).unwrap();
            server.handle_bytes(id, &chunk, now);
            drain(&mut server, now);
            now += Duration::from_secs(3);
        }
        server.handle_timeout(now + Duration::from_secs(100));
        drain(&mut server, now);
    }

    #[test]
    fn the_server_survives_random_requests(
        is_old: bool,
        requests in proptest::collection::vec((op(), body()), 0..40),
        split in 1..64_usize,
    ) {
        let version = if is_old { ServerVersion::V3_8 } else { ServerVersion::V3_9 };
        let mut server = Server::new(ServerConfig::default().version(version).extended_types(true));
        let mut now = Duration::ZERO;
        let mut id = 0;
        let mut wire = BytesMut::new();
        for (xid, (op, body)) in requests.iter().enumerate() {
            if xid % 8 == 0 {
                id = server.handle_connect(IpAddr::from([127, 0, 0, 1]), now).unwrap();
                encode_frame(&mut wire, 100, |out| handshake(SessionId::NONE, &[0; 16], Zxid(0)).encode(out)).unwrap();
            }
            encode_frame(&mut wire, 1 << 16, |out| {
                RequestHeader { xid: xid as i32, op: OpCode(*op) }.encode(out);
                out.extend_from_slice(body);
            }).unwrap();
            for chunk in wire.split().chunks(split) {
                server.handle_bytes(id, chunk, now);
            }
            drain(&mut server, now);
            now += Duration::from_millis(700);
        }
        server.handle_timeout(now + Duration::from_secs(100));
        prop_assert_eq!(server.sessions(), []);
        prop_assert_eq!(server.ephemerals(), Vec::new());
    }
}
