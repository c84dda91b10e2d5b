//! One rule about hosts, as an operator writes it: `api.shop.example`, `*.partner.example:8443`, `[::1]:8080`.

use std::net::{IpAddr, Ipv6Addr};

use url::Host;

use super::{literal, normal};

/// The longest name of a host and the longest part of one, in bytes (RFC 1035).
const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// Hosts, and the one port of them that is meant, if the rule names one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) host: HostRule,
    pub(super) port: Option<u16>,
}

/// A host, or every host below a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostRule {
    Exactly(String),
    /// With its leading dot.
    Below(String),
}

impl Rule {
    /// Reads a rule; none if the text means nothing.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (host, port) = split_port(text)?;
        Some(Self { host: HostRule::parse(host)?, port })
    }

    /// Returns the rule for one port of a host in normal form.
    pub(super) fn only(host: String, port: u16) -> Self {
        Self { host: HostRule::Exactly(host), port: Some(port) }
    }

    /// Whether the rule names this host and this port, rather than a port of every host below a name.
    pub(super) fn lists(&self, name: &str, port: u16) -> bool {
        self.port == Some(port) && matches!(&self.host, HostRule::Exactly(host) if host == name)
    }
}

impl HostRule {
    /// Reads a rule without a port; none if the text means nothing.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("*.") {
            Some(below) => match Host::parse(below) {
                Ok(host @ Host::Domain(_)) => readable(&host).map(|name| HostRule::Below(format!(".{name}"))),
                Ok(Host::Ipv4(_) | Host::Ipv6(_)) | Err(_) => None,
            },
            None => host_name(text).map(HostRule::Exactly),
        }
    }

    pub(crate) fn permits<S: AsRef<str>>(&self, host: &Host<S>) -> bool {
        self.matches(&normal(host), literal(host))
    }

    pub(super) fn matches(&self, name: &str, literal: Option<IpAddr>) -> bool {
        match self {
            Self::Exactly(host) => host == name,
            Self::Below(suffix) => literal.is_none() && name.len() > suffix.len() && name.ends_with(suffix.as_str()),
        }
    }
}

/// Splits `host:port`. An IPv6 address with a port stands in brackets; without one it may stand alone.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    if text.parse::<Ipv6Addr>().is_ok() {
        return Some((text, None));
    }
    let (host, port) = match text.strip_prefix('[').and_then(|inside| inside.find(']')) {
        // One further for the bracket that was stripped, and one for the closing one.
        Some(end) => text.split_at(end + 2),
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(digits) => Some(read_port(digits)?),
        None if port.is_empty() => None,
        None => return None,
    };
    Some((host, port))
}

/// Reads a port in decimal digits; 0 is none that anything listens on.
fn read_port(digits: &str) -> Option<u16> {
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse().ok().filter(|port| is_number && *port != 0)
}

/// A host as an operator writes it, in normal form; an IPv6 address may stand without its brackets.
fn host_name(text: &str) -> Option<String> {
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some(normal(&Host::<&str>::Ipv6(address)));
    }
    readable(&Host::parse(text).ok()?)
}

/// The normal form of a host, if some host can have that name: the parser of URLs takes much that no resolver knows,
/// and a rule that never matches would only look like one.
fn readable<S: AsRef<str>>(host: &Host<S>) -> Option<String> {
    let name = normal(host);
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let label = |label: &str| (1..=LABEL_MAX).contains(&label.len()) && label.bytes().all(letter);
    let is_name = name.len() <= NAME_MAX && name.split('.').all(label);
    (is_name || literal(host).is_some()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_may_name_a_port() {
        let exactly = |host: &str, port| Some(Rule { host: HostRule::Exactly(host.to_owned()), port });
        assert_eq!(Rule::parse("API.example"), exactly("api.example", None));
        assert_eq!(Rule::parse("api.example:8443"), exactly("api.example", Some(8443)));
        assert_eq!(Rule::parse("10.0.0.1:65535"), exactly("10.0.0.1", Some(65_535)));
        assert_eq!(Rule::parse("::1"), exactly("[::1]", None));
        assert_eq!(Rule::parse("[::1]"), exactly("[::1]", None));
        assert_eq!(Rule::parse("[::1]:80"), exactly("[::1]", Some(80)));
        let below = HostRule::Below(".b.example".to_owned());
        assert_eq!(Rule::parse("*.b.example:443"), Some(Rule { host: below, port: Some(443) }));
        for text in [
            "a.example:",
            "a.example:0",
            "a.example:65536",
            "a.example:+80",
            "a.example:80:90",
            "a.example:http",
            ":80",
            "[::1]80",
            "[::1]:",
            "[::1",
            "[::1]:0x50",
            "[a.example]:80",
            "*.10.0.0.1:80",
            "fe80::1%eth0",
        ] {
            assert_eq!(Rule::parse(text), None, "{text}");
        }
    }
}
