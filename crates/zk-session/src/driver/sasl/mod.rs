//! SASL mechanisms, and how the task of a session runs them.

#[cfg(feature = "sasl-digest-md5")]
mod digest_md5;
#[cfg(feature = "sasl-digest-md5")]
mod directives;
#[cfg(feature = "sasl-gssapi")]
mod gssapi;
mod mechanism;
#[cfg(feature = "sasl-gssapi")]
mod ticket_cache;

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use jute_codec::SaslToken;
use tokio::time::timeout;

#[cfg(feature = "sasl-gssapi")]
pub use self::gssapi::Gssapi;
use self::mechanism::{Exchange, Mechanism};
use super::blocking::Threads;
use super::transport::MARGIN;
use crate::error::{OptionDefect, SaslFailure};
use crate::host::Host;
use crate::machine::{Attempt, SaslInput, SaslStep};

/// Threads that may wait for a KDC at a time. The Kerberos library waits half a minute for a reply
/// that was lost, even if the KDC replies to others meanwhile, so each attempt needs another thread.
const THREADS_MAX: usize = 8;

/// How a client authenticates with SASL. Set with [`ClientBuilder::sasl`](crate::ClientBuilder::sasl).
///
/// The client authenticates on each connection, before it sends anything else. If that fails, it
/// sends no request on that connection.
#[derive(Clone)]
#[cfg_attr(
    not(any(feature = "sasl-digest-md5", feature = "sasl-gssapi")),
    expect(unreachable_pub, reason = "it is public if there is a mechanism")
)]
pub struct Sasl {
    mechanism: Arc<dyn Mechanism>,
    threads: Threads,
}

impl Sasl {
    /// Authenticates with DIGEST-MD5: the server stores the password, and the password itself is
    /// never sent. The server proves that it knows the password too.
    ///
    /// DIGEST-MD5 is old and weak: an observer of a connection without TLS can guess passwords
    /// offline, and servers in FIPS mode refuse it. Use it over TLS, with a random password.
    #[cfg(feature = "sasl-digest-md5")]
    pub fn digest_md5(name: impl Into<String>, password: impl Into<String>) -> Self {
        Self::new(digest_md5::DigestMd5::new(name.into(), password.into()))
    }

    #[cfg_attr(
        not(any(feature = "sasl-digest-md5", feature = "sasl-gssapi")),
        expect(dead_code, reason = "there is no mechanism")
    )]
    fn new(mechanism: impl Mechanism + 'static) -> Self {
        Self { mechanism: Arc::new(mechanism), threads: Threads::new(THREADS_MAX) }
    }

    /// Returns why the options are invalid, or `None`.
    pub(crate) fn defect(&self) -> Option<OptionDefect> {
        self.mechanism.defect()
    }

    /// Prepares the first message for a server. This precedes the connection, because it may wait
    /// for a KDC, and the messages of an exchange do not keep the session alive.
    pub(super) async fn prepare(self, host: Host, attempt: Attempt) -> io::Result<Prepared> {
        let time = attempt.time().saturating_sub(MARGIN);
        match timeout(time, self.begin(host)).await {
            Ok(begun) => begun,
            Err(_) => Err(failed(SaslFailure::TimedOut(attempt.time()))),
        }
    }

    async fn begin(self, host: Host) -> io::Result<Prepared> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        let mechanism = Arc::clone(&self.mechanism);
        let begin = move || mechanism.begin(&host, random);
        let begun =
            if self.mechanism.blocks() { self.threads.detached(begin).await? } else { begin() };
        let (exchange, first) = begun.map_err(failed)?;
        Ok(Prepared { sasl: self, exchange: Some(exchange), first })
    }
}

impl fmt::Debug for Sasl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sasl").field("mechanism", &self.mechanism).finish_non_exhaustive()
    }
}

/// An exchange whose first message is ready.
pub(super) struct Prepared {
    sasl: Sasl,
    /// The exchange, unless a step is running.
    exchange: Option<Box<dyn Exchange>>,
    first: Bytes,
}

impl Prepared {
    /// Returns the next step.
    pub(super) fn next(mut self, input: SaslInput) -> Stepping {
        Box::pin(async move {
            let reply = match input {
                SaslInput::Start => {
                    let first = SaslToken(Some(std::mem::take(&mut self.first)));
                    return (self, Ok(SaslStep::Send(first)));
                }
                SaslInput::Reply(SaslToken(reply)) => reply,
            };
            let Some(mut exchange) = self.exchange.take() else {
                return (self, Err(SaslFailure::Challenge("it was not expected")));
            };
            let run = move || {
                let step = exchange.step(reply);
                (exchange, step)
            };
            if !self.sasl.mechanism.blocks() {
                let (exchange, step) = run();
                self.exchange = Some(exchange);
                return (self, step);
            }
            let step = match self.sasl.threads.detached(run).await {
                Ok((exchange, step)) => {
                    self.exchange = Some(exchange);
                    step
                }
                Err(_) => Err(SaslFailure::Gssapi("its thread has ended".to_owned())),
            };
            (self, step)
        })
    }
}

/// A step that is running.
pub(super) type Stepping =
    Pin<Box<dyn Future<Output = (Prepared, Result<SaslStep, SaslFailure>)> + Send>>;

fn failed(failure: SaslFailure) -> io::Error {
    io::Error::other(failure)
}
