//! Who may send requests over HTTP: programs, and people at a browser, but no pages of other sites.
//!
//! A browser on this machine reaches a loopback address on behalf of any page that it shows. A page
//! can send commands blindly, and, if the name of its site resolves to a loopback address (DNS
//! rebinding), it can read the answers too. Browsers say for which page they send a request; the
//! fields are those of the Fetch standard and of Fetch Metadata.

use std::net::IpAddr;

/// The fields of a request that say who has sent it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Caller<'a> {
    /// `Host`: where the sender believes it is sending to.
    pub(crate) host: Option<&'a str>,
    /// `Origin`: the site of the page, which other programs leave out.
    pub(crate) origin: Option<&'a str>,
    /// `Sec-Fetch-Site`: how the site of the page relates to this one.
    pub(crate) site: Option<&'a str>,
}

impl Caller<'_> {
    /// Checks that no page of another site has sent the request. `is_local` says that the server
    /// listens on a loopback address, for which nobody needs a name but `localhost`. In a network
    /// such as that of containers, names are usual, and no list of them is known.
    ///
    /// # Errors
    ///
    /// Returns a sentence for the sender.
    pub(crate) fn check(&self, is_local: bool) -> Result<(), String> {
        if let Some(host) = self.host.filter(|host| is_local && !is_address(host)) {
            return Err(format!(
                "the header Host is {host:?}; a server on a loopback address needs its address \
                 there, or localhost"
            ));
        }
        let host = self.host.unwrap_or_default();
        let is_own = |origin: &str| origin.split_once("://").is_some_and(|(_, it)| it == host);
        let is_foreign = self.origin.is_some_and(|origin| !is_own(origin))
            || self.site.is_some_and(|site| !matches!(site, "none" | "same-origin"));
        if is_foreign {
            return Err("a page of another site may not control this server".to_owned());
        }
        Ok(())
    }
}

/// Returns whether the text is an address or `localhost`, with or without a port.
fn is_address(host: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_people_are_served() {
        for host in ["127.0.0.1:80", "127.0.0.1", "LocalHost:2181", "[::1]:80", "[::1]", "10.0.0.1"]
        {
            let caller = Caller { host: Some(host), ..Caller::default() };
            assert_eq!(caller.check(true), Ok(()), "{host}");
        }
        assert_eq!(Caller::default().check(true), Ok(()), "HTTP/1.0 has no Host");
        let typed = Caller { host: Some("localhost:1"), site: Some("none"), origin: None };
        assert_eq!(typed.check(true), Ok(()));
        let own = Caller { origin: Some("http://localhost:1"), site: Some("same-origin"), ..typed };
        assert_eq!(own.check(true), Ok(()));
        let named = Caller { host: Some("zk.test-net:8080"), ..Caller::default() };
        assert_eq!(named.check(false), Ok(()), "a container has a name");
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        for host in
            ["evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example:1", "", ":1"]
        {
            let rebound = Caller { host: Some(host), ..Caller::default() };
            let problem = rebound.check(true).expect_err(host);
            assert!(problem.contains(&format!("{host:?}")), "{problem}");
        }
        let local = Caller { host: Some("127.0.0.1:80"), ..Caller::default() };
        for caller in [
            Caller { origin: Some("http://evil.example"), ..local },
            Caller { origin: Some("null"), ..local },
            Caller { origin: Some("http://127.0.0.1:81"), ..local },
            Caller { site: Some("cross-site"), ..local },
            // Another port of this machine is the same site, but not the same origin.
            Caller { site: Some("same-site"), ..local },
        ] {
            for is_local in [true, false] {
                let problem = caller.check(is_local).expect_err("it is foreign");
                assert_eq!(problem, "a page of another site may not control this server");
            }
        }
    }
}
