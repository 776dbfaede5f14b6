//! The connection to the servers.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use tokio::time::{interval, timeout};
#[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
use zk_recipes::Sasl;
use zk_recipes::zk_session::{Tcp, Transport};
use zk_recipes::{Acl, Client, ConnectError, ErrorCode, OpError, SessionState};

use crate::exec::complain;
use crate::exit::Failure;
use crate::options::{Access, Connection};

/// How long the program waits at its end for the servers to confirm the end of the session.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// The same without a connection.
const SUSPENDED_CLOSE_MAX: Duration = Duration::from_millis(500);

/// The least time between two reads: people see no more changes than these, and a server that is
/// overloaded must not be asked at once again.
pub(crate) const PACE: Duration = Duration::from_millis(250);

/// The permission of all users to read a file.
const OTHERS: u32 = 0o004;

/// Connects to the servers, within the session timeout and this limit.
pub(crate) async fn connect(
    options: &Connection,
    limit: Option<Duration>,
) -> Result<Client, Failure> {
    let timeout = options.session_timeout;
    let within = limit.map_or(timeout, |limit| whole_millis(limit).min(timeout));
    let mut builder = Client::builder(&*options.connect)
        .session_timeout(timeout)
        .connect_within(within)
        // A full pipe behind standard error must not cost the session.
        .dedicated_thread();
    let mut has_identity = false;
    if let Some(file) = &options.digest_file {
        has_identity = true;
        builder = builder.auth("digest", secret("--digest-file", file)?);
    }
    #[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
    if let Some(sasl) = sasl(options)? {
        has_identity = true;
        builder = builder.sasl(sasl);
    }
    let acl = options.acl.unwrap_or(if has_identity { Access::Creator } else { Access::Open });
    builder = builder.default_acl(match acl {
        Access::Creator => Acl::creator_all(),
        Access::Open => Acl::open(),
    });
    #[cfg(feature = "tls")]
    if let Some(tls) = tls(options)? {
        builder = builder.transport(tls);
    }
    builder.connect().await.map_err(|error| {
        let failure = explained(&error, error == ConnectError::AuthFailed);
        let message = format!("cannot connect to {}: {}", options.connect, failure.message);
        Failure { message, ..failure }
    })
}

/// Returns an error as a failure of the program. Refused credentials are those of its options.
pub(crate) fn explained(error: &dyn Display, is_refused: bool) -> Failure {
    Failure::own(if is_refused {
        "a server refused the credentials of the client; check the options --digest-file and \
         --sasl-file, or use one of them"
            .to_owned()
    } else {
        in_options(error.to_string())
    })
}

/// Returns how to open connections to the servers: with TCP, or with TLS if the options say so.
pub(crate) fn transport(options: &Connection) -> Result<Box<dyn Transport>, Failure> {
    #[cfg(feature = "tls")]
    if let Some(tls) = tls(options)? {
        return Ok(Box::new(tls));
    }
    // Without the feature, no option can ask for TLS.
    let _ = options;
    Ok(Box::new(Tcp::new()))
}

#[cfg(feature = "tls")]
fn tls(options: &Connection) -> Result<Option<zk_recipes::Tls>, Failure> {
    let Some(ca) = &options.tls_ca else { return Ok(None) };
    let mut tls = zk_recipes::Tls::builder().ca_file(ca);
    if let (Some(certificate), Some(key)) = (&options.tls_cert, &options.tls_key) {
        tls = tls.client_files(certificate, key);
    }
    if let Some(crl) = &options.tls_crl {
        tls = tls.crl_file(crl);
    }
    tls.build().map(Some).map_err(|error| Failure::own(in_options(error.to_string())))
}

/// Returns a message of the library in terms of the command line: the library tells programs which
/// method to call.
pub(crate) fn in_options(message: String) -> String {
    const TERMS: [(&str, &str); 9] = [
        ("set `ca_file` or `ca_pem`", "add it to the file of --tls-ca"),
        ("set `client_files` or `client_pem`", "set --tls-cert and --tls-key"),
        ("; set `server_name`", "; use another name of the server in --connect"),
        (", or set `server_name`", ""),
        (
            "set `crl_file` for the CRL of each CA that issued one of them, or set \
             `crl_for_servers_only` or `allow_unknown_revocation`",
            "add the CRL of each CA that issued one of them to the file of --tls-crl",
        ),
        (", or set `allow_expired_crls`", ""),
        (", or choose another `crypto_provider`", ""),
        ("the next attempt reads both again", "try again when both are there"),
        ("check its `auth` and `sasl`", "check --digest-file and --sasl-file"),
    ];
    TERMS.iter().fold(message, |message, (term, option)| message.replace(term, option))
}

/// Returns how to authenticate with SASL, if the options ask for it.
#[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
fn sasl(options: &Connection) -> Result<Option<Sasl>, Failure> {
    #[cfg(feature = "sasl-digest-md5")]
    if let Some(file) = &options.sasl_file {
        let secret = secret("--sasl-file", file)?;
        return Ok(secret.split_once(':').map(|(name, word)| Sasl::digest_md5(name, word)));
    }
    #[cfg(feature = "sasl-gssapi")]
    if options.kerberos.sasl_gssapi {
        let mut gssapi = zk_recipes::Gssapi::new();
        if let Some(principal) = &options.kerberos.sasl_principal {
            gssapi = gssapi.client_principal(principal);
        }
        if let Some(principal) = &options.kerberos.sasl_server_principal {
            gssapi = gssapi.server_principal(principal);
        }
        return Ok(Some(gssapi.into()));
    }
    Ok(None)
}

/// Rounds up to milliseconds. The error of a connection that takes too long shows this time, and what
/// is left of a limit has nine digits.
fn whole_millis(limit: Duration) -> Duration {
    let millis = limit.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// Returns whether a read that fails with this error may succeed when it is repeated, which needs a pause.
pub(crate) fn passes(error: &OpError) -> bool {
    error.is_connection_loss()
        || matches!(error, OpError::SessionExpired { .. })
        || error.server_code() == Some(ErrorCode::THROTTLED_OP)
}

/// Repeats a read while connections are lost or servers are overloaded, for at most the session timeout.
/// A read has no effect that a repetition could double.
pub(crate) async fn settled<T, F: Future<Output = Result<T, OpError>>>(
    client: &Client,
    read: impl Fn() -> F,
) -> Result<T, Failure> {
    let patience = client.status().timeout;
    let mut pace = interval(PACE);
    let reading = async {
        loop {
            pace.tick().await;
            match read().await {
                Err(error) if passes(&error) => {}
                other => return other,
            }
        }
    };
    match timeout(patience, reading).await {
        Ok(read) => read.map_err(|error| explained(&error, error == OpError::AuthFailed)),
        Err(_) => Err(Failure::own(format!("no server has answered within {patience:?}"))),
    }
}

/// Ends the session, so that everything that it holds is free at once.
pub(crate) async fn close(client: &Client) {
    let is_connected = client.state() == SessionState::Connected;
    // Without a server, the session ends when it expires.
    client.close_within(if is_connected { CLOSE_MAX } else { SUSPENDED_CLOSE_MAX }).await;
}

/// Reads the one line of a file, of the form `user:password`, without its end.
fn secret(option: &str, file: &Path) -> Result<String, Failure> {
    let wrong = |what: &dyn Display| Failure::own(format!("{option} {}: {what}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| wrong(&error))?;
    let mode = fs::metadata(file).map(|it| it.permissions().mode()).unwrap_or_default();
    if mode & OTHERS != 0 {
        let (file, mode) = (file.display(), mode & 0o777);
        complain(&format!("warning: {option} {file}: its mode, {mode:o}, lets every user read it"));
    }
    let line = text.trim_end_matches(['\n', '\r']);
    if line.contains('\n') || !line.contains(':') {
        return Err(wrong(&"it must have one line, of the form user:password"));
    }
    Ok(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_options_and_no_methods() {
        let message = |text: &str| in_options(text.to_owned());
        assert_eq!(
            message("not trusted; set `ca_file` or `ca_pem`"),
            "not trusted; add it to the file of --tls-ca"
        );
        assert_eq!(message("in the connect string, or set `server_name`"), "in the connect string");
        assert_eq!(message("nothing of the library"), "nothing of the library");
    }

    #[test]
    fn what_is_left_of_a_limit_is_shown_without_its_nanoseconds() {
        assert_eq!(whole_millis(Duration::from_nanos(1_999_999_329)), Duration::from_secs(2));
        assert_eq!(whole_millis(Duration::from_millis(1_500)), Duration::from_millis(1_500));
    }
}
