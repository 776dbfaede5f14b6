//! TLS and mutual TLS: a transport around another transport.

mod aside;
mod builder;
mod connection;
mod crl;
mod explain;
mod material;
mod report;
mod settings;
mod source;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

pub use self::builder::TlsBuilder;
use self::connection::TlsConnection;
use self::report::io_error;
use self::settings::{Origin, Settings};
use super::blocking::Threads;
use super::transport::{Connecting, MARGIN, Stream, Transport};
use crate::error::TlsFailure;
use crate::host::Host;
use crate::machine::Attempt;

/// Threads that may read files at a time, and as many for handshakes, for all clones together.
const THREADS_MAX: usize = 4;

/// Opens TLS connections, by default over TCP.
///
/// The server must present a certificate that a trusted CA has issued for its name in the connect
/// string. No option disables this check. The protocol is TLS 1.3 or 1.2.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use zk_session::{Client, Tls};
///
/// let tls = Tls::builder()
///     .ca_file("/etc/zk/ca.pem")
///     .client_files("/etc/zk/client.pem", "/etc/zk/client.key")
///     .build()?;
/// let client = Client::builder("zk1.internal:2281,zk2.internal:2281")
///     .transport(tls)
///     .connect()
///     .await?;
/// # Ok(()) }
/// ```
///
/// # Rotation
///
/// Each attempt to connect reads all files again, so a replaced certificate is used from the next
/// connection on. A connection that is open keeps the certificates with which it was opened.
///
/// If a file cannot be used at that time, the attempt fails with a [`TlsFailure`] that names the
/// file, and the client tries again after its usual pause. It never falls back to the previous
/// contents: they may have been replaced because the key was stolen, and a client that works with
/// them would hide the mistake until they expire.
///
/// What is in memory is replaced with [`Tls::replace`].
///
/// # Failures
///
/// Nothing about TLS is final: the client keeps trying, because certificates can be replaced while
/// it runs. [`ConnectError::TimedOut`](crate::ConnectError::TimedOut) and
/// [`Client::last_failure`](crate::Client::last_failure) contain the reason as
/// [`FailureCause::Tls`](crate::FailureCause::Tls).
#[derive(Clone)]
pub struct Tls {
    /// All clones have the same settings.
    settings: Arc<RwLock<Arc<Settings>>>,
    files: Threads,
    handshakes: Threads,
}

impl Tls {
    fn new(settings: Settings) -> Self {
        Self {
            settings: Arc::new(RwLock::new(Arc::new(settings))),
            files: Threads::new(THREADS_MAX),
            handshakes: Threads::new(THREADS_MAX),
        }
    }

    /// Replaces all options, even for the clones that clients have, as if they had been built with
    /// this builder. Only the transport below stays unless the builder has set
    /// [`over`](TlsBuilder::over).
    ///
    /// The next connection uses the new options. One that is open stays open with those with which it
    /// was opened, and one that is being opened goes on with those with which it began.
    ///
    /// Like [`TlsBuilder::build`], this reads all files of the builder, and so may block.
    ///
    /// ```no_run
    /// # fn example(tls: zk_session::Tls, ca: Vec<u8>, chain: Vec<u8>, key: Vec<u8>)
    /// #     -> Result<(), Box<dyn std::error::Error>> {
    /// use zk_session::Tls;
    ///
    /// tls.replace(Tls::builder().ca_pem(ca).client_pem(chain, key))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`TlsBuilder::build`] does. The options are then those from before.
    pub fn replace(&self, with: TlsBuilder) -> Result<(), TlsFailure> {
        let settings = with.settings(&self.settings().over)?;
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        Ok(())
    }

    fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Transport for Tls {
    fn connect(&self, host: Host, attempt: Attempt) -> Connecting {
        let begun = Instant::now();
        let (settings, this) = (self.settings(), self.clone());
        Box::pin(async move {
            let name = settings.name_of(&host).map_err(io_error)?;
            let config = match &settings.origin {
                Origin::Program(config) => Arc::clone(config),
                Origin::Material(material, provider) => {
                    let (material, provider) = (Arc::clone(material), Arc::clone(provider));
                    // A network file system may block.
                    let loading = this.files.pooled(move || material.load(&provider));
                    let time = attempt.time().saturating_sub(MARGIN);
                    match timeout(time, loading).await {
                        Ok(loaded) => loaded?.map_err(io_error)?,
                        Err(_) => return Err(io_error(not_read(attempt.time()))),
                    }
                }
            };
            let presents = config.client_auth_cert_resolver.has_certs();
            let stream = settings.over.connect(host, attempt).await?;
            let time = attempt.time().saturating_sub(begun.elapsed() + MARGIN);
            let handshake = TlsConnector::from(config).connect(name, stream);
            let handshake = async {
                match settings.origin {
                    Origin::Program(_) => aside::run(&this.handshakes, handshake).await?,
                    Origin::Material(..) => handshake.await,
                }
            };
            match timeout(time, handshake).await {
                Ok(Ok(stream)) => {
                    Ok(Box::new(TlsConnection::new(stream, presents)) as Box<dyn Stream>)
                }
                Ok(Err(error)) => Err(report::handshake_error(error, presents)),
                Err(_) => Err(io_error(TlsFailure::TimedOut(attempt.time()))),
            }
        })
    }

    fn has_identity(&self) -> bool {
        self.settings().has_client_certificate()
    }

    fn uses_secure_port(&self) -> bool {
        true
    }
}

fn not_read(within: Duration) -> TlsFailure {
    TlsFailure::Other(format!(
        "the certificates could not be read within {within:?}; check their file system"
    ))
}

/// Shows names of files, but no PEM data.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("settings", &self.settings()).finish_non_exhaustive()
    }
}
