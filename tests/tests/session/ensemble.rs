//! The members of the ensemble, as the client describes them.

use zk_session::{Host, Member, Reconfig};
use zk_tests::world::{World, run};
use zk_testserver::ServerConfig;

/// The digest of `super:pw`.
const SUPER: &str = "super:0bX78nEegDzJM3ju0iLBEJdWzjg=";

#[test]
fn members_with_several_addresses_are_read_and_written() {
    run(async {
        let client = Host { name: "0.0.0.0".into(), port: 2181 };
        let member = |id: u64| {
            Member::new(id, &format!("a{id}"), 2888, 3888)
                .address(&format!("b{id}"), 2889, 3889)
                .client(client.clone())
        };
        let members = [member(1), member(2)];
        let lines = members.each_ref().map(ToString::to_string).join("\n");
        let config = ServerConfig::default().reconfig_enabled(true).super_digest(SUPER);
        let world = World::with(config.dynamic_config(&lines));
        let client = world.client_with(1, |builder| builder.auth("digest", "super:pw")).await;
        let config = client.get_config().await.expect("everyone may read it");
        assert_eq!(config.members, members);
        let change = Reconfig::incremental().join(member(3).observer());
        let config = client.reconfig(change).await.expect("the server allows it");
        assert_eq!(config.members, [member(1), member(2), member(3).observer()]);
    });
}
