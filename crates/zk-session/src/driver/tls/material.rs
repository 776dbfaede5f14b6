//! Certificates and keys, and the rustls configuration made from them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore};

use super::explain;
use crate::error::TlsFailure;

const CA: &str = "CA certificate";
const CLIENT_CERTIFICATE: &str = "client certificate";
const CLIENT_KEY: &str = "private key";
/// Maximum length of a file. One with all CAs that a system trusts is a tenth as long.
const FILE_MAX: u64 = 4 * 1024 * 1024;

/// Where PEM data is.
#[derive(Clone)]
pub(super) enum Source {
    File(PathBuf),
    Pem { from: &'static str, pem: Bytes },
}

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

impl Source {
    fn certificates(&self, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsFailure> {
        let pem = self.read(what)?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        match found {
            Ok(found) if found.is_empty() => {
                Err(self.unusable(what, "it has no block BEGIN CERTIFICATE".to_owned()))
            }
            Ok(found) => Ok(found),
            Err(error) => Err(self.unusable(what, described(&error))),
        }
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsFailure> {
        let pem = self.read(CLIENT_KEY)?;
        PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|error| self.unusable(CLIENT_KEY, described(&error)))
    }

    fn read(&self, what: &'static str) -> Result<Bytes, TlsFailure> {
        let path = match self {
            Self::Pem { pem, .. } => return Ok(pem.clone()),
            Self::File(path) => path,
        };
        let failed = |message| TlsFailure::File { what, path: path.clone(), message };
        let metadata = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
        // A pipe would block, and has nothing left for the next attempt.
        if !metadata.is_file() {
            return Err(failed("it is not a regular file".to_owned()));
        }
        if metadata.len() > FILE_MAX {
            return Err(failed(format!("it has more than {FILE_MAX} bytes")));
        }
        Ok(std::fs::read(path).map_err(|error| failed(error.to_string()))?.into())
    }

    fn unusable(&self, what: &'static str, defect: String) -> TlsFailure {
        let place = match self {
            Self::File(path) => format!("{path:?}"),
            Self::Pem { from, .. } => format!("the argument of `{from}`"),
        };
        TlsFailure::Pem { what, place, defect }
    }
}

/// Shows the name of a file, but no PEM data.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.fmt(f),
            Self::Pem { from, .. } => f.write_str(from),
        }
    }
}

/// Describes an error without the data. The library's own text contains lines of the file.
fn described(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a block has no END line",
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line is malformed",
        pem::Error::Base64Decode(_) => "a block is not base64",
        pem::Error::NoItemsFound => "it has no such block (an encrypted key is not supported)",
        pem::Error::Io(_) | pem::Error::SectionTooLarge | _ => {
            "it is not PEM; convert it, for example with `openssl x509` or `openssl pkcs8`"
        }
    }
    .to_owned()
}

fn other(error: Error) -> TlsFailure {
    TlsFailure::Other(explain::error(&error))
}
