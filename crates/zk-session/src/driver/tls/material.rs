//! Certificates, keys and revocation lists, and the rustls configuration made from them.

use std::sync::Arc;

use tokio_rustls::rustls::client::{Resumption, VerifierBuilderError, WebPkiServerVerifier};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::UnixTime;
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore};

use super::crl::{self, Dated};
use super::explain;
use super::source::{CA, CLIENT_CERTIFICATE, CLIENT_KEY, CRL, Source};
use crate::error::TlsFailure;

/// Everything that a TLS connection needs, except for the name of the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Material {
    pub(super) roots: Vec<Source>,
    pub(super) has_system_roots: bool,
    pub(super) client: Option<(Source, Source)>,
    pub(super) revocation: Revocation,
}

/// Which revocation lists there are, and what is accepted without one.
#[derive(Clone, Debug, Default)]
pub(super) struct Revocation {
    pub(super) lists: Vec<Source>,
    pub(super) is_for_servers_only: bool,
    pub(super) may_be_unknown: bool,
    pub(super) may_be_expired: bool,
}

impl Material {
    /// Reads all files. Blocks.
    pub(super) fn load(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<ClientConfig>, TlsFailure> {
        let roots = Arc::new(self.load_roots()?);
        let verifier = self.revocation.verifier(&roots, provider)?;
        let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
            .with_safe_default_protocol_versions()
            .map_err(other)?
            .with_webpki_verifier(verifier);
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

impl Revocation {
    /// Returns whether an option is set that has no effect without a list.
    pub(super) fn is_relaxed(&self) -> bool {
        self.is_for_servers_only || self.may_be_unknown || self.may_be_expired
    }

    fn verifier(
        &self,
        roots: &Arc<RootCertStore>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<WebPkiServerVerifier>, TlsFailure> {
        let builder =
            || WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider));
        let mut lists = Vec::new();
        for source in &self.lists {
            let found = source.revocation_lists()?;
            // Alone, so that an error names the source.
            let parsed = builder().with_crls(found.iter().cloned()).build();
            parsed.map_err(|error| source.unusable(CRL, defect(&error)))?;
            for list in found {
                let list = Dated::new(list)
                    .ok_or_else(|| source.unusable(CRL, crl::MALFORMED.to_owned()))?;
                if !self.may_be_expired
                    && let Some(date) = list.expired_at(UnixTime::now())
                {
                    return Err(source.unusable(CRL, crl::expired(Some(date))));
                }
                lists.push(list);
            }
        }
        let mut builder = builder().with_crls(crl::newest_first(lists));
        if self.is_for_servers_only {
            builder = builder.only_check_end_entity_revocation();
        }
        if self.may_be_unknown {
            builder = builder.allow_unknown_revocation_status();
        }
        if !self.may_be_expired {
            builder = builder.enforce_revocation_expiration();
        }
        builder.build().map_err(|error| TlsFailure::Other(defect(&error)))
    }
}

fn defect(error: &VerifierBuilderError) -> String {
    match error {
        VerifierBuilderError::InvalidCrl(error) => explain::revocation_list(error),
        other @ (VerifierBuilderError::NoRootAnchors | _) => other.to_string(),
    }
}

fn other(error: Error) -> TlsFailure {
    TlsFailure::Other(explain::error(&error))
}
