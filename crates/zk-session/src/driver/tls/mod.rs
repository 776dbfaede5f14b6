//! TLS and mutual TLS: a transport around another transport.

mod builder;
mod connection;
mod explain;
mod material;
mod report;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

pub use self::builder::TlsBuilder;
use self::connection::TlsConnection;
use self::material::Material;
use self::report::io_error;
use super::blocking::Threads;
use super::transport::{Connecting, MARGIN, Stream, Transport};
use crate::error::TlsFailure;
use crate::host::Host;
use crate::machine::Attempt;

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
/// # Failures
///
/// Nothing about TLS is final: the client keeps trying, because certificates can be replaced while
/// it runs. [`ConnectError::TimedOut`](crate::ConnectError::TimedOut) and
/// [`Client::last_failure`](crate::Client::last_failure) contain the reason as
/// [`FailureCause::Tls`](crate::FailureCause::Tls).
#[derive(Clone)]
pub struct Tls {
    material: Arc<Material>,
    server_name: Option<ServerName<'static>>,
    over: Arc<dyn Transport>,
    threads: Threads,
}

impl Tls {
    /// Returns the name for which the certificate of a server must be valid.
    fn name_of(&self, host: &Host) -> Result<ServerName<'static>, TlsFailure> {
        match &self.server_name {
            Some(name) => Ok(name.clone()),
            None => ServerName::try_from(host.name.clone())
                .map_err(|_| TlsFailure::ServerName(host.name.clone())),
        }
    }
}

impl Transport for Tls {
    fn connect(&self, host: Host, attempt: Attempt) -> Connecting {
        let begun = Instant::now();
        let this = self.clone();
        Box::pin(async move {
            let name = this.name_of(&host).map_err(io_error)?;
            let material = Arc::clone(&this.material);
            // A network file system may block.
            let loading = this.threads.pooled(move || material.load());
            let time = attempt.time().saturating_sub(MARGIN);
            let config = match timeout(time, loading).await {
                Ok(loaded) => loaded?.map_err(io_error)?,
                Err(_) => return Err(io_error(not_read(attempt.time()))),
            };
            let stream = this.over.connect(host, attempt).await?;
            let time = attempt.time().saturating_sub(begun.elapsed() + MARGIN);
            let presents = this.material.has_client_certificate();
            let handshake = TlsConnector::from(config).connect(name, stream);
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
        self.material.has_client_certificate()
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
        f.debug_struct("Tls")
            .field("material", &self.material)
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}
