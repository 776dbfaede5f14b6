//! Identities of connections, and the permissions that access control lists grant them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytestring::ByteString;
use jute_codec::{Acl, ClientInfo, ErrorCode, Id, Permissions};
use sha1::{Digest as _, Sha1};

use crate::config::ServerConfig;
use crate::order::Order;

/// The identities of one connection, as pairs of scheme and id.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Identities {
    address: IpAddr,
    ids: BTreeSet<(String, String)>,
}

impl Identities {
    /// Returns the identities of a new connection.
    pub(crate) fn of_peer(address: IpAddr) -> Self {
        Self { address, ids: BTreeSet::from([("ip".to_owned(), java_text(address))]) }
    }

    /// Returns identities that pass every access check.
    pub(crate) fn administrator() -> Self {
        let mut all = Self::of_peer(IpAddr::from([127, 0, 0, 1]));
        all.ids.insert(("super".to_owned(), String::new()));
        all
    }

    /// Adds the identity of an auth packet. Returns false if the credentials are refused.
    pub(crate) fn authenticate(
        &mut self,
        scheme: &str,
        auth: Option<&[u8]>,
        super_digest: Option<&str>,
    ) -> bool {
        match (scheme, auth) {
            ("digest", Some(auth)) => {
                let id = digest(auth);
                if super_digest == Some(id.as_str()) {
                    self.ids.insert(("super".to_owned(), String::new()));
                }
                self.ids.insert(("digest".to_owned(), id));
                true
            }
            ("ip", _) => {
                self.ids.insert(("ip".to_owned(), java_text(self.address)));
                true
            }
            _ => false,
        }
    }

    /// Adds the identity of a user who has authenticated with SASL.
    pub(crate) fn add_sasl(&mut self, user: &str, super_user: Option<&str>) {
        if super_user == Some(user) {
            self.ids.insert(("super".to_owned(), String::new()));
        }
        self.ids.insert(("sasl".to_owned(), user.to_owned()));
    }

    /// Returns whether the connection has authenticated with SASL.
    pub(crate) fn has_sasl(&self) -> bool {
        self.ids.iter().any(|(scheme, _)| scheme == "sasl")
    }

    /// Returns whether the list grants one of the permissions. `None` is the list of built-in
    /// znodes.
    pub(crate) fn is_allowed(&self, perms: Permissions, acl: Option<&[Acl]>) -> bool {
        let Some(acl) = acl else { return true };
        self.ids.iter().any(|(scheme, _)| scheme == "super")
            || acl.iter().any(|entry| entry.perms.intersects(perms) && self.matches(&entry.id))
    }

    fn matches(&self, id: &Id) -> bool {
        match &*id.scheme {
            "world" => &*id.id == "anyone",
            "ip" => ip_block(&id.id).is_some_and(|(block, bits)| match self.address {
                IpAddr::V4(address) => masked(block, bits) == masked(address, bits),
                IpAddr::V6(_) => false,
            }),
            scheme => self.ids.iter().any(|(has, id_of)| has == scheme && *id_of == *id.id),
        }
    }

    /// Converts the list in a request to the list to store.
    pub(crate) fn resolve(
        &self,
        acl: &[Acl],
        config: &ServerConfig,
    ) -> Result<Vec<Acl>, ErrorCode> {
        let mut resolved: Vec<Acl> = Vec::with_capacity(acl.len());
        let mut add = |entry: Acl| {
            if !resolved.contains(&entry) {
                resolved.push(entry);
            }
        };
        for entry in acl {
            let id = &*entry.id.id;
            let is_valid = match &*entry.id.scheme {
                "auth" => {
                    let authenticated =
                        self.arranged(config.order, |scheme| matches!(scheme, "digest" | "sasl"));
                    let is_any = !authenticated.is_empty();
                    for (scheme, id) in authenticated {
                        add(Acl::new(entry.perms, scheme.clone(), id.clone()));
                    }
                    if is_any {
                        continue;
                    }
                    false
                }
                "world" => id == "anyone",
                "digest" => is_digest_id(id),
                "ip" => ip_block(id).is_some(),
                "sasl" => !config.sasl_users.is_empty() && is_kerberos_name(id),
                _ => false,
            };
            if !is_valid {
                return Err(ErrorCode::INVALID_ACL);
            }
            add(entry.clone());
        }
        if resolved.is_empty() { Err(ErrorCode::INVALID_ACL) } else { Ok(resolved) }
    }

    /// Returns the reply to whoAmI: users without their secrets.
    pub(crate) fn client_info(&self, order: Order) -> Vec<ClientInfo> {
        let user = |scheme: &str, id: &str| match id.split_once(':') {
            Some((user, _)) if scheme == "digest" => ByteString::from(user),
            _ => ByteString::from(id),
        };
        let info = |(scheme, id): &(String, String)| ClientInfo {
            auth_scheme: scheme.as_str().into(),
            user: user(scheme, id),
        };
        self.arranged(order, |_| true).into_iter().map(info).collect()
    }

    fn arranged(&self, order: Order, has: impl Fn(&str) -> bool) -> Vec<&(String, String)> {
        let mut ids: Vec<_> = self.ids.iter().filter(|(scheme, _)| has(scheme)).collect();
        order.arrange(&mut ids, |(scheme, id)| format!("{scheme}:{id}"));
        ids
    }
}

/// Returns the list as shown to clients without the permission `ADMIN`: digests without their hash.
pub(crate) fn redacted(acl: &[Acl]) -> Vec<Acl> {
    acl.iter()
        .map(|entry| match entry.id.id.split_once(':') {
            Some((user, _)) if &*entry.id.scheme == "digest" => {
                Acl::new(entry.perms, "digest", format!("{user}:x"))
            }
            _ => entry.clone(),
        })
        .collect()
}

/// Returns `user:base64(sha1("user:password"))`.
fn digest(auth: &[u8]) -> String {
    let text = String::from_utf8_lossy(auth);
    let user = text.split(':').next().unwrap_or_default();
    format!("{user}:{}", STANDARD.encode(Sha1::digest(auth)))
}

/// Returns whether the id has the form of a Kerberos name: `service/host@realm`, where only the
/// service is mandatory.
fn is_kerberos_name(id: &str) -> bool {
    match id.split_once('@') {
        None => true,
        Some((name, realm)) => name.split('/').count() <= 2 && !realm.contains(['/', '@']),
    }
}

/// Returns whether the id has two parts, separated by a colon. Java's `split` drops trailing empty
/// parts.
fn is_digest_id(id: &str) -> bool {
    matches!(id.trim_end_matches(':').split(':').count(), 2)
}

/// Parses a block of addresses and the length of its prefix in bits. Servers 3.8 and 3.9 only
/// support IPv4. They parse numbers as Java does, which accepts a leading sign and leading zeros.
fn ip_block(id: &str) -> Option<(Ipv4Addr, u32)> {
    let (address, bits) = id.split_once('/').map_or((id, None), |(a, bits)| (a, Some(bits)));
    let parts = address.split('.').map(|part| part.parse::<i32>().ok()?.try_into().ok());
    let parts: Option<Vec<u8>> = parts.collect();
    let address: [u8; 4] = parts?.try_into().ok()?;
    let bits = match bits {
        Some(bits) => bits.parse::<i32>().ok()?.try_into().ok().filter(|bits| *bits <= 32)?,
        None => 32,
    };
    Some((address.into(), bits))
}

fn masked(address: Ipv4Addr, bits: u32) -> u32 {
    u32::from(address).checked_shr(32 - bits).unwrap_or(0)
}

/// Formats an address as Java does, with all eight groups of an IPv6 address.
fn java_text(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => address.segments().map(|group| format!("{group:x}")).join(":"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(scheme: &str, id: &str) -> Result<Vec<Acl>, ErrorCode> {
        let peer = Identities::of_peer(IpAddr::from([127, 0, 0, 1]));
        peer.resolve(&[Acl::new(Permissions::ALL, scheme, id)], &ServerConfig::default())
    }

    #[test]
    fn digest_of_bob() {
        assert_eq!(digest(b"bob:secret"), "bob:fyVmFCwVbTJYrznoSu1koqYEYF0=");
    }

    #[test]
    fn illegal_ids_are_refused() {
        for (scheme, id) in [
            ("world", "someone"),
            ("auth", ""),
            ("digest", "user"),
            ("digest", "user:"),
            ("digest", "a:b:c"),
            ("ip", "1.2.3"),
            ("ip", "1.2.3.4/33"),
            ("ip", "1.2.3.4/-1"),
            ("ip", "1.2.3.4/"),
            ("ip", "1.2.3.256"),
            ("ip", "1.2.3.4.5"),
            ("ip", "::1"),
            ("ip", "::1/64"),
            ("ip", "0:0:0:0:0:0:0:1"),
            ("ip", "::ffff:1.2.3.4"),
            ("x509", "CN=a"),
            ("sasl", "a"),
        ] {
            assert_eq!(resolve(scheme, id), Err(ErrorCode::INVALID_ACL), "{scheme} {id}");
        }
        for (scheme, id) in [
            ("world", "anyone"),
            ("digest", "a:b"),
            ("ip", "10.0.0.0/8"),
            ("ip", "01.+2.3.-0"),
            ("ip", "1.2.3.4/+8"),
        ] {
            assert!(resolve(scheme, id).is_ok(), "{scheme} {id}");
        }
    }

    #[test]
    fn sasl_ids_need_a_configuration_and_the_form_of_a_kerberos_name() {
        let peer = Identities::of_peer(IpAddr::from([127, 0, 0, 1]));
        let config = ServerConfig::default().sasl_user("a", "secret");
        for (id, is_valid) in [
            ("a", true),
            ("zk/host@REALM", true),
            ("a@R", true),
            ("a/b/c@R", false),
            ("a@b@c", false),
            ("a@b/c", false),
        ] {
            let resolved = peer.resolve(&[Acl::new(Permissions::ALL, "sasl", id)], &config);
            assert_eq!(resolved.is_ok(), is_valid, "{id}");
        }
    }

    #[test]
    fn ip_blocks_grant_their_members() {
        let peer = Identities::of_peer(IpAddr::from([10, 1, 2, 3]));
        for (block, is_member) in
            [("10.0.0.0/8", true), ("10.1.2.3", true), ("10.1.2.4", false), ("0.0.0.0/0", true)]
        {
            let acl = [Acl::new(Permissions::READ, "ip", block)];
            assert_eq!(peer.is_allowed(Permissions::READ, Some(&acl)), is_member, "{block}");
        }
    }

    #[test]
    fn a_peer_with_an_ipv6_address_is_in_no_block_and_is_printed_as_in_java() {
        let peer = Identities::of_peer("::1".parse().unwrap());
        let acl = [Acl::new(Permissions::READ, "ip", "0.0.0.0/0")];
        assert!(!peer.is_allowed(Permissions::READ, Some(&acl)));
        assert_eq!(&*peer.client_info(Order::Sorted)[0].user, "0:0:0:0:0:0:0:1");
    }

    #[test]
    fn super_may_everything() {
        let mut peer = Identities::of_peer(IpAddr::from([10, 1, 2, 3]));
        let acl = [Acl::new(Permissions::READ, "digest", "a:b")];
        assert!(!peer.is_allowed(Permissions::READ, Some(&acl)));
        let digest = digest(b"super:pw");
        assert!(peer.authenticate("digest", Some(b"super:pw"), Some(&digest)));
        assert!(peer.is_allowed(Permissions::ADMIN, Some(&acl)));
    }
}
