//! What a client logs that follows the ensemble.

use std::io;

use zk_session::{Client, Clock, Host};
use zk_tests::world::{runtime, sleep_ms};
use zk_testserver::{ServerConfig, TestServer};

use crate::outage::Lines;

#[test]
fn changes_of_the_ensemble_are_told_and_each_reason_to_keep_the_list_once() {
    let lines = Lines::default();
    let fmt = tracing_subscriber::fmt().with_ansi(false).with_writer(lines.clone()).finish();
    tracing::subscriber::with_default(fmt, || {
        runtime().block_on(async {
            let server = TestServer::start(ServerConfig::default());
            let connector = server.connector();
            let transport = move |host: Host| {
                let connecting = connector(host.clone());
                async move {
                    match host.name.as_str() {
                        "inner" => Err(io::ErrorKind::ConnectionRefused.into()),
                        _ => connecting.await,
                    }
                }
            };
            let builder = Client::builder("zk:2181").transport(transport).clock(Clock::tokio());
            let _client = builder.follow_ensemble().connect().await.expect("a server is there");
            for (text, expected) in [
                ("server.1=zk:1:2;2181\nversion=1", &[][..]),
                (
                    "server.1=a:1:2;2181\nserver.2=b:1:2\nversion=2",
                    &[
                        &["WARN", "it names unusable servers", "server.2 has no"][..],
                        &[
                            "INFO",
                            "the ensemble has changed",
                            "hosts=a:2181",
                            "before=zk:2181",
                            "version=2",
                        ],
                    ],
                ),
                ("server.1=a:1:2;2181\nversion=3", &[]),
                ("server.1=b:1:2;2181\nversion=2", &[]),
                (
                    "server.1=a:1:2\nversion=4",
                    &[&[
                        "WARN",
                        "no server that the client can use",
                        "server.1 has no",
                        "version=4",
                    ]],
                ),
                (
                    "server.1=inner:1:2;2181\nversion=5",
                    &[&[
                        "WARN",
                        "none of its servers can be reached",
                        "hosts=inner:2181",
                        "version=5",
                    ]],
                ),
                ("server.1=a:1:2;2181", &[&["WARN", "has no version"]]),
            ] {
                lines.take();
                server.admin_set_data("/zookeeper/config", text.as_bytes());
                sleep_ms(300_000).await;
                let told: Vec<_> = lines
                    .take()
                    .into_iter()
                    .filter(|line| line.contains("ensemble_follower: "))
                    .collect();
                assert_eq!(told.len(), expected.len(), "{text}: {told:#?}");
                for (line, parts) in told.iter().zip(expected) {
                    for part in *parts {
                        assert!(line.contains(part), "{line} does not say {part}");
                    }
                }
            }
        });
    });
}
