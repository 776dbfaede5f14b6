//! Something answers that is not ZooKeeper, or nobody does: the error says so.

use std::future::pending;
use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use zk_recipes::{Client, Clock};
use zk_tests::scene::spawn;
use zk_tests::world::run;

/// The error of connecting to a peer that sends this when it is spoken to, and then closes, or
/// keeps the connection open.
fn error(says: &'static [u8], closes: bool) -> String {
    run(async {
        let transport = move |_host| async move {
            let (ours, mut theirs) = tokio::io::duplex(1 << 16);
            spawn(async move {
                let mut request = [0; 1024];
                let _ = theirs.read(&mut request).await;
                let _ = theirs.write_all(says).await;
                if !closes {
                    pending::<()>().await;
                }
            });
            Ok::<DuplexStream, io::Error>(ours)
        };
        let connecting = Client::builder("zk.test:5432").transport(transport).clock(Clock::tokio());
        connecting.connect().await.expect_err("it is not ZooKeeper").to_string()
    })
}

#[test]
fn a_peer_that_is_not_zookeeper_is_named_with_what_it_said() {
    let postgres = b"E\0\0\0\x8bSFATAL\0VFATAL\0C0A000\0Munsupported frontend protocol 0.0\0\0";
    let cases: [(&[u8], &str); 5] = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "\"HTTP\" (an HTTP server?)"),
        (b"\x15\x03\x03\0\x02\x02\x46", "(a TLS port?)"),
        (postgres, "\"E\\x00\\x00\\x00\""),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "\"SSH-\""),
        (b"\0\0\0\x04oops", "bad ConnectResponse"),
    ];
    for (says, expected) in cases {
        for closes in [true, false] {
            let error = error(says, closes);
            let start = "(last failure: zk.test:5432: the peer does not speak the ZooKeeper \
                         protocol: ";
            assert!(error.contains(start) && error.contains(expected), "{error}");
        }
    }
}

#[test]
fn a_peer_that_closes_and_one_that_is_silent_are_told_apart() {
    let closing = error(b"", true);
    let expected = "zk.test:5432: the peer closed the connection and did not answer the handshake";
    assert!(closing.contains(expected), "{closing}");
    let silent = error(b"", false);
    let expected = "zk.test:5432: the peer accepted the connection, but did not answer";
    assert!(silent.contains(expected), "{silent}");
}

#[test]
fn who_gives_up_during_the_first_attempt_hears_how_far_it_has_come() {
    let error = run(async {
        let transport = |_host| pending::<io::Result<DuplexStream>>();
        let connecting = Client::builder("zk.test:2181").transport(transport).clock(Clock::tokio());
        let within = std::time::Duration::from_secs(1);
        connecting.connect_within(within).connect().await.expect_err("nobody is there").to_string()
    });
    assert!(error.contains("zk.test:2181: it has not accepted yet"), "{error}");
}
