//! The shortest way through everything.

use crate::client::*;
use jute_codec::{CreateMode, Request};

#[tokio::test(start_paused = true)]
async fn session_creates_reads_and_closes() {
    let server = start();
    let mut client = Client::new(&server).await;
    let path = client.create("/n-", CreateMode::EphemeralSequential).await;
    assert_eq!(path.as_deref(), Ok("/n-0000000000"));
    assert_eq!(server.ephemerals(), [("/n-0000000000".to_owned(), client.session)]);
    client.ok(&Request::CloseSession).await;
    client.assert_eof().await;
    assert_eq!(server.ephemerals(), []);
    assert_eq!(server.zxid(), 3);
}
