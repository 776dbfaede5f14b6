//! Why a TLS connection could not be opened, or its options cannot be used.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// Why a TLS connection could not be opened, or why its options cannot be used.
///
/// No variant contains a part of a private key.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum TlsFailure {
    /// The server ended the handshake with this alert.
    #[error("the server ended the TLS handshake with the alert {alert}{}", hint(alert))]
    Alert {
        /// Name of the alert, as in RFC 8446.
        alert: String,
    },
    /// The certificate of the server cannot be verified for another reason.
    #[error("the server's certificate cannot be verified: {0}")]
    Certificate(String),
    /// The server refused the certificate of the client.
    #[error(
        "the server refused the client's certificate with the alert {alert}; check that it has not \
         expired, and that the server trusts the CA that issued it"
    )]
    ClientCertificateRefused {
        /// Name of the alert.
        alert: String,
    },
    /// The server requires a certificate, and the client has none.
    #[error(
        "the server requires a client certificate, and none is configured (alert {alert}); set \
         `client_files` or `client_pem`"
    )]
    ClientCertificateRequired {
        /// Name of the alert.
        alert: String,
    },
    /// The server closed the connection during the handshake. A plaintext port of ZooKeeper does
    /// that.
    #[error(
        "the server closed the connection during the TLS handshake; check that the port is its \
         `secureClientPort`, and look for another reason in the log of the server"
    )]
    Closed,
    /// A certificate revocation list (CRL) cannot be used for the certificates of the server.
    #[error("a CRL cannot be used to verify the server's certificate: {0}")]
    Crl(String),
    /// The certificate of the server, or of a CA above it, has expired.
    #[error(
        "the server's certificate, or that of a CA above it, has expired; renew it, and check the \
         clock of this machine"
    )]
    Expired,
    /// A file cannot be read.
    #[error("cannot read {what} {path:?}: {message}; check the path and its permissions")]
    File {
        /// What the file contains.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The error of the operating system.
        message: String,
    },
    /// The private key does not belong to the certificate of the client.
    #[error(
        "the private key of the client does not belong to its certificate; if the files are being \
         replaced, the next attempt reads both again"
    )]
    KeyMismatch,
    /// The program has not chosen a crypto provider.
    #[error(
        "there is no crypto provider; enable the feature `tls-ring` or `tls-aws-lc`, install a \
         process default, or pass one to `crypto_provider`"
    )]
    NoCryptoProvider,
    /// No CA is trusted.
    #[error("no CA is trusted: the system has no CA certificates ({0}); set `ca_file` or `ca_pem`")]
    NoRoots(String),
    /// The certificate of the server is not valid yet.
    #[error("the server's certificate is not valid yet; check the clocks of both machines")]
    NotYetValid,
    /// The server replied with something other than TLS.
    #[error("the peer does not speak TLS; check that the port is its `secureClientPort`")]
    NotTls,
    /// The options contradict each other.
    #[error("the options of TLS contradict each other: {0}")]
    Options(String),
    /// Another error of the TLS library.
    #[error("TLS failed: {0}")]
    Other(String),
    /// PEM or DER data has no usable item of the expected kind.
    #[error("there is no usable {what} in {place}: {defect}")]
    Pem {
        /// The kind of item that was expected.
        what: &'static str,
        /// The file, or the builder's method.
        place: String,
        /// Why it cannot be used.
        defect: String,
    },
    /// It is unknown whether the certificate of the server, or of a CA above it, was revoked.
    #[error(
        "no CRL tells whether the server's certificate, or that of a CA above it, was revoked; set \
         `crl_file` for the CRL of each CA that issued one of them, or set `crl_for_servers_only` or \
         `allow_unknown_revocation`"
    )]
    RevocationUnknown,
    /// A CRL revokes the certificate of the server, or of a CA above it.
    #[error(
        "the server's certificate, or that of a CA above it, was revoked; give the server a new one"
    )]
    Revoked,
    /// The name of the server cannot appear in a certificate.
    #[error(
        "{0:?} is not a DNS name or an IP address, so no certificate can be valid for it; set `server_name`"
    )]
    ServerName(String),
    /// The handshake took too long.
    #[error(
        "the TLS handshake was not complete within {0:?}; check that the port is the \
         `secureClientPort` of the server, and that the server is not overloaded"
    )]
    TimedOut(Duration),
    /// The certificate of the server was issued by a CA that the client does not trust.
    #[error(
        "the server's certificate was issued by a CA that the client does not trust; set `ca_file` \
         or `ca_pem`"
    )]
    UnknownIssuer,
    /// The certificate of the server is for other names.
    #[error(
        "the server's certificate is not valid for {expected:?}, but for: {}. Use one of these \
         names in the connect string, or set `server_name`",
        listed(presented)
    )]
    WrongName {
        /// The name that the client expected.
        expected: String,
        /// The names in the certificate.
        presented: Vec<String>,
    },
}

jute_codec::debug_by_message!(TlsFailure);

fn hint(alert: &str) -> &'static str {
    match alert {
        "access_denied" | "bad_certificate" | "certificate_unknown" | "unsupported_certificate" => {
            "; the log of the server says what is wrong with the certificate"
        }
        "handshake_failure" | "insufficient_security" => {
            "; they have no TLS version, cipher suite or kind of key in common, or the server \
             requires a client certificate: check `ssl.enabledProtocols` and `ssl.ciphersuites` of \
             the server, and set `client_files` or `client_pem`"
        }
        "protocol_version" => {
            "; it allows no TLS version that the client has, which are 1.2 and 1.3: check its \
             `ssl.enabledProtocols`"
        }
        "unrecognized_name" => "; it has no certificate for the name: set `server_name`",
        _ => "; look for the reason in the log of the server",
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "no name".to_owned() } else { names.join(", ") }
}
