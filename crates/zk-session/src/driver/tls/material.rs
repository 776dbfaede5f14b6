//! Certificates and keys, and the rustls configuration made from them.

use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore};

use super::explain;
use super::source::{CA, CLIENT_CERTIFICATE, CLIENT_KEY, Source};
use crate::error::TlsFailure;

/// Everything that a TLS connection needs, except for the name of the server.
pub(super) struct Material {
    roots: Vec<Source>,
    has_system_roots: bool,
    client: Option<(Source, Source)>,
    provider: Arc<CryptoProvider>,
}

impl Material {
    pub(super) fn new(
        roots: Vec<Source>,
        has_system_roots: bool,
        client: Option<(Source, Source)>,
        provider: Arc<CryptoProvider>,
    ) -> Self {
        Self { roots, has_system_roots, client, provider }
    }

    pub(super) fn has_client_certificate(&self) -> bool {
        self.client.is_some()
    }

    /// Reads all files. Blocks.
    pub(super) fn load(&self) -> Result<Arc<ClientConfig>, TlsFailure> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(other)?
            .with_root_certificates(self.load_roots()?);
        let mut config = match &self.client {
            None => builder.with_no_client_auth(),
            Some((certificates, key)) => {
                let chain = certificates.certificates(CLIENT_CERTIFICATE)?;
                builder.with_client_auth_cert(chain, key.key()?).map_err(|error| {
                    if matches!(error, Error::InconsistentKeys(_)) {
                        TlsFailure::KeyMismatch
                    } else if matches!(error, Error::InvalidCertificate(_)) {
                        certificates.unusable(CLIENT_CERTIFICATE, explain::unreadable(&error))
                    } else {
                        key.unusable(CLIENT_KEY, explain::key(&error))
                    }
                })?
            }
        };
        // Each connection has a configuration of its own, so nothing could be resumed.
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    fn load_roots(&self) -> Result<RootCertStore, TlsFailure> {
        let mut store = RootCertStore::empty();
        for source in &self.roots {
            for certificate in source.certificates(CA)? {
                let unusable = |error| source.unusable(CA, explain::unreadable(&error));
                store.add(certificate).map_err(unusable)?;
            }
        }
        if self.has_system_roots {
            let found = rustls_native_certs::load_native_certs();
            // Systems contain old certificates that rustls does not accept, so those are skipped.
            let (added, _) = store.add_parsable_certificates(found.certs);
            if added == 0 && store.is_empty() {
                let reasons: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
                let reasons =
                    if reasons.is_empty() { "none was found".into() } else { reasons.join(", ") };
                return Err(TlsFailure::NoRoots(reasons));
            }
        }
        Ok(store)
    }
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Material")
            .field("roots", &self.roots)
            .field("has_system_roots", &self.has_system_roots)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

fn other(error: Error) -> TlsFailure {
    TlsFailure::Other(explain::error(&error))
}
