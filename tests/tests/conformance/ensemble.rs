//! The configuration of the ensemble. Changes of it are tested by the suite `ensemble`.

use zk_session::{CreateMode, ErrorCode, Host, Member, Reconfig};
use zk_tests::target::Fixture;
use zk_tests::wait::soon;
use zk_tests::world::sleep_ms;

#[tokio::test]
async fn every_client_reads_the_same_configuration() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let config = client.get_config().await.unwrap();
    // Each server has its own time of the change, so the metadata may differ.
    let other = fixture.observer.get_config().await.unwrap();
    assert_eq!(config.members, other.members, "the chroot has no effect");
    assert_eq!(config.version, other.version);
    // A server that runs alone publishes neither.
    assert_eq!(config.members.is_empty(), config.version.is_none());
    assert_eq!(config.others, Vec::<String>::new());
}

#[tokio::test]
async fn the_configuration_can_be_watched_through_a_chroot() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let (config, watcher) = client.get_config_and_watch().await.unwrap();
    assert_eq!(config, client.get_config().await.unwrap());
    assert_eq!(watcher.path(), "/zookeeper/config");
}

#[tokio::test]
async fn a_change_of_the_ensemble_needs_a_server_that_allows_it() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    let before = client.get_config().await.unwrap();
    let joining = Member::new(250, "nowhere.invalid", 2888, 3888)
        .client(Host { name: "0.0.0.0".into(), port: 2181 });
    let refused = client.reconfig(Reconfig::incremental().join(joining)).await.map_err(|error| {
        // The second is that of an ensemble that allows changes, but not to everybody.
        let codes = [ErrorCode::RECONFIG_DISABLED, ErrorCode::NO_AUTH];
        assert!(codes.map(Some).contains(&error.server_code()), "{error}");
    });
    assert_eq!(refused, Err(()));
    assert_eq!(client.get_config().await.unwrap(), before);
    assert_eq!(client.status().connection, 1);
}

#[tokio::test]
async fn a_client_that_follows_the_ensemble_works_on_every_server() {
    let fixture = Fixture::start().await;
    let client = fixture.builder().follow_ensemble().connect().await.unwrap();
    let session = client.session_id();
    let (config, _watcher) = client.get_config_and_watch().await.unwrap();
    // Whether the members can be reached from here depends on the ensemble. A server that runs alone
    // names none.
    if config.members.iter().any(|member| member.client.as_ref().is_some_and(is_reachable)) {
        let follows = async {
            while client.health().config.is_none() {
                sleep_ms(5).await;
            }
        };
        soon("the configuration", follows).await;
        assert_eq!(client.health().config, config.version);
    } else {
        assert_eq!(client.health().config, None);
    }
    client.create("/followed", "", CreateMode::Ephemeral).await.unwrap();
    assert!(client.exists("/followed").await.unwrap().is_some());
    assert_eq!(client.session_id(), session);
}

/// Returns whether clients reach this address wherever they reach the server.
fn is_reachable(address: &Host) -> bool {
    address.name == "127.0.0.1"
}
