//! Identities of connections, and what access control lists grant them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytestring::ByteString;
use jute_codec::{Acl, ClientInfo, ErrorCode, Id, Permissions};
use sha1::{Digest as _, Sha1};

/// Identities of one connection, as (scheme, id).
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Identities {
    address: IpAddr,
    ids: BTreeSet<(String, String)>,
}

impl Identities {
    /// What a new connection has.
    pub(crate) fn of_peer(address: IpAddr) -> Self {
        Self { address, ids: BTreeSet::from([("ip".to_owned(), address.to_string())]) }
    }

    /// Passes every check.
    pub(crate) fn administrator() -> Self {
        let mut all = Self::of_peer(IpAddr::from([127, 0, 0, 1]));
        all.ids.insert(("super".to_owned(), String::new()));
        all
    }

    /// Handles an auth packet; false if the credentials are refused.
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
                self.ids.insert(("ip".to_owned(), self.address.to_string()));
                true
            }
            _ => false,
        }
    }

    /// True if the list grants one of the permissions. `None` is the list of built-in znodes.
    pub(crate) fn may(&self, perms: Permissions, acl: Option<&[Acl]>) -> bool {
        let Some(acl) = acl else { return true };
        self.ids.iter().any(|(scheme, _)| scheme == "super")
            || acl.iter().any(|entry| entry.perms.intersects(perms) && self.matches(&entry.id))
    }

    fn matches(&self, id: &Id) -> bool {
        match &*id.scheme {
            "world" => &*id.id == "anyone",
            "ip" => ip_block(&id.id).is_some_and(|(block, bits)| {
                block.is_ipv4() == self.address.is_ipv4()
                    && masked(block, bits) == masked(self.address, bits)
            }),
            scheme => self.ids.iter().any(|(has, id_of)| has == scheme && *id_of == *id.id),
        }
    }

    /// Turns the list of a request into the one to store.
    pub(crate) fn resolve(&self, acl: &[Acl]) -> Result<Vec<Acl>, ErrorCode> {
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
                    let mut authenticated =
                        self.ids.iter().filter(|(scheme, _)| scheme == "digest").peekable();
                    let is_any = authenticated.peek().is_some();
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
                _ => false,
            };
            if !is_valid {
                return Err(ErrorCode::INVALID_ACL);
            }
            add(entry.clone());
        }
        if resolved.is_empty() { Err(ErrorCode::INVALID_ACL) } else { Ok(resolved) }
    }

    /// What whoAmI tells: users without their secrets.
    pub(crate) fn client_info(&self) -> Vec<ClientInfo> {
        let user = |scheme: &str, id: &str| match id.split_once(':') {
            Some((user, _)) if scheme == "digest" => ByteString::from(user),
            _ => ByteString::from(id),
        };
        self.ids
            .iter()
            .map(|(scheme, id)| ClientInfo {
                auth_scheme: scheme.as_str().into(),
                user: user(scheme, id),
            })
            .collect()
    }
}

/// The list as shown to those who may read but not administrate: digests without their hash.
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

/// `user:base64(sha1("user:password"))`.
fn digest(auth: &[u8]) -> String {
    let text = String::from_utf8_lossy(auth);
    let user = text.split(':').next().unwrap_or_default();
    format!("{user}:{}", STANDARD.encode(Sha1::digest(auth)))
}

/// Two parts around a colon. Java's `split` drops empty parts at the end.
fn is_digest_id(id: &str) -> bool {
    matches!(id.trim_end_matches(':').split(':').count(), 2)
}

fn ip_block(id: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = id.split_once('/').map_or((id, None), |(a, bits)| (a, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        Some(bits) => bits.parse().ok().filter(|bits| *bits <= all)?,
        None => all,
    };
    Some((address, bits))
}

fn masked(address: IpAddr, bits: u32) -> u128 {
    let (number, all) = match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    number.checked_shr(all - bits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(scheme: &str, id: &str) -> Result<Vec<Acl>, ErrorCode> {
        let peer = Identities::of_peer(IpAddr::from([127, 0, 0, 1]));
        peer.resolve(&[Acl::new(Permissions::ALL, scheme, id)])
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
            ("x509", "CN=a"),
        ] {
            assert_eq!(resolve(scheme, id), Err(ErrorCode::INVALID_ACL), "{scheme} {id}");
        }
        for (scheme, id) in
            [("world", "anyone"), ("digest", "a:b"), ("ip", "::1/64"), ("ip", "10.0.0.0/8")]
        {
            assert!(resolve(scheme, id).is_ok(), "{scheme} {id}");
        }
    }

    #[test]
    fn ip_blocks_grant_their_members() {
        let peer = Identities::of_peer(IpAddr::from([10, 1, 2, 3]));
        for (block, is_member) in
            [("10.0.0.0/8", true), ("10.1.2.3", true), ("10.1.2.4", false), ("0.0.0.0/0", true)]
        {
            let acl = [Acl::new(Permissions::READ, "ip", block)];
            assert_eq!(peer.may(Permissions::READ, Some(&acl)), is_member, "{block}");
        }
    }

    #[test]
    fn super_may_everything() {
        let mut peer = Identities::of_peer(IpAddr::from([10, 1, 2, 3]));
        let acl = [Acl::new(Permissions::READ, "digest", "a:b")];
        assert!(!peer.may(Permissions::READ, Some(&acl)));
        let digest = digest(b"super:pw");
        assert!(peer.authenticate("digest", Some(b"super:pw"), Some(&digest)));
        assert!(peer.may(Permissions::ADMIN, Some(&acl)));
    }
}
