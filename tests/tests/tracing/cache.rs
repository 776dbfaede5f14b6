//! Caches that cannot read: the log says so, and does not fill up.

use std::time::Duration;

use zk_recipes::{Acl, Cache, CreateMode, Permissions};
use zk_tests::world::sleep_ms;

use crate::outage::with_outage;

#[test]
fn a_missing_path_and_unreadable_znodes_are_logged_a_few_times_only() {
    with_outage(|client, server, _, _, lines| async move {
        let mut typo = Cache::tree(&client, "/typo").build().expect("it is legal");
        for _ in 0..3 {
            typo.complete().await.expect("an empty cache is complete");
            server.disconnect_all();
            sleep_ms(1_000).await;
            let _ = tokio::time::timeout(Duration::from_secs(1), typo.next()).await;
        }
        let of_cache = |lines: Vec<String>| -> Vec<String> {
            lines.into_iter().filter(|line| line.contains("the cache")).collect()
        };
        let told = of_cache(lines.take());
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("WARN") && told[0].contains("/typo"), "{told:?}");

        let closed = Acl::new(Permissions::WRITE, "world", "anyone");
        server.admin_create("/t", b"", None);
        for number in 0..50 {
            let path = format!("/t/{number}");
            client.create(&path, "", CreateMode::Persistent).await.expect("it is new");
            client.set_acl(&path, vec![closed.clone()], None).await.expect("it may");
        }
        let mut cache = Cache::tree(&client, "/t").build().expect("it is legal");
        cache.complete().await.expect_err("it may not read");
        let told = of_cache(lines.take());
        assert_eq!(told.len(), 10, "{told:?}");
        assert!(told[0].contains("NO_AUTH") && told[0].contains("/t/"), "{told:?}");
        // Events that were not taken are not logged twice, and repeated reads are not logged.
        let end = Duration::from_secs(3_600);
        let follow = async { while cache.next().await.is_ok() {} };
        tokio::time::timeout(end, follow).await.expect_err("it goes on");
        let told = of_cache(lines.take());
        assert_eq!(told.len(), 0, "{told:?}");
    });
}
