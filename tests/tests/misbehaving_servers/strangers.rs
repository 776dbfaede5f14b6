//! Servers that do not speak ZooKeeper's protocol, or do not reply. The error must say so.

use std::future::pending;
use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use zk_recipes::{Client, ClientBuilder, Clock, ConnectError};
use zk_tests::scene::spawn;
use zk_tests::world::run;

use crate::peer::{Behaviour, Peers};

/// Returns the error of a connect to a peer that sends these bytes after the first bytes of the
/// client, and then closes the connection or keeps it open.
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
            let start = "no server of zk.test:5432 answered within ";
            let peer = "(last failure: the peer does not speak the ZooKeeper protocol: ";
            assert!(error.starts_with(start) && error.contains(peer), "{error}");
            assert!(error.contains(expected), "{error}");
        }
    }
}

#[test]
fn a_peer_that_closes_and_one_that_is_silent_are_told_apart() {
    let closing = error(b"", true);
    let expected = "(last failure: the peer closed the connection and did not answer the handshake";
    assert!(closing.contains(expected), "{closing}");
    let silent = error(b"", false);
    let expected = "(last failure: the peer accepted the connection, but did not answer";
    assert!(silent.contains(expected), "{silent}");
}

#[test]
fn who_gives_up_during_the_first_attempt_hears_how_far_it_has_come() {
    let error = run(async {
        let transport = |_host| pending::<io::Result<DuplexStream>>();
        let connecting = Client::builder("zk.test:2181").transport(transport).clock(Clock::tokio());
        let within = Duration::from_secs(1);
        connecting.connect_within(within).connect().await.expect_err("nobody is there").to_string()
    });
    assert!(error.ends_with("(last failure: it has not accepted yet)"), "{error}");
}

/// Returns the builder of a client for several servers. The first server in the list behaves like
/// `first`, and all others serve clients.
fn beside(first: Behaviour, hosts: &str) -> ClientBuilder {
    let (first, others) = (Peers::new(first), Peers::new(Behaviour::Serves));
    let transport = move |host: zk_session::Host| {
        if host.name == "first" { first.clone().connect() } else { others.clone().connect() }
    };
    Client::builder(hosts).transport(transport).clock(Clock::tokio()).seed(1)
}

#[test]
fn a_server_that_opens_a_session_and_then_answers_nothing_is_named_for_that() {
    let error = run(async {
        let builder = beside(Behaviour::AnswersPingsOnly, "first:2181/app").create_chroot(true);
        let within = Duration::from_secs(5);
        builder.connect_within(within).connect().await.map(drop).expect_err("it does not answer")
    });
    let expected =
        "of first:2181 answered within 5s (last failure: it has answered no request yet)";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn a_server_that_does_not_answer_the_credentials_is_left_for_the_next() {
    run(async {
        let builder = beside(Behaviour::AnswersPingsOnly, "first:2181,second:2181");
        let builder = builder.auth("digest", "a:b").connect_timeout(Duration::from_secs(3));
        let client = builder.connect().await.expect("the second server serves");
        if let Some(failure) = client.last_failure().map(|failure| failure.to_string()) {
            assert!(failure.contains("did not answer the credentials within 3s"), "{failure}");
        }
        let error = beside(Behaviour::AnswersPingsOnly, "first:2181").auth("digest", "a:b");
        let error = error.connect().await.map(drop).expect_err("there is no other server");
        assert!(error.to_string().contains("did not answer the credentials"), "{error}");
    });
}

fn broken() -> io::Result<DuplexStream> {
    resume_unwind(Box::new("wanted"))
}

/// A caller that waits without a limit gets no error.
#[test]
fn a_client_that_has_stopped_ends_its_connect() {
    run(async {
        let transport = |_host| async { broken() };
        let builder = Client::builder("zk.test:2181").transport(transport).clock(Clock::tokio());
        let result = builder.connect_within(Duration::MAX).connect().await.map(drop);
        assert!(matches!(result, Err(ConnectError::Stopped { .. })), "{result:?}");
        for behaviour in [Behaviour::AnswersExpired, Behaviour::RefusesConnections] {
            let peers = [Behaviour::AnswersTheHandshakeAndCloses, behaviour].map(Peers::new);
            let attempts = AtomicUsize::new(0);
            let builder = Client::builder("zk.test:2181")
                .transport(move |_host| {
                    let attempt = attempts.fetch_add(1, Relaxed);
                    peers[attempt.min(1)].clone().connect()
                })
                .clock(Clock::tokio())
                .renew_after_expiry(false)
                .connect_within(Duration::MAX);
            match builder.connect().await.map(drop) {
                Err(ConnectError::Stopped { hosts, .. }) => assert_eq!(hosts, "zk.test:2181"),
                // The client was connected for a moment.
                Ok(()) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
}
