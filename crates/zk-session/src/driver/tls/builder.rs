//! The options of TLS connections.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::ServerName;

use super::Tls;
use super::material::Material;
use super::settings::{Origin, Settings};
use super::source::Source;
use crate::driver::transport::{Tcp, Transport};
use crate::error::TlsFailure;

/// Configures [`Tls`]. Created by [`Tls::builder`].
#[must_use = "a builder does nothing until `build`"]
pub struct TlsBuilder {
    material: Material,
    server_name: Option<String>,
    provider: Option<Arc<CryptoProvider>>,
    config: Option<Arc<ClientConfig>>,
    over: Option<Arc<dyn Transport>>,
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
            material: Material::default(),
            server_name: None,
            provider: None,
            config: None,
            over: None,
        }
    }

    /// Trusts the CA certificates of this PEM file. May be called several times.
    ///
    /// Without any CA, the client trusts those of the system. With one, it trusts no others, unless
    /// [`system_roots`](Self::system_roots) adds them.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.material.roots.push(Source::File(path.into()));
        self
    }

    /// Trusts these CA certificates, in PEM. See [`ca_file`](Self::ca_file).
    pub fn ca_pem(mut self, pem: impl Into<Bytes>) -> Self {
        self.material.roots.push(Source::Memory { from: "ca_pem", data: pem.into() });
        self
    }

    /// Trusts the CAs of the system in addition to those given. The environment variables
    /// `SSL_CERT_FILE` and `SSL_CERT_DIR` replace them.
    pub fn system_roots(mut self) -> Self {
        self.material.has_system_roots = true;
        self
    }

    /// Presents the certificate chain of one PEM file, with the private key of another; both may be
    /// the same file. The key must not be encrypted.
    pub fn client_files(
        mut self,
        certificates: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.material.client = Some((Source::File(certificates.into()), Source::File(key.into())));
        self
    }

    /// Presents this certificate chain with this private key, both in PEM. The key must not be
    /// encrypted.
    pub fn client_pem(mut self, certificates: impl Into<Bytes>, key: impl Into<Bytes>) -> Self {
        const FROM: &str = "client_pem";
        let certificates = Source::Memory { from: FROM, data: certificates.into() };
        self.material.client =
            Some((certificates, Source::Memory { from: FROM, data: key.into() }));
        self
    }

    /// Refuses servers whose certificates this certificate revocation list (CRL) revokes. The file has
    /// one list in DER, or any number in PEM. May be called several times, and needs a CA.
    ///
    /// Whether a certificate was revoked must be known of the server's and of all CAs above it except
    /// for the trusted one, so each CA needs a list that has not expired:
    /// [`crl_for_servers_only`](Self::crl_for_servers_only),
    /// [`allow_unknown_revocation`](Self::allow_unknown_revocation) and
    /// [`allow_expired_crls`](Self::allow_expired_crls) relax this. Without any list, nothing is
    /// checked. If there are several lists of a CA, the newest one counts; lists of differences (delta
    /// CRLs) and of other issuers (indirect CRLs) are not supported.
    ///
    /// A list is needed only while a connection is opened: an open one outlives a revocation.
    pub fn crl_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.material.revocation.lists.push(Source::File(path.into()));
        self
    }

    /// The same as [`crl_file`](Self::crl_file), with the contents of the file. Replace a list before
    /// it expires with [`Tls::replace`].
    pub fn crl(mut self, list: impl Into<Bytes>) -> Self {
        self.material.revocation.lists.push(Source::Memory { from: "crl", data: list.into() });
        self
    }

    /// Checks only whether the certificate of the server was revoked, and not those of the CAs above
    /// it, for which no list is then needed.
    pub fn crl_for_servers_only(mut self) -> Self {
        self.material.revocation.is_for_servers_only = true;
        self
    }

    /// Accepts certificates of CAs that have no list. Default: such a certificate is refused with
    /// [`TlsFailure::RevocationUnknown`], because a list that is missing may have revoked it.
    pub fn allow_unknown_revocation(mut self) -> Self {
        self.material.revocation.may_be_unknown = true;
        self
    }

    /// Goes on with lists that have expired. Default: no connection is opened then, because it is
    /// unknown what was revoked since.
    pub fn allow_expired_crls(mut self) -> Self {
        self.material.revocation.may_be_expired = true;
        self
    }

    /// Uses this configuration of rustls, such as one with a verifier, a key in hardware, or a crypto
    /// provider of the program. It has to be that of rustls 0.23, which this crate exports as
    /// [`rustls`](crate::rustls).
    ///
    /// It replaces everything but [`server_name`](Self::server_name) and [`over`](Self::over);
    /// [`build`](Self::build) fails if another option is set. So only its verifier
    /// checks servers, and nothing is read from files.
    ///
    /// Handshakes then run on threads of their own, at most four at a time, because a verifier or a
    /// key may block. One that takes longer than an attempt to connect fails with
    /// [`TlsFailure::TimedOut`]; its thread goes on, and the program does not wait for it at its end.
    ///
    /// If the configuration resumes TLS sessions, which is rustls' default, a resumed connection does
    /// not verify the server again, so it also ignores revocations since. Set
    /// [`resumption`](tokio_rustls::rustls::ClientConfig::resumption) to
    /// `Resumption::disabled()` if that matters.
    ///
    /// ```
    /// # #[cfg(feature = "tls-ring")] {
    /// use std::sync::Arc;
    /// use zk_session::{Tls, rustls};
    ///
    /// let provider = Arc::new(rustls::crypto::ring::default_provider());
    /// let config = rustls::ClientConfig::builder_with_provider(provider)
    ///     .with_protocol_versions(&[&rustls::version::TLS13])?
    ///     .with_root_certificates(rustls::RootCertStore::empty())
    ///     .with_no_client_auth();
    /// let tls = Tls::builder().client_config(config).build()?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn client_config(mut self, config: impl Into<Arc<ClientConfig>>) -> Self {
        self.config = Some(config.into());
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
        self.over = Some(Arc::new(transport));
        self
    }

    /// Reads all files once, to find mistakes before the client starts.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read or has no usable certificate, key or list, if a list has
    /// expired, if no CA is trusted, if the server name is invalid, if there is no crypto provider, or
    /// if options contradict each other.
    pub fn build(self) -> Result<Tls, TlsFailure> {
        self.settings(&(Arc::new(Tcp::new()) as Arc<dyn Transport>)).map(Tls::new)
    }

    /// Returns the settings, which use the default transport unless one was set.
    pub(super) fn settings(self, default: &Arc<dyn Transport>) -> Result<Settings, TlsFailure> {
        let Self { mut material, server_name, provider, config, over } = self;
        let server_name = match server_name {
            Some(name) => match ServerName::try_from(name.clone()) {
                Ok(name) => Some(name),
                Err(_) => return Err(TlsFailure::ServerName(name)),
            },
            None => None,
        };
        let origin = if let Some(config) = config {
            if let Some(option) = replaced(&material, provider.is_some()) {
                return Err(TlsFailure::Options(format!(
                    "`client_config` replaces `{option}`; set it in the configuration instead"
                )));
            }
            Origin::Program(config)
        } else {
            if material.revocation.lists.is_empty() && material.revocation.is_relaxed() {
                return Err(TlsFailure::Options(
                    "without a CRL, no revocation is checked, so there is nothing to relax; set \
                     `crl_file` or `crl`"
                        .to_owned(),
                ));
            }
            let provider = match provider {
                Some(provider) => provider,
                None => default_provider()?,
            };
            material.has_system_roots |= material.roots.is_empty();
            material.load(&provider)?;
            Origin::Material(Arc::new(material), provider)
        };
        let over = over.unwrap_or_else(|| Arc::clone(default));
        Ok(Settings { origin, server_name, over })
    }
}

/// Shows names of files, but no PEM data.
impl fmt::Debug for TlsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsBuilder")
            .field("material", &self.material)
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

/// Returns the name of an option that a configuration of the program replaces.
fn replaced(material: &Material, has_provider: bool) -> Option<&'static str> {
    let Material { roots, has_system_roots, client, revocation } = material;
    let options = [
        (!roots.is_empty(), "ca_file` or `ca_pem"),
        (*has_system_roots, "system_roots"),
        (client.is_some(), "client_files` or `client_pem"),
        (!revocation.lists.is_empty() || revocation.is_relaxed(), "crl_file` or `crl"),
        (has_provider, "crypto_provider"),
    ];
    options.into_iter().find_map(|(is_set, name)| is_set.then_some(name))
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
