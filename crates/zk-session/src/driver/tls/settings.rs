//! The options of TLS connections, which can be replaced together.

use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::ServerName;

use super::material::Material;
use crate::driver::transport::Transport;
use crate::error::TlsFailure;
use crate::host::Host;

/// Everything that a connection needs.
pub(super) struct Settings {
    pub(super) origin: Origin,
    pub(super) server_name: Option<ServerName<'static>>,
    /// The transport below.
    pub(super) over: Arc<dyn Transport>,
}

/// The source of the configuration of rustls.
pub(super) enum Origin {
    /// The program has made it.
    Program(Arc<ClientConfig>),
    /// Each connection makes it.
    Material(Arc<Material>, Arc<CryptoProvider>),
}

impl Settings {
    /// Returns the name for which the certificate of a server must be valid.
    pub(super) fn name_of(&self, host: &Host) -> Result<ServerName<'static>, TlsFailure> {
        match &self.server_name {
            Some(name) => Ok(name.clone()),
            None => ServerName::try_from(host.name.clone())
                .map_err(|_| TlsFailure::ServerName(host.name.clone())),
        }
    }

    pub(super) fn has_client_certificate(&self) -> bool {
        match &self.origin {
            Origin::Program(config) => config.client_auth_cert_resolver.has_certs(),
            Origin::Material(material, _) => material.client.is_some(),
        }
    }
}

/// Shows names of files, but no data, and nothing of a configuration of the program, whose parts may
/// show keys.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Settings");
        match &self.origin {
            Origin::Program(_) => shown.field("client_config", &"of the program"),
            Origin::Material(material, _) => shown.field("material", material),
        };
        shown.field("server_name", &self.server_name).finish_non_exhaustive()
    }
}
