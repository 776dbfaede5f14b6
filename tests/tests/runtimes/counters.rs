//! What a caller sees in the counters of its client when it gets a result.

use zk_recipes::{Client, CreateMode};
use zk_testserver::{ServerConfig, TestServer};

/// The task of the session runs on another thread than its callers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_and_events_are_counted_before_their_callers_get_them() {
    let server = TestServer::start(ServerConfig::default());
    let address = server.listen("127.0.0.1:0").await.unwrap();
    for round in 1..=20 {
        let client = Client::connect(address.to_string()).await.unwrap();
        let stats = client.stats();
        assert_eq!((stats.attempts, stats.connections, stats.sessions), (1, 1, 1), "{round}");
        let path = format!("/{round}");
        client.create(&path, "", CreateMode::Persistent).await.unwrap();
        for number in 1..=100 {
            let (_, mut watcher) = client.get_data_and_watch(&path).await.unwrap();
            let stats = client.stats();
            let reads = stats.request("get_data").map(|reads| reads.completed);
            assert_eq!((reads, stats.pending), (Some(number), 0), "{round}");
            assert_eq!(client.health().pending, 0, "{round}");
            client.set_data(&path, "", None).await.unwrap();
            watcher.changed().await.unwrap();
            assert_eq!(client.stats().watch_events, number, "{round}");
        }
        client.close().await;
    }
}
