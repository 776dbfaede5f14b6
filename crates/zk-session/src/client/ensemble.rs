//! The configuration of the ensemble.

#![expect(clippy::wildcard_enum_match_arm, reason = "a reply of any other kind is a bug")]

use bytes::Bytes;
use jute_codec::{Request, Response};

use super::{Client, data_and_stat, read, unexpected};
use crate::chroot::translate::Root;
use crate::ensemble::{CONFIG, EnsembleConfig, Reconfig};
use crate::machine::Operation;
use crate::operation::op::Op;
use crate::types::Stat;
use crate::watch::watcher::Watcher;

impl Client {
    /// Reads the configuration of the ensemble: its servers, and the version. The server that
    /// replies may lag behind others; see [`sync`](Self::sync).
    ///
    /// Fails with `NO_NODE` on servers before 3.5, and with `NO_AUTH` if an administrator has
    /// restricted the znode `/zookeeper/config`. It changes nothing, so it can be repeated after
    /// any `ConnectionLoss`. Cancel safe.
    pub fn get_config(&self) -> Op<EnsembleConfig> {
        let operation = Operation::new(Request::GetData(read(CONFIG, false)));
        self.enqueue(Root::Server, operation, None, |answer| {
            answer.result.map(|response| config(data_and_stat(response)))
        })
    }

    /// Reads the configuration like [`get_config`](Self::get_config), and watches it. The watch
    /// fires when the configuration changes.
    pub fn get_config_and_watch(&self) -> Op<(EnsembleConfig, Watcher)> {
        self.watched_from(Root::Server, CONFIG, Request::GetData(read(CONFIG, true)), |result| {
            result.map(|response| config(data_and_stat(response)))
        })
    }

    /// Changes the servers of the ensemble. Returns the new configuration once a quorum of the old
    /// one and a quorum of the new one have committed it.
    ///
    /// The servers need `reconfigEnabled=true`, and the caller the permission to write
    /// `/zookeeper/config`, which only the superuser has by default.
    ///
    /// Fails with these codes, after which nothing has changed:
    /// - `RECONFIG_DISABLED`, or [`OpError::Unsupported`](crate::OpError::Unsupported) by a server
    ///   that runs alone, or before 3.5;
    /// - `NO_AUTH` without the permission;
    /// - `BAD_VERSION` if the version is not the [expected](Reconfig::expect_version) one;
    /// - `BAD_ARGUMENTS` if the servers cannot read the change, or it would leave no server;
    /// - `NEW_CONFIG_NO_QUORUM` if too few of the new servers are in contact with the leader;
    /// - `RECONFIG_IN_PROGRESS` while another change is not committed.
    ///
    /// After `ConnectionLoss(Unknown)`, which is common because servers that leave close their
    /// connections, the change may have been applied: read the configuration to find out, and give
    /// the [expected version](Reconfig::expect_version) to make it safe to repeat the change. Not cancel
    /// safe: a dropped future discards the reply, but not the change.
    pub fn reconfig(&self, change: Reconfig) -> Op<EnsembleConfig> {
        let request = Request::Reconfig(change.into_request());
        self.submit(request, |response| match response {
            Response::Reconfig(reply) => {
                config((reply.data.unwrap_or_default(), reply.stat.into()))
            }
            other => unexpected(&other),
        })
    }
}

fn config((text, stat): (Bytes, Stat)) -> EnsembleConfig {
    EnsembleConfig::read(&text, stat)
}
