//! Says in sentences what rustls says in names of its code, and what to do about it.

#![expect(clippy::wildcard_enum_match_arm, reason = "the errors of rustls become more with time")]

use std::fmt::Debug;

use tokio_rustls::rustls::{
    AlertDescription, CertRevocationListError, CertificateError, Error, PeerIncompatible,
};

use super::crl;

/// Returns the name of an alert as RFC 8446 writes it.
pub(super) fn alert_name(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::UnknownCA => "unknown_ca".to_owned(),
        AlertDescription::UnknownPSKIdentity => "unknown_psk_identity".to_owned(),
        AlertDescription::UnrecognisedName => "unrecognized_name".to_owned(),
        AlertDescription::Unknown(number) => format!("number {number}"),
        known => words(&known).replace(' ', "_"),
    }
}

/// Explains an error that is neither an alert nor about a certificate.
pub(super) fn error(error: &Error) -> String {
    match error {
        Error::PeerIncompatible(why) => incompatible(why),
        Error::PeerMisbehaved(why) => format!(
            "the peer violates the TLS protocol ({}); check that it is a ZooKeeper server, and that \
             nothing on the way changes the connection",
            words(why)
        ),
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            "the peer sent a message of TLS that does not belong there; check that it is a ZooKeeper \
             server, and that nothing on the way changes the connection"
                .to_owned()
        }
        Error::DecryptError => {
            "a record cannot be decrypted; check that nothing on the way to the server changes the \
             connection"
                .to_owned()
        }
        Error::PeerSentOversizedRecord => {
            "the peer sent a record that is longer than TLS permits; check that the port is its \
             `secureClientPort`"
                .to_owned()
        }
        Error::NoCertificatesPresented => {
            "the server presented no certificate; check its `ssl.keyStore.location`".to_owned()
        }
        Error::FailedToGetCurrentTime => {
            "the system does not tell the time, so no certificate can be verified; check its clock"
                .to_owned()
        }
        Error::FailedToGetRandomBytes => {
            "the system provides no random numbers; check its `getrandom`, or choose another \
             `crypto_provider`"
                .to_owned()
        }
        Error::General(text) => {
            format!("the TLS library reports: {text}; check the certificates and the crypto provider")
        }
        Error::Other(inner) => {
            format!("the crypto provider or a verifier reports: {}", plain(&inner.to_string()))
        }
        other => format!(
            "the TLS library reports an error ({}); check the versions of both sides",
            words(other)
        ),
    }
}

fn incompatible(why: &PeerIncompatible) -> String {
    use PeerIncompatible as P;
    match why {
        P::ServerDoesNotSupportTls12Or13 | P::ServerTlsVersionIsDisabledByOurConfig => {
            "the server allows no TLS version that the client has, which are 1.2 and 1.3; check its \
             `ssl.enabledProtocols`"
                .to_owned()
        }
        P::NoCipherSuitesInCommon
        | P::NoKxGroupsInCommon
        | P::NoEcPointFormatsInCommon
        | P::NoSignatureSchemesInCommon
        | P::NoCertificateRequestSignatureSchemesInCommon => format!(
            "the server and the client have no algorithm in common ({}); compare `ssl.ciphersuites` \
             of the server, and the kinds of its keys, with the crypto provider of the client",
            words(why)
        ),
        other => format!(
            "the server's TLS lacks what the client requires ({}); update the Java of the server",
            words(other)
        ),
    }
}

/// Explains why the certificate of a server cannot be verified.
pub(super) fn certificate(error: &CertificateError) -> String {
    use CertificateError as C;
    match error {
        C::BadEncoding => {
            "it, or a certificate above it, is malformed; create it again".to_owned()
        }
        C::BadSignature => {
            "its signature does not fit the CA; check that the server presents the certificates of \
             the CAs between it and the trusted one, and that the trusted CA is not another one of \
             the same name"
                .to_owned()
        }
        C::UnhandledCriticalExtension => {
            "it has a critical extension that the client does not know; create it again without it"
                .to_owned()
        }
        C::UnsupportedSignatureAlgorithmContext { .. }
        | C::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => ALGORITHM.to_owned(),
        C::InvalidPurpose | C::InvalidPurposeContext { .. } => {
            "it is not for servers; its extended key usage has to contain serverAuth".to_owned()
        }
        C::NotValidForName => {
            "it is for other names; use one of its names in the connect string, or set `server_name`"
                .to_owned()
        }
        C::ApplicationVerificationFailure => {
            "the verifier of `client_config` refused it".to_owned()
        }
        C::Other(inner) => rule(&inner.to_string()),
        other => format!("it was refused ({}); create it again", words(other)),
    }
}

/// Explains a violation of the rules for certificates, which the library names only.
fn rule(name: &str) -> String {
    match name {
        "CaUsedAsEndEntity" => {
            "it is the certificate of a CA; give the server a certificate of its own".to_owned()
        }
        "EndEntityUsedAsCa" => {
            "a certificate above it is not that of a CA; the server has to present the CAs between \
             it and the trusted one"
                .to_owned()
        }
        "UnsupportedCertVersion" => {
            "it is not of version 3; create it again with the extension subjectAltName".to_owned()
        }
        // The message of a verifier that the program supplies.
        other if other.contains(' ') && !other.contains(['(', '{']) => other.to_owned(),
        other => format!(
            "it violates a rule for certificates ({}); look at it with `openssl x509 -text`, and \
             create it again",
            plain(other)
        ),
    }
}

/// Explains why a revocation list cannot be used.
pub(super) fn revocation_list(error: &CertRevocationListError) -> String {
    use CertRevocationListError as C;
    match error {
        C::BadSignature => {
            "its signature is not that of the CA; fetch it from the CA again, and check that no two \
             CAs have the same name"
                .to_owned()
        }
        C::IssuerInvalidForCrl => {
            "the key usage of the CA lacks cRLSign, so it cannot issue lists; create the certificate \
             of the CA again"
                .to_owned()
        }
        C::UnsupportedSignatureAlgorithmContext { .. }
        | C::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => ALGORITHM.to_owned(),
        C::UnsupportedCrlVersion => {
            "a list has not version 2; let the CA write one with the extension cRLNumber".to_owned()
        }
        C::UnsupportedDeltaCrl => {
            "a list has only the changes since another one; use the complete list of the CA".to_owned()
        }
        C::UnsupportedIndirectCrl => {
            "a list is about certificates of other CAs; use the list of each CA itself".to_owned()
        }
        C::UnsupportedCriticalExtension | C::UnsupportedRevocationReason => format!(
            "a list has a part that the client does not know ({}); use another list of the CA",
            words(error)
        ),
        C::Other(_) | C::ParseError | C::InvalidCrlNumber | C::InvalidRevokedCertSerialNumber | _ => {
            crl::MALFORMED.to_owned()
        }
    }
}

/// Explains why a certificate of the client, or of a CA, cannot be read.
pub(super) fn unreadable(error: &Error) -> String {
    let name = match error {
        Error::InvalidCertificate(CertificateError::BadEncoding) => "it is malformed".to_owned(),
        Error::InvalidCertificate(CertificateError::Other(inner)) => plain(&inner.to_string()),
        Error::InvalidCertificate(error) => words(error),
        other => words(other),
    };
    format!("a block is not a certificate ({name}); look at it with `openssl x509 -text`")
}

/// Explains why a private key cannot be used.
pub(super) fn key(error: &Error) -> String {
    match error {
        Error::General(text) => format!(
            "{}; the crypto provider needs an unencrypted RSA, ECDSA or Ed25519 key",
            plain(text)
        ),
        other => format!("it is not a key that the crypto provider can use ({})", words(other)),
    }
}

/// Returns text as it is, and names of code as words.
fn plain(text: &str) -> String {
    if text.contains(' ') { text.to_owned() } else { words(&format_args!("{text}")) }
}

/// Returns the name of a variant as words: `BadDer` becomes `bad der`. What the variant contains is
/// left out.
fn words(variant: &impl Debug) -> String {
    let text = format!("{variant:?}");
    let name = text.split(['(', '{', ' ']).next().unwrap_or_default();
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

const ALGORITHM: &str = "it was signed with an algorithm that the crypto provider does not have; have \
                         it signed with ECDSA or RSA and SHA-256, or choose another \
                         `crypto_provider`";

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::{OtherError, PeerMisbehaved};

    use super::*;

    #[test]
    fn no_text_contains_names_of_code() {
        let texts = [
            error(&Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon)),
            error(&Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13)),
            error(&Error::PeerIncompatible(
                PeerIncompatible::ExtendedMasterSecretExtensionRequired,
            )),
            error(&Error::PeerMisbehaved(PeerMisbehaved::UnsolicitedEncryptedExtension)),
            error(&Error::InappropriateMessage {
                expect_types: vec![],
                got_type: tokio_rustls::rustls::ContentType::Handshake,
            }),
            error(&Error::DecryptError),
            error(&Error::PeerSentOversizedRecord),
            error(&Error::NoCertificatesPresented),
            error(&Error::FailedToGetCurrentTime),
            error(&Error::FailedToGetRandomBytes),
            error(&Error::General("something".into())),
            error(&Error::BadMaxFragmentSize),
            certificate(&CertificateError::BadEncoding),
            certificate(&CertificateError::BadSignature),
            certificate(&CertificateError::UnhandledCriticalExtension),
            certificate(&CertificateError::InvalidPurpose),
            certificate(&CertificateError::NotValidForName),
            certificate(&CertificateError::ApplicationVerificationFailure),
            revocation_list(&CertRevocationListError::BadSignature),
            revocation_list(&CertRevocationListError::InvalidCrlNumber),
            revocation_list(&CertRevocationListError::IssuerInvalidForCrl),
            revocation_list(&CertRevocationListError::ParseError),
            revocation_list(&CertRevocationListError::UnsupportedCrlVersion),
            revocation_list(&CertRevocationListError::UnsupportedDeltaCrl),
            revocation_list(&CertRevocationListError::UnsupportedIndirectCrl),
            revocation_list(&CertRevocationListError::Other(OtherError(std::sync::Arc::new(
                std::io::Error::other("TrailingData"),
            )))),
            certificate(&CertificateError::Other(OtherError(std::sync::Arc::new(
                std::io::Error::other("PathLenConstraintViolated"),
            )))),
            rule("CaUsedAsEndEntity"),
            rule("EndEntityUsedAsCa"),
            rule("UnsupportedCertVersion"),
            unreadable(&Error::InvalidCertificate(CertificateError::BadEncoding)),
            key(&Error::General("failed to parse private key".into())),
            key(&Error::DecryptError),
        ];
        for text in texts {
            let has_name = |word: &str| {
                let inner = word.get(1..).unwrap_or_default();
                let is_acronym = word.chars().all(|letter| !letter.is_lowercase());
                word.starts_with(char::is_uppercase)
                    && inner.contains(char::is_uppercase)
                    && inner.contains(char::is_lowercase)
                    && !is_acronym
                    && !word.contains(['.', '`'])
            };
            let names: Vec<_> =
                text.split([' ', '(', ')', ',', ';']).filter(|it| has_name(it)).collect();
            assert!(
                names.iter().all(|name| matches!(*name, "ZooKeeper" | "CAs")),
                "{names:?} in {text}"
            );
            assert!(text.contains(' ') && !text.contains(['{', '"']), "{text}");
        }
    }

    #[test]
    fn alerts_have_the_names_of_the_specification() {
        for (alert, name) in [
            (AlertDescription::HandshakeFailure, "handshake_failure"),
            (AlertDescription::UnknownCA, "unknown_ca"),
            (AlertDescription::CertificateRequired, "certificate_required"),
            (AlertDescription::Unknown(200), "number 200"),
        ] {
            assert_eq!(alert_name(alert), name);
        }
    }
}
