//! Certificate authorities, the certificates that they issue, and their revocation lists.

#![allow(dead_code, unreachable_pub, reason = "each suite uses a part")]
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use base64::prelude::{BASE64_STANDARD, Engine as _};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber, date_time_ymd,
};

/// An authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, in PEM.
    certificate: String,
    /// The certificates between those that it issues and the root, in PEM.
    above: String,
}

/// A certificate, with those of the authorities above it except for the root, and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    pub chain: String,
    pub key: String,
}

impl Authority {
    /// Creates an authority that is its own issuer.
    pub fn root(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = authority(name).self_signed(&key).unwrap();
        let certificate = pem("CERTIFICATE", certificate.der());
        Self { issuer: Issuer::new(authority(name), key), certificate, above: String::new() }
    }

    /// Creates an authority whose certificate is issued by this one, with this serial number.
    pub fn below(&self, name: &str, serial: u64) -> Self {
        self.certify(name, serial, authority(name))
    }

    /// Creates such an authority, which issues lists although its certificate does not permit it.
    pub fn below_without_lists(&self, name: &str, serial: u64) -> Self {
        let mut certified = authority(name);
        certified.key_usages.retain(|usage| *usage != KeyUsagePurpose::CrlSign);
        self.certify(name, serial, certified)
    }

    fn certify(&self, name: &str, serial: u64, mut certified: CertificateParams) -> Self {
        certified.serial_number = Some(SerialNumber::from(serial));
        let key = KeyPair::generate().unwrap();
        let certificate = certified.signed_by(&key, &self.issuer).unwrap();
        let certificate = pem("CERTIFICATE", certificate.der());
        let above = format!("{certificate}{}", self.above);
        Self { issuer: Issuer::new(authority(name), key), certificate, above }
    }

    /// Returns its certificate in PEM.
    pub fn certificate(&self) -> String {
        self.certificate.clone()
    }

    /// Issues a certificate for a server with these DNS names and addresses.
    pub fn server(&self, names: &[&str], serial: u64) -> Identity {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        self.issue(
            CertificateParams::new(names).unwrap(),
            serial,
            &[ExtendedKeyUsagePurpose::ServerAuth],
        )
    }

    /// Issues a certificate for a client.
    pub fn client(&self, name: &str, serial: u64) -> Identity {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        self.issue(params, serial, &[ExtendedKeyUsagePurpose::ClientAuth])
    }

    fn issue(
        &self,
        mut params: CertificateParams,
        serial: u64,
        purposes: &[ExtendedKeyUsagePurpose],
    ) -> Identity {
        params.serial_number = Some(SerialNumber::from(serial));
        params.extended_key_usages = purposes.to_vec();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let chain = format!("{}{}", pem("CERTIFICATE", certificate.der()), self.above);
        Identity { chain, key: pem("PRIVATE KEY", key.serialized_der()) }
    }

    /// Issues a list that revokes certificates with these serial numbers, in PEM.
    pub fn list(&self, revoked: impl IntoIterator<Item = u64>) -> String {
        pem("X509 CRL", &self.list_of((2026, 2099), revoked))
    }

    /// Issues such a list in DER, from the first year to the second one.
    pub fn list_of(&self, years: (i32, i32), revoked: impl IntoIterator<Item = u64>) -> Vec<u8> {
        let revocation = |serial| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(years.0, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(years.0, 1, 1),
            next_update: date_time_ymd(years.1, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.into_iter().map(revocation).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().der().to_vec()
    }
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new([]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// Returns DER as PEM.
pub fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
