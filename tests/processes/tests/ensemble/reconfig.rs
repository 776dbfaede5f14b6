//! Changes of the members of the ensemble.

use zk_session::{ConfigVersion, ErrorCode, EventType, Member, OpError, Reconfig};
use zk_tests::bare::Bare as _;
use zk_tests::ensemble::Ensemble;
use zk_tests::wait::{kind, soon};

/// The password is in tests/ensemble/compose.yml, as a digest.
const SUPERUSER: &str = "super:ensemble";

#[tokio::test]
async fn members_leave_and_join_and_every_refusal_is_reported() {
    let ensemble = Ensemble::take().await;
    let fixture = crate::fixture().await;
    let home = ensemble.leader().await;
    let leaving = ensemble.follower().await.number as u64;
    let builder = fixture.builder_at(home.address).auth("digest", SUPERUSER);
    let client = builder.connect().await.expect("all servers serve clients");
    let (before, mut watcher) = client.get_config_and_watch().await.unwrap();
    let version = before.version.expect("an ensemble has one");
    assert_eq!(before.members.len(), 3, "{before:?}");
    let member = before.members.iter().find(|member| member.id == leaving);
    let member = member.expect("it is a member").clone();

    let refusal =
        async |change: Reconfig| client.reconfig(change).await.expect_err("it is refused").bare();
    let server = OpError::server;
    let other = ConfigVersion(version.0 + 1);
    let stale = Reconfig::incremental().leave(leaving).expect_version(other);
    assert_eq!(refusal(stale).await, server(ErrorCode::BAD_VERSION));
    let nowhere = |id| Member::new(id, "127.0.0.1", 1, 2).client(member.client.clone().unwrap());
    let unreachable = Reconfig::complete([member.clone(), nowhere(8), nowhere(9)]);
    assert_eq!(refusal(unreachable).await, server(ErrorCode::NEW_CONFIG_NO_QUORUM));
    assert_eq!(refusal(Reconfig::complete_text("x")).await, server(ErrorCode::BAD_ARGUMENTS));
    let stranger = fixture.client().await;
    let denied = stranger.reconfig(Reconfig::incremental().leave(leaving)).await;
    assert_eq!(denied.expect_err("it is denied").bare(), server(ErrorCode::NO_AUTH));
    assert_eq!(client.get_config().await.unwrap(), before, "nothing has changed");

    let left = Reconfig::incremental().leave(leaving).expect_version(version);
    let left = client.reconfig(left).await.expect("the version is right");
    assert_eq!(left.members.len(), 2, "{left:?}");
    assert!(left.version > before.version);
    assert_eq!(kind(&mut watcher).await, EventType::NODE_DATA_CHANGED);

    let joined = client.reconfig(Reconfig::incremental().join(member)).await.expect("it is back");
    let ids = |config: &zk_session::EnsembleConfig| {
        let mut ids: Vec<_> = config.members.iter().map(|member| member.id).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(ids(&joined), ids(&before));
    let same = Reconfig::complete(joined.members.clone());
    let same = client.reconfig(same).await.expect("it is the same list");
    assert_eq!(ids(&same), ids(&before));
    soon("the whole ensemble", ensemble.whole()).await;
}
