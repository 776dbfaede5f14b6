//! The list of servers.

use super::Client;
use crate::connect_string::ConnectString;
use crate::driver::command::Command;
use crate::error::{ConfigError, OptionDefect};

impl Client {
    /// Replaces the list of servers, for example after [`reconfig`](Self::reconfig), or when a name
    /// service reports other servers. The argument is a connect string, `host:port,host:port`, with
    /// the chroot of this handle or without one.
    ///
    /// Clients spread evenly over the new list, as those of the official client do. If the current
    /// server is no longer in the list, the client moves. If the list has grown, a share of the
    /// clients moves to the new servers, chosen at random. Otherwise the client stays. A client that
    /// moves waits for the replies in flight first and keeps its session.
    ///
    /// Names are resolved for each attempt to connect anyway, so there is no need to call this when
    /// only the addresses of a name have changed. To follow DNS SRV records or a registry, use
    /// [`ClientBuilder::host_source`](crate::ClientBuilder::host_source), which replaces this list
    /// when its own changes; to resolve names differently, use
    /// [`Tcp::with_resolver`](crate::Tcp::with_resolver).
    ///
    /// # Errors
    ///
    /// Fails if the connect string is invalid, or has another chroot. In that case nothing changes.
    pub fn set_hosts(&self, connect_string: &str) -> Result<(), ConfigError> {
        let ConnectString { hosts, chroot } = connect_string.parse()?;
        if !chroot.as_str().is_empty() && chroot != self.shared().chroot {
            let (option, value) = ("set_hosts", connect_string.to_owned());
            let defect = OptionDefect::Other("the chroot of a client cannot be changed");
            return Err(ConfigError::Option { option, value, defect });
        }
        self.shared().send(Command::SetHosts(hosts));
        Ok(())
    }
}
