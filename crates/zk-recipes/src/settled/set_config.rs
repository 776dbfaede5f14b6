//! The configuration of the ensemble.

use jute_codec::OpCode;
use zk_session::{Client, ConfigVersion, EnsembleConfig, Op, Reconfig, Target};

use super::SettledClient;
use super::change::{Change, Judged, make};
use super::error::SettledError;
use super::reads::CONFIG;
use crate::engine::call::Call;

/// What a [`reconfig`](SettledClient::reconfig) has achieved.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ConfigInForce {
    /// The configuration.
    pub config: EnsembleConfig,
    /// Whether it is certain that this call has made the change. If not, a reply was lost, and the
    /// servers are as the change makes them: the call has made the change, or another client has made
    /// one with the same result. Nobody can tell the two apart.
    pub is_certain: bool,
}

impl SettledClient {
    /// Changes the servers of the ensemble, as [`Client::reconfig`] does. Without an
    /// [expected version](Reconfig::expect_version), the version is read first, which costs a request,
    /// and again if others change the configuration meanwhile.
    ///
    /// No transaction can contain this operation, so no marker shows whether it was applied. After a
    /// **connection loss**, which is common because servers that leave close their connections, the
    /// configuration is read behind a write barrier, in the next session if this one has ended, and the
    /// request is repeated if the version is the same. **Cancel safe** in that the change is made or
    /// not. Needs WRITE and READ on `/zookeeper/config`.
    ///
    /// # Errors
    ///
    /// [`SettledError::Refused`] if a server refuses it, with the codes of [`Client::reconfig`].
    /// [`SettledError::Overtaken`] if a reply was lost, the configuration has another version since,
    /// and the servers are not as the change makes them: others have changed them before this call, or
    /// after it. Otherwise as for [`set_acl`](Self::set_acl).
    pub fn reconfig(&self, change: Reconfig) -> Call<ConfigInForce, SettledError> {
        let client = self.profile.client.clone();
        let known = change.expected_version();
        let change = SetConfig { change };
        self.call(&CONFIG.into(), async move |deadline| {
            make(&client, &change, known.map(Some), deadline).await
        })
    }
}

struct SetConfig {
    change: Reconfig,
}

impl Change for SetConfig {
    /// `None` for a server that runs alone, which refuses every change.
    type Version = Option<ConfigVersion>;
    type Found = EnsembleConfig;
    type Reply = EnsembleConfig;
    type Output = ConfigInForce;

    fn target(&self) -> Target {
        Target::new(OpCode::RECONFIG, CONFIG)
    }

    fn read(&self, client: &Client) -> Op<EnsembleConfig> {
        client.get_config()
    }

    fn version(&self, found: &EnsembleConfig) -> Option<ConfigVersion> {
        found.version
    }

    fn send(&self, client: &Client, version: Option<ConfigVersion>) -> Op<EnsembleConfig> {
        let change = self.change.clone();
        client.reconfig(match version {
            Some(version) => change.expect_version(version),
            None => change,
        })
    }

    fn applied(
        &self,
        _: Option<ConfigVersion>,
        config: EnsembleConfig,
    ) -> Result<ConfigInForce, SettledError> {
        Ok(ConfigInForce { config, is_certain: true })
    }

    fn judge(
        &self,
        version: Option<ConfigVersion>,
        config: EnsembleConfig,
    ) -> Judged<ConfigInForce> {
        if config.version == version {
            Judged::Unchanged
        } else if self.change.is_in_force(&config) {
            Judged::InForce(ConfigInForce { config, is_certain: false })
        } else {
            // The version is a zxid, so it does not tell how many changes there were.
            Judged::Undecidable(SettledError::Overtaken { target: self.target() })
        }
    }
}
