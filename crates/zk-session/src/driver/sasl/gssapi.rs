//! GSSAPI (RFC 4752) with Kerberos, through the system's library.
//!
//! The library reports details of an error per thread, so errors are formatted where they occur.

use std::env;
use std::fmt;
use std::fs::File;

use bytes::Bytes;
use jute_codec::SaslToken;
use libgssapi::context::{ClientCtx, CtxFlags, SecurityContext as _};
use libgssapi::credential::{Cred, CredUsage};
use libgssapi::error::Error;
use libgssapi::name::Name;
use libgssapi::oid::{GSS_MECH_KRB5, GSS_NT_HOSTBASED_SERVICE, GSS_NT_KRB5_PRINCIPAL, OidSet};

use super::Sasl;
use super::mechanism::{Exchange, Mechanism};
use super::ticket_cache;
use crate::error::{OptionDefect, SaslFailure};
use crate::host::Host;
use crate::machine::SaslStep;

const NAME: &str = "GSSAPI";
/// Every GSSAPI message of the first rounds begins with this tag.
const GSS_TAG: u8 = 0x60;
/// The security layer "none", in offers and choices.
const NO_LAYER: u8 = 1;
/// The choice of the client: no layer, and no limit, since nothing is wrapped.
const CHOICE: [u8; 4] = [NO_LAYER, 0, 0, 0];

/// Authenticates with Kerberos (SASL mechanism GSSAPI).
///
/// The credentials are those of the system's Kerberos library, which reads `krb5.conf`:
///
/// - a ticket cache: the default one, or the one in the environment variable `KRB5CCNAME`;
/// - or a keytab for clients in the variable `KRB5_CLIENT_KTNAME`, from which the library gets
///   tickets, and new ones before they expire. With `KRB5CCNAME=MEMORY:`, no file is written.
///
/// The client gets credentials anew for each connection, so renewed tickets are used without a
/// restart. A connection that is open outlives the ticket with which it was opened.
///
/// The client requires mutual authentication: the server proves its identity too. The quality of
/// protection is `auth`, the only one that ZooKeeper has; use TLS for encryption. The client never
/// delegates its credentials to the server, even if its ticket is forwardable.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use zk_session::{Client, Gssapi};
///
/// let client = Client::builder("zk1.example.com,zk2.example.com")
///     .sasl(Gssapi::new().client_principal("app/host1@EXAMPLE.COM"))
///     .connect()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Gssapi {
    service: String,
    client: Option<String>,
    server: Option<String>,
    has_exact_host: bool,
}

impl Gssapi {
    /// Creates the default options: the default credentials, and servers with the principal
    /// `zookeeper/<host>`.
    pub fn new() -> Self {
        Self { service: "zookeeper".to_owned(), client: None, server: None, has_exact_host: false }
    }

    /// Uses the credentials of this principal, such as `alice@EXAMPLE.COM`, instead of the default
    /// ones. Needed if a cache or keytab has several.
    #[must_use]
    pub fn client_principal(mut self, principal: impl Into<String>) -> Self {
        self.client = Some(principal.into());
        self
    }

    /// Sets the first part of the principals of servers. Default: `zookeeper`.
    #[must_use]
    pub fn service_name(mut self, name: impl Into<String>) -> Self {
        self.service = name.into();
        self
    }

    /// Expects every server to have this principal, such as `zookeeper/zk.example.com@EXAMPLE.COM`.
    #[must_use]
    pub fn server_principal(mut self, principal: impl Into<String>) -> Self {
        self.server = Some(principal.into());
        self
    }

    /// Uses host names exactly as they are in the connect string, in the default realm.
    ///
    /// By default, the Kerberos library makes a name canonical first: `dns_canonicalize_hostname`
    /// and `rdns` in `krb5.conf` say how, and `domain_realm` maps it to a realm.
    #[must_use]
    pub fn exact_host(mut self) -> Self {
        self.has_exact_host = true;
        self
    }

    fn target(&self, host: &Host) -> Result<Name, Error> {
        let Self { service, server, has_exact_host, .. } = self;
        let (name, kind) = match server {
            Some(principal) => (principal.clone(), GSS_NT_KRB5_PRINCIPAL),
            None if *has_exact_host => (format!("{service}/{}", host.name), GSS_NT_KRB5_PRINCIPAL),
            None => (format!("{service}@{}", host.name), GSS_NT_HOSTBASED_SERVICE),
        };
        Name::new(name.as_bytes(), Some(kind))
    }

    fn credentials(&self) -> Result<Cred, Error> {
        let principal = match &self.client {
            Some(name) => Some(Name::new(name.as_bytes(), Some(GSS_NT_KRB5_PRINCIPAL))?),
            None => None,
        };
        let mechanisms = OidSet::singleton(GSS_MECH_KRB5)?;
        Cred::acquire(principal.as_ref(), None, CredUsage::Initiate, Some(&mechanisms))
    }
}

impl Default for Gssapi {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Gssapi> for Sasl {
    fn from(options: Gssapi) -> Self {
        Self::new(options)
    }
}

impl Mechanism for Gssapi {
    fn defect(&self) -> Option<OptionDefect> {
        let given = [Some(&self.service), self.client.as_ref(), self.server.as_ref()];
        given.into_iter().flatten().any(String::is_empty).then_some(OptionDefect::Empty)
    }

    fn blocks(&self) -> bool {
        true
    }

    fn begin(&self, host: &Host, _: [u8; 16]) -> Result<(Box<dyn Exchange>, Bytes), SaslFailure> {
        if let Some(defect) = ticket_cache::defect() {
            return Err(SaslFailure::Credentials(defect));
        }
        let credentials =
            self.credentials().map_err(|error| SaslFailure::Credentials(unavailable(&error)))?;
        let target = self.target(host).map_err(failed)?;
        // Without DELEG, the ticket is not delegated.
        let flags = CtxFlags::GSS_C_MUTUAL_FLAG
            | CtxFlags::GSS_C_INTEG_FLAG
            | CtxFlags::GSS_C_SEQUENCE_FLAG
            | CtxFlags::GSS_C_REPLAY_FLAG;
        let mut context = ClientCtx::new(Some(credentials), target, flags, Some(GSS_MECH_KRB5));
        let first = token(context.step(None, None).map_err(failed)?);
        Ok((Box::new(GssExchange { context, stage: Stage::First }), first))
    }
}

/// What the client waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// The reply to the first message.
    First,
    /// Another message of the context.
    Context,
    /// The server's offer of security layers.
    Offer,
    /// The null token that ends the exchange.
    End,
}

struct GssExchange {
    context: ClientCtx,
    stage: Stage,
}

impl fmt::Debug for GssExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GssExchange").field("stage", &self.stage).finish_non_exhaustive()
    }
}

impl Exchange for GssExchange {
    fn step(&mut self, reply: Option<Bytes>) -> Result<SaslStep, SaslFailure> {
        match (self.stage, reply) {
            (Stage::First, None) => Err(SaslFailure::NotOffered),
            (Stage::First, Some(reply)) if reply.first() != Some(&GSS_TAG) => {
                Err(SaslFailure::OtherMechanism(NAME))
            }
            (Stage::First | Stage::Context, Some(reply)) => self.continue_context(&reply),
            (Stage::Offer, Some(offer)) => self.choose(&offer),
            (Stage::End, None) => Ok(SaslStep::Done),
            (Stage::Context | Stage::Offer, None) => {
                Err(SaslFailure::Challenge("the server ended the exchange too early"))
            }
            (Stage::End, Some(_)) => {
                Err(SaslFailure::Challenge("the server did not end the exchange"))
            }
        }
    }
}

impl GssExchange {
    fn continue_context(&mut self, reply: &[u8]) -> Result<SaslStep, SaslFailure> {
        let next = self.context.step(Some(reply), None).map_err(failed)?;
        self.stage = Stage::Context;
        if self.context.is_complete() {
            let needed = CtxFlags::GSS_C_MUTUAL_FLAG | CtxFlags::GSS_C_INTEG_FLAG;
            if !self.context.flags().map_err(failed)?.contains(needed) {
                return Err(SaslFailure::NotMutual);
            }
            self.stage = Stage::Offer;
        }
        // An empty message asks for the offer.
        Ok(SaslStep::Send(SaslToken(Some(token(next)))))
    }

    fn choose(&mut self, offer: &[u8]) -> Result<SaslStep, SaslFailure> {
        let offer = self.context.unwrap(offer).map_err(failed)?;
        let [layers, _, _, _] = *offer else {
            return Err(SaslFailure::Challenge("the offer of layers has not four bytes"));
        };
        if layers & NO_LAYER == 0 {
            return Err(SaslFailure::NoAcceptableLayer);
        }
        let choice = self.context.wrap(false, &CHOICE).map_err(failed)?;
        self.stage = Stage::End;
        Ok(SaslStep::Send(SaslToken(Some(token(Some(choice))))))
    }
}

fn token(buffer: Option<libgssapi::util::Buf>) -> Bytes {
    buffer.map(|buffer| Bytes::copy_from_slice(&buffer)).unwrap_or_default()
}

/// Describes an error about credentials. The library's own text names the cache but not the keytab.
fn unavailable(error: &Error) -> String {
    const VARIABLE: &str = "KRB5_CLIENT_KTNAME";
    let error = described(error);
    let Some(keytab) = env::var_os(VARIABLE) else {
        return format!("{error}; {VARIABLE} is not set");
    };
    let keytab = keytab.to_string_lossy();
    let path = keytab.strip_prefix("FILE:").unwrap_or(&keytab);
    match File::open(path) {
        Ok(_) => format!("{error}; {VARIABLE} is {keytab}"),
        Err(reason) => format!("{error}; {VARIABLE} is {keytab}: {reason}"),
    }
}

fn failed(error: Error) -> SaslFailure {
    SaslFailure::Gssapi(described(&error))
}

fn described(error: &Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
