//! The options of TLS connections.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::ServerName;

use super::Tls;
use super::material::Material;
use super::source::Source;
use crate::driver::blocking::Threads;
use crate::driver::transport::{Tcp, Transport};
use crate::error::TlsFailure;

/// Threads that may read files at a time, for all clients that share the options.
const THREADS_MAX: usize = 4;

/// Configures [`Tls`]. Created by [`Tls::builder`].
#[must_use = "a builder does nothing until `build`"]
pub struct TlsBuilder {
    roots: Vec<Source>,
    has_system_roots: bool,
    client: Option<(Source, Source)>,
    server_name: Option<String>,
    provider: Option<Arc<CryptoProvider>>,
    over: Arc<dyn Transport>,
}

impl Tls {
    /// Sets the options of TLS connections.
    pub fn builder() -> TlsBuilder {
        TlsBuilder::new()
    }
}

impl TlsBuilder {
    fn new() -> Self {
        Self {
            roots: Vec::new(),
            has_system_roots: false,
            client: None,
            server_name: None,
            provider: None,
            over: Arc::new(Tcp::new()),
        }
    }

    /// Trusts the CA certificates of this PEM file. May be called several times.
    ///
    /// Without any CA, the client trusts those of the system. With one, it trusts no others, unless
    /// [`system_roots`](Self::system_roots) adds them.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.roots.push(Source::File(path.into()));
        self
    }

    /// Trusts these CA certificates, in PEM. See [`ca_file`](Self::ca_file).
    pub fn ca_pem(mut self, pem: impl Into<Bytes>) -> Self {
        self.roots.push(Source::Pem { from: "ca_pem", pem: pem.into() });
        self
    }

    /// Trusts the CAs of the system in addition to those given. The environment variables
    /// `SSL_CERT_FILE` and `SSL_CERT_DIR` replace them.
    pub fn system_roots(mut self) -> Self {
        self.has_system_roots = true;
        self
    }

    /// Presents the certificate chain of one PEM file, with the private key of another; both may be
    /// the same file. The key must not be encrypted.
    pub fn client_files(
        mut self,
        certificates: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.client = Some((Source::File(certificates.into()), Source::File(key.into())));
        self
    }

    /// Presents this certificate chain with this private key, both in PEM. The key must not be
    /// encrypted.
    pub fn client_pem(mut self, certificates: impl Into<Bytes>, key: impl Into<Bytes>) -> Self {
        const FROM: &str = "client_pem";
        let certificates = Source::Pem { from: FROM, pem: certificates.into() };
        self.client = Some((certificates, Source::Pem { from: FROM, pem: key.into() }));
        self
    }

    /// Sets the DNS name or IP address for which the certificate of every server must be valid.
    /// Default: the server's name in the connect string, even if DNS resolves it to another name.
    pub fn server_name(mut self, name: &str) -> Self {
        self.server_name = Some(name.to_owned());
        self
    }

    /// Sets the cryptography. Default: rustls' process default if the program has installed one,
    /// or else AWS-LC with the feature `tls-aws-lc`, or else ring with the feature `tls-ring`.
    pub fn crypto_provider(mut self, provider: Arc<CryptoProvider>) -> Self {
        self.provider = Some(provider);
        self
    }

    /// Opens TLS connections over this transport. Default: [`Tcp`].
    pub fn over(mut self, transport: impl Transport) -> Self {
        self.over = Arc::new(transport);
        self
    }

    /// Reads all files once, to find mistakes before the client starts.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read or has no usable certificate or key, if no CA is trusted, if
    /// the server name is invalid, or if there is no crypto provider.
    pub fn build(self) -> Result<Tls, TlsFailure> {
        let Self { roots, has_system_roots, client, server_name, provider, over } = self;
        let provider = match provider {
            Some(provider) => provider,
            None => default_provider()?,
        };
        let server_name = match server_name {
            Some(name) => match ServerName::try_from(name.clone()) {
                Ok(name) => Some(name),
                Err(_) => return Err(TlsFailure::ServerName(name)),
            },
            None => None,
        };
        let has_system_roots = has_system_roots || roots.is_empty();
        let material = Material::new(roots, has_system_roots, client, provider);
        material.load()?;
        Ok(Tls {
            material: Arc::new(material),
            server_name,
            over,
            threads: Threads::new(THREADS_MAX),
        })
    }
}

/// Shows names of files, but no PEM data.
impl fmt::Debug for TlsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsBuilder")
            .field("roots", &self.roots)
            .field("has_system_roots", &self.has_system_roots)
            .field("client", &self.client)
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

fn default_provider() -> Result<Arc<CryptoProvider>, TlsFailure> {
    if let Some(provider) = CryptoProvider::get_default() {
        return Ok(Arc::clone(provider));
    }
    compiled_provider().ok_or(TlsFailure::NoCryptoProvider)
}

#[cfg(feature = "tls-aws-lc")]
fn compiled_provider() -> Option<Arc<CryptoProvider>> {
    Some(Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider()))
}

#[cfg(all(feature = "tls-ring", not(feature = "tls-aws-lc")))]
fn compiled_provider() -> Option<Arc<CryptoProvider>> {
    Some(Arc::new(tokio_rustls::rustls::crypto::ring::default_provider()))
}

#[cfg(not(any(feature = "tls-ring", feature = "tls-aws-lc")))]
fn compiled_provider() -> Option<Arc<CryptoProvider>> {
    None
}
